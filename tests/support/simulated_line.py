"""A simulated TCP connection: bytes arrive later, in order, in pieces, slowly, or never; but never twice and never changed."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from simulated_world import World


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
    """One way of a line.

    Args:
        world: the clock.
        manner: how bytes are carried.
        arrived: is called with each piece.

    Attributes:
        carried: bytes that have left the sender.
        cut_at: the number of carried bytes at which the line is cut; None for nowhere.
        cut: what cuts it.
        taken: is called when bytes have arrived, so that there is room for others.
    """

    def __init__(self, world: World, manner: Manner, arrived: Callable[[bytes], None]) -> None:
        self.carried = 0
        self.cut_at: int | None = None
        self.cut: Callable[[], None] | None = None
        self._world = world
        self._manner = manner
        self._arrived = arrived
        self._waiting = bytearray()
        self._under_way = 0
        self._latest = 0.0  # arrival of the last piece
        self._busy = False
        self._stalled_until = 0.0
        self._shut = False  # the receiver takes nothing
        self._dead = False
        self._is_cut = False
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
        """Send no more; when all has arrived, so does the end."""
        if self._at_end is None and not self._dead:
            self._at_end = at_end
            self._end_if_empty()

    def kill(self) -> None:
        """Carry nothing any more, nor what is under way."""
        self._dead = True
        self._waiting.clear()

    def stall(self, until: float) -> None:
        """Carry nothing until then; infinity is never."""
        self._stalled_until = until

    def shut(self, *, shut: bool) -> None:
        """Let the receiver take nothing, or take again."""
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
        self._arrived(piece)
        self.taken()
        self._end_if_empty()

    def _end_if_empty(self) -> None:
        if self._at_end is not None and not self.untaken and not self._dead:
            self._dead = True
            self._at_end()


class Server:
    """The broker's side of a line; one of `simulated_broker`."""

    def received(self, data: bytes) -> None:
        """Take bytes of the client."""

    def ended(self) -> None:
        """Learn that the client is gone."""


class Line:
    """A TCP connection between a client and a broker.

    Args:
        world: the clock.
        manner: how it carries bytes.

    Attributes:
        up: the way to the broker.
        down: the way from it.
        server: the broker's side.
        client_received: is called with each piece that reaches the client.
        client_ended: is called with what ends it there; None for a close of the other side.
        heard: bytes that the client has read before it said goodbye.
        over: whether the broker's side has ended.
    """

    def __init__(self, world: World, manner: Manner) -> None:
        self.server = Server()
        self.client_received: Callable[[bytes], None] = lambda _: None
        self.client_ended: Callable[[OSError | None], None] = lambda _: None
        self.heard = 0
        self.over = False
        self.up = Pipe(world, manner, self._reach_server)
        self.down = Pipe(world, manner, self._reach_client)
        self._client_gone = False

    def cut(self, error: OSError | None) -> None:
        """End it at once on both sides; what is under way is lost.

        Args:
            error: what the client's system says; None for a close without a word.
        """
        self.up.kill()
        self.down.kill()
        self._end_server()
        self._end_client(error)

    def close_by_client(self) -> None:
        """Close it; what the client's system holds goes on to the broker."""
        self._client_gone = True
        self.down.kill()
        self.up.finish(self._end_server)

    def close_by_server(self) -> None:
        """Close it; what the broker has said goes on to the client."""
        self.up.kill()
        self.over = True
        self.down.finish(lambda: self._end_client(None))

    def _reach_server(self, data: bytes) -> None:
        self.server.received(data)

    def _reach_client(self, data: bytes) -> None:
        self.client_received(data)

    def _end_server(self) -> None:
        if not self.over:
            self.over = True
            self.server.ended()

    def _end_client(self, error: OSError | None) -> None:
        if not self._client_gone:
            self._client_gone = True
            self.client_ended(error)
