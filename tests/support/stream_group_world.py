"""Members of a group of streams on a fake node, by a clock of their own, and the laws that hold whatever happens to them.

A fake, since a real broker does not cut a line, elect a member or lose a stored offset at a chosen moment, and a real clock would make
tests wait.
"""

from __future__ import annotations

import asyncio
import struct
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from scheduled_threads import Threads
from stream_bytes import chunk_bytes, entry, notes
from stream_logs import ChunkLog, RowLog, header_of
from stream_node import Line, Session, StreamNode, in_memory

from rabbit_chx import StreamGroup, retry
from rabbit_chx.connection import failures
from rabbit_chx.consuming import GroupTiming, group, session, settings, stream_channels, stream_connection
from rabbit_chx.errors import UnreachableError
from rabbit_chx.streams import nodes, offsets
from rabbit_chx.streams.frames import Fields, Key

URL = "rabbitmq-stream://broker?heartbeat=0"
GROUP = "billing"
TIMING = GroupTiming(alive_s=0.3, gone_s=4.0, stop_s=10.0)
#: The longest that a handler takes in these tests, in seconds.
LONGEST_S = 0.6
_PLAYED = (failures, group, session, stream_channels, stream_connection, settings, offsets)


class TimedLog(RowLog):
    """A log of rows that are published by the clock of a run."""

    def __init__(self, threads: Threads) -> None:
        super().__init__()
        self._threads = threads
        self._times: list[int] = []

    def take(self, reference: str | None, row_id: int, messages: Iterable[bytes]) -> int:
        """Store a row with its time."""
        needed = super().take(reference, row_id, messages)
        self._times += [int(self._threads.time() * 1000)] * (len(self.log) - len(self._times))
        return needed

    def chunk(self, number: int) -> bytes:
        """Return a row as a chunk."""
        row = self.log[number]
        assert row is not None
        return chunk_bytes([entry(row[2])], offset=number, timestamp_ms=self._times[number])


class ScheduledLine(Line):
    """The transport of a connection in one of the threads of a run."""

    def receive(self, wait_s: float = 0.0) -> bytes:
        """Wait for bytes."""
        self._clock.wait(self._has_news, wait_s)
        return super().receive()

    def wait(self, timeout_s: float) -> None:
        """Let time pass."""
        self._clock.sleep(timeout_s)

    def _has_news(self) -> bool:
        session = self.session
        session.look()
        for number in session.subscriptions:
            session.out += session.deliver(number)
        return bool(session.out) or session.failure is not None


@dataclass(frozen=True, slots=True)
class Store:
    """An offset that a member has stored."""

    at: float
    owner: str
    stream: str
    offset: int


class GroupNode(StreamNode):
    """A node with the streams of a group.

    Attributes:
        dead: the names of connections that it does not accept.
        stores: the offsets that were stored.
        on_store: is called with each of them.
        store_delay_s: the time after which the leader has a stored offset.
    """

    heartbeat_s = 0

    def __init__(self, threads: Threads, streams: Iterable[str]) -> None:
        super().__init__()
        self.version, self.commands = "4.3.6", list(Key)
        self.threads = threads
        self.dead: set[str] = set()
        self.stores: list[Store] = []
        self.on_store: Callable[[Store], None] = lambda _store: None
        self.store_delay_s = 0.0
        self._forgotten: set[Session] = set()
        self.logs = {stream: ChunkLog() for stream in streams}
        self.streams.update(self.logs)

    def accept(self, owner: str = "") -> Session:
        """Begin a connection, unless its member or the node is dead."""
        if {owner, ""} & self.dead:
            raise UnreachableError("nobody answers")
        return super().accept(owner)

    def new_log(self) -> RowLog:
        """Return a log with the times of its rows."""
        return TimedLog(self.threads)

    def publish(self, stream: str, rows: int, size: int = 0) -> None:
        """Store a chunk of rows, each with its offset as its body."""
        first = self.end_of(stream)
        bodies = (number.to_bytes(8) + bytes(size) for number in range(first, first + rows))
        chunk = [entry(b"\0Su\xb0" + struct.pack(">I", 8 + size) + body) for body in bodies]
        self.append(stream, chunk, 0)

    def end_of(self, stream: str) -> int:
        """Return the offset after the last chunk."""
        log = self.logs[stream]
        return sum(header_of(log.chunks[-1])[1:]) if log.chunks else 0

    def rows_of(self, stream: str) -> list[int]:
        """Return the offsets of the rows."""
        headers = (header_of(chunk) for chunk in self.logs[stream].chunks)
        return [at + row for kind, rows, at in headers if not kind for row in range(rows)]

    def append(self, stream: str, entries: list[bytes], kind: int) -> None:
        """Store a chunk of rows (0), or of the broker's own (1)."""
        now = int(self.threads.time() * 1000)
        chunk = chunk_bytes(entries, offset=self.end_of(stream), kind=kind, timestamp_ms=now)
        self.logs[stream].chunks.append(chunk)

    def said(self, session: Session, key: int, content: bytes) -> bytes:
        """Return the answer to a request; an offset is stored later, and as a chunk of the stream."""
        if session in self._forgotten:
            return b""
        if key != Key.STORE_OFFSET:
            return super().said(session, key, content)
        fields = Fields(memoryview(content))
        name, stream, offset = fields.text(), fields.text(), fields.integer(8)
        store = Store(self.threads.now, session.owner, stream, offset)
        self.stores.append(store)
        self.on_store(store)

        def arrive() -> None:
            if self.store_delay_s:
                self.threads.sleep(self.store_delay_s)
            self.offsets[name, stream] = offset
            self.append(stream, [entry(notes(name, kind=1))], 1)

        if self.store_delay_s:
            self.threads.modules["threading"].Thread(arrive, name="store").start()
        else:
            arrive()
        return b""

    # -- faults

    def open_sessions(self, owner: str = "") -> list[Session]:
        """Return the open connections, those of a member or all."""
        return [each for each in self.sessions if each.failure is None and each.owner.endswith(owner)]

    def forget(self, session: Session) -> None:
        """Drop a connection, and let its client not know it."""
        self._forgotten.add(session)
        for number in list(session.subscriptions):
            session.unsubscribe(number)

    def reader_of(self, stream: str) -> Session:
        """Return the connection of the active consumer of a stream."""
        return self.consumers[GROUP, stream][0][0]


