"""A ring from observed keys: each pair of a key and its queue fixes the bucket of the key.

The number of buckets N follows from the bindings, so the bucket of a key is known, and its queue is the destination of this bucket. About
N ln N distinct keys reach every bucket.

Keys that are not what the exchange hashes fit a small ring by chance. So a ring is accepted only if more keys than those that fix it agree,
and if a key shows each bucket, because the messages of a bucket that none shows may be dropped. A ring of one bucket more would send some
keys to that bucket, and all others where they are; so a key of them that a queue received shows that there is no such bucket.

A ring without holes has the buckets of each binding in a row, in every release: a bind appends them, an unbind removes them
together, and a restart of Mnesia adds whole bindings. So the ring of consistent observations is that of its bindings in one order. This and
the weights are checked, too.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any, NamedTuple

from rabbit_chx.erlang.hashing import Term
from rabbit_chx.errors import ContradictedError, InputError, NotDeterminedError
from rabbit_chx.routing.bindings import (
    MAX_BUCKETS,
    Binding,
    Destination,
    ExchangeRef,
    GivenBindings,
    Place,
    as_tuple,
    check_destination,
    checked_bindings,
    pairs_of_bindings,
)
from rabbit_chx.routing.jump import bucket_of_seed, seed_of
from rabbit_chx.routing.release import Release
from rabbit_chx.routing.rules import DUPLICATES_APPEND
from rabbit_chx.text import percent, plural

_MOST_SHOWN = 8
_PAIR_SIZES = (2, 3, 4, 5)
#: Wrong keys fit the two orders of two queues with 20 further pairs in one of a million files.
_FEWEST_AGREEING = 20
#: Buckets that no binding makes, beside as many as the bindings make, at most.
_MOST_UNBOUND = 1_000


class Observation(NamedTuple):
    """A key and the queue in which a message with this key was seen.

    Attributes:
        key: the hashed value, such as the routing key.
        queue: the destination; None if the message reached none.
        time: the time of the observation, as text; None if it is not known.
        messages: the number of messages with this key that were seen there.
        is_traced: True if the broker said so: then a queue that is not bound has ghost buckets, and None is a hole.
    """

    key: Term
    queue: Place
    time: str | None = None
    messages: int = 1
    is_traced: bool = False

    def __str__(self) -> str:
        when = "" if self.time is None else f" ({self.time})"
        return f"the key {self.key!r:.80} reached {self.queue or 'no queue'!s:.80}{when}"


class _Bound(NamedTuple):
    """The bindings of a destination, and the number of buckets that they make."""

    keys: list[str]
    buckets: int


def observed_ring(
    bindings: GivenBindings, pairs: Iterable[Any], release: Release
) -> tuple[tuple[Place, ...], tuple[Binding, ...] | None]:
    """Return the buckets of a ring, and its bindings in order, from observations; see :meth:`HashRing.from_observations`."""
    if isinstance(bindings, (set, frozenset)):
        bindings = tuple(bindings)  # their order does not matter here
    bound = _group_bindings(checked_bindings(pairs_of_bindings(bindings), release), release)
    count = sum(buckets for _, buckets in bound.values())
    if count > MAX_BUCKETS:
        raise InputError(f"a ring of {count} buckets is too large: pass smaller weights")
    if not count:
        raise InputError("the bindings make no bucket, so no key shows anything: pass those of the ring")

    observations = [_observation(pair) for pair in as_tuple(pairs, "(key, queue) pairs")]
    if any(each.is_traced and each.queue not in bound for each in observations):
        buckets = _traced_buckets(observations, bound)
    else:
        _refuse_unbound(observations, bound)
        buckets = _buckets_of(observations, count)
        _refuse_too_many(buckets, bound)
        _refuse_too_few(buckets, bound, observations)

    _refuse_scattered(buckets, bound)
    ordered = [
        (destination, key)
        for destination in dict.fromkeys(place for place in buckets if place in bound)
        for key in bound[destination].keys
    ]

    # The order of two bindings of one destination is not known.
    return tuple(buckets), tuple(ordered) if len(ordered) == len(bound) else None


def _group_bindings(bindings: Iterable[tuple[Binding, int]], release: Release) -> dict[Destination, _Bound]:
    weights: dict[Destination, dict[str, int]] = {}
    for (destination, key), weight in bindings:
        weights.setdefault(destination, {})[key] = weight
    bound = {}
    for destination, by_key in weights.items():
        if release.follows(DUPLICATES_APPEND):
            buckets = sum(by_key.values())
        elif len(set(by_key.values())) > 1:
            raise NotDeterminedError(
                f"{destination!s} is bound with the weights {' and '.join(by_key)}, of which RabbitMQ {release.version} uses the one that "
                "was bound first, so the number of buckets is not known: read the ring, or unbind this destination and bind it once"
            )
        else:
            buckets = next(iter(by_key.values()))
        bound[destination] = _Bound(list(by_key), buckets)
    return bound


def _observation(pair: Any) -> Observation:
    if not isinstance(pair, Sequence) or isinstance(pair, (str, bytes)) or len(pair) not in _PAIR_SIZES:
        raise InputError(
            f"{pair!r:.60} is not a (key, queue) pair: pass a key and the queue that received it"
        )
    observation = Observation(*pair)
    if observation.queue is not None:
        check_destination(observation.queue)
    elif not observation.is_traced:
        raise NotDeterminedError(
            f"the key {observation.key!r:.80} reached no queue: the ring has a bucket without a queue, and only reading the ring shows which"
        )
    return observation


def _refuse_unbound(observations: Iterable[Observation], bound: dict[Destination, _Bound]) -> None:
    unbound = {
        each.queue: each for each in observations if each.queue not in bound and each.queue is not None
    }
    if not unbound:
        return

    first = next(iter(unbound.values()))
    others = len(unbound) - 1
    more = ""
    if others:
        verb = "is" if others == 1 else "are"
        more = f", and {plural(others, 'more queue')} {verb} not bound"

    remedy = "pass the bindings of the ring and pairs from after its last change"
    if any(isinstance(place, ExchangeRef) for place in bound):
        remedy = (
            "an exchange is bound, whose queues share its buckets: pass its ExchangeRef as the queue of the pair, "
            "or read the ring"
        )

    raise ContradictedError(f"{first}, which is not bound{more}: {remedy}", queue=_queue_name(first.queue))


def _traced_buckets(observations: Sequence[Observation], bound: dict[Destination, _Bound]) -> list[Place]:
    """Return the destination of each bucket, also of those that no binding makes. The keys show how many there are.

    A broker names the queue of a ghost bucket, and none for a hole. Of a ring with holes the buckets behind the last number that is used
    stay unknown, so it is refused, with the numbers of its holes.
    """
    lost = next(each for each in observations if each.queue not in bound)
    seen = {seed_of(each.key): each.queue for each in observations}
    count = sum(buckets for _, buckets in bound.values())
    fitting = []

    for number in range(count, 2 * count + _MOST_UNBOUND):
        if distinct_keys_needed(number) > len(seen):
            continue
        buckets = _fit(seen, number, bound)
        if buckets:
            fitting.append(buckets)

    if len(fitting) != 1:
        raise NotDeterminedError(
            f"{lost}, so the ring has buckets that no binding makes, and {plural(len(seen), 'distinct key')} cannot show which. Pass more, "
            "or read the ring"
        )

    [buckets] = fitting
    holes = [str(bucket) for bucket, place in enumerate(buckets) if place is None]
    if holes:
        raise ContradictedError(
            f"{plural(len(holes), 'bucket')} of {len(buckets)} {'is a hole' if len(holes) == 1 else 'are holes'} ({_some(holes)}), and "
            f"{percent(len(holes) / len(buckets))} of the keys reach no queue of the ring: {lost}. Read the ring, or make it anew"
        )

    return buckets


def _fit(seen: dict[int, Place], count: int, bound: dict[Destination, _Bound]) -> list[Place]:
    """Return the destination of each of so many buckets; empty if the keys, by their seeds, contradict the number, or do not show it."""
    buckets: dict[int, Place] = {}
    for seed, place in seen.items():
        if buckets.setdefault(bucket_of_seed(seed, count), place) != place:
            return []
    shown = Counter(buckets.values())
    is_shown = len(buckets) == count and any(bucket_of_seed(seed, count + 1) == count for seed in seen)
    if not is_shown or any(shown[place] > buckets for place, (_, buckets) in bound.items()):
        return []
    return [buckets[bucket] for bucket in range(count)]


def _queue_name(place: Place) -> str | None:
    return place if isinstance(place, str) else None


def _buckets_of(observations: Iterable[Observation], count: int) -> list[Place]:
    """Return the destination of each bucket, None where no key was seen; an InputError for a contradiction."""
    seen: dict[int, Observation] = {}
    contradicted: dict[int, tuple[Observation, Observation]] = {}
    for each in observations:
        bucket = bucket_of_seed(seed_of(each.key), count)
        first = seen.setdefault(bucket, each)
        if first.queue != each.queue:
            contradicted.setdefault(bucket, (first, each))

    if contradicted:
        bucket, (first, second) = next(iter(contradicted.items()))
        more = f" (and {plural(len(contradicted) - 1, 'more bucket')} too)" if len(contradicted) > 1 else ""
        raise ContradictedError(
            f"bucket {bucket} of {count} is contradicted: {first}, and {second}{more}. Pass keys as the exchange hashes them, the bindings of "
            "the ring, and only pairs of messages that were published after its last change"
        )

    buckets: list[Place] = [None] * count
    for bucket, each in seen.items():
        buckets[bucket] = each.queue
    return buckets


def _refuse_too_many(buckets: Iterable[Place], bound: dict[Destination, _Bound]) -> None:
    """Reject observations of more buckets than a destination has, as of a ring with other weights or a binding without buckets."""
    for destination, seen in Counter(buckets).items():
        if destination is not None and seen > bound[destination].buckets:
            raise ContradictedError(
                f"{destination!s} is seen in {seen} buckets, and its weight is {bound[destination].buckets}: the ring differs from the "
                "bindings. Pass the present bindings, keys as the exchange hashes them, and only pairs from after the last change; or read "
                "the ring",
                queue=_queue_name(destination),
            )


def _refuse_too_few(
    buckets: Sequence[Place], bound: dict[Destination, _Bound], observations: Iterable[Observation]
) -> None:
    """Raise an error if the keys do not show each bucket and the end of the ring, or if too few agree beyond that."""
    # A str and its UTF-8 bytes are one key.
    distinct = {
        repr(each.key.encode() if isinstance(each.key, str) else each.key): each.key for each in observations
    }
    count = len(buckets)
    keys = plural(len(distinct), "distinct key")
    unseen = [bucket for bucket, place in enumerate(buckets) if place is None]
    agreeing = len(distinct) - count + len(unseen)
    lacking = max(_FEWEST_AGREEING, count) - agreeing
    more = max(distinct_keys_needed(count) - len(distinct), lacking, count)
    if unseen:
        seen = Counter(buckets)
        places = [str(place) for place, (_, wanted) in bound.items() if seen[place] < wanted]
        fact = (
            f"{len(unseen)} of {count} buckets were not seen ({_some(map(str, unseen))}): they are of {_some(places)}, or holes, whose messages "
            f"are lost. {keys} do not determine the ring"
        )
        raise _too_few(fact, f"pass about {more} more", more)
    if lacking > 0:
        fact = f"{keys} fix {plural(count, 'bucket')}, and {agreeing} agree beyond that, by chance perhaps"
        raise _too_few(fact, f"pass {plural(lacking, 'pair')} more with other keys", lacking)
    if not any(bucket_of_seed(seed_of(key), count + 1) == count for key in distinct.values()):
        fact = (
            f"bucket {count}, behind the last one of the bindings, may be a hole, whose messages are lost: none of {keys} shows that it does "
            "not exist"
        )
        raise _too_few(fact, f"pass about {more} more, or read the ring", more)


def _too_few(fact: str, remedy: str, more: int) -> NotDeterminedError:
    error = NotDeterminedError(f"{fact}: {remedy}")
    error.fact = fact
    error.keys_needed = more
    return error


def _some(names: Iterable[str]) -> str:
    shown = [*names]
    return ", ".join(shown[:_MOST_SHOWN]) + (", ..." if len(shown) > _MOST_SHOWN else "")


def distinct_keys_needed(buckets: int) -> int:
    """Return about how many distinct keys determine a ring of N buckets: N ln N reach every one, and as many as needed agree beyond that."""
    return max(math.ceil(buckets * math.log(max(1, buckets))), buckets + max(_FEWEST_AGREEING, buckets))


def _refuse_scattered(buckets: Sequence[Place], bound: dict[Destination, _Bound]) -> None:
    """Reject a ring that no order of binds makes."""
    runs = Counter(place for place, _ in groupby(buckets))
    for place, count in runs.items():
        if place in bound and count > 1 and len(bound[place].keys) == 1:
            raise ContradictedError(
                f"{place!s} is bound once, and its buckets are in {count} places of the ring, which no order of binds makes: pass only pairs "
                "of messages that were published after the last change of the ring",
                queue=_queue_name(place),
            )
