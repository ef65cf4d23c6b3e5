"""The operating system of a simulated publisher: connections, sockets, the clock and the heartbeat thread.

The modules of the product run unchanged; their imports of the operating system are replaced for the time of a run.
"""

from __future__ import annotations

import contextlib
import logging
import math
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from simulated_scenarios import Fault, Scenario
from simulated_world import World

from rabbit_chx.amqp import ConnectionSettings
from rabbit_chx.connection import blocking_connection
from rabbit_chx.connection.failures import disconnect_error, unreachable
from rabbit_chx.publishing import Publisher, publisher

if TYPE_CHECKING:  # which imports this module
    from simulated_broker import Broker


@dataclass(frozen=True)
class Manner:
    """How a line carries bytes.

    Attributes:
        latency_s: seconds that a piece is on its way.
        piece: the most bytes of a piece; each is of a random size up to this.
        rate: bytes a second; None for no bound.
        room: bytes that the sender's socket holds.
    """

    latency_s: float = 0.0005
    piece: int = 65_536
    rate: float | None = None
    room: int = 262_144


class Pipe:
    """One direction of a line.

    Attributes:
        arrived: called with each piece.
        taken: called after each piece, when there is room for others.
        carried: bytes that have left the sender.
        cut_at: the number of carried bytes at which `cut` is called; None for no cut.
    """

    def __init__(self, world: World, manner: Manner) -> None:
        self.carried = 0
        self.cut_at: int | None = None
        self.cut: Callable[[], None] | None = None
        self._world = world
        self._manner = manner
        self._waiting = bytearray()
        self._under_way = 0
        self._latest = 0.0  # arrival of the last piece
        self._busy = False
        self._stalled_until = 0.0
        self._shut = False  # the receiver takes nothing
        self._dead = False
        self._is_cut = False
        self.arrived: Callable[[bytes], None] = lambda _: None
        self.taken: Callable[[], None] = lambda: None
        self._at_end: Callable[[], None] | None = None

    @property
    def untaken(self) -> int:
        """Bytes that were written and have not arrived."""
        return len(self._waiting) + self._under_way

    @property
    def room(self) -> int:
        """Bytes that the sender's socket takes now."""
        return max(0, self._manner.room - self.untaken)

    def write(self, data: bytes | memoryview) -> None:
        """Send bytes."""
        if self._dead or self._at_end is not None:
            return
        self._waiting += data
        self._go_on()

    def finish(self, at_end: Callable[[], None]) -> None:
        """Close the direction after all bytes have arrived."""
        if self._at_end is None and not self._dead:
            self._at_end = at_end
            self._end_if_empty()

    def kill(self) -> None:
        """Drop all bytes, also those under way."""
        self._dead = True
        self._waiting.clear()

    def stall(self, until: float) -> None:
        """Hold all bytes until this time, which may be infinite."""
        self._stalled_until = until

    def shut(self, *, shut: bool) -> None:
        """Let the receiver stop or resume reading."""
        self._shut = shut
        self._go_on()

    # -- events

    def _go_on(self) -> None:
        if self._waiting and not self._busy and not self._shut and not self._dead:
            self._busy = True
            self._world.at(max(self._world.now, self._stalled_until), self._carry)

    def _carry(self) -> None:
        self._busy = False
        world = self._world
        if self._dead or self._shut or self._is_cut or not self._waiting:
            return
        if world.now < self._stalled_until:
            if self._stalled_until < math.inf:
                self._go_on()
            return
        manner = self._manner
        size = len(self._waiting)
        if size > manner.piece or manner.piece < 4096:
            size = min(size, world.chance.randint(1, manner.piece))
        if self.cut_at is not None:
            size = min(size, self.cut_at - self.carried)
        piece = bytes(self._waiting[:size])
        del self._waiting[:size]
        self.carried += size
        self._under_way += size
        self._latest = max(self._latest, world.now + manner.latency_s)
        world.at(self._latest, lambda: self._arrive(piece))
        if self.cut_at == self.carried and self.cut is not None:
            self._is_cut = True
            world.at(self._latest, self.cut)
        elif self._waiting:
            self._busy = True
            world.after(size / manner.rate if manner.rate else 0.0, self._carry)

    def _arrive(self, piece: bytes) -> None:
        if self._dead:
            return
        if self._world.now < self._stalled_until:  # it is held up under way
            if self._stalled_until < math.inf:
                self._world.at(self._stalled_until, lambda: self._arrive(piece))
            return
        self._under_way -= len(piece)
        self.arrived(piece)
        self.taken()
        self._end_if_empty()

    def _end_if_empty(self) -> None:
        if self._at_end is not None and not self.untaken and not self._dead:
            self._dead = True
            self._at_end()


