"""Real traffic compared with a ring, and the ring inferred from it. No I/O.

A routed message shows which destination has the bucket of its seed. The bucket count and the release's rules
say which bucket that is.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from rabbit_chx.errors import RingSourceError
from rabbit_chx.routing import Destination, ExchangeRef, HashRing, Place, Release, bucket_of_seed

Queues: TypeAlias = frozenset[str]

#: How many buckets more than the bindings say are tried: an exchange may keep buckets of what is long gone.
MORE_BUCKETS = 256


@dataclass(frozen=True, slots=True)
class Observation:
    """A message that the broker has routed.

    Attributes:
        key: its routing key, to show it.
        seed: the 21 bits that decide; None where the mirror says that the broker would not route it at all.
        queues: the queues that got it.
    """

    key: str
    seed: int | None
    queues: Queues


class Reach:
    """Which queues a message can come to over a destination of the ring.

    Args:
        destinations: the destinations that are bound to the exchange.
        bindings: all bindings of the vhost, as ``(source exchange, destination)``.
        alternate: the exchange's alternate exchange, which gets what has no destination.
        fanouts: the exchanges that give each message to all that is bound to them.
    """

    def __init__(
        self,
        destinations: Iterable[Destination],
        bindings: Iterable[tuple[str, Destination]] = (),
        alternate: str | None = None,
        fanouts: Iterable[str] = (),
    ) -> None:
        self._targets: dict[str, set[Destination]] = {}
        for source, destination in bindings:
            self._targets.setdefault(source, set()).add(destination)
        self._fanouts = frozenset(fanouts)
        #: The queues behind each place, and whether a message that takes it comes to all of them.
        self._ways: dict[Place, tuple[Queues, bool]] = {place: self._behind(place) for place in destinations}
        self._ways[None] = (frozenset(), True) if alternate is None else self._behind(ExchangeRef(alternate))

    def explains(self, place: Place, queues: Queues) -> bool:
        """Return whether these queues can be where the destination leads; None is a hole of the ring.

        Behind an exchange that is no fanout some queues may get the message and some not, so a part of them
        will do.

        Args:
            place: the destination; None for a hole.
            queues: the queues that got the message.
        """
        behind, all_of_them = self._ways.get(place) or self._behind(place)
        return queues == behind or (not all_of_them and queues < behind)

    def places(self, queues: Queues) -> frozenset[Place]:
        """Return the destinations that can have led a message to these queues.

        A queue that no destination leads to counts as a destination itself.

        Args:
            queues: the queues that got the message.
        """
        places = frozenset(place for place in self._ways if self.explains(place, queues))
        return places or (queues if len(queues) == 1 else frozenset())

    def _behind(self, place: Place) -> tuple[Queues, bool]:
        reached: set[Place] = {place}
        pending: list[Place] = [place]
        while pending:
            current = pending.pop()
            if isinstance(current, ExchangeRef):
                new = self._targets.get(current.name, set()) - reached
                reached |= new
                pending += new
        exchanges = {place.name for place in reached if isinstance(place, ExchangeRef)}
        return frozenset(place for place in reached if isinstance(place, str)), exchanges <= self._fanouts


@dataclass(frozen=True, slots=True)
class InferredRing:
    """What traffic says of a ring.

    Attributes:
        candidates: for each bucket the destinations that all its messages allow; None for a bucket that no
            message had. One destination is a proof. An empty set is a contradiction: the ring changed, or has
            another bucket count.
        expected: the bucket count by the bindings.
        counts: the bucket counts that the messages allow; empty if none does.
    """

    candidates: tuple[frozenset[Place] | None, ...]
    expected: int
    counts: tuple[int, ...]

    @property
    def proven(self) -> dict[int, Place]:
        """The destination of each bucket that has a proof."""
        return {
            bucket: next(iter(places))
            for bucket, places in enumerate(self.candidates)
            if places is not None and len(places) == 1
        }

    @property
    def unknown(self) -> tuple[int, ...]:
        """The buckets that no message had, or whose messages allow several destinations."""
        return tuple(n for n, places in enumerate(self.candidates) if places is None or len(places) > 1)

    @property
    def contradicted(self) -> tuple[int, ...]:
        """The buckets whose messages no single destination explains."""
        return tuple(n for n, places in enumerate(self.candidates) if places is not None and not places)

    @property
    def complete(self) -> bool:
        """Whether each bucket has a proof, and no other bucket count would do."""
        return len(self.proven) == len(self.candidates) and self.counts == (len(self.candidates),)

    def ring(self, release: Release) -> HashRing:
        """Return the whole ring.

        Args:
            release: the release of the broker.

        Raises:
            RingSourceError: the messages do not prove every bucket.
        """
        if not self.complete:
            raise RingSourceError(
                f"the ring was not read: the traffic proves {len(self.proven)} of {len(self.candidates)} buckets "
                f"({len(self.contradicted)} contradicted): trace for longer, or more messages, while nothing is bound"
            )
        proven = self.proven
        return HashRing.from_buckets([proven[n] for n in range(len(self.candidates))], release)


def infer_ring(observations: Sequence[Observation], expected: int, reach: Reach) -> InferredRing:
    """Return the ring that explains the observed messages.

    Where the bucket count of the bindings contradicts the messages, larger counts are tried, as 4.3 keeps
    buckets of exclusive queues over a restart; the smallest that fits is taken.

    Args:
        observations: routed messages, the more the better: to see every one of N buckets takes about N ln N
            messages.
        expected: the bucket count by the bindings, at least 1.
        reach: which queues the destinations lead to.
    """
    distinct = dict.fromkeys((message.seed, message.queues) for message in observations)
    places = {queues: reach.places(queues) for _, queues in distinct}
    facts = [(seed, places[queues]) for seed, queues in distinct if seed is not None]
    counts: tuple[int, ...] = (expected,)
    if not _fits(facts, expected):
        counts = tuple(n for n in range(expected + 1, expected + MORE_BUCKETS + 1) if _fits(facts, n))
    return InferredRing(_candidates(facts, counts[0] if counts else expected), expected, counts)


def _fits(facts: Iterable[tuple[int, frozenset[Place]]], buckets: int) -> bool:
    allowed: dict[int, frozenset[Place]] = {}
    for seed, places in facts:
        bucket = bucket_of_seed(seed, buckets)
        allowed[bucket] = allowed.get(bucket, places) & places
        if not allowed[bucket]:
            return False
    return True


def _candidates(
    facts: Iterable[tuple[int, frozenset[Place]]], buckets: int
) -> tuple[frozenset[Place] | None, ...]:
    allowed: list[frozenset[Place] | None] = [None] * buckets
    for seed, places in facts:
        bucket = bucket_of_seed(seed, buckets)
        before = allowed[bucket]
        allowed[bucket] = places if before is None else before & places
    return tuple(allowed)


@dataclass(frozen=True, slots=True)
class Misrouted:
    """A message that is not where the ring says.

    Attributes:
        observation: the message.
        predicted: where the message goes by the ring; None for nowhere.
    """

    observation: Observation
    predicted: Place


def compare_traffic(observations: Iterable[Observation], ring: HashRing, reach: Reach) -> list[Misrouted]:
    """Return the messages whose queues are not those that the ring says.

    Args:
        observations: messages that the broker has routed.
        ring: the ring to compare them with; it may be empty.
        reach: which queues the destinations lead to.
    """
    wrong: list[Misrouted] = []
    explained: dict[tuple[Place, Queues], bool] = {}
    for message in observations:
        place = None
        if message.seed is not None and ring.bucket_count:
            place = ring.buckets[bucket_of_seed(message.seed, ring.bucket_count)]
        known = explained.get((place, message.queues))
        if known is None:
            known = explained[place, message.queues] = reach.explains(place, message.queues)
        if not known or message.seed is None:
            wrong.append(Misrouted(message, place))
    return wrong
