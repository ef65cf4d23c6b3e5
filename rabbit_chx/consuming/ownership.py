"""What one member decides about one queue, without I/O and without a clock.

`QueueOwnership` receives events through its ``on_...`` methods. Each method returns commands, which `runner.QueueRunner` executes
in their order.

The broker elects one consumer of the queue. An elected member learns this from its first delivery. It then writes a claim into
the journal, runs the hook `on_gained`, and handles messages.

A consumer that holds messages is never cancelled with ``basic.cancel``: the broker would elect the next consumer first and requeue
the messages afterwards, behind later ones (tried with 3.8.9, 3.10.8, 4.0.5 and 4.3.6). Instead its channel is closed by an error,
and the broker requeues the messages before the election. This is called abandoning the subscription.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, get_args
from zlib import crc32

from rabbit_chx.checks import check_seconds, check_whole, is_finite
from rabbit_chx.consuming.journal import JOURNAL
from rabbit_chx.errors import InputError
from rabbit_chx.retry import Backoff
from rabbit_chx.topology.hand_over_marker import HandOverMarker

OnFailure: TypeAlias = Literal["stop", "dead-letter"]
Hook: TypeAlias = Callable[[str], Awaitable[None]]

#: Reasons of a timer: poll the parking queue again; stop waiting for the end of a hand-over. Else the reason is a lane to retry.
POLL, TAKING = "poll", "taking"
_POLL_S = 0.05
_CLAIM_S = 0.05
_REPLIES: dict[str, Literal["flushed", "taken"]] = {"flush": "flushed", "begin": "taken"}
_MAX_NAME_BYTES = 100
_MAX_LANES = 256
_MAX_PREFETCH = 1000
_MAX_BACKOFF_S = 30.0


@dataclass(frozen=True)
class GroupPace:
    """The times of a group. All members of a group should have the same.

    Attributes:
        settle_s: seconds for which a member must be healthy before it takes its share of the queues. A member in a crash loop
            never gets that far, so it takes no queue from another.
        alive_s: seconds between two heartbeats in the journal.
        gone_s: seconds without a heartbeat after which the other members reassign the queues. The broker gives the queues of a
            dead member to waiting members long before.
        watch_s: seconds between two checks of idle queues.
        hook_s: time limit of a hook, in seconds.
        stop_s: time limit for the messages in hand when the group stops, in seconds. Then their handlers are cancelled.
        journal_s: time limit until a claim is read back from the journal, in seconds.
        park_s: seconds without a parked message after which a member stops waiting for the end of a slot's hand-over, because the
            process that moved the slot has died. The messages of the queue wait meanwhile.
    """

    settle_s: float = 5.0
    alive_s: float = 3.0
    gone_s: float = 10.0
    watch_s: float = 15.0
    hook_s: float = 10.0
    stop_s: float = 30.0
    journal_s: float = 30.0
    park_s: float = 30.0

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            check_seconds(name, value, zero=False)
        if self.gone_s <= self.alive_s:
            raise InputError(
                f"gone_s is {self.gone_s:g}, and alive_s {self.alive_s:g}: gone_s must be longer than alive_s"
            )


@dataclass(frozen=True)
class GroupMember:
    """The validated arguments of a `ConsumerGroup`, which documents them."""

    name: str
    weight: float = 1.0
    lanes: int = 1
    prefetch: int = 32
    retries: int = 5
    backoff_s: float = 0.2
    on_failure: OnFailure = "stop"
    on_gained: Hook | None = None
    on_lost: Hook | None = None
    pace: GroupPace = field(default_factory=GroupPace)
    journal: str | None = JOURNAL

    def __post_init__(self) -> None:
        name = self.name
        if not isinstance(name, str) or not 0 < len(name.encode(errors="replace")) <= _MAX_NAME_BYTES:
            raise InputError(
                f"member is {name!r:.60}: give text of 1 to {_MAX_NAME_BYTES} bytes, such as the name of the pod"
            )
        if not is_finite(self.weight) or self.weight <= 0:
            raise InputError(f"weight is {self.weight!r}: give a finite number, more than 0")
        check_whole("lanes", self.lanes, 1, _MAX_LANES)
        check_whole("prefetch", self.prefetch, self.lanes, _MAX_PREFETCH)
        check_whole("retries", self.retries, 0, 1 << 31)
        check_seconds("backoff_s", self.backoff_s)
        if self.on_failure not in get_args(OnFailure):
            raise InputError(f"on_failure is {self.on_failure!r}: give 'stop' or 'dead-letter'")

    def delay_s(self, attempts: int) -> float:
        """Return the delay before the next attempt, in seconds, after 1 or more failed attempts."""
        return Backoff(self.backoff_s, _MAX_BACKOFF_S).delay_s(attempts - 1)


@dataclass(frozen=True, slots=True)
class DeliveredMessage:
    """A message that the broker has delivered and that is not acknowledged yet.

    Attributes:
        marker: the hand-over marker that the message is, else None.
        reply_to: the queue for the reply to the marker.
    """

    tag: int
    key: str
    content: Any = None
    marker: HandOverMarker | None = None
    reply_to: str | None = None


# -- commands. `subscription` is the number of a subscription.


@dataclass(frozen=True, slots=True)
class Subscribe:
    """Open a channel and consume the queue, behind all present consumers; then call `on_subscribed`."""

    subscription: int


@dataclass(frozen=True, slots=True)
class Claim:
    """Write a claim into the journal; call `on_claimed` when it is read back over the subscription's connection."""

    subscription: int