class Line:
    """A TCP connection between a client and a broker: bytes arrive late, in pieces, or never; but never twice and never changed.

    Attributes:
        up: the way to the broker.
        down: the way from it.
        server_ended: is called when the client has closed it.
        client_ended: is called with what ends it there; None for a close of the other side.
        heard: bytes that the client has read before it said goodbye.
        over: whether the broker's side has ended.
    """

    def __init__(self, world: World, manner: Manner) -> None:
        self.server_ended: Callable[[], None] = lambda: None
        self.client_ended: Callable[[OSError | None], None] = lambda _: None
        self.heard = 0
        self.over = False
        self.up = Pipe(world, manner)
        self.down = Pipe(world, manner)
        self._client_gone = False

    def cut(self, error: OSError | None) -> None:
        """End both sides at once; bytes under way are lost.

        Args:
            error: the error of the client's system; None for a plain close.
        """
        self.up.kill()
        self.down.kill()
        self._end_server()
        self._end_client(error)

    def close_by_client(self) -> None:
        """Close it; written bytes still reach the broker."""
        self._client_gone = True
        self.down.kill()
        self.up.finish(self._end_server)

    def close_by_server(self) -> None:
        """Close it; written bytes still reach the client."""
        self.up.kill()
        self.over = True
        self.down.finish(lambda: self._end_client(None))

    def _end_server(self) -> None:
        if not self.over:
            self.over = True
            self.server_ended()

    def _end_client(self, error: OSError | None) -> None:
        if not self._client_gone:
            self._client_gone = True
            self.client_ended(error)


_WINDOW, _WINDOW_BYTES = 1000, 8 << 20  # the defaults
_BATCH_BYTES = 262_144
_LEAST = 60  # bytes of the smallest message
_FRAMES = 400  # the most bytes that a small message costs beside its body
_SMALL = 65_536  # handshake, heartbeats, and what one frame of the largest size takes beside it


