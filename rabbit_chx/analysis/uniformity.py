"""Pearson's chi-square test of a sample of keys against the exact shares, and the plugin's own table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from numbers import Integral

from rabbit_chx.analysis.chi_square_distribution import chi_square_tail, chi_square_threshold
from rabbit_chx.errors import InputError
from rabbit_chx.routing import Destination, HashRing, KeyMap, check_key_map

__all__ = [
    "PUBLISHED",
    "ChiSquare",
    "PublishedFigures",
    "UniformityRow",
    "chi_square",
    "chi_square_of_keys",
    "count_keys",
    "uniformity_table",
]

_PUBLISHED_KEYS = 100_000
_FEW_EXPECTED = 5.0  # the usual bound: below it the p value is rough


@dataclass(frozen=True, slots=True)
class ChiSquare:
    """The outcome of a chi-square test.

    Attributes:
        statistic: the sum of (counted - expected)^2 / expected.
        degrees_of_freedom: one less than the destinations that expect anything.
        p_value: the probability that chance alone gives such a statistic or a larger one; 1 where there is
            but one destination, and so nothing to test.
        smallest_expected: the smallest count that was expected.
    """

    statistic: float
    degrees_of_freedom: int
    p_value: float
    smallest_expected: float

    @property
    def rough(self) -> bool:
        """Whether a destination expected so few keys (less than 5) that the p value is only rough."""
        return self.smallest_expected < _FEW_EXPECTED

    def threshold(self, p: float) -> float | None:
        """Return the statistic that chance exceeds with the probability `p`; None if there is nothing to
        test.

        Args:
            p: a probability, more than 0 and less than 1.
        """
        return chi_square_threshold(p, self.degrees_of_freedom) if self.degrees_of_freedom else None


def count_keys(keys: Iterable[str | bytes], ring: KeyMap) -> dict[Destination | None, int]:
    """Return how many keys each destination gets, in ring order; holes, if keys reach any, under None.

    Args:
        keys: the keys, as for :meth:`HashRing.indices`.
        ring: the ring that routes them, or the slots of one.

    Raises:
        EmptyRingError: the ring has no buckets.
        RowError: a key is null or neither text nor bytes.
    """
    import numpy as np

    check_key_map(ring)
    indices = ring.indices(keys)
    counts = np.bincount(indices[indices >= 0], minlength=len(ring.destinations)).tolist()
    by_destination: dict[Destination | None, int] = dict(zip(ring.destinations, counts, strict=True))
    if holes := len(indices) - sum(counts):
        by_destination[None] = holes
    return by_destination


def chi_square(
    counts: Mapping[Destination | None, int], shares: Mapping[Destination | None, float]
) -> ChiSquare:
    """Hold counted keys against the shares that they should have.

    The test takes each key as an independent draw: count distinct keys, not messages.

    Args:
        counts: keys per destination; a missing destination got no keys.
        shares: the expected share of each destination, as :meth:`HashRing.shares` gives them; they sum to 1.

    Raises:
        InputError: there are no keys or no shares, a destination got keys and has no share, a count is not a
            whole number from 0 on, or a share is not between 0 and 1.
    """
    for destination, count in counts.items():
        _check_count(destination, count)
    for destination, share in shares.items():
        if not 0 <= share <= 1:
            raise InputError(f"the share {share!r:.60} of {destination!s} is no part of 1: give 0 to 1")
    total = sum(counts.values())
    if total < 1:
        raise InputError("a chi-square test of no keys: give at least one key")
    for destination, count in counts.items():
        if count and not shares.get(destination):
            raise InputError(
                f"{count} keys are counted at {destination!s}, which has no share: give counts and shares of one ring"
            )
    expected = {destination: share * total for destination, share in shares.items() if share}
    statistic = sum((counts.get(place, 0) - amount) ** 2 / amount for place, amount in expected.items())
    degrees = len(expected) - 1
    return ChiSquare(
        statistic=statistic,
        degrees_of_freedom=degrees,
        p_value=chi_square_tail(statistic, degrees) if degrees else 1.0,
        smallest_expected=min(expected.values()),
    )


def _check_count(destination: Destination | None, count: object) -> None:
    if isinstance(count, bool) or not isinstance(count, Integral) or int(count) < 0:
        raise InputError(f"{count!r:.60} keys at {destination!s}: give a whole number, 0 or more")


def chi_square_of_keys(keys: Iterable[str | bytes], ring: KeyMap) -> ChiSquare:
    """Test whether these keys, each taken once, fall as the ring's exact shares say.

    Args:
        keys: str or bytes.
        ring: the ring that routes them, or the slots of one.

    Raises:
        EmptyRingError: the ring has no buckets.
        RowError: a key is null or neither text nor bytes.
        InputError: there are no keys.
    """
    check_key_map(ring)
    return chi_square(count_keys(list(dict.fromkeys(keys)), ring), ring.shares())


@dataclass(frozen=True, slots=True)
class PublishedFigures:
    """A row of the table that the plugin publishes.

    Attributes:
        statistic: its chi-square test result.
        threshold_05: its threshold of p = 0.05.
        threshold_01: its threshold of p = 0.01.
    """

    statistic: float
    threshold_05: float
    threshold_01: float


# rabbitmq-server v4.3.6, deps/rabbitmq_consistent_hash_exchange/README.md, "Distribution Uniformity", by bucket
# count. Some thresholds there are slips: 3.49 for 5 buckets is 9.49, and those of 18 to 20 buckets are of one
# degree of freedom too many.
PUBLISHED = {
    2: PublishedFigures(0.5, 3.84, 6.64),
    3: PublishedFigures(0.946, 5.99, 9.21),
    4: PublishedFigures(2.939, 7.81, 11.35),
    5: PublishedFigures(2.163, 3.49, 13.28),
    6: PublishedFigures(2.592, 11.07, 15.09),
    7: PublishedFigures(4.654, 12.59, 16.81),
    8: PublishedFigures(7.566, 14.07, 18.48),
    9: PublishedFigures(5.847, 15.51, 20.09),
    10: PublishedFigures(9.790, 16.92, 21.67),
    11: PublishedFigures(13.448, 18.31, 23.21),
    12: PublishedFigures(12.432, 19.68, 24.73),
    13: PublishedFigures(12.338, 21.02, 26.22),
    14: PublishedFigures(9.898, 22.36, 27.69),
    15: PublishedFigures(8.513, 23.69, 29.14),
    16: PublishedFigures(6.997, 24.99, 30.58),
    17: PublishedFigures(6.279, 26.30, 32.00),
    18: PublishedFigures(10.373, 28.87, 34.81),
    19: PublishedFigures(12.935, 30.14, 36.19),
    20: PublishedFigures(11.895, 31.41, 37.57),
}


@dataclass(frozen=True, slots=True)
class UniformityRow:
    """The test of one bucket count, beside what the plugin publishes for it.

    Attributes:
        buckets: as many queues of weight 1.
        result: the test of our keys against equal shares.
        threshold_05: the statistic that chance exceeds in 5 of 100 samples.
        threshold_01: in 1 of 100.
        published: the plugin's own figures.
    """

    buckets: int
    result: ChiSquare
    threshold_05: float
    threshold_01: float
    published: PublishedFigures


def uniformity_table(keys: Iterable[str | bytes] | None = None) -> tuple[UniformityRow, ...]:
    """Return the chi-square tests of 2 to 20 buckets, as the plugin's README has them.

    Keys are compared with equal shares, as the plugin's own test suite does it
    (``rabbit_exchange_type_consistent_hash_SUITE.erl``, ``test0/5``). The README names neither its keys nor
    their number, and no run of consecutive integers, as integers or as text, gives its figures: they are
    another sample of the same distribution.

    Args:
        keys: each is taken once; without them the 100,000 routing keys ``"0"`` to ``"99999"`` of the README's
            example.

    Raises:
        RowError: a key is null or neither text nor bytes.
        InputError: there are no keys.
    """
    sample = list(map(str, range(_PUBLISHED_KEYS)) if keys is None else dict.fromkeys(keys))
    rows = []
    for buckets, published in PUBLISHED.items():
        queues = [f"q{number}" for number in range(buckets)]
        counts = count_keys(sample, HashRing.from_buckets(queues))
        result = chi_square(counts, dict.fromkeys(queues, 1 / buckets))
        rows.append(
            UniformityRow(
                buckets=buckets,
                result=result,
                threshold_05=chi_square_threshold(0.05, buckets - 1),
                threshold_01=chi_square_threshold(0.01, buckets - 1),
                published=published,
            )
        )
    return tuple(rows)