@dataclass(frozen=True, slots=True)
class Start:
    """Call the handler; then call `on_handled`."""

    subscription: int
    delivery: DeliveredMessage
    attempt: int
    generation: int | None


@dataclass(frozen=True, slots=True)
class Interrupt:
    """Cancel a handler whose subscription is lost; `on_handled` follows when it has ended."""

    subscription: int
    tag: int


@dataclass(frozen=True, slots=True)
class Ack:
    """Acknowledge a message."""

    subscription: int
    tag: int


@dataclass(frozen=True, slots=True)
class Reject:
    """Reject a message without requeue: the broker dead-letters it."""

    subscription: int
    tag: int


@dataclass(frozen=True, slots=True)
class Abandon:
    """Close the channel such that the broker requeues its messages before it elects another consumer; then call `on_closed`."""

    subscription: int


@dataclass(frozen=True, slots=True)
class RunHook:
    """Call the user's hook; then call `on_hook_done`."""

    hook: Literal["gained", "lost"]
    generation: int | None


@dataclass(frozen=True, slots=True)
class StartTimer:
    """Call `on_timer` with the subscription and the reason after some seconds."""

    subscription: int
    reason: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Reply:
    """Publish a reply to a marker, after the broker has processed all acks of the subscription."""

    subscription: int
    queue: str
    marker: HandOverMarker


@dataclass(frozen=True, slots=True)
class FetchParked:
    """Get one message of the parking queue over the subscription's channel; then call `on_fetched`."""

    subscription: int
    park: str


@dataclass(frozen=True, slots=True)
class FailGroup:
    """End the group with an error: all attempts to handle this message failed, and `on_failure` is ``stop``."""

    subscription: int
    delivery: DeliveredMessage


@dataclass(frozen=True, slots=True)
class LogWarning:
    """Log a warning."""

    message: str


Command: TypeAlias = (
    Subscribe | Claim | Start | Interrupt | Ack | Reject | Abandon | RunHook | StartTimer | Reply | FetchParked | FailGroup | LogWarning
)  # fmt: skip


@dataclass(slots=True)
class HandledMessage:
    """A message in hand: its handler runs, or waits for the next attempt."""

    delivery: DeliveredMessage
    attempt: int = 1
    is_running: bool = True