@dataclass(slots=True)
class Call:
    """A call of a handler."""

    member: str
    stream: str
    offsets: list[int]
    began: float
    ended: float | None = None  # as it returned; None while it runs, and if it failed or was cancelled
    over: float | None = None  # as it ended, in whichever way


async def _nothing(_: object) -> None:
    return


class Member:
    """A member of the group.

    Attributes:
        group: the group.
        gained: the streams for which `on_gained` was called.
        lost: the same for `on_lost`.

    Args:
        gain: what `on_gained` returns or does.
        before: is called, and awaited, before a batch counts as handled; it may raise.
        how: further arguments of the group.
    """

    def __init__(
        self,
        world: GroupWorld,
        name: str,
        gain: Callable[[str], Awaitable[Any]] = _nothing,
        before: Callable[[Call], Awaitable[object]] = _nothing,
        **how: Any,
    ) -> None:
        self.world, self.name = world, name
        self.gained: list[str] = []
        self.lost: list[str] = []
        self._gain, self._before = gain, before
        how = {
            "streams": world.streams,
            "timing": TIMING,
            "reconnect_backoff_s": 0.1,
            "backoff_s": 0.05,
            **how,
        }
        self.group = StreamGroup(
            URL, name=GROUP, member=name, on_gained=self._gained, on_lost=self._lost, **how
        )
        self.running: asyncio.Task[None] | None = None

    async def _gained(self, stream: str) -> Any:
        self.gained.append(stream)
        return await self._gain(stream)

    async def _lost(self, stream: str) -> None:
        self.lost.append(stream)

    async def _handle(self, stream: str, batch: pa.RecordBatch) -> None:
        offsets: Any = batch["offset"].to_pylist()
        world = self.world
        call = Call(self.name, stream, offsets, world.threads.now)
        world.calls.append(call)
        try:
            await self._before(call)
            call.ended = world.threads.now
        finally:
            call.over = world.threads.now

    async def run(self) -> None:
        """Run until it is stopped."""
        async with self.group:
            await self.group.run(self._handle)

    async def stop(self) -> None:
        """Leave in order."""
        self.group.stop()
        await self.end()

    async def end(self) -> None:
        """Wait until it ends, and raise its error."""
        assert self.running is not None
        await self.running

    async def kill(self) -> None:
        """Die: its connections end, it gets no others, and what it does is cancelled."""
        world, running = self.world, self.running
        assert running is not None
        sessions = world.node.open_sessions(f".{self.name}")
        world.node.dead |= {each.owner for each in sessions}
        for each in sessions:
            world.lose(each)
        for _ in range(2):  # the second time it does not leave in order
            running.cancel()
            await asyncio.sleep(0.01)
        await asyncio.wait({running})


