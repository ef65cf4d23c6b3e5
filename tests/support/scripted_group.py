"""Connections of a group without a broker: a journal in memory, and queues that deliver what a test tells them to.

A fake, since a real broker does not block, answer late or lose a connection at the moment that a test needs.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, cast

from group_stage import eventually

from rabbit_chx.consuming import GroupMessage, GroupTiming
from rabbit_chx.consuming.channels import GroupConnection
from rabbit_chx.consuming.journal import JOURNAL, JournalEntry, entry_in
from rabbit_chx.consuming.message import Turns
from rabbit_chx.consuming.ownership import DeliveredMessage, QueueOwnership
from rabbit_chx.consuming.runner import QueueRunner
from rabbit_chx.consuming.session import GroupSession
from rabbit_chx.consuming.settings import GroupMember
from rabbit_chx.errors import ConnectionLostError, NotFoundError, RabbitChxError

BRISK = GroupTiming(warm_up_s=0.05, alive_s=0.02, gone_s=0.2, watch_s=9.0, stop_s=1.0, journal_s=0.3)


def message(queue: str, tag: int, returns: int = 0) -> DeliveredMessage:
    """Return a message as it is delivered; its body is its tag."""
    return DeliveredMessage(tag, "k", GroupMessage(queue, "k", str(tag).encode()), returns=returns)


class ScriptedJournal:
    """The stream that all members write and read.

    Attributes:
        entries: what was written.
        open: cleared while nothing can be written.
        blocked: whether the broker has said so.
        declarations: the errors of the next declarations; those after them succeed.
    """

    def __init__(self) -> None:
        self.entries: list[JournalEntry] = []
        self.open = asyncio.Event()
        self.open.set()
        self.blocked = False
        self.readers: list[Callable[[int, JournalEntry], None]] = []
        self.declarations: list[RabbitChxError] = []

    def block(self) -> None:
        """Take nothing more, as a broker with an alarm."""
        self.blocked = True
        self.open.clear()

    def unblock(self) -> None:
        """Take what waits."""
        self.blocked = False
        self.open.set()

    def write(self, entry: JournalEntry) -> None:
        """Write an entry, and let all read it."""
        offset = len(self.entries)
        self.entries.append(entry)
        for take in self.readers:
            asyncio.get_running_loop().call_soon(take, offset, entry)

    def kinds(self, member: str) -> list[str]:
        """Return the kinds of what a member has written."""
        return [entry.kind for entry in self.entries if entry.member == member]


class ScriptedLine:
    """A channel that consumes.

    Attributes:
        take: what gets its messages.
        acked: the numbers of the messages that were acknowledged.
        ackable: cleared while nothing can be sent over it.
    """

    def __init__(self, take: Callable[[DeliveredMessage], None]) -> None:
        self.take = take
        self.acked: list[int] = []
        self.abandoned = False
        self.ackable = asyncio.Event()
        self.ackable.set()
        self._closed: Callable[[RabbitChxError | None], None] = lambda _: None

    async def ack(self, tag: int) -> None:
        """Acknowledge a message, when something can be sent."""
        await self.ackable.wait()
        self.acked.append(tag)

    async def sync(self) -> None:
        """Wait for an answer over it."""
        await self.ackable.wait()

    async def abandon(self) -> None:
        """End it by an error."""
        self.abandoned = True

    def when_closed(self, call: Callable[[RabbitChxError | None], None]) -> None:
        """Call something when it is closed."""
        self._closed = call

    def close(self, reason: RabbitChxError | None = None) -> None:
        """End it, as the loss of its connection does."""
        self._closed(reason)


class ScriptedConnection:
    """The connections of one member."""

    where = "amqp://scripted"
    channels_fail_alone = False
    has_priorities = True
    lost_at: float | None = None
    server_version = "4.3.6"

    def __init__(self, journal: ScriptedJournal) -> None:
        self.journal = journal
        self.lines: dict[str, list[ScriptedLine]] = defaultdict(list)
        self.waiting: dict[str, int] = defaultdict(int)
        self.prefetches: dict[str, int] = {}
        self.is_closed = False
        self.missing: set[str] = set()  # queues that do not exist
        self.consumed: list[str] = []  # in their order
        self.consumable = asyncio.Event()  # cleared while the broker does not answer to basic.consume
        self.consumable.set()

    async def declare_journal(self, _journal: str) -> None:
        """Raise the next of `declarations`, if there is one."""
        if self.journal.declarations:
            raise self.journal.declarations.pop(0)

    async def read_journal(
        self, _journal: str, _since_s: float, take: Callable[[int, JournalEntry], None]
    ) -> ScriptedLine:
        """Read the journal from its beginning."""

        def read(offset: int, entry: JournalEntry) -> None:
            if not self.is_closed:
                take(offset, entry)

        for offset, entry in enumerate(self.journal.entries):
            read(offset, entry)
        self.journal.readers.append(read)
        return ScriptedLine(lambda _: None)

    async def publish(self, _queue: str, body: bytes, _headers: Mapping[str, Any] | None = None) -> None:
        """Write an entry, when the broker takes it."""
        await self.journal.open.wait()
        if self.is_closed:
            raise ConnectionLostError("closed")
        entry = entry_in(body)
        assert entry is not None
        self.journal.write(entry)

    async def is_blocked(self) -> bool:
        """Return whether the broker blocks publishers."""
        return self.journal.blocked

    async def abandon(self, line: ScriptedLine) -> None:
        """End a channel by an error."""
        await line.abandon()

    async def ready_count(self, queue: str) -> int:
        """Return how many messages wait."""
        await self.declare_passively(queue)
        return self.waiting[queue]

    async def queue_arguments(
        self, _queue: str, _expected: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """Return what a fit queue has."""
        return {"x-queue-type": "quorum", "x-single-active-consumer": True, "x-delivery-limit": -1}

    async def declare_passively(self, queue: str) -> None:
        """Raise a NotFoundError for a queue that does not exist."""
        if queue in self.missing:
            raise NotFoundError(f"no queue {queue!r}", queue=queue)

    async def consume_behind(
        self, queue: str, _priority: int, prefetch: int, _tag: str, take: Callable[[DeliveredMessage], None]
    ) -> ScriptedLine:
        """Consume a queue, when the broker answers."""
        await self.consumable.wait()
        self.consumed.append(queue)
        self.prefetches[queue] = prefetch
        self.lines[queue].append(ScriptedLine(take))
        return self.lines[queue][-1]

    async def deliver(self, queue: str, *tags: int) -> ScriptedLine:
        """Deliver messages over the channel that consumes a queue, and return it."""
        line = self.lines[queue][-1]
        for tag in tags:
            line.take(message(queue, tag))
        return line

    async def close(self) -> None:
        """Close them."""
        self.is_closed = True

    def cut(self, reason: RabbitChxError | None = None) -> None:
        """Lose the connection."""
        for lines in self.lines.values():
            for line in lines:
                line.close(reason)


class ScriptedStage:
    """A member `a` of the queues `q.0` and `q.1`.

    Attributes:
        handled: the numbers of the messages that were handled.
        gate: cleared while handlers wait.
        cancelled: how many handlers were cancelled.
    """

    def __init__(
        self, timing: GroupTiming = BRISK, former: tuple[str, ...] = (), journal: str | None = JOURNAL
    ) -> None:
        self.journal = ScriptedJournal()
        self.connection = ScriptedConnection(self.journal)
        self.handled: list[int] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.cancelled = 0
        member = GroupMember("a", timing=timing, journal=journal)
        self.session = GroupSession(cast("GroupConnection", self.connection), member, self.handle, former)
        turns = Turns()
        self.runners = [
            QueueRunner(QueueOwnership(queue, member, turns), self.session, member.prefetch)
            for queue in ("q.0", "q.1")
        ]
        self.session.attach(self.runners)
        self.stop = asyncio.Event()

    async def handle(self, message: GroupMessage) -> None:
        """Handle a message when the gate is open."""
        try:
            await self.gate.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        self.handled.append(int(message.body))

    @asynccontextmanager
    async def running(self) -> AsyncIterator[asyncio.Task[None]]:
        """Run the session until the block ends."""
        task = asyncio.create_task(self.session.run(self.stop))
        try:
            yield task
        finally:
            self.stop.set()
            await asyncio.gather(task, return_exceptions=True)
            await self.session.close(self.session.detach())

    async def consuming(self) -> None:
        """Wait until it consumes."""
        await eventually(lambda: self.session.is_up, "it consumes both queues")

    async def owned(self) -> ScriptedLine:
        """Wait until it has handled the message 1 of `q.0`, and return the channel."""
        line = await self.connection.deliver("q.0", 1)
        await eventually(lambda: line.acked == [1], "it has the queue")
        return line

    async def ready(self) -> None:
        """Wait until it takes its share."""
        await eventually(lambda: "ready" in self.journal.kinds("a"), "it takes its share")