@dataclass(slots=True)
class Subscription:
    """One consumer of the queue, on a channel of its own.

    Attributes:
        state: opening; open; retiring (messages in hand are finished, the rest is requeued); ended (its channel is being closed).
        pending: delivered messages that were not started, in queue order.
        working: the messages in hand, by lane.
        generation: the generation of its claim; None before the claim, and without a journal.
        claim: whether the claim was not made yet, requested, or read back.
        begin: the `begin` marker of the hand-over whose parking queue is being read.
        is_polling: whether the parking queue is being polled, or will be in a moment.
        is_fetching: whether the response of the parking queue is outstanding.
        received_parked: whether parked messages arrived since the last time-out check. Messages that arrive after the parking queue
            was empty do not count: they belong to another hand-over, since the mover of this one has bound the slot.
        is_park_emptied: whether the parking queue was empty since `begin`.
        ended: ids of hand-overs whose `end` was read while another one was awaited. The mover of the awaited one has died.
        has_failed: whether a message of it stops the group.
        is_late: whether it must be opened again, because other members come first.
    """

    number: int
    queue: str
    member: GroupMember = field(repr=False)
    state: Literal["opening", "open", "retiring", "ended"] = "opening"
    pending: deque[DeliveredMessage] = field(default_factory=deque)
    working: dict[int, HandledMessage] = field(default_factory=dict)
    generation: int | None = None
    claim: Literal["none", "requested", "confirmed"] = "none"
    begin: DeliveredMessage | None = None
    is_polling: bool = False
    is_fetching: bool = False
    received_parked: bool = False
    is_park_emptied: bool = False
    ended: set[str] = field(default_factory=set)
    has_failed: bool = False
    is_late: bool = False

    def start_pending(self) -> list[Command]:
        """Start the messages whose lane is free, and obey markers once everything before them is handled.

        No message overtakes a marker.
        """
        commands: list[Command] = []
        held_back: deque[DeliveredMessage] = deque()
        busy = set(self.working)
        lanes = self.member.lanes
        free = lanes - len(busy)
        while self.pending and free > 0:
            delivery = self.pending.popleft()
            if delivery.marker is not None:
                if self.working or held_back:
                    self.pending.appendleft(delivery)
                    break
                commands += self._obey(delivery, delivery.marker)
                if self.begin is not None:
                    break
                continue
            lane = crc32(delivery.key.encode()) % lanes if lanes > 1 else 0
            if lane in busy:
                held_back.append(delivery)
                continue
            free -= 1
            busy.add(lane)
            self.working[lane] = HandledMessage(delivery)
            commands.append(Start(self.number, delivery, 1, self.generation))
        self.pending.extendleft(reversed(held_back))
        return commands

    # -- hand-over of a slot

    def read_park(self) -> list[Command]:
        """Fetch the next message of the parking queue, unless one is in hand or requested."""
        if self.is_polling or self.working or self.begin is None or self.begin.marker is None:
            return []
        self.is_polling = self.is_fetching = True
        return [FetchParked(self.number, self.begin.marker.park)]

    def on_fetched(self, delivery: DeliveredMessage | None) -> list[Command]:
        """Receive a message of the parking queue, or None if the parking queue is empty."""
        self.is_polling = self.is_fetching = False
        if self.state in ("retiring", "ended"):
            return []  # the message is requeued when the channel closes
        if delivery is None:
            self.is_polling = self.is_park_emptied = True
            return [StartTimer(self.number, POLL, _POLL_S)]
        self.received_parked = not self.is_park_emptied
        if delivery.marker is None:
            self.working[0] = HandledMessage(delivery)
            return [Start(self.number, delivery, 1, self.generation)]
        begin = self.begin
        if delivery.marker.kind != "end" or begin is None or begin.marker != delivery.marker.as_kind("begin"):
            self.ended.add(delivery.marker.id)
            return [Ack(self.number, delivery.tag)]
        self.begin = None
        # The acks precede the reply: an `end` that was redelivered after the reply would stay in the parking queue.
        return [Ack(self.number, begin.tag), Ack(self.number, delivery.tag), *self._replies(begin, "taken")]

    def on_park_timeout(self, reason: str) -> list[Command]:
        """Stop reading the parking queue if the end of the hand-over is still awaited, and continue with the queue."""
        if self.begin is None or reason != f"{TAKING} {self.begin.tag}":
            return []
        park_s = self.member.pace.park_s
        if self.received_parked:
            self.received_parked = False
            return [StartTimer(self.number, reason, park_s)]
        if self.is_fetching:  # nobody would hold the message of the response
            return [StartTimer(self.number, reason, _POLL_S)]
        slot, tag, self.begin = self.begin.marker.slot if self.begin.marker else "", self.begin.tag, None
        warning = (
            f"the hand-over of {slot} to {self.queue} did not end, and the parking queue had no more messages of it for {park_s:g} s: "
            "the next command that moves the slot handles what is parked"
        )
        return [LogWarning(warning), Ack(self.number, tag)]

    def _obey(self, delivery: DeliveredMessage, marker: HandOverMarker) -> list[Command]:
        """Obey a marker. All messages before it are handled and acknowledged."""
        if marker.kind == "begin" and marker.id not in self.ended:
            self.begin, self.received_parked, self.is_park_emptied = delivery, False, False
            reason = f"{TAKING} {delivery.tag}"
            return [StartTimer(self.number, reason, self.member.pace.park_s), *self.read_park()]
        replies = self._replies(delivery, _REPLIES[marker.kind]) if marker.kind in _REPLIES else []
        # The ack follows the reply: a marker without a reply is redelivered.
        return [*replies, Ack(self.number, delivery.tag)]

    def _replies(self, question: DeliveredMessage, kind: Literal["flushed", "taken"]) -> list[Command]:
        """Return the reply to a marker, if a queue waits for it."""
        if question.marker is None or not question.reply_to:
            return []
        return [Reply(self.number, question.reply_to, question.marker.reply(kind))]