@dataclass
class GroupWorld:
    """A node, its streams, and the members.

    Attributes:
        calls: all calls of handlers.
        losses: when the connections of a member were lost, by the member and the stream.
        skipped: the offsets of rows that the group does not handle.
        violations: the offsets that were stored before their rows were handled.
    """

    seed: int = 0
    streams: tuple[str, ...] = ("s.0", "s.1", "s.2")
    calls: list[Call] = field(default_factory=list)
    losses: dict[tuple[str, str], list[float]] = field(default_factory=lambda: defaultdict(list))

    def __post_init__(self) -> None:
        self.threads = Threads(self.seed)
        self.node = GroupNode(self.threads, self.streams)
        self.node.on_store = self._check_store
        self.members: list[Member] = []
        self.skipped: set[int] = set()
        self.violations: list[str] = []

    def run(self, story: Callable[[], Awaitable[None]]) -> None:
        """Run a story; then every thread and every connection has ended."""
        with (
            in_memory(self.node, clock=self.threads, line=ScheduledLine),
            self.threads.playing(*_PLAYED, nodes, retry),
        ):
            self.threads.run(story)
        assert self.node.open_sessions() == [], "connections that stay open"
        assert self.violations == []

    def member(self, name: str, **how: Any) -> Member:
        """Start a member."""
        member = Member(self, name, **how)
        member.running = asyncio.get_running_loop().create_task(member.run())
        self.members.append(member)
        return member

    @asynccontextmanager
    async def joined(self, name: str = "a", **how: Any) -> AsyncIterator[Member]:
        """Run a member until the block ends; then it leaves."""
        member = self.member(name, **how)
        yield member
        await member.stop()

    async def until(self, condition: Callable[[], object], what: str, bound_s: float = 60.0) -> None:
        """Wait until something holds, in the time of the run; a member that ends meanwhile with an error fails."""
        end = self.threads.now + bound_s
        while not condition():
            assert self.threads.now < end, f"not within {bound_s:g} s: {what}"
            for member in self.members:
                if member.running is not None and member.running.done() and not member.running.cancelled():
                    member.running.result()
            await asyncio.sleep(0.05)

    def lose(self, session: Session) -> None:
        """Cut a connection."""
        self.note_losses(session)
        session.lose()

    def note_losses(self, session: Session) -> None:
        """Note that the subscriptions of a connection are lost now."""
        name = session.owner.rpartition(".")[2]
        for subscription in session.subscriptions.values():
            stream = next(stream for stream, log in self.node.streams.items() if log is subscription.log)
            self.losses[name, stream].append(self.threads.now)

    # -- the laws

    def handled(self, stream: str) -> list[int]:
        """Return the offsets of the rows that were handled, in their order; those that were repeated again."""
        return [row for call in self.calls if call.stream == stream and call.ended for row in call.offsets]

    def is_all_handled(self) -> bool:
        """Whether each row was handled."""
        return all(set(self.node.rows_of(each)) <= set(self.handled(each)) for each in self.streams)

    def _check_store(self, store: Store) -> None:
        rows = {row for row in self.node.rows_of(store.stream) if row <= store.offset}
        if rows - set(self.handled(store.stream)) - self.skipped:
            self.violations.append(f"{store} is beyond what was handled")

    def check(self) -> None:
        """Check the laws: no row is lost, none is handled by two members at a time, and few are repeated."""
        for stream in self.streams:
            calls = sorted(
                (call for call in self.calls if call.stream == stream), key=lambda call: call.began
            )
            rows = self.node.rows_of(stream)
            assert set(self.handled(stream)) == set(rows), "a row is lost"
            seen: dict[int, Call] = {}
            before: Call | None = None
            for call in calls:
                if before is not None:
                    self._check_pair(before, call)
                before = call
                for row in call.offsets:
                    if row in seen:
                        self._check_repeat(seen[row], call)
                if call.ended:
                    seen |= dict.fromkeys(call.offsets, call)

    def _is_lost(self, call: Call, until: float) -> list[float]:
        """Return when the subscription of a call was lost before a later time. The member notices that within two looks."""
        earliest = call.began - 2 * stream_channels.LOOK_S
        return [at for at in self.losses[call.member, call.stream] if earliest <= at <= until]

    def _check_pair(self, before: Call, call: Call) -> None:
        overlaps = before.over is None or before.over > call.began
        assert not overlaps or self._is_lost(before, call.began), f"two at a time: {before}, {call}"

    def _check_repeat(self, first: Call, again: Call) -> None:
        """A row is handled again only after a loss, and only if it was handled shortly before: the offset is stored when a handler returns."""
        assert first.ended is not None
        lost = self._is_lost(first, again.began)
        assert lost, f"{again} repeats {first}, though nothing was lost"
        late_s = lost[0] - first.ended
        assert late_s <= 2 * stream_channels.LOOK_S + self.node.store_delay_s, (
            f"{again} repeats {first}, which was stored long before"
        )
