"""Argument validation of numbers. Booleans are rejected."""

from __future__ import annotations

from typing import TypeGuard

from rabbit_chx.errors import InputError

_ENDLESS = float("inf")


def is_whole(value: object, least: float = -_ENDLESS, most: float = _ENDLESS) -> TypeGuard[int]:
    """Return whether a value is an int within these bounds."""
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most


def is_number(value: object) -> TypeGuard[float]:
    """Return whether a value is an int or a float; infinity and NaN are floats."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def is_finite(value: object) -> TypeGuard[float]:
    """Return whether a value is a number other than infinity and NaN."""
    return is_number(value) and -_ENDLESS < value < _ENDLESS


def check_whole(name: str, value: object, least: int, most: int | None = None) -> None:
    """Raise an InputError for what is not an integer within these bounds; the name is for the error."""
    if not is_whole(value, least, _ENDLESS if most is None else most):
        wanted = f", {least} or more" if most is None else f" from {least} to {most}"
        raise InputError(f"{name} is {shown(value)}: give a whole number{wanted}")


def check_seconds(name: str, value: object, *, zero: bool = True) -> None:
    """Raise an InputError for what is not a finite number of seconds, 0 or more; with ``zero=False`` more than 0."""
    if not is_finite(value) or value < 0 or (value == 0 and not zero):
        wanted = "0 or more" if zero else "more than 0"
        raise InputError(f"{name} is {shown(value)}: give a finite number of seconds, {wanted}")


def shown(value: object) -> str:
    """Return a value for an error: the start of a long one, and the size of an integer too large to print."""
    if isinstance(value, int) and value.bit_length() > 200:
        return f"an integer of {value.bit_length()} bits"
    return f"{value!r:.60}"
