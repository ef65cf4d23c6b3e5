"""The decisions of one member about one queue, without I/O and without a clock.

`QueueOwnership` receives events through its ``on_...`` methods. Each method returns commands, which `runner.QueueRunner` executes in their
order.

The broker elects one consumer of the queue. The first delivery informs a member that it is elected. It then writes a claim into the
journal, runs the hook `on_gained`, and handles messages.

A consumer that holds messages is never cancelled with ``basic.cancel``: the broker would elect the next consumer first and requeue the
messages afterwards, after later ones (tested with 3.10.8, 4.0.5 and 4.3.6). Instead its channel is closed by an error, and the
broker requeues the messages before the election. This is called abandoning the subscription.

The state of a queue is that of its subscription: none; opening; open; retiring (messages in progress are finished, the rest is requeued);
closing (its channel is closed). `consume` opens one, `on_subscribed` makes it open, `step_back` and `stop` make it retire, and `on_abandoned`
or `on_connection_lost` ends it. The commands that each event may return in each state, as the exploration of all states finds them
(tests/models/group_exploration.py; handlers that fail, hooks that take time, hand-overs and the turns of redelivered messages add others):

| event              | none      | opening | open                     | retiring      | closing   |
| ------------------ | --------- | ------- | ------------------------ | ------------- | --------- |
| consume            | Subscribe |         |                          |               |           |
| on_subscribed      |           | Abandon |                          |               |           |
| on_delivered       |           |         | Claim StartHandler       |               |           |
| on_claimed         |           |         | RunHook                  | Abandon       |           |
| on_hook_done       |           |         | Claim StartHandler       | Abandon       |           |
| on_handled         | RunHook   | RunHook | Ack StartHandler RunHook | Ack RunHook   |           |
| on_superseded      |           |         | RunHook                  |               |           |
| step_back          |           |         | RunHook Abandon          |               |           |
| stop               |           |         | RunHook Abandon          |               |           |
| on_connection_lost |           |         | CancelHandler RunHook    | CancelHandler |           |
| on_abandoned       |           |         |                          |               | Subscribe |

A slot moves from an old queue to a new one by a hand-over (`broker/hand_over.py`). Its mover parks new messages of the slot in a
parking queue. The marker ``flush`` in the old queue asks its owner to reply ``flushed`` once everything before it is handled. The marker
``begin`` in the new queue asks its owner to handle the parked messages up to the marker ``end``, and to reply ``taken``.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, TypeAlias
from zlib import crc32

from rabbit_chx.consuming.message import Turns
from rabbit_chx.consuming.settings import GroupMember
from rabbit_chx.topology.slots import HandOverMarker

#: Seconds between two requests to an empty parking queue, and until a retry that lacks a claim looks for it again.
_POLL_S = 0.05
_CLAIM_S = 0.05
#: Seconds for which redelivered messages wait for each other, and of the turn of one. Then others are handled beside it.
_SETTLE_S = 0.25
_TURN_S = 30.0
#: The replies to markers. `begin` gets its reply at once if its `end` was read before.
_REPLIES: dict[str, Literal["flushed", "taken"]] = {"flush": "flushed", "begin": "taken"}


class TimerReason(NamedTuple):
    """The action at the end of a timer.

    Attributes:
        kind: poll: request the next parked message. hand-over: check whether the awaited hand-over still makes progress. retry: handle a
            message again. settle: check whether a redelivered message has waited for others. turn: end its turn.
        key: the delivery tag (settle, turn), that of the `begin` marker (hand-over), or the lane (retry).
    """

    kind: Literal["poll", "hand-over", "retry", "settle", "turn"]
    key: int = 0


POLL = TimerReason("poll")


@dataclass(frozen=True, slots=True)
class DeliveredMessage:
    """A message that the broker has delivered and that is not acknowledged yet.

    Attributes:
        content: the `GroupMessage` for the handler.
        marker: the hand-over marker if the message is one, else None.
        reply_to: the queue for the reply to the marker.
        attempt: the number of its first attempt here: more than 1 if earlier ones failed over a connection that is lost.
        returns: how often it was returned to its queue before.
    """

    tag: int
    key: str
    content: Any = None
    marker: HandOverMarker | None = None
    reply_to: str | None = None
    attempt: int = 1
    returns: int = 0


# -- commands. `subscription` is the number of a subscription.


@dataclass(frozen=True, slots=True)
class Subscribe:
    """Open a channel and consume the queue, after all present consumers; then call `on_subscribed`."""

    subscription: int


@dataclass(frozen=True, slots=True)
class Claim:
    """Write a claim into the journal; call `on_claimed` when it is read back over the subscription's connection."""

    subscription: int