class Memory:
    """Compares what a publisher holds with the bounds of a scenario; `excess` is the first excess."""

    def __init__(self, scenario: Scenario) -> None:
        self.publisher: Publisher | None = None
        self.excess = ""
        given, program = scenario.publisher, scenario.program
        self._rows = given.get("max_in_flight", _WINDOW)
        batch = min(max(1, self._rows // 2), 500)
        one_batch = min(batch * program.body, _BATCH_BYTES + program.body) + batch * _FRAMES
        # A refused row is in a batch for each time that it was sent, as long as an older one is open.
        sent_again = 2 + given.get("nack_retries", 3)
        self._bytes = max(given.get("max_in_flight_bytes", _WINDOW_BYTES), one_batch) + sent_again * one_batch

    def look(self) -> None:
        """Compare the memory with the bounds."""
        if self.publisher is None or self.excess:
            return
        delivery = self.publisher._delivery
        connection = self.publisher._connection
        if connection is None:
            return
        session, ledger = connection.session, connection.session.ledger
        waiting = delivery._refused
        unsent = sum(len(sent.rows) for sent in delivery._unsent)
        is_current = delivery._connection is connection
        open_ = (ledger.open if is_current else 0) + waiting.rows + unsent
        held = {
            "unconfirmed rows": (open_, self._rows),
            "unconfirmed bytes": (ledger.open_bytes + waiting.body_bytes, self._bytes),
            # Behind a row that stays open, answered ones are kept as long as their bytes fit into the window.
            "answers ahead": (len(ledger._ahead), self._rows + self._bytes // _LEAST),
            "batches": (len(ledger._entries), self._rows + self._bytes // _LEAST),
            "bytes of an incomplete frame": (len(session._rest), session.frame_max),
            "bytes to be sent": (self._output(connection), self._bytes + _SMALL),
        }
        for what, (amount, most) in held.items():
            if amount > most:
                self.excess = f"{amount} {what}, and {most} are allowed"

    @staticmethod
    def _output(connection: Any) -> int:
        return sum(map(len, (*connection.session.output, *getattr(connection, "_out", ()))))


_CLOSE = (10 << 16 | 50).to_bytes(4)  # connection.close, behind the frame's head
_RESET = ConnectionResetError(104, "Connection reset by peer")


class Network:
    """Connects the publisher of a run with its broker.

    Attributes:
        attempts: attempts to connect.
        lines: connections, oldest first.
        interrupt_at: the time of the next Ctrl-C, or None.
        memory: compares the memory of the publisher with its bounds while it works.
        keeper: the heartbeat thread of the current connection.
        elsewhere_until: the time up to which the program does not use the publisher.
    """

    def __init__(self, world: World, broker: Broker, scenario: Scenario) -> None:
        self.world = world
        self.broker = broker
        self.scenario = scenario
        self.attempts = 0
        self.lines: list[Line] = []
        self.interrupt_at: float | None = None
        self.memory = Memory(scenario)
        self.keeper: Callable[[], None] = lambda: None
        self.elsewhere_until = 0.0

    def attempt(self) -> Line | None:
        """Return a line to the broker; None if nothing answers.

        Raises:
            ConnectionRefusedError: nobody listens.
        """
        scenario = self.scenario
        faults = scenario.of_connection(self.attempts)
        kinds = {fault.kind for fault in faults}
        self.attempts += 1
        if self.broker.is_down or "refused" in kinds:
            raise ConnectionRefusedError(111, "Connection refused")
        if "swallowed" in kinds:
            return None
        rate = next((fault.rate for fault in faults if fault.kind == "slow"), None)
        piece = min(scenario.piece, max(1, int(rate / 5))) if rate else scenario.piece
        line = Line(self.world, Manner(scenario.latency_s, piece, rate, scenario.room))
        for fault in faults:
            self._plan(line, fault)
        self.broker.accept(line, faults, scenario.frame_max[len(self.lines) % len(scenario.frame_max)])
        self.lines.append(line)
        return line

    def _plan(self, line: Line, fault: Fault) -> None:
        after = self.world.after
        if fault.kind == "reset":
            after(fault.at, lambda: line.cut(_RESET))
        elif fault.kind in ("cut up", "cut down"):
            pipe = line.up if fault.kind == "cut up" else line.down
            pipe.cut_at = fault.byte
            pipe.cut = lambda: line.cut(None if fault.byte % 2 else _RESET)
        elif fault.kind in ("stall up", "stall down", "stall both"):
            until = self.world.now + fault.until
            for pipe, way in ((line.up, "stall up"), (line.down, "stall down")):
                if fault.kind in (way, "stall both"):
                    after(fault.at, lambda pipe=pipe: pipe.stall(until))  # type: ignore[misc]

    def be_elsewhere(self, seconds: float) -> None:
        """Pass time outside of the publisher: only the heartbeat thread uses the connection."""
        self.elsewhere_until = self.world.now + seconds
        self.keeper()
        self.world.sleep(self.elsewhere_until - self.world.now)

    def interrupt(self) -> bool:
        """Return True once when Ctrl-C is due."""
        if self.interrupt_at is not None and self.world.now >= self.interrupt_at:
            self.interrupt_at = None
            return True
        return False

    def sleep(self, seconds: float) -> None:
        """Sleep as the publisher does between two connections."""
        self.world.sleep(seconds)
        if self.interrupt():
            raise KeyboardInterrupt


class SimulatedTransport:
    """Replaces `rabbit_chx.connection.blocking_connection.Transport`."""

    def __init__(self, network: Network, settings: ConnectionSettings, deadline: float) -> None:
        self._network = network
        self._world = world = network.world
        self._where = settings.masked_url
        network.sleep(2 * network.scenario.latency_s)
        try:
            line = network.attempt()
        except OSError as cause:
            raise unreachable(settings, cause) from None
        if line is None:
            world.sleep(deadline - world.now)
            raise unreachable(settings, TimeoutError())
        self._line = line
        self._inbox = bytearray()
        self._over = False
        self._error: OSError | None = None
        self._counts = True
        line.down.arrived = self._inbox.extend
        line.client_ended = self._end

    def _end(self, error: OSError | None) -> None:
        self._over = True
        self._error = error

    def _is_readable(self) -> bool:
        return bool(self._inbox) or self._over

    def wait(self, timeout_s: float) -> None:
        """Wait as the real one."""
        self._world.run(lambda: self._is_readable() or self._line.up.room > 0, self._world.now + timeout_s)

    def wait_for_input(self, timeout_s: float, waker: SimulatedWaker) -> None:
        """Wait as the real one."""
        waker.wait(timeout_s, self._is_readable)

    def receive(self, wait_s: float = 0.0) -> bytes:
        """Receive as the real one."""
        network, world, inbox = self._network, self._world, self._inbox
        network.memory.look()
        if network.interrupt():
            self._counts = (
                self._counts and world.chance.random() < 0.5
            )  # what it has read may be lost with it
            self._read()
            raise KeyboardInterrupt
        world.run(self._is_readable, world.now + wait_s)
        if inbox:
            return self._read()
        if self._over:
            raise disconnect_error(self._where, self._error)
        return b""

    def _read(self) -> bytes:
        size = len(self._inbox)
        if self._network.scenario.piece < 4096:
            size = min(size, self._world.chance.randint(1, self._network.scenario.piece))
        data = bytes(self._inbox[:size])
        del self._inbox[:size]
        if self._counts:
            self._line.heard += size
        return data

    def send(self, data: memoryview) -> int:
        """Send as the real one."""
        if self._over:
            raise disconnect_error(self._where, self._error or BrokenPipeError(32, "Broken pipe"))
        if data[7:11] == _CLOSE:
            self._counts = False
        size = min(len(data), self._line.up.room)
        self._line.up.write(data[:size])
        if self._network.interrupt():
            raise KeyboardInterrupt
        return size

    @property
    def bytes_not_taken(self) -> int:
        """As the real one."""
        return self._line.up.untaken

    def close(self) -> None:
        """Close as the real one."""
        self._counts = False
        self._line.close_by_client()


class SimulatedWaker:
    """Replaces `rabbit_chx.connection.blocking_connection.Waker`."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._is_woken = False

    def wake(self) -> None:
        """Wake as the real one."""
        self._is_woken = True

    def wait(self, timeout_s: float, watched: Callable[[], bool] = lambda: False) -> None:
        """Wait as the real one."""
        self._world.run(lambda: self._is_woken or watched(), self._world.now + timeout_s)
        self._is_woken = False

    def close(self) -> None:
        """Close as the real one."""


class _ElsewhereEvent(threading.Event):
    """Replaces the `threading.Event` of the heartbeat thread: it is set when the program is back."""

    def __init__(self, network: Network) -> None:
        super().__init__()
        self._network = network

    def wait(self, timeout: float | None = None) -> bool:
        assert timeout is not None
        world, until = self._network.world, self._network.elsewhere_until
        if self.is_set() or world.now + timeout > until:
            return True
        world.sleep(timeout)
        return False


@contextlib.contextmanager
def simulated(network: Network) -> Iterator[None]:
    """Run the product on a network by its clock, without logs."""
    world = network.world

    def keep_alive(target: Callable[..., None], args: Sequence[Any] = (), **_: object) -> SimpleNamespace:
        """Return the heartbeat thread, which runs while the program does other work."""
        start = partial(setattr, network, "keeper", partial(target, *args))
        return SimpleNamespace(start=start, is_alive=lambda: False)

    threads = SimpleNamespace(
        RLock=threading.RLock, Event=lambda: _ElsewhereEvent(network), Thread=keep_alive
    )
    substitutes: list[tuple[Any, str, object]] = [
        (blocking_connection, "time", world),
        (blocking_connection, "threading", threads),
        (blocking_connection, "Transport", lambda *given: SimulatedTransport(network, *given)),
        (publisher, "time", SimpleNamespace(sleep=network.sleep, monotonic=world.monotonic)),
        (publisher, "jitter", world.chance.random),
    ]
    logging.disable(logging.CRITICAL)
    try:
        with pytest.MonkeyPatch.context() as patch:
            for module, name, substitute in substitutes:
                patch.setattr(module, name, substitute)
            yield
    finally:
        logging.disable(logging.NOTSET)
