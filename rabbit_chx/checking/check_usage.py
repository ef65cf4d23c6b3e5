"""Findings about the traffic and the consumers of the queues of an exchange that hashes, and about queues whose binding was forgotten.

They come from the statistics of the broker. Where it has none, nothing is found.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace

from rabbit_chx.analysis import Finding
from rabbit_chx.checking.group_status import group_findings
from rabbit_chx.planning.refusals import verify_by_trace
from rabbit_chx.routing import Release
from rabbit_chx.topology.model import LiveTopology
from rabbit_chx.topology.usage import PublishRates, Usage
from rabbit_chx.words import percent

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
