"""Observed keys and queues of an exchange: the ring that they determine, and the contradictions of a ring by them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rabbit_chx.analysis.findings import Finding
from rabbit_chx.analysis.key_routing import Hashing, Refused
from rabbit_chx.erlang.terms import Term
from rabbit_chx.errors import NotDeterminedError
from rabbit_chx.routing import Destination, ExchangeRef, HashRing, Release
from rabbit_chx.routing.bindings import GivenBindings, Place
from rabbit_chx.routing.ground import ORIGINS
from rabbit_chx.routing.key_map import KeyMap
from rabbit_chx.routing.observations import Observation
from rabbit_chx.words import listed, percent, plural

#: Of fewer messages the share of one key says little.
_FEWEST_MESSAGES = 100


def observed_ring(
    bindings: GivenBindings, observations: Iterable[Observation], release: Release, hashing: Hashing
) -> HashRing:
    """Return the ring that observations determine, as :meth:`HashRing.from_observations` does.

    Args:
        bindings: the bindings of the exchange, in any order.
        observations: keys and their queues; a key is the routing key, or the value of the header or the property.
        release: the release of the broker.
        hashing: what the exchange hashes.

    Raises:
        InputError: the observations do not determine a ring.
    """
    is_text = (
        hashing.hash_header is None and hashing.hash_property != "timestamp"
    )  # shown as it is in an error
    terms = [each if is_text else each._replace(key=hashing.term(each.key, release)) for each in observations]
    return HashRing.from_observations(bindings, terms, release)


def as_observations(
    traced: Iterable[tuple[Any, Sequence[str]]], places: Mapping[str, Destination], *, has_alternate: bool
) -> list[Observation]:
    """Return what a broker did with messages as observations, each distinct one once; without a queue its `queue` is None.

    Messages without the hashed header or property are left out.

    Args:
        traced: the hashed value and the queues of each message.
        places: the destination that leads to each queue.
        has_alternate: True if an alternate exchange gets unroutable messages, so that other queues show that the message was unroutable.
    """
    found: dict[tuple[object, ...], Observation] = {}
    for value, queues in traced:
        reached = {places[queue] for queue in queues if queue in places}
        if value is None or len(reached) > 1:
            continue
        place = next(iter(reached), None if has_alternate or not queues else queues[0])
        key = type(value), value, place
        seen = found.setdefault(key, Observation(value, place, messages=0, is_traced=True))
        found[key] = seen._replace(messages=seen.messages + 1)
    return list(found.values())


def comparable(
    key_map: KeyMap, observations: Sequence[Observation], hashing: Hashing | None = None
) -> list[tuple[Observation, Place | Refused]]:
    """Return the observations that a ring can contradict, each with the destination of the ring.

    A key that the ring sends to an exchange is left out, because any queue behind it may have received it.

    Args:
        key_map: the ring, or the slot table if queues behind slots were observed.
        observations: as those of `observed_ring`.
        hashing: what the exchange hashes; the routing key if None.
    """
    places = (hashing or Hashing()).route_all([each.key for each in observations], key_map)
    return [
        (each, place)
        for each, place in zip(observations, places, strict=True)
        if not isinstance(place, ExchangeRef) or isinstance(each.queue, ExchangeRef)
    ]


def contradictions(
    exchange: str, key_map: KeyMap, compared: Sequence[tuple[Observation, Place | Refused]]
) -> str:
    """Return how compared observations contradict a ring, in words; empty if none does. One such key shows that the ring is not the broker's.

    Raises:
        NotDeterminedError: nothing was compared.
    """
    if not compared:
        raise NotDeterminedError(
            f"no key of the exchange {exchange!r} was compared: its ring sends them to exchanges, whose queues it does not show; observe keys "
            "of its queues",
            exchange=exchange,
        )
    found = [(each, place) for each, place in compared if place != each.queue]
    if not found:
        return ""
    observation, predicted = found[0]
    reached = "nowhere" if predicted is None or isinstance(predicted, Refused) else f"to {predicted}"
    return (
        f"{observation}, and the ring sends it {reached}; {len(found):,} of {plural(len(compared), 'key')} {'contradicts' if len(found) == 1 else 'contradict'} the ring, "
        f"{ORIGINS[key_map.provenance]}: which queue a key reaches is not determined"
    )


def few_keys_finding(exchange: str, observed: Iterable[Observation], members: int) -> Finding | None:
    """Return a finding if most of the observed messages have one key, or fewer keys than the ring has members.

    Their queues get most messages, whatever the ring.
    """
    counts: Counter[Term] = Counter()
    for each in observed:
        counts[each.key] += each.messages
    total = counts.total()
    if total < _FEWEST_MESSAGES:
        return None
    heaviest = counts.most_common(max(members - 1, 1))
    most = next((n for n in range(1, len(heaviest) + 1) if _sum(heaviest[:n]) > total / 2), None)
    if most is None:
        return None
    share = _sum(heaviest[:most]) / total
    about = f"{percent(share)} of {total:,} observed messages"
    fix = "publish with keys that differ, or hash a header or a property that does: no ring divides the messages of one key"
    if most == 1:
        message = f"the key {heaviest[0][0]!r:.80} has {about}, and its queue gets all of them"
        return Finding("one-key", message, fix, exchange=exchange, share=share)
    keys = listed([f"{key!r:.80}" for key, _ in heaviest[:most]])
    message = f"{most:,} keys have {about}, and their queues get all of them: {keys}"
    return Finding("few-keys", message, fix, exchange=exchange, share=share)


def _sum(counts: Iterable[tuple[Term, int]]) -> int:
    return sum(count for _, count in counts)