class QueueOwnership:
    """The state of one member at one queue. Each method receives an event and returns the commands to execute.

    Attributes:
        subscription: the present consumer; None while there is none.
        is_held: whether this member owns the queue: from before the hook on_gained until the hook on_lost begins.
        is_stopping: whether the member leaves the group.
    """

    def __init__(self, queue: str, member: GroupMember) -> None:
        self.queue = queue
        self.subscription: Subscription | None = None
        self.is_held = False
        self.is_stopping = False
        self.delivered_count = 0
        self.generation: int | None = None  # of the last claim
        self._member = member
        self._last_number = 0
        self._is_hook_running = False
        self._is_lost_hook_due = False
        self._orphans: set[tuple[int, int]] = set()  # running handlers whose subscription is lost

    # -- requests of the group

    def consume(self) -> list[Command]:
        """Consume the queue, unless it is consumed."""
        if self.is_stopping or self.subscription is not None:
            return []
        self._last_number += 1
        self.subscription = Subscription(self._last_number, self.queue, self._member)
        return [Subscribe(self._last_number)]

    def step_back(self) -> list[Command]:
        """Finish the messages in hand, let other members have the queue, and consume it again behind them."""
        if self.is_stopping or self.subscription is None:
            return []
        if self.subscription.state == "opening":
            self.subscription.is_late = True
        elif self.subscription.state == "open":
            self.subscription.state = "retiring"
        return self._advance()

    def stop(self) -> list[Command]:
        """Finish the messages in hand and leave the queue; the other messages are requeued in their place."""
        self.is_stopping = True
        if self.subscription is not None and self.subscription.state == "open":
            self.subscription.state = "retiring"
        return self._advance()

    @property
    def is_empty(self) -> bool:
        """Whether nothing is left at the broker, in a handler or in a hook."""
        return not (self.subscription or self._orphans or self._is_hook_running or self._is_lost_hook_due)

    @property
    def is_leaving(self) -> bool:
        """Whether it releases the queue, or has no subscription."""
        return self.subscription is None or self.subscription.state in ("retiring", "ended")

    @property
    def is_idle(self) -> bool:
        """Whether it is subscribed and has nothing to do."""
        current = self.subscription
        if current is None or current.state != "open":
            return False
        return not (current.pending or current.working or current.begin)

    # -- events of the broker

    def on_subscribed(self, number: int) -> list[Command]:
        """The broker knows the consumer of a subscription."""
        subscription = self._current(number)
        if subscription is None:
            return []
        subscription.state = "retiring" if self.is_stopping or subscription.is_late else "open"
        return self._advance()

    def on_delivered(self, number: int, delivery: DeliveredMessage) -> list[Command]:
        """The broker has delivered a message."""
        self.delivered_count += 1
        subscription = self._current(number)
        if subscription is None or subscription.state == "ended":
            return []  # the broker requeues it
        subscription.pending.append(delivery)
        return self._advance()

    def on_fetched(self, number: int, delivery: DeliveredMessage | None) -> list[Command]:
        """The parking queue has returned a message, or None if it is empty."""
        subscription = self._current(number)
        if subscription is None or not subscription.is_fetching:
            return []
        return subscription.on_fetched(delivery) + self._advance()

    def on_closed(self, number: int) -> list[Command]:
        """The channel of a subscription is closed. After `Abandon`, another subscription follows."""
        subscription = self._current(number)
        if subscription is None:
            return []
        commands = self.on_lost()
        return commands + self.consume() if subscription.state == "ended" else commands

    def on_lost(self) -> list[Command]:
        """The connection is lost, and the subscription with everything that it held."""
        subscription, self.subscription = self.subscription, None
        if subscription is None:
            return []
        works = [work for work in subscription.working.values() if work.is_running]
        running = [(subscription.number, work.delivery.tag) for work in works]
        self._orphans.update(running)
        if self.is_held:
            self._is_lost_hook_due = True
        return [*(Interrupt(number, tag) for number, tag in running), *self._advance()]

    # -- events of the journal

    def on_claimed(self, number: int, generation: int) -> list[Command]:
        """The claim of a subscription was read back from the journal, over the connection that consumes.

        So the broker had not given up this connection before the claim: a member that is elected instead claims later.
        """
        subscription = self._current(number)
        if subscription is None:
            return []
        subscription.claim, subscription.generation = "confirmed", generation
        self.generation = generation
        return self._advance()

    def on_superseded(self) -> list[Command]:
        """Another member has claimed the queue after this member's last claim."""
        if self.subscription is not None and self.subscription.claim == "confirmed":
            self.subscription.claim, self.subscription.generation = "none", None
        if self.is_held:
            self._is_lost_hook_due = True
        return self._advance()

    # -- events of handlers, hooks and timers

    def on_handled(self, number: int, tag: int, *, failed: bool = False) -> list[Command]:
        """The handler of a message has ended."""
        if (number, tag) in self._orphans:
            self._orphans.discard((number, tag))
            return self._advance()
        subscription = self._current(number)
        if subscription is None:
            return []
        lanes = (lane for lane, work in subscription.working.items() if work.delivery.tag == tag)
        lane = next(lanes, None)
        if lane is None:
            return []
        if not failed:
            del subscription.working[lane]
            return [Ack(number, tag), *self._advance()]
        return self._on_failed(subscription, lane)

    def _on_failed(self, subscription: Subscription, lane: int) -> list[Command]:
        work = subscription.working[lane]
        tag = work.delivery.tag
        is_retiring = subscription.state == "retiring" or self.is_stopping
        if not is_retiring and work.attempt <= self._member.retries:
            work.is_running = False
            return [StartTimer(subscription.number, str(lane), self._member.delay_s(work.attempt))]
        del subscription.working[lane]
        if is_retiring:
            subscription.has_failed = True  # the message is requeued, and the next member tries again
            return self._advance()
        if self._member.on_failure == "dead-letter":
            return [Reject(subscription.number, tag), *self._advance()]
        subscription.has_failed = True
        return [FailGroup(subscription.number, work.delivery)]

    def on_hook_done(self) -> list[Command]:
        """A hook has ended."""
        self._is_hook_running = False
        return self._advance()

    def on_timer(self, number: int, reason: str) -> list[Command]:
        """The time of a `StartTimer` has passed."""
        subscription = self._current(number)
        if subscription is None:
            return []
        if reason == POLL:
            subscription.is_polling = False
            return self._advance()
        if reason.startswith(TAKING):
            return subscription.on_park_timeout(reason) + self._advance()
        return self._retry(subscription, int(reason))

    def _retry(self, subscription: Subscription, lane: int) -> list[Command]:
        work = subscription.working.get(lane)
        if work is None or work.is_running:
            return []
        if subscription.state == "retiring":
            del subscription.working[lane]
            return self._advance()
        if self._lacks_claim(subscription):  # another member has owned the queue meanwhile
            retry = StartTimer(subscription.number, str(lane), _CLAIM_S)
            return [*self._request_claim(subscription), retry]
        work.attempt += 1
        work.is_running = True
        return [Start(subscription.number, work.delivery, work.attempt, subscription.generation)]

    # -- the next step

    def _current(self, number: int) -> Subscription | None:
        """Return the present subscription if it has this number: events of earlier ones are ignored."""
        current = self.subscription
        return current if current is not None and current.number == number else None

    def _advance(self) -> list[Command]:
        """Return the commands that are possible now."""
        subscription = self.subscription
        if subscription is None or subscription.state in ("opening", "ended"):
            return self._run_lost_hook()
        if subscription.state == "retiring":
            return self._retire(subscription)
        if hook := self._run_lost_hook():
            return hook
        if self._is_hook_running or self._orphans or self._is_lost_hook_due:
            return []  # these must end before anything is started
        return self._process(subscription)

    def _run_lost_hook(self) -> list[Command]:
        """Run the hook on_lost if it is due and no handler runs any more."""
        is_working = self.subscription is not None and self.subscription.working
        if self._is_hook_running or self._orphans or is_working or not self._is_lost_hook_due:
            return []
        self._is_lost_hook_due = self.is_held = False
        self._is_hook_running = True
        return [RunHook("lost", self.generation)]

    def _retire(self, subscription: Subscription) -> list[Command]:
        """Abandon a subscription once nothing of it is in hand. The hook on_lost runs before."""
        for lane, work in list(subscription.working.items()):
            if not work.is_running:  # the next member makes the next attempt
                del subscription.working[lane]
        is_claiming = (
            subscription.claim == "requested"
        )  # its claim, read later, would look like that of an owner
        is_busy = subscription.working or subscription.is_fetching or is_claiming
        if is_busy or self._is_hook_running or self._orphans:
            return []
        if self.is_held:
            self._is_lost_hook_due = True
            return self._run_lost_hook()
        subscription.state = "ended"
        return [Abandon(subscription.number)]

    def _process(self, subscription: Subscription) -> list[Command]:
        """Claim the queue, run the hook on_gained, and handle messages."""
        if subscription.has_failed or not (subscription.pending or subscription.begin):
            return []
        if self._lacks_claim(subscription):
            return [] if subscription.working else self._request_claim(subscription)
        if not self.is_held:
            self.is_held = self._is_hook_running = True
            return [RunHook("gained", subscription.generation)]
        if subscription.begin is not None:
            return subscription.read_park()
        return subscription.start_pending()

    def _lacks_claim(self, subscription: Subscription) -> bool:
        return self._member.journal is not None and subscription.claim != "confirmed"

    def _request_claim(self, subscription: Subscription) -> list[Command]:
        if subscription.claim != "none":
            return []
        subscription.claim = "requested"
        return [Claim(subscription.number)]
