"""The consumers of some queues, the members of a group among them, and the findings about both. No I/O."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from rabbit_chx.analysis.findings import Finding, moment_as_json, moment_text
from rabbit_chx.planning.refusals import verify_by_trace
from rabbit_chx.result_fields import shown
from rabbit_chx.routing import Release
from rabbit_chx.text import listed, percent, plural
from rabbit_chx.topology.model import Consumer, LiveTopology, PublishRates, QueueUsage, Usage
from rabbit_chx.topology.objects import QueueDefinition
from rabbit_chx.topology.slots import parse_member

_SINGLE_ACTIVE = "x-single-active-consumer"
#: Quorum queues obey the priorities of consumers since this release.
_PRIORITIES_SINCE = (4, 0, 0)
_MAX_LISTED = 5


@dataclass(frozen=True, slots=True)
class QueueStatus:
    """A queue of a group.

    Attributes:
        type: ``quorum``, ``classic`` or ``stream``; None if the queue does not exist.
        single_active: whether it has a single active consumer.
        ready: the number of ready messages; None if the broker has no figure yet.
        unacked: the number of unacknowledged messages; None if the broker has no figure yet.
        hidden: the number of consumers that the broker does not list for this user; None if that is not known.
    """

    name: str
    type: str | None
    single_active: bool
    ready: int | None
    unacked: int | None
    consumers: tuple[Consumer, ...] = ()
    hidden: int | None = 0

    @property
    def count(self) -> int | None:
        """The number of consumers; None if it is not known."""
        return None if self.hidden is None else len(self.consumers) + self.hidden

    @property
    def active(self) -> tuple[Consumer, ...]:
        """The consumers that the broker delivers to."""
        return tuple(consumer for consumer in self.consumers if consumer.active)

    @property
    def is_nobody_active(self) -> bool:
        """True if it has consumers, but no active one."""
        return bool(self.consumers) and not self.active and self.hidden == 0


@dataclass(frozen=True, slots=True)
class MemberStatus:
    """A member of a group.

    Attributes:
        connected_at: the start of its connection, in seconds since 1970; None if the broker does not show it.
        active: the queues of which it is the active consumer.
        waiting: the queues that it consumes without being active.
    """

    name: str = field(metadata=shown("member"))
    connected_at: float | None = field(metadata=shown("connected", moment_text, as_json=moment_as_json))
    active: tuple[str, ...] = field(metadata=shown("active", len, number=True))
    waiting: tuple[str, ...] = field(metadata=shown("waiting", len, number=True))


@dataclass(frozen=True, slots=True)
class GroupStatus:
    """The queues of a group, in the order of the ring, and its members, by name."""

    queues: tuple[QueueStatus, ...]
    members: tuple[MemberStatus, ...]

    @classmethod
    def of(
        cls, names: Iterable[str], live: LiveTopology, connected_at: Mapping[str, float] | None = None
    ) -> GroupStatus:
        """Return the status of some queues of a broker.

        Args:
            names: the queues.
            live: the broker, with its `facts.usage`.
            connected_at: the start of each connection, in seconds since 1970.
        """
        declared = {queue.name: queue for queue in live.queues}
        usage = live.facts.usage or Usage()
        statuses = tuple(_queue(name, declared.get(name), usage) for name in names)
        return cls(statuses, _members(statuses, connected_at or {}))

    @property
    def is_seen(self) -> bool:
        """True if the user sees all consumers."""
        return all(queue.hidden == 0 for queue in self.queues)


def _queue(name: str, declared: QueueDefinition | None, usage: Usage) -> QueueStatus:
    consumers = (usage.consumers or {}).get(name, ())
    counted = usage.queues.get(name, QueueUsage())
    return QueueStatus(
        name,
        None if declared is None else declared.type,
        single_active=declared is not None and declared.arguments.get(_SINGLE_ACTIVE) is True,
        ready=counted.ready,
        unacked=counted.unacked,
        consumers=tuple(sorted(consumers, key=lambda consumer: (not consumer.active, consumer.tag))),
        hidden=_count_hidden(name, usage),
    )


def _count_hidden(name: str, usage: Usage) -> int | None:
    """Return the number of consumers of a queue that the broker does not list for this user; None if it is not known."""
    if usage.consumers is not None and usage.sees_all:
        return 0
    count = usage.consumers_of(name)
    listed = len((usage.consumers or {}).get(name, ()))
    return None if count is None else count - listed


def _members(queues: Iterable[QueueStatus], connected_at: Mapping[str, float]) -> tuple[MemberStatus, ...]:
    active: dict[str, list[str]] = defaultdict(list)
    waiting: dict[str, list[str]] = defaultdict(list)
    since: dict[str, list[float]] = {}
    for queue in queues:
        for consumer in queue.consumers:
            member = parse_member(consumer.tag)
            if member is None:
                continue
            (active if consumer.active else waiting)[member].append(queue.name)
            times = since.setdefault(member, [])
            if consumer.connection in connected_at:
                times.append(connected_at[consumer.connection])
    return tuple(
        MemberStatus(name, max(since[name], default=None), tuple(active[name]), tuple(waiting[name]))
        for name in sorted(since)
    )


def group_findings(
    exchange: str, shares: Mapping[str, float], live: LiveTopology, release: Release
) -> Iterator[Finding]:
    """Yield the findings about the consumers of an exchange's queues, and about the group that they are, if they are one.

    Args:
        exchange: the exchange.
        shares: its queues, each with its share of the keys.
        live: the broker. What depends on consumers that the user does not see is not found.
        release: the release of the broker.
    """
    status = GroupStatus.of(shares, live)
    for queue in status.queues:
        found = [*_find_nobody_active(queue)]
        # What is a fault in a group is none of other consumers.
        if status.members and status.is_seen:
            found += [
                *_find_overtaking(queue),
                *_find_strangers(queue),
                *_find_ignored_priority(queue, release),
            ]
        for kind, message, fix in found:
            yield Finding(
                kind,
                f"{queue.name} {message}",
                fix,
                exchange=exchange,
                destination=queue.name,
                share=shares[queue.name],
            )


def _find_nobody_active(queue: QueueStatus) -> Iterator[tuple[str, str, str]]:
    if not queue.is_nobody_active:
        return
    if queue.unacked:
        message = (
            "has consumers and none of them active: the broker waits until the one that was active acks what it holds "
            f"({plural(queue.unacked, 'message')})"
        )
        fix = (
            "if this lasts, look for a handler that hangs; if there is none, the broker waits for a consumer that is dead: restart the "
            "node that leads the queue"
        )
    else:
        message = "has consumers and none of them active, so nothing is handled"
        fix = "members of a ConsumerGroup notice this and consume again; cancel and consume again with other consumers"
    yield "nobody-active", message, fix


def _find_overtaking(queue: QueueStatus) -> Iterator[tuple[str, str, str]]:
    if queue.type is not None and not queue.single_active:
        message = "has no single active consumer: two consumers handle messages of one key at the same time, and overtake each other"
        fix = (
            "the argument cannot be added later: declare the queue again with x-single-active-consumer = true, or use slots and "
            "move them to new queues"
        )
        yield "no-single-active-consumer", message, fix


def _find_strangers(queue: QueueStatus) -> Iterator[tuple[str, str, str]]:
    tags = sorted({consumer.tag for consumer in queue.consumers if parse_member(consumer.tag) is None})
    if tags:
        message = (
            f"has a consumer that is not a member of a group ({listed(tags, _MAX_LISTED)}): it takes no part in hand-overs, and may "
            "become the active consumer"
        )
        yield "other-consumer", message, "stop it, or run its handler in a ConsumerGroup"


def _find_ignored_priority(queue: QueueStatus, release: Release) -> Iterator[tuple[str, str, str]]:
    has_priorities = len({consumer.priority for consumer in queue.consumers}) > 1
    is_ignored = queue.type != "quorum" or release.numbers < _PRIORITIES_SINCE
    if queue.single_active and has_priorities and is_ignored:
        message = (
            f"has consumers of different priority. RabbitMQ {release.version} ignores the priority of consumers here; it counts for "
            "quorum queues from 4.0 on. Without a journal, the first one stays active until it leaves"
        )
        fix = "assign other queues to each member (static), or upgrade and use quorum queues"
        yield "priority-ignored", message, fix


# -- Findings about the traffic and the consumers of the queues of an exchange that hashes, and about queues whose binding was forgotten
# They come from the statistics of the broker. Where it has none, nothing is found.


#: Traffic is far more than a share if its odds are this multiple of those of the share, and the difference is so many standard deviations: of
#: the number of messages, and of the number of keys, which is estimated from the other queues.
_MORE = 2.0
_SIGMAS = 3
_KEY_SIGMAS = 5
_NUMERALS = "0123456789"
_DIGITS = re.compile("[0-9]+")


def usage_findings(
    exchange: str,
    shares: Mapping[str, float],
    live: LiveTopology,
    release: Release,
    *,
    is_known: bool,
    has_shares: bool = True,
) -> Iterator[Finding]:
    """Yield the findings about the traffic and the consumers of the queues of an exchange.

    Args:
        exchange: the exchange.
        shares: its queues, each with its share of the keys.
        live: the broker; its `facts.usage` is None if consumers are left out.
        release: its release.
        is_known: False: the order of the ring is not known, and so the shares are not exact.
        has_shares: False: the shares depend on an order that is not known, and so no traffic is compared with them.
    """
    usage = live.facts.usage
    if usage is None:
        return
    found = [
        *_find_queues_without_consumer(exchange, shares, live, usage),
        *group_findings(exchange, shares, live, release),
        *(uneven_traffic(exchange, shares, usage.rates_of(exchange)) if has_shares else ()),
    ]
    yield from found if is_known else (replace(finding, share=None) for finding in found)


def _find_queues_without_consumer(
    exchange: str, shares: Mapping[str, float], live: LiveTopology, usage: Usage
) -> Iterator[Finding]:
    for queue in live.queues:
        # The messages of a stream stay when they are read.
        if queue.name not in shares or queue.type == "stream" or usage.consumers_of(queue.name) != 0:
            continue
        if waiting := usage.ready_in(queue.name):
            share = shares[queue.name]
            wait = "message waits" if waiting == 1 else "messages wait"
            message = f"{queue.name} has no consumer, and {waiting:,} {wait} in it"
            fix = "start a consumer; if a group consumes the exchange, a member of it that consumes all of its queues"
            yield Finding("no-consumer", message, fix, exchange=exchange, destination=queue.name, share=share)


def uneven_traffic(exchange: str, shares: Mapping[str, float], rates: PublishRates) -> Iterator[Finding]:
    """Yield a finding for each queue that got far more of the last minute's messages than its share, beyond what chance explains.

    Few keys of equal rate spread unevenly, too: how far the other queues are from their shares shows about how many keys there are.

    Args:
        exchange: the exchange.
        shares: its queues, each with its share of the keys.
        rates: those of the last minute.
    """
    traffic = rates.traffic(shares) if rates.exchange else {}
    messages = 60 * sum(rates.queues.get(queue, 0.0) for queue in traffic)
    fix = f"a few hot keys may be the cause; a user with the tag administrator lists them with {verify_by_trace(exchange, 60)}"
    for queue, got in sorted(traffic.items(), key=lambda item: -item[1]):
        share = shares[queue]
        others = [(amount, shares[name]) for name, amount in traffic.items() if name != queue]
        chance = max(
            _SIGMAS * math.sqrt(share / messages),
            _KEY_SIGMAS * math.sqrt(share * (1 - share) * _spread(others)),
        )
        is_far_more = got * (1 - share) > _MORE * share * (1 - got)
        if is_far_more and got - share > chance:
            message = f"{queue} got {percent(got, 1)} of the messages of the last minute, and has {percent(share, 1)} of the keys"
            yield Finding("uneven-traffic", message, fix, exchange=exchange, destination=queue, share=share)


def _spread(queues: Sequence[tuple[float, float]]) -> float:
    """Return the relative variance of the traffic of queues, each with its share of the keys: 1/n with n keys of equal rate."""
    shared = [(amount, share) for amount, share in queues if share]
    got = sum(amount for amount, _ in shared)
    shares = sum(share for _, share in shared)
    if len(shared) < 2 or not got:
        return 0.0
    parts = [(amount / got, share / shares) for amount, share in shared]
    return sum((part - share) ** 2 / (share * (1 - share)) for part, share in parts) / (len(parts) - 1)


def unbound_queue_findings(
    exchange: str, queues: Mapping[str, float], live: LiveTopology, listed: Collection[str]
) -> Iterator[Finding]:
    """Yield the queues that differ from those of an exchange in the number in their name only, and that are bound to nothing. They run.

    Args:
        exchange: the exchange.
        queues: its queues.
        live: the broker.
        listed: the queues that a topology file lists: they are compared with it.
    """
    counted = _counted_names(queues)
    others = (queue for queue in live.queues if queue.name not in queues and queue.name not in listed)
    alike = [queue for queue in others if counted.fullmatch(queue.name) and not queue.exclusive]
    bound = _bound_queues(live) if alike else set()
    # Before 4.0 the broker lists no bindings of a classic queue whose node is down.
    unclear = live.facts.queues.down
    for queue in alike:
        if queue.name in bound or queue.name in unclear:
            continue
        use = live.use_of(queue.name)
        has = f", but has {use}" if use else ""
        message = f"{queue.name} is named like the queues of {exchange} and is bound to nothing{has}: was its binding forgotten?"
        fix = f"bind {queue.name} to {exchange} by a plan, which shows what moves, or delete it if it is not used any more"
        yield Finding("unbound-queue", message, fix, exchange=exchange, destination=queue.name)


def _counted_names(queues: Collection[str]) -> re.Pattern[str]:
    """Return the pattern of the names that differ from those of an exchange's queues in the number that counts these queues.

    A number before the first difference of the names, as in ``v2.orders.1`` and ``v2.orders.2``, counts nothing, and one behind their last
    difference only if no other number does. Of a single name the last number counts.
    """
    names = sorted(queues)
    if not names:
        return re.compile("(?!)")
    if len(names) == 1:
        numbers = [*_DIGITS.finditer(names[0])]
        head = names[0][: numbers[-1].start()] if numbers else names[0]
        tail = names[0][numbers[-1].end() :] if numbers else ""
    else:
        head = _common_start(names).rstrip(_NUMERALS)
        rests = [name[len(head) :] for name in names]
        tail = _common_start([rest[::-1] for rest in rests])[::-1].lstrip(_NUMERALS)
        if not any(_DIGITS.search(rest.removesuffix(tail)) for rest in rests):
            tail = ""
    cores = [name[len(head) :].removesuffix(tail) for name in names]
    patterns = {"[0-9]+".join(map(re.escape, _DIGITS.split(core))) for core in cores if _DIGITS.search(core)}
    return re.compile(
        f"{re.escape(head)}(?:{'|'.join(sorted(patterns))}){re.escape(tail)}" if patterns else "(?!)"
    )


def _common_start(texts: Sequence[str]) -> str:
    shortest = min(texts, key=len)
    for position, character in enumerate(shortest):
        if any(text[position] != character for text in texts):
            return shortest[:position]
    return shortest


def _bound_queues(live: LiveTopology) -> set[str]:
    bound = {binding.destination for binding in live.bindings}
    bound |= {member.destination for exchange in live.exchanges for member in exchange.ring or ()}
    return {place for place in bound if isinstance(place, str)}
