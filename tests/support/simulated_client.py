"""What the real publishers run on in a simulated world: sockets, an event loop, the clock and the thread for heartbeats.

The modules of the product are used as they are. What they import of the operating system is exchanged for the time of a run.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

from simulated_broker import Broker
from simulated_faults import Fault, Scenario
from simulated_line import Line, Manner
from simulated_memory import Memory
from simulated_world import EndlessRunError, World

from rabbit_chx.amqp import ConnectionSettings
from rabbit_chx.connection import asyncio_connection, blocking_connection
from rabbit_chx.connection.failures import lost_connection, unreachable
from rabbit_chx.publishing import publisher, publisher_base

_CLOSE = (10 << 16 | 50).to_bytes(4)  # connection.close, behind the frame's head
_RESET = ConnectionResetError(104, "Connection reset by peer")
_THREAD_S = 0.5
_LAST_S = 60.0  # for tasks that are cancelled
_HIGH_WATER, _LOW_WATER = 65_536, 16_384  # those of asyncio


class Network:
    """Connects the publisher of a run with its broker.

    Args:
        world: the clock.
        broker: the broker.
        scenario: what goes wrong.

    Attributes:
        attempts: attempts to connect.
        lines: connections, oldest first.
        interrupt_at: when Ctrl-C comes; None for not any more.
        memory: what the publisher holds; it is looked at whenever the publisher is at work.
        keeper: the thread for the heartbeats of the present connection.
        elsewhere_until: how long the program is elsewhere.
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
        """Return a line to the broker; None where nothing answers.

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
        """Let the program do something else: only the thread for the heartbeats uses the connection."""
        self.elsewhere_until = self.world.now + seconds
        self.keeper()
        self.world.sleep(self.elsewhere_until - self.world.now)

    def interrupt(self) -> bool:
        """Whether Ctrl-C comes now."""
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
    """Plays `rabbit_chx.connection.blocking_connection.Transport`."""

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
        line.client_received = self._inbox.extend
        line.client_ended = self._end

    def _end(self, error: OSError | None) -> None:
        self._over = True
        self._error = error

    def _is_readable(self) -> bool:
        return bool(self._inbox) or self._over

    def wait(self, timeout_s: float) -> None:
        """Wait as the real one."""
        self._world.run(lambda: self._is_readable() or self._line.up.room > 0, self._world.now + timeout_s)

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
            raise lost_connection(self._where, self._error)
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
            raise lost_connection(self._where, self._error or BrokenPipeError(32, "Broken pipe"))
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


class _ElsewhereEvent:
    """Plays the `threading.Event` on which the thread for the heartbeats waits: it is set where the program is back."""

    def __init__(self, network: Network) -> None:
        self._network = network
        self._is_set = False

    def set(self) -> None:
        self._is_set = True

    def is_set(self) -> bool:
        return self._is_set

    def wait(self, timeout: float) -> bool:
        world, until = self._network.world, self._network.elsewhere_until
        if self._is_set or world.now + timeout > until:
            return True
        world.sleep(timeout)
        return False


class _Thread:
    """Plays the thread for the heartbeats, which runs while the program is elsewhere."""

    def __init__(self, network: Network, target: Callable[[], None]) -> None:
        self._network = network
        self._target = target

    def start(self) -> None:
        self._network.keeper = self._target

    def is_alive(self) -> bool:
        return False


class SimulatedLoop(asyncio.BaseEventLoop):
    """An event loop by the clock of a world, which can open connections to its broker.

    Args:
        network: the way to the broker.
    """

    def __init__(self, network: Network) -> None:
        super().__init__()
        self._network = network
        self._selector = self
        self._ready: Any

    def time(self) -> float:
        """Return the time of the world."""
        return self._network.world.monotonic()

    def select(self, timeout: float | None) -> list[object]:
        """Let time pass until a callback is ready."""
        world = self._network.world
        until = math.inf if timeout is None else world.now + timeout
        while not self._ready and world.step(until):
            pass
        if timeout is None and not self._ready:
            raise EndlessRunError("everybody waits for nothing")
        return []

    def run_in_executor(self, _: object, func: Callable[..., Any], *given: object) -> asyncio.Future[Any]:
        """Call it after a while, as if a thread did."""
        future = self.create_future()

        def finish() -> None:
            if not future.done():
                future.set_result(func(*given))

        self.call_later(self._network.world.chance.random() * _THREAD_S, finish)
        return future

    def cancel_all(self) -> None:
        """End every task of a run that does not end."""
        self._network.world.ends_at = self._network.world.now + _LAST_S
        tasks = asyncio.all_tasks(self)
        for task in tasks:
            task.cancel()
        with contextlib.suppress(EndlessRunError):
            self.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))

    def _process_events(self, event_list: list[object]) -> None:
        pass

    def _write_to_self(self) -> None:
        pass

    async def create_connection(  # type: ignore[override]  # no more than the product uses
        self, factory: Callable[[], asyncio.Protocol], *_: object, **__: object
    ) -> None:
        """Connect as the real one."""
        await asyncio.sleep(2 * self._network.scenario.latency_s)
        line = self._network.attempt()
        if line is None:
            await asyncio.Event().wait()
        else:
            _AsyncTransport(self, self._network, line, factory())


class _AsyncTransport(asyncio.Transport):
    """A transport of `SimulatedLoop`."""

    def __init__(self, loop: SimulatedLoop, network: Network, line: Line, protocol: asyncio.Protocol) -> None:
        super().__init__()
        self._loop = loop
        self._network = network
        self._line = line
        self._protocol = protocol
        self._buffer = bytearray()
        self._paused = self._over = False
        self._counts = True
        line.client_received = self._receive
        line.client_ended = self._end
        line.up.taken = self._flush
        protocol.connection_made(self)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self._network.memory.look()
        if self._over:
            return
        if data[7:11] == _CLOSE:
            self._counts = False
        self._buffer += data
        self._flush()
        if len(self._buffer) > _HIGH_WATER and not self._paused:
            self._paused = True
            self._protocol.pause_writing()

    def _flush(self) -> None:
        size = min(len(self._buffer), self._line.up.room)
        if size:
            self._line.up.write(bytes(self._buffer[:size]))
            del self._buffer[:size]
        if self._paused and len(self._buffer) <= _LOW_WATER:
            self._paused = False
            self._protocol.resume_writing()

    def _receive(self, data: bytes) -> None:
        self._network.memory.look()
        if self._counts:
            self._line.heard += len(data)
        self._protocol.data_received(data)

    def _end(self, error: OSError | None) -> None:
        if not self._over:
            self._over = True
            self._loop.call_soon(self._protocol.connection_lost, error)

    def get_write_buffer_size(self) -> int:
        return len(self._buffer)

    def get_extra_info(self, name: str, default: object = None) -> object:
        return self._line.up if name == "socket" else default

    def abort(self) -> None:
        self._buffer.clear()
        self._line.close_by_client()
        self._end(None)


@contextlib.contextmanager
def simulated(network: Network) -> Iterator[None]:
    """Let the product run on a network by its clock, and log nothing."""
    world = network.world
    threads = SimpleNamespace(
        RLock=threading.RLock,
        Event=lambda: _ElsewhereEvent(network),
        Thread=lambda target, **_: _Thread(network, target),
    )
    substitutes: list[tuple[Any, str, object]] = [
        (blocking_connection, "time", world),
        (blocking_connection, "threading", threads),
        (blocking_connection, "Transport", lambda *given: SimulatedTransport(network, *given)),
        (asyncio_connection, "time", world),
        (asyncio_connection, "bytes_not_taken", lambda pipe: pipe.untaken),
        (publisher, "time", network),
        (publisher_base, "time", world),
        (publisher_base, "random", world.chance),
    ]
    originals = [(module, name, getattr(module, name)) for module, name, _ in substitutes]
    logging.disable(logging.CRITICAL)
    for module, name, substitute in substitutes:
        setattr(module, name, substitute)
    try:
        yield
    finally:
        for module, name, original in originals:
            setattr(module, name, original)
        logging.disable(logging.NOTSET)