@dataclass(frozen=True, slots=True)
class StartHandler:
    """Call the handler; then call `on_handled`."""

    subscription: int
    delivery: DeliveredMessage
    attempt: int
    generation: int | None


@dataclass(frozen=True, slots=True)
class CancelHandler:
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
class AwaitAcks:
    """Wait until the broker has processed all acks of the subscription."""

    subscription: int


@dataclass(frozen=True, slots=True)
class ResumeQueues:
    """Call `pass_turn` with the tag of a message that has ended, and then `resume` of all queues of the member."""

    tag: int = 0


@dataclass(frozen=True, slots=True)
class Abandon:
    """Close the channel such that the broker requeues its messages before it elects another consumer; then call `on_abandoned`."""

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
    reason: TimerReason
    seconds: float


@dataclass(frozen=True, slots=True)
class SendReply:
    """Publish a reply to a marker, after the broker has processed all acks of the subscription."""

    subscription: int
    queue: str
    marker: HandOverMarker


@dataclass(frozen=True, slots=True)
class FetchParked:
    """Get one message of the parking queue over the subscription's channel; then call `on_fetched`."""

    subscription: int
    parking_queue: str


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
    Subscribe | Claim | StartHandler | CancelHandler | Ack | Reject | AwaitAcks | ResumeQueues | Abandon | RunHook | StartTimer | SendReply | FetchParked | FailGroup | LogWarning
)  # fmt: skip


@dataclass(slots=True)
class MessageInProgress:
    """A message whose handler runs, or that waits for the next attempt."""

    delivery: DeliveredMessage
    attempt: int = 1
    is_running: bool = True


@dataclass(slots=True)
class HandOverInProgress:
    """The hand-over whose parked messages are being handled.

    Attributes:
        tag: the delivery tag of its `begin` marker.
        is_park_emptied: whether the parking queue was empty since `begin`. Messages that arrive later belong to another hand-over, since
            the mover of this one has bound the slot.
        has_progressed: whether its parked messages arrived since the last time-out check.
    """

    tag: int
    marker: HandOverMarker
    reply_to: str | None
    is_park_emptied: bool = False
    has_progressed: bool = False


