"""Observed keys and queues of an exchange: the ring that they determine, and the contradictions of a ring by them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rabbit_chx.analysis.key_routing import Hashing, Refused
from rabbit_chx.routing import Destination, ExchangeRef, HashRing, Release
from rabbit_chx.routing.bindings import GivenBindings, Place
from rabbit_chx.routing.key_map import KeyMap
from rabbit_chx.routing.observations import Observation


@dataclass(frozen=True, slots=True)
class Contradiction:
    """An observation of a key in another destination than that of the ring; `predicted` is that of the ring."""

    observation: Observation
    predicted: Place | Refused

    def __str__(self) -> str:
        predicted = self.predicted
        reached = "nowhere" if predicted is None or isinstance(predicted, Refused) else f"to {predicted}"
        return f"{self.observation}, and the ring sends it {reached}"


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
