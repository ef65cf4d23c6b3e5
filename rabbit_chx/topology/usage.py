"""What the statistics of a broker say about the traffic and the consumers of a vhost. They are up to 5 s old."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from rabbit_chx.topology.slots.hand_over_marker import parse_member


@dataclass(frozen=True, slots=True)
class PublishRates:
    """Messages per second, as the broker counted them in the last seconds.

    Attributes:
        exchange: those that were published to the exchange itself; None if the broker has no rate, as before the first message.
        queues: those that reached each queue of the vhost that has a rate, by whatever exchange.
        states: the state of each queue of the vhost that does not run, such as ``down``.
        backlogs: the ready and the unacknowledged messages and the consumers of each queue; then the rates are those of the last minute.
    """

    exchange: float | None
    queues: Mapping[str, float] = field(hash=False)
    states: Mapping[str, str] = field(default_factory=dict, hash=False)
    backlogs: Mapping[str, tuple[int | None, ...]] = field(default_factory=dict, hash=False)

    def traffic(self, queues: Collection[str]) -> dict[str, float]:
        """Return the share of the messages that each of these queues got; empty without messages."""
        rates = {queue: rate for queue in queues if (rate := self.queues.get(queue, 0.0))}
        total = sum(rates.values())
        return {queue: rates.get(queue, 0.0) / total for queue in queues} if total else {}


@dataclass(frozen=True, slots=True)
class Consumer:
    """A consumer of a queue.

    Attributes:
        tag: its consumer tag.
        active: whether the broker delivers to it. All consumers of a queue without a single active consumer are active.
        priority: its ``x-priority``.
        connection: the name of its connection.
    """

    tag: str
    active: bool
    priority: int = 0
    connection: str = ""

    @property
    def name(self) -> str:
        """The member of a group that it is, or its tag if it does not belong to a group."""
        return parse_member(self.tag) or self.tag


@dataclass(frozen=True, slots=True)
class QueueUsage:
    """What is counted of a queue; None: the broker does not say it.

    Attributes:
        ready: the messages that wait.
        unacked: the messages that consumers hold.
        consumers: the number of consumers.
        rate: the messages per second that it got in the last minute.
        state: its state, such as ``running``.
        priorities: the priorities of the waiting messages of a quorum queue; the broker counts them from 4.3 on.
    """

    ready: int | None = None
    unacked: int | None = None
    consumers: int | None = None
    rate: float | None = None
    state: str | None = None
    priorities: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Usage:
    """The traffic and the consumers of a vhost.

    Attributes:
        published: the messages per second that were published to each exchange in the last minute; exchanges without a rate are left out.
        queues: what is counted of each queue.
        consumers: the consumers of each queue that the broker lists for this user; None if it lists none, as without statistics.
        sees_all: whether it lists those of other users, too.
    """

    published: Mapping[str, float] = field(default_factory=dict, hash=False)
    queues: Mapping[str, QueueUsage] = field(default_factory=dict, hash=False)
    consumers: Mapping[str, Sequence[Consumer]] | None = None
    sees_all: bool = True

    @property
    def is_unsettled(self) -> bool:
        """True if a queue has consumers, and none of them is active: statistics that are some seconds old say so after a change."""
        return any(
            consumers and not any(consumer.active for consumer in consumers)
            for consumers in (self.consumers or {}).values()
        )

    def consumers_of(self, queue: str) -> int | None:
        """Return the number of consumers of a queue; None if it is not known."""
        listed = len((self.consumers or {}).get(queue, ()))
        counted = self.queues.get(queue, QueueUsage()).consumers
        if counted is None:
            return listed or None
        return max(counted, listed)

    def ready_in(self, queue: str) -> int | None:
        """Return the number of messages that wait in a queue; None if it is not known."""
        found = self.queues.get(queue)
        return None if found is None else found.ready

    def rates_of(self, exchange: str) -> PublishRates:
        """Return the rates of the last minute of an exchange, with the backlogs of all queues."""
        return PublishRates(
            self.published.get(exchange),
            {name: queue.rate for name, queue in self.queues.items() if queue.rate is not None},
            {
                name: queue.state
                for name, queue in self.queues.items()
                if queue.state is not None and queue.state not in RUNNING
            },
            {name: (queue.ready, queue.unacked, queue.consumers) for name, queue in self.queues.items()},
        )


#: The states of a queue that works.
RUNNING = ("running", "idle")
