"""Pearson's chi-square test of a sample of keys against the exact shares, its distribution, and the plugin's own table."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from numbers import Integral

from rabbit_chx.checks import shown
from rabbit_chx.errors import InputError
from rabbit_chx.routing import Destination, HashRing, KeyMap, check_key_map

_PUBLISHED_KEYS = 100_000
_FEW_EXPECTED = 5.0  # the usual bound: below it the p value is rough
_EPSILON = 1e-15
_TINY = 1e-300
_MAX_TERMS = 100_000  # the square root of the degrees of freedom, some times over
_MAX_DEGREES = 10_000_000  # more than a ring has destinations; beyond, floats lose digits


@dataclass(frozen=True, slots=True)
class ChiSquare:
    """The outcome of a chi-square test.

    Attributes:
        statistic: the sum of (counted - expected)^2 / expected.
        degrees_of_freedom: one less than the destinations that expect anything.
        p_value: the probability that chance alone gives such a statistic or a larger value; 1 where there is
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
        """Return the statistic that chance exceeds with the probability `p`; None if there is nothing to test.

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


#: rabbitmq-server v4.3.6, deps/rabbitmq_consistent_hash_exchange/README.md, "Distribution Uniformity", by bucket
#: count. Some thresholds there are slips: 3.49 for 5 buckets is 9.49, and those of 18 to 20 buckets are of one
#: degree of freedom too many.
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


def chi_square_tail(statistic: float, degrees_of_freedom: int) -> float:
    """Return the probability that chance alone gives a chi-square statistic this large or larger.

    That is the regularised upper incomplete gamma function Q(k/2, x/2), as a series where x is small and as a
    continued fraction (modified Lentz) where it is large.

    Args:
        statistic: at least 0.
        degrees_of_freedom: 1 to 10,000,000.

    Raises:
        InputError: an argument is out of its range.
    """
    _check_degrees(degrees_of_freedom)
    if not statistic >= 0:
        raise InputError(f"the chi-square statistic {statistic} is no number of at least 0")
    if math.isinf(statistic):
        return 0.0
    a, x = degrees_of_freedom / 2, statistic / 2
    if x == 0:
        return 1.0
    scale = math.exp(a * math.log(x) - x - math.lgamma(a))
    return 1.0 - scale * _lower_series(a, x) if x < a + 1 else scale * _upper_fraction(a, x)


def _check_degrees(degrees_of_freedom: object) -> None:
    if isinstance(degrees_of_freedom, bool) or not isinstance(degrees_of_freedom, Integral):
        raise InputError(f"{degrees_of_freedom!r:.60} degrees of freedom: give a whole number")
    if not 1 <= int(degrees_of_freedom) <= _MAX_DEGREES:
        raise InputError(f"{shown(int(degrees_of_freedom))} degrees of freedom: give 1 to {_MAX_DEGREES:,}")


def chi_square_threshold(p: float, degrees_of_freedom: int) -> float:
    """Return the statistic that chance alone exceeds with the probability `p`.

    Args:
        p: more than 0, less than 1.
        degrees_of_freedom: 1 to 10,000,000.

    Raises:
        InputError: an argument is out of its range.
    """
    if not 0 < p < 1:
        raise InputError(f"the probability {p} must lie between 0 and 1, as 0.05 does")
    low, high = 0.0, 1.0
    while chi_square_tail(high, degrees_of_freedom) > p:
        low, high = high, 2 * high
    while (middle := (low + high) / 2) not in (low, high):
        if chi_square_tail(middle, degrees_of_freedom) > p:
            low = middle
        else:
            high = middle
    return high


def _lower_series(a: float, x: float) -> float:
    """Return the lower incomplete gamma function without its factor: the sum of x^n / (a (a+1) ... (a+n))."""
    term = total = 1 / a
    for n in range(1, _MAX_TERMS):
        term *= x / (a + n)
        total += term
        if term < total * _EPSILON:
            return total
    raise _not_converged(a, x)


def _upper_fraction(a: float, x: float) -> float:
    """Return the upper incomplete gamma function without its factor."""
    b = x + 1 - a
    c = 1 / _TINY
    d = 1 / b
    fraction = d
    for n in range(1, _MAX_TERMS):
        numerator = -n * (n - a)
        b += 2
        d = 1 / _not_zero(numerator * d + b)
        c = _not_zero(b + numerator / c)
        fraction *= d * c
        if abs(d * c - 1) < _EPSILON:
            return fraction
    raise _not_converged(a, x)


def _not_converged(a: float, x: float) -> InputError:
    return InputError(
        f"the chi-square tail of {2 * x} with {2 * a:.0f} degrees of freedom takes too long to compute: give fewer"
    )


def _not_zero(value: float) -> float:
    return value if abs(value) > _TINY else _TINY
