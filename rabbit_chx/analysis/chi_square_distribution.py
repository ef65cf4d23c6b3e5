"""The tail of the chi-square distribution, and where it falls to a wanted probability."""

from __future__ import annotations

import math
from numbers import Integral

from rabbit_chx.checks import shown
from rabbit_chx.errors import InputError

__all__ = ["MAX_DEGREES", "chi_square_tail", "chi_square_threshold"]

_EPSILON = 1e-15
_TINY = 1e-300
_MAX_TERMS = 100_000  # the square root of the degrees of freedom, some times over
MAX_DEGREES = 10_000_000  # more than a ring has destinations; beyond, floats lose digits


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
    if not 1 <= int(degrees_of_freedom) <= MAX_DEGREES:
        raise InputError(f"{shown(int(degrees_of_freedom))} degrees of freedom: give 1 to {MAX_DEGREES:,}")


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