@dataclass(slots=True)
class Subscription:
    """One consumer of the queue, on its own channel.

    Attributes:
        state: see the table above.
        pending: delivered messages that were not started, in queue order.
        in_progress: the messages in progress, by lane.
        generation: the generation of its claim; None before the claim, and without a journal.
        claim: none: not requested yet, or superseded. confirmed: read back from the journal.
        hand_over: the hand-over that has begun and not ended.
        is_polling: whether the next parked message was requested, or will be when a timer ends.
        is_fetching: whether the response to that request is outstanding.
        ended_early: ids of hand-overs whose `end` was read while another one was awaited. The mover of the awaited one has died.
        has_failed: whether a message of it stops the group.
        settling_s: how long its redelivered messages have waited for others.
        is_step_back_due: whether it retires as soon as it is open, because it subscribed before members that the broker should elect first.
    """

    number: int
    queue: str
    member: GroupMember = field(repr=False)
    turns: Turns = field(repr=False)
    state: Literal["opening", "open", "retiring", "closing"] = "opening"
    pending: deque[DeliveredMessage] = field(default_factory=deque)
    in_progress: dict[int, MessageInProgress] = field(default_factory=dict)
    generation: int | None = None
    claim: Literal["none", "requested", "confirmed"] = "none"
    hand_over: HandOverInProgress | None = None
    is_polling: bool = False
    is_fetching: bool = False
    ended_early: set[str] = field(default_factory=set)
    has_failed: bool = False
    is_step_back_due: bool = False
    settling_s: float = 0.0

    def start_pending(self) -> list[Command]:
        """Start the messages whose lane is free, and process a marker once everything before it is handled and before anything after it."""
        commands: list[Command] = []
        held_back: deque[DeliveredMessage] = deque()
        busy = set(self.in_progress)
        lanes = self.member.concurrency
        free = lanes - len(busy)

        while self.pending and free > 0:
            delivery = self.pending.popleft()
            if delivery.marker is not None:
                if self.in_progress or held_back:
                    self.pending.appendleft(delivery)
                    break
                commands += self._process_marker(delivery, delivery.marker)
                if self.hand_over is not None:
                    break
                continue

            lane = self.lane_of(delivery)
            if lane in busy or not self.turns.may_start(self.queue, delivery.tag):
                held_back.append(delivery)
                busy.add(lane)
                continue

            free -= 1
            busy.add(lane)
            self.in_progress[lane] = MessageInProgress(delivery, delivery.attempt)
            commands.append(StartHandler(self.number, delivery, delivery.attempt, self.generation))

        self.pending.extendleft(reversed(held_back))
        return commands

    def lane_of(self, delivery: DeliveredMessage) -> int:
        """Return the lane of a message."""
        lanes = self.member.concurrency
        return crc32(delivery.key.encode(errors="surrogateescape")) % lanes if lanes > 1 else 0

    # -- hand-over of a slot

    def fetch_parked(self, hand_over: HandOverInProgress) -> list[Command]:
        """Request the next parked message, unless one is in progress or requested."""
        if self.is_polling or self.in_progress:
            return []
        self.is_polling = self.is_fetching = True
        return [FetchParked(self.number, hand_over.marker.park)]

    def on_fetched(self, hand_over: HandOverInProgress, delivery: DeliveredMessage | None) -> list[Command]:
        """Receive a parked message, or None if the parking queue is empty."""
        self.is_polling = self.is_fetching = False
        if self.state in ("retiring", "closing"):
            return []  # the message is requeued when the channel closes
        if delivery is None:
            self.is_polling = hand_over.is_park_emptied = True
            return [StartTimer(self.number, POLL, _POLL_S)]
        hand_over.has_progressed = not hand_over.is_park_emptied
        if delivery.marker is None:
            self.in_progress[0] = MessageInProgress(delivery)
            return [StartHandler(self.number, delivery, 1, self.generation)]
        if delivery.marker.kind != "end" or hand_over.marker != delivery.marker.as_kind("begin"):
            self.ended_early.add(delivery.marker.id)
            return [Ack(self.number, delivery.tag)]
        self.hand_over = None
        # The acks precede the reply: an `end` that was redelivered after the reply would stay in the parking queue.
        acks = [Ack(self.number, hand_over.tag), Ack(self.number, delivery.tag)]
        return [*acks, *self._replies(hand_over.marker, hand_over.reply_to, "taken")]

    def on_hand_over_timeout(self, tag: int) -> list[Command]:
        """Stop waiting for the end of the hand-over that began with this delivery tag, unless parked messages still arrive or are handled."""
        hand_over = self.hand_over
        if hand_over is None or hand_over.tag != tag:
            return []
        reason = TimerReason("hand-over", tag)
        park_s = self.member.timing.park_s
        # What is in progress is a parked message, since `begin` waits for all others. Its handler may take longer than the timer.
        is_handling = bool(self.in_progress) and not hand_over.is_park_emptied
        if hand_over.has_progressed or is_handling:
            hand_over.has_progressed = False
            return [StartTimer(self.number, reason, park_s)]
        if self.is_fetching:  # the response may bring a message, which must be handled
            return [StartTimer(self.number, reason, _POLL_S)]
        return self._give_up_hand_over(
            hand_over,
            f"and the parking queue had no more messages of it for {park_s:g} s: the next command that moves the slot handles what is parked",
        )

    def on_park_missing(self) -> list[Command]:
        """The parking queue does not exist, so nothing is parked."""
        self.is_polling = self.is_fetching = False
        if self.hand_over is None:
            return []
        why = f"and its parking queue {self.hand_over.marker.park} does not exist: the message that began it is a copy, or came late"
        return self._give_up_hand_over(self.hand_over, why)

    def _give_up_hand_over(self, hand_over: HandOverInProgress, why: str) -> list[Command]:
        self.hand_over = None
        warning = f"the hand-over of {hand_over.marker.slot} to {self.queue} did not end, {why}"
        return [LogWarning(warning), Ack(self.number, hand_over.tag)]

    def _process_marker(self, delivery: DeliveredMessage, marker: HandOverMarker) -> list[Command]:
        """Process a marker of the queue itself. All messages before it are handled and acknowledged."""
        if marker.kind == "begin" and marker.id not in self.ended_early:
            self.hand_over = HandOverInProgress(delivery.tag, marker, delivery.reply_to)
            timer = StartTimer(self.number, TimerReason("hand-over", delivery.tag), self.member.timing.park_s)
            return [timer, *self.fetch_parked(self.hand_over)]
        reply = _REPLIES.get(marker.kind)
        replies = self._replies(marker, delivery.reply_to, reply) if reply else []
        # The ack follows the reply: a marker without a reply is redelivered.
        return [*replies, Ack(self.number, delivery.tag)]

    def _replies(
        self, marker: HandOverMarker, reply_to: str | None, kind: Literal["flushed", "taken"]
    ) -> list[Command]:
        """Return the reply to a marker, if it has a `reply_to`."""
        return [SendReply(self.number, reply_to, marker.reply(kind))] if reply_to else []


