"""One connection of a group member. It consumes the queues, and reads and writes the journal, until it ends."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import secrets
import time
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

from rabbit_chx import errors
from rabbit_chx.amqp.frames import is_transient
from rabbit_chx.connection.failures import raise_if_cancelled
from rabbit_chx.consuming.journal import (
    Assignments,
    EntryKind,
    JournalEntry,
    LivenessClock,
    Roster,
    priority_without_journal,
)
from rabbit_chx.consuming.runner import QueueRunner
from rabbit_chx.consuming.settings import (
    BLOCKED_S,
    CANCELLED_S,
    GroupMember,
    start_task,
    wait_for_any,
    wait_unless_blocked,
    waiting,
)
from rabbit_chx.text import typed_error_text

if TYPE_CHECKING:
    from rabbit_chx.consuming.channels import GroupConnection
    from rabbit_chx.consuming.runner import MemberChannel
    from rabbit_chx.consuming.stream_connection import StreamGroupConnection

_log = logging.getLogger(__name__)

#: The largest difference of the clocks of two members, in seconds.
_CLOCK_DIFFERENCE_S = 30.0
#: Every 20th heartbeat is a `ready` entry with the member's queues, for members that read the journal from there.
_READY_EVERY = 20
#: The number of heartbeats that prove that another process of the same name is alive.
_DUPLICATE_HEARTBEATS = 2
#: The delay of a new owner's extra heartbeat, after which the previous owner releases the queue. Waiting members have stepped back by then.
_OWNER_HEARTBEAT_S = 1.0
#: Time limits in seconds: of an entry that the member writes when it leaves, and of abandoning all channels.
_FAREWELL_S = 3.0
_ABANDON_S = 1.0
#: Seconds in which a broker that does not answer may still release the queues of a member that leaves.
_UNANSWERED_S = 2.0
#: After more renewals of a consumer without effect, the log names another cause.
_MAX_SILENT_RENEWALS = 2
_DEAD_CONSUMER_REMEDY = (
    "consuming it again did not help: if none of its consumers is active, restart the node that leads the queue "
    "(docs/publish/consuming.md, 'What RabbitMQ does to order')"
)


class GroupSession:
    """One connection of a member. The runners of its queues share it.

    Args:
        connection: the connection.
        member: the member.
        handle: the user's handler.
        earlier_tokens: the tokens of this process's earlier sessions. Their entries are not those of another process.

    Attributes:
        check: checks a queue that is consumed, before its first message is handled.
        settle_s: seconds between the consumption of one queue and of the next one; 0 to consume all at once.
        consumed: the queues that were consumed so far, in this order.
        has_settled: whether all are consumed, and the time after the last one has passed.
        token: identifies the entries of this session in the journal.
        roster: the members and the claims, as read from the journal.
        ignored_entries: the number of entries of the journal that cannot be read.
    """

    def __init__(
        self,
        connection: GroupConnection | StreamGroupConnection,
        member: GroupMember,
        handle: Callable[[Any], Awaitable[None]],
        earlier_tokens: Collection[str] = (),
    ) -> None:
        self.connection: Any = connection
        self.member = member
        self.handle = handle
        self.check: Callable[[str], Awaitable[None]] = _accept
        self.settle_s = 0.0
        self.consumed: list[str] = []
        self.has_settled = False
        self.roster = Roster()
        self.ignored_entries = 0
        self.token = secrets.token_hex(8)
        self._last_offset = 0  # of the journal, as far as it is known
        self._has_warned_of_block = False
        self._runners: dict[str, QueueRunner] = {}
        self._earlier_tokens = earlier_tokens
        self._assignments = Assignments(self.token)
        self._stalls = StallDetector()
        self._clock = LivenessClock((member.timing.alive_s + member.timing.gone_s) / 2)
        self._caught_up = asyncio.Event()  # our first heartbeat was read
        self._has_warmed_up = False  # whether `GroupTiming.warm_up_s` has passed
        self._subscribed: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._error: errors.RabbitChxError | None = None  # the first one
        self._ended = asyncio.Event()  # by an error
        self._lost = asyncio.Event()  # the connection is unusable
        self._is_ready = False  # whether this member is in the roster that it has read
        self._was_ready = False  # whether it was in a roster before
        self._is_leaving = False  # the group stops: messages in progress are finished
        self._is_detached = False  # the queues have another connection, or none
        self._duplicates: dict[str, int] = {}  # heartbeats of earlier processes of this name, by token
        self._has_successor = False  # whether a later process has this name
        self._logged_members: list[str] = []

    # -- called by the runners of the queues

    def spawn(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run a task until the session ends; its error ends the session."""
        if self._is_detached:
            return
        start_task(self._guard(work), self._tasks)

    async def _guard(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        try:
            await work()
        except errors.RabbitChxError as error:
            self.fail(error)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as cause:  # noqa: BLE001  # no error may leave a queue without its consumer
            if isinstance(cause, asyncio.CancelledError):
                self._lost.set()  # this session was detached, or the event loop is ending
                raise_if_cancelled(cause)
            _log.exception("group member %s: an error of the library", self.member.name)
            self.fail(errors.ConnectionLostError(f"{self.connection.where}: {typed_error_text(cause)}"))

    def fail(self, error: errors.RabbitChxError) -> None:
        """End the session with an error; the first error counts."""
        if self._error is None and not self._is_leaving:
            self._error = error
        if not isinstance(error, errors.HandlerError | errors.InputError):
            self._lost.set()
        self._ended.set()

    def priority(self, queue: str) -> int:
        """Return the ``x-priority`` of a new consumer.

        With a journal all members have priority 0. The broker then elects in the order of subscription (tested with 3.10.8, 4.0.5 and
        4.3.6), and an active consumer is never outranked: RabbitMQ 4.3.6 keeps an outranked consumer that dies while it holds messages.
        """
        if self.member.journal is not None:
            return 0
        return priority_without_journal(
            self.member.name, queue, self.member.weight, has_warmed_up=self._has_warmed_up
        )

    def on_channel_closed(self, queue: str, refusal: errors.RabbitChxError | None) -> None:
        """The channel of a queue was closed by the broker or with the connection."""
        runner = self._runners.get(queue) if self.connection.channels_fail_alone else None
        if runner is not None and (refusal is None or is_transient(refusal)):
            self._subscribed.discard(queue)
            _log.warning(
                "group member %s lost %s and consumes it again: %s",
                self.member.name,
                queue,
                refusal,
                extra={"queue": queue},
            )
            runner.consume_again()
            return
        closed = f"{self.connection.where}: the channel that consumes {queue!r} was closed"
        self.fail(refusal or errors.ConnectionLostError(closed, queue=queue))

    def on_subscribed(self, queue: str) -> None:
        """The broker has registered the consumer of a queue."""
        self._subscribed.add(queue)

    def resume_queues(self) -> None:
        """Let all queues start what may be started now."""
        for runner in self._runners.values():
            runner.execute(runner.ownership.resume())

    def write_released(self, queue: str) -> None:
        """Write into the journal that this member has released a queue."""
        self._write_soon("released", queue=queue)

    async def write_claim(self, queue: str, token: str) -> None:
        """Write a claim of a queue into the journal; a BrokerTimeoutError if it is not confirmed after `GroupTiming.journal_s`.

        Time during which the broker blocks publishers does not count.
        """
        journal_s = self.member.timing.journal_s
        entry = JournalEntry("claim", self.member.name, time.time(), queue=queue, token=token)
        writing = asyncio.ensure_future(self._append(entry))
        if not await wait_unless_blocked(writing, journal_s, self.connection.is_blocked):
            raise errors.BrokerTimeoutError(
                f"the claim of {queue!r} is not in the stream {self.member.journal!r} after {journal_s:g} s: look at that "
                "stream, and whether a majority of its nodes is up",
                queue=queue,
            )
        await writing

    async def unclaimed_generation(self) -> int | None:
        """Return the generation of a queue that is taken without a claim, while the broker blocks publishers; None if it does not.

        Its consumers may be what ends an alarm. It is above that of an owner that claimed the queue before the last entry, and below those of
        later claims. The broker has elected this member, so no other one consumes the queue.
        """
        if not await self.connection.is_blocked():
            return None
        if not self._has_warned_of_block:
            self._has_warned_of_block = True
            _log.warning(
                "group member %s: the broker blocks publishers (connection.blocked), so the journal %r takes no entry: this member takes queues "
                "that no other one consumes, with the last generation. Clear its alarm (docs/publish/consuming.md, 'When the broker blocks "
                "publishers')",
                self.member.name,
                self.member.journal,
            )
        return self._last_offset

    # -- lifecycle

    @property
    def is_up(self) -> bool:
        """True if every queue has been subscribed."""
        return len(self._subscribed) == len(self._runners)

    @property
    def is_lost(self) -> bool:
        """True if the connection is lost or unusable."""
        return self._lost.is_set()

    def attach(self, runners: Iterable[QueueRunner]) -> None:
        """Connect the runners of the queues to this session."""
        self._runners = {runner.ownership.queue: runner for runner in runners}
        for runner in self._runners.values():
            runner.session = self

    async def run(self, stop: asyncio.Event) -> None:
        """Consume until `stop` is set; raise the error that ends the session earlier."""
        try:
            if self.member.journal is not None:
                with self._waiting_for_journal():
                    await self._catch_up(self.member.journal, stop)
            if stop.is_set():
                return
            if self.connection.has_priorities:
                self.spawn(self._join_and_write_heartbeats)
                self.spawn(self._look_at_idle_queues)
            await self._consume_all(stop)
            await wait_for_any(stop, self._ended)
        except errors.RabbitChxError as error:
            self.fail(error)
        if self._error is not None:
            raise self._error

    async def _consume_all(self, stop: asyncio.Event) -> None:
        """Consume the queues: all at once, or with `settle_s` one after the other."""
        for queue, runner in self._runners.items():
            self.consumed.append(queue)
            runner.execute(runner.ownership.consume())
            if self.settle_s and await wait_for_any(stop, self._ended, timeout_s=self.settle_s):
                return
        self.has_settled = True

    async def _catch_up(self, journal: str, stop: asyncio.Event) -> None:
        """Read the journal up to a first heartbeat of this session, so that its consumers subscribe after the present ones."""
        timing = self.member.timing
        since_s = time.time() - _READY_EVERY * timing.alive_s - timing.gone_s - _CLOCK_DIFFERENCE_S
        opening: asyncio.Future[MemberChannel] = asyncio.ensure_future(
            self.connection.read_journal(journal, since_s, self.on_entry)
        )
        stopping = asyncio.ensure_future(stop.wait())

        try:
            waited: set[asyncio.Future[Any]] = {opening, stopping}
            await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
            if not opening.done():
                return
        finally:
            opening.cancel()
            stopping.cancel()

        (await opening).when_closed(partial(self.on_channel_closed, journal))
        self._write_soon("alive")
        caught_up = asyncio.ensure_future(wait_for_any(stop, self._ended, self._caught_up))
        await asyncio.wait({caught_up}, timeout=BLOCKED_S)
        if not caught_up.done() and await self.unclaimed_generation() is not None:
            caught_up.cancel()
            await self._read_last_offset(journal)
            return
        if not await wait_unless_blocked(caught_up, timing.journal_s, self.connection.is_blocked):
            raise errors.BrokerTimeoutError(
                f"what was written into the stream {journal!r} cannot be read there after {timing.journal_s:g} s: look at that stream, "
                "and whether a majority of its nodes is up",
                queue=journal,
            )
        if self._error is not None:
            raise self._error

    async def _read_last_offset(self, journal: str) -> None:
        """Read the whole journal once, for its last offset: it may have no entry of the last minutes."""

        def note(offset: int, _entry: JournalEntry | None) -> None:
            self._last_offset = max(self._last_offset, offset)

        reader = await self.connection.read_journal(journal, 0.0, note)
        before = -1
        while before != self._last_offset:
            before = self._last_offset
            await asyncio.sleep(BLOCKED_S / 2)
        await reader.abandon()

    async def leave(self) -> None:
        """Finish the messages in progress and return the others in order. A lost connection has nothing to return."""
        self._is_leaving = True
        # Without queues, so the broker elects their next owners.
        is_answering = await self._write_farewell("ready")
        runners = self._runners.values()
        stop_s = self.member.timing.stop_s
        for runner in runners:
            runner.execute(runner.ownership.stop())
        if not is_answering:  # handlers end in any case, and the rest may never
            await wait_until_finished(runners, stop_s, self._lost, only_handlers=True)
            stop_s = _UNANSWERED_S
        if not await wait_until_finished(runners, stop_s, self._lost):
            for runner in runners:
                runner.cancel_handlers()
            await wait_until_finished(runners, CANCELLED_S, self._lost, only_handlers=not is_answering)
        if is_answering:
            await self._write_farewell("left")

    def detach(self) -> list[MemberChannel]:
        """End the session without waiting: cancel its tasks and handlers, and return the channels to close."""
        self._is_leaving = self._is_detached = True
        self._lost.set()
        for task in list(self._tasks):
            task.cancel()
        return [channel for runner in self._runners.values() for channel in runner.disconnect()]

    async def close(self, channels: Iterable[MemberChannel]) -> None:
        """Close the connection, if it is open. Messages that the channels hold are returned before, in order."""
        with contextlib.suppress(TimeoutError, errors.RabbitChxError):
            async with asyncio.timeout(_ABANDON_S):
                await asyncio.gather(*(channel.abandon() for channel in channels))
        await self.connection.close()

    # -- writing the journal

    def _waiting_for_journal(self) -> contextlib.AbstractContextManager[None]:
        what = f"the stream {self.member.journal!r} to take its entry: look whether a majority of its nodes is up, and at alarms"
        return waiting(f"group member {self.member.name}", what)

    def _write_soon(self, kind: EntryKind, queue: str = "") -> None:
        self.spawn(partial(self._write, kind, queue))

    async def _write(self, kind: EntryKind, queue: str = "") -> None:
        queues = tuple(self._runners) if kind == "ready" and not self._is_leaving else ()
        weight = self.member.weight if kind == "ready" else 1.0
        await self._append(
            JournalEntry(kind, self.member.name, time.time(), weight, queues, queue, self.token)
        )

    async def _append(self, entry: JournalEntry) -> None:
        if self.member.journal is not None:
            await self.connection.publish(self.member.journal, entry.to_json())

    async def _write_farewell(self, kind: EntryKind) -> bool:
        """Write that this member is leaving or has left, unless another process has the name; return whether the broker answers."""
        if self.is_lost or self.connection.lost_at is not None:
            return False
        if self._is_ready and isinstance(self._error, errors.HandlerError | None):
            with contextlib.suppress(errors.RabbitChxError, TimeoutError):
                async with asyncio.timeout(_FAREWELL_S):
                    await self._write(kind)
                    return True
            return False
        return self.is_up

    # -- reading the journal

    def on_entry(self, offset: int, entry: JournalEntry | None) -> None:
        """Process an entry. Entries arrive over the connection that consumes, which makes claims valid."""
        if self._is_detached:
            return

        self._last_offset = max(self._last_offset, offset)
        if entry is None:
            if not self.ignored_entries:
                _log.warning(
                    "the stream %r has at offset %d what is not an entry of a journal: such messages are ignored and counted; look who "
                    "publishes them",
                    self.member.journal,
                    offset,
                )
            self.ignored_entries += 1
            return

        is_own = entry.token == self.token and entry.kind != "claim"
        now = self._clock.tick(time.monotonic()) if is_own else self._clock.now(time.monotonic())
        has_changed = self.roster.take(offset, entry, now)
        runner = self._runners.get(entry.queue) if entry.kind == "claim" else None
        if runner:
            runner.on_claim(entry.token, offset)
        if entry.member == self.member.name and entry.kind != "claim":
            self._on_entry_of_name(entry)
        if entry.kind in ("ready", "alive"):
            self._assignments.on_heartbeat(entry.token, offset)
        if self._is_leaving:
            return

        if has_changed:
            self._log_members()
            self._step_back_behind_owners(self._assignments.update(self.roster))
            if self._assignments.is_new_owner(self.roster.term):
                delay_s = min(_OWNER_HEARTBEAT_S, self.member.timing.alive_s)
                asyncio.get_running_loop().call_later(delay_s, self._write_heartbeat)

        self._release_overdue()

    def _log_members(self) -> None:
        members = sorted(self.roster.members)
        if members != self._logged_members:
            self._logged_members = members
            names = ", ".join(members) or "not known"
            _log.info("group member %s: the members are %s", self.member.name, names)

    def _write_heartbeat(self) -> None:
        if not self._is_leaving:
            self._write_soon("alive")

    def _step_back_behind_owners(self, queues: Iterable[str]) -> None:
        """Consume these queues after their new owners, where this member only waits."""
        for queue in queues:
            runner = self._runners.get(queue)
            if runner is not None and not runner.ownership.is_held:
                runner.execute(runner.ownership.step_back())

    def _release_overdue(self) -> None:
        """Release the queues that this member holds and whose assigned owners wait for them."""
        for queue, runner in self._runners.items():
            ownership = runner.ownership
            if ownership.is_held and self._assignments.is_overdue(queue, ownership.generation):
                if not ownership.is_releasing:
                    _log.info(
                        "group member %s steps back from %s for %s, generation %s",
                        self.member.name,
                        queue,
                        self._assignments.owners[queue].member,
                        ownership.generation,
                        extra={"queue": queue, "generation": ownership.generation},
                    )
                runner.execute(ownership.step_back())

    def _on_entry_of_name(self, entry: JournalEntry) -> None:
        """Process an entry of this member, or of another process of its name."""
        if entry.token != self.token:
            self._detect_duplicate_member(entry)
        elif entry.kind == "ready":
            self._is_ready = self._was_ready = True
        elif entry.kind == "alive":
            self._caught_up.set()
        if self._is_ready and not self._is_leaving and self.member.name not in self.roster.members:
            self._is_ready = False  # the others have evicted this member, or a process of its name has left
            self._write_soon("ready")

    def _detect_duplicate_member(self, entry: JournalEntry) -> None:
        """Process an entry of another process of this name. The process that was ready first stays; the later one ends.

        An earlier process of the name is most often an earlier run, which has ended and writes at most one more entry.
        """
        if entry.kind not in ("ready", "alive") or entry.token in self._earlier_tokens:
            return
        if not self._was_ready:  # an earlier process
            self._duplicates[entry.token] = 0
        elif entry.token not in self._duplicates:  # a later process
            self._has_successor = True
        else:  # an earlier process that is still alive
            self._duplicates[entry.token] += 1
            if self._duplicates[entry.token] >= _DUPLICATE_HEARTBEATS:
                message = (
                    f"another process is the member {self.member.name!r} of this group: use another name in each process, "
                    "one that stays the same after a restart, such as the name of its pod, and start this one again"
                )
                self.fail(errors.InputError(message))

    # -- periodic tasks

    async def _join_and_write_heartbeats(self) -> None:
        """Take a share of the queues after some seconds of health, then write heartbeats."""
        if self.roster.members or self.member.journal is None:  # the first member of a group need not wait
            await asyncio.sleep(self.member.timing.warm_up_s)
        self._has_warmed_up = True
        if self.member.journal is None:
            for runner in self._runners.values():
                runner.execute(runner.ownership.step_back())  # to the priority of a member that has warmed up
            return
        await self._write("ready")
        for count in itertools.count(1):
            await asyncio.sleep(self.member.timing.alive_s)
            # A leaving member is silent once its successor runs, which would take it for a duplicate.
            if self._is_ready and not (self._is_leaving and self._has_successor):
                # Each is confirmed before the next, so that they do not pile up while the broker blocks.
                with self._waiting_for_journal():
                    await self._write("alive" if count % _READY_EVERY else "ready")
            self._evict_dead_members()

    def _evict_dead_members(self) -> None:
        """Write which members have died. While this member cannot write or read the journal, it evicts nobody."""
        read_at = self.roster.seen.get(self.member.name)
        if read_at is None:
            return
        gone_s = self.member.timing.gone_s
        for member in self.roster.silent(read_at, gone_s):
            _log.warning(
                "group member %s counts as dead: it wrote no heartbeat for %g s; the others take its queues. Restart it if it still runs",
                member,
                gone_s,
            )
            self.roster.seen.pop(member, None)  # so that it is evicted once
            gone = JournalEntry("gone", member, time.time(), token=self.roster.members[member].token)
            self.spawn(partial(self._append, gone))

    async def _look_at_idle_queues(self) -> None:
        """Look now and then at the queues that deliver nothing: whether they exist, and whether messages wait without being delivered.

        A quorum queue may accept a consumer in its last moments, which the broker then never cancels (tested with 4.3.6). The look at a queue
        that does not exist ends the session with a NotFoundError.
        """
        while True:
            await asyncio.sleep(self.member.timing.watch_s)
            for queue, runner in self._runners.items():
                if runner.ownership.is_idle:
                    await self._look_at(queue, runner)
                else:
                    self._stalls.forget(queue)

    async def _look_at(self, queue: str, runner: QueueRunner) -> None:
        """Look at an idle queue, and consume it again if it has messages that this member should get and does not get."""
        ready = await self.connection.ready_count(queue)
        if not self._should_deliver(queue, runner):
            self._stalls.forget(queue)
            return
        warning = self._stalls.check(queue, ready, runner.ownership.delivered_count)
        if warning is not None:
            _log.warning("%s", warning, extra={"queue": queue})
            runner.execute(runner.ownership.step_back())

    def _should_deliver(self, queue: str, runner: QueueRunner) -> bool:
        """Return whether this idle member would get the messages of a queue, if it had any."""
        if not runner.ownership.is_idle:
            return False
        claim = self.roster.claims.get(queue)
        is_with_another = claim is not None and claim.held and claim.member != self.member.name
        return runner.ownership.is_held or (self._assignments.is_mine(queue) and not is_with_another)


async def _accept(_queue: str) -> None:
    """Check nothing: a stream has no arguments that matter."""


async def wait_until_finished(
    runners: Iterable[QueueRunner],
    seconds: float,
    lost: asyncio.Event | None = None,
    *,
    only_handlers: bool = False,
) -> bool:
    """Wait until all queues, or all their handlers and hooks, are finished; return False after the time limit or once `lost` is set."""
    lost = lost or asyncio.Event()
    end = time.monotonic() + seconds
    for runner in runners:
        while runner.is_handling if only_handlers else not runner.ownership.is_finished:
            runner.changed.clear()
            left_s = end - time.monotonic()
            if lost.is_set() or not await wait_for_any(runner.changed, lost, timeout_s=left_s):
                return False
    return True


class StallDetector:
    """Finds queues that have messages and do not deliver them to this member (rabbitmq-server#14141)."""

    def __init__(self) -> None:
        #: The messages delivered so far, the checks without a further one, and the renewals; by queue.
        self._stalls: dict[str, tuple[int, int, int]] = {}

    def forget(self, queue: str) -> None:
        """Restart the checks of a queue that is busy or empty."""
        self._stalls.pop(queue, None)

    def check(self, queue: str, ready: int, delivered: int) -> str | None:
        """Check an idle queue with its counts of ready and delivered messages. Return a warning if it must be consumed again, else None.

        Each renewal without effect doubles the number of checks until the next.
        """
        if not ready:
            self.forget(queue)
            return None
        before, checks, renewals = self._stalls.get(queue, (delivered, 0, 0))
        if before != delivered:
            self._stalls[queue] = delivered, 0, 0
            return None
        if checks < 1 << renewals:
            self._stalls[queue] = delivered, checks + 1, renewals
            return None
        self._stalls[queue] = delivered, 0, renewals + 1
        remedy = _DEAD_CONSUMER_REMEDY if renewals >= _MAX_SILENT_RENEWALS else "consuming it again"
        return f"{queue}: {ready:,} messages wait and none is delivered: {remedy}"