class QueueOwnership:
    """The state of one member at one queue. Each method receives an event and returns the commands to execute.

    Attributes:
        subscription: the present consumer; None without one.
        is_held: whether this member owns the queue: from before the hook on_gained until the hook on_lost begins.
        is_stopping: whether the member leaves the group.
        delivered_count: the number of messages delivered so far.
        generation: the generation of the last claim.
        is_limited: whether the queue has a delivery limit.
    """

    def __init__(self, queue: str, member: GroupMember, turns: Turns | None = None) -> None:
        self.queue = queue
        self.subscription: Subscription | None = None
        self.is_held = False
        self.is_stopping = False
        self.delivered_count = 0
        self.generation: int | None = None
        self.is_limited = False
        self._member = member
        self._turns = turns or Turns()
        self._turns.queues[queue] = self
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
        self.subscription = Subscription(self._last_number, self.queue, self._member, self._turns)
        return [Subscribe(self._last_number)]

    def step_back(self) -> list[Command]:
        """Finish the messages in progress, release the queue, and consume it again after the other members."""
        if self.is_stopping or self.subscription is None:
            return []
        if self.subscription.state == "opening":
            self.subscription.is_step_back_due = True
        elif self.subscription.state == "open":
            self.subscription.state = "retiring"
        return self._advance()

    def stop(self) -> list[Command]:
        """Finish the messages in progress and leave the queue; the other messages are requeued in their place."""
        self.is_stopping = True
        if self.subscription is not None and self.subscription.state == "open":
            self.subscription.state = "retiring"
        return self._advance()

    @property
    def is_finished(self) -> bool:
        """True if nothing is left at the broker, in a handler or in a hook."""
        return not (self.subscription or self._orphans or self._is_hook_running or self._is_lost_hook_due)

    @property
    def is_releasing(self) -> bool:
        """True if it releases the queue, or has no subscription."""
        return self.subscription is None or self.subscription.state in ("retiring", "closing")

    @property
    def is_idle(self) -> bool:
        """True if it is subscribed, and has neither messages nor hooks in progress."""
        current = self.subscription
        if current is None or current.state != "open":
            return False
        return not (current.pending or current.in_progress or current.hand_over)

    @property
    def is_handling(self) -> bool:
        """True if a handler of the present subscription runs."""
        current = self.subscription
        return current is not None and any(message.is_running for message in current.in_progress.values())

    @property
    def waits_for(self) -> str:
        """What must happen before it goes on, with what to do; empty if it is nothing, or its own handler or hook."""
        current = self.subscription
        what = ""
        if current is None or self._is_hook_running or self._orphans:
            pass  # the runner logs these
        elif current.state in ("opening", "closing"):
            what = "the broker to begin or end its consumer: look at the broker's log"
        elif current.claim == "requested":
            what = "its claim in the journal: look at the journal's nodes, and at alarms"
        elif current.state == "retiring":
            what = "its handlers to end, so that another member gets it: look what they wait for"
        elif current.hand_over is not None and not current.in_progress:
            what = f"the end of the hand-over of {current.hand_over.marker.slot}: look at what moves it"
        elif current.pending and self._turns.are_taken and not current.in_progress:
            what = "a message that was returned before, and is handled alone: look what its handler does"
        return what

    # -- the turns of redelivered messages

    def pass_turn(self, tag: int) -> None:
        """A message has ended, or the time of its turn."""
        self._turns.drop(self.queue, tag)

    def resume(self) -> list[Command]:
        """Start what may be started, after an event of any queue of the member."""
        turns = self._turns
        current = self.subscription
        if current is None or turns.turn is None or turns.turn[0] != self.queue or turns.is_timed:
            return self._advance()
        turns.is_timed = True
        return [
            StartTimer(current.number, TimerReason("turn", turns.turn[1]), _TURN_S),
            *self._advance(),
        ]

    def _settle(self, subscription: Subscription, tag: int) -> list[Command]:
        """Let a redelivered message have its turn, unless it still waits for its claim or a hook."""
        if not self._turns.is_suspect(self.queue, tag):
            return []
        waits_for_hook = self._is_hook_running or self._orphans or self._is_lost_hook_due
        can_start = (
            subscription.state == "open"
            and self.is_held
            and not waits_for_hook
            and not self._lacks_claim(subscription)
        )
        subscription.settling_s += _SETTLE_S
        if not can_start and subscription.settling_s < self._member.timing.hook_s:
            return [StartTimer(subscription.number, TimerReason("settle", tag), _SETTLE_S)]
        self._turns.settle(self.queue, tag, can_start=can_start)
        return [ResumeQueues()]

    def _ended(self, number: int, end: Ack | Reject) -> list[Command]:
        """Return the commands at the end of a message. The broker has its ack before another message begins its turn."""
        if not self._turns.are_taken:
            return [end]
        return [end, AwaitAcks(number), ResumeQueues(end.tag)]

    # -- events of the broker

    def on_subscribed(self, number: int) -> list[Command]:
        """The broker has registered the consumer of a subscription."""
        subscription = self._current(number)
        if subscription is None:
            return []
        subscription.state = "retiring" if self.is_stopping or subscription.is_step_back_due else "open"
        return self._advance()

    def on_delivered(self, number: int, delivery: DeliveredMessage) -> list[Command]:
        """The broker has delivered a message."""
        self.delivered_count += 1
        subscription = self._current(number)
        if subscription is None or subscription.state == "closing":
            return []  # the broker requeues it
        subscription.pending.append(delivery)
        must_settle = self.is_limited and delivery.returns
        if not must_settle or delivery.marker or subscription.state == "retiring":
            return self._advance()
        self._turns.add(self.queue, delivery.tag, delivery.returns, subscription.lane_of(delivery))
        timer = StartTimer(number, TimerReason("settle", delivery.tag), _SETTLE_S)
        return [timer, *self._advance()]

    def on_fetched(self, number: int, delivery: DeliveredMessage | None) -> list[Command]:
        """The parking queue has returned a message, or None if it is empty."""
        subscription = self._current(number)
        if subscription is None or not subscription.is_fetching or subscription.hand_over is None:
            return []
        return subscription.on_fetched(subscription.hand_over, delivery) + self._advance()

    def on_park_missing(self, number: int) -> list[Command]:
        """The parking queue does not exist."""
        subscription = self._current(number)
        return [] if subscription is None else [*subscription.on_park_missing(), *self._advance()]

    def on_abandoned(self, number: int) -> list[Command]:
        """The channel of an abandoned subscription is closed. Another subscription follows, unless the member leaves the group."""
        if self._current(number) is None:
            return []
        self.subscription = None
        is_taken = self._turns.drop_queue(self.queue)
        return [*([ResumeQueues()] if is_taken else []), *self.consume()]

    def on_connection_lost(self) -> list[Command]:
        """The connection is lost, and the subscription with everything that it held."""
        subscription = self.subscription
        self.subscription = None
        if subscription is None:
            return []
        self._turns.drop_queue(self.queue)
        in_progress = subscription.in_progress.values()
        running = [
            (subscription.number, message.delivery.tag) for message in in_progress if message.is_running
        ]
        self._orphans.update(running)
        if self.is_held:
            self._is_lost_hook_due = True
        return [*(CancelHandler(number, tag) for number, tag in running), *self._advance()]

    # -- events of the journal

    def on_claimed(self, number: int, generation: int) -> list[Command]:
        """The claim of a subscription was read back from the journal, over the connection that consumes.

        So the broker had not closed this connection before the claim: a member that is elected instead claims later.
        """
        subscription = self._current(number)
        if subscription is None:
            return []
        subscription.claim = "confirmed"
        subscription.generation = generation
        self.generation = generation
        return self._advance()

    def on_superseded(self) -> list[Command]:
        """Another member has claimed the queue after this member's last claim."""
        if self.subscription is not None and self.subscription.claim == "confirmed":
            self.subscription.claim = "none"
            self.subscription.generation = None
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
        lanes = (lane for lane, message in subscription.in_progress.items() if message.delivery.tag == tag)
        lane = next(lanes, None)
        if lane is None:
            return []
        if not failed:
            del subscription.in_progress[lane]
            return [*self._ended(number, Ack(number, tag)), *self._advance()]
        return self._on_failed(subscription, lane)

    def _on_failed(self, subscription: Subscription, lane: int) -> list[Command]:
        message = subscription.in_progress[lane]
        tag = message.delivery.tag
        is_retiring = subscription.state == "retiring" or self.is_stopping
        if not is_retiring and message.attempt <= self._member.failures.retries:
            message.is_running = False
            delay_s = self._member.retry_delay_s(message.attempt)
            retry = StartTimer(subscription.number, TimerReason("retry", lane), delay_s)
            return [retry, ResumeQueues(tag)] if self._turns.are_taken else [retry]
        del subscription.in_progress[lane]
        if is_retiring:
            subscription.has_failed = True  # the message is requeued, and the next member tries again
            return self._advance()
        if self._member.failures.on_failure == "dead-letter":
            return [*self._ended(subscription.number, Reject(subscription.number, tag)), *self._advance()]
        subscription.has_failed = True
        return [FailGroup(subscription.number, message.delivery)]

    def on_hook_done(self) -> list[Command]:
        """A hook has ended."""
        self._is_hook_running = False
        return self._advance()

    def on_timer(self, number: int, reason: TimerReason) -> list[Command]:
        """The time of a `StartTimer` has passed."""
        subscription = self._current(number)
        if subscription is None:
            return []
        if reason.kind == "poll":
            subscription.is_polling = False
            return self._advance()
        if reason.kind == "settle":
            return self._settle(subscription, reason.key)
        if reason.kind == "turn":
            return [ResumeQueues(reason.key)]
        if reason.kind == "hand-over":
            return subscription.on_hand_over_timeout(reason.key) + self._advance()
        return self._retry(subscription, reason.key)

    def _retry(self, subscription: Subscription, lane: int) -> list[Command]:
        message = subscription.in_progress.get(lane)
        if message is None or message.is_running:
            return []
        if subscription.state == "retiring":
            del subscription.in_progress[lane]
            return self._advance()
        if self._lacks_claim(subscription):  # another member has owned the queue meanwhile
            retry = StartTimer(subscription.number, TimerReason("retry", lane), _CLAIM_S)
            return [*self._request_claim(subscription), retry]
        message.attempt += 1
        message.is_running = True
        return [StartHandler(subscription.number, message.delivery, message.attempt, subscription.generation)]

    # -- the next step

    def _current(self, number: int) -> Subscription | None:
        """Return the present subscription if it has this number: events of earlier ones are ignored."""
        current = self.subscription
        return current if current is not None and current.number == number else None

    def _advance(self) -> list[Command]:
        subscription = self.subscription
        if subscription is None or subscription.state in ("opening", "closing"):
            return self._run_lost_hook()
        if subscription.state == "retiring":
            return self._retire(subscription)
        if hook := self._run_lost_hook():
            return hook
        if self._is_hook_running or self._orphans or self._is_lost_hook_due:
            return []  # these must end before anything is started
        return self._process(subscription)

    def _run_lost_hook(self) -> list[Command]:
        """Run the hook on_lost if it is due and all handlers have ended."""
        is_working = self.subscription is not None and self.subscription.in_progress
        if self._is_hook_running or self._orphans or is_working or not self._is_lost_hook_due:
            return []
        self._is_lost_hook_due = self.is_held = False
        self._is_hook_running = True
        return [RunHook("lost", self.generation)]

    def _retire(self, subscription: Subscription) -> list[Command]:
        """Abandon a subscription once none of its messages is in progress. The hook on_lost runs before."""
        for lane, message in list(subscription.in_progress.items()):
            if not message.is_running:  # the next member makes the next attempt
                del subscription.in_progress[lane]
        # A requested claim is awaited: if it were read after the release, it would look like that of an owner.
        running = [message.delivery.tag for message in subscription.in_progress.values()]
        resume: list[Command] = [ResumeQueues()] if self._turns.drop_queue(self.queue, but=running) else []
        is_claiming = subscription.claim == "requested"
        is_busy = subscription.in_progress or subscription.is_fetching or is_claiming
        if is_busy or self._is_hook_running or self._orphans:
            return resume
        if self.is_held:
            self._is_lost_hook_due = True
            return [*resume, *self._run_lost_hook()]
        subscription.state = "closing"
        return [*resume, Abandon(subscription.number)]

    def _process(self, subscription: Subscription) -> list[Command]:
        if subscription.has_failed or not (subscription.pending or subscription.hand_over):
            return []
        if self._lacks_claim(subscription):
            return [] if subscription.in_progress else self._request_claim(subscription)
        if not self.is_held:
            self.is_held = self._is_hook_running = True
            return [RunHook("gained", subscription.generation)]
        if subscription.hand_over is not None:
            return subscription.fetch_parked(subscription.hand_over)
        return subscription.start_pending()

    def _lacks_claim(self, subscription: Subscription) -> bool:
        return self._member.journal is not None and subscription.claim != "confirmed"

    def _request_claim(self, subscription: Subscription) -> list[Command]:
        if subscription.claim != "none":
            return []
        subscription.claim = "requested"
        return [Claim(subscription.number)]
