"""Rows as columns of bytes: checked for AMQP, and copied where their owner could change them afterwards."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NoReturn

from rabbit_chx.amqp.names import too_long
from rabbit_chx.errors import RowError

_SHOWN_BYTES = 24


@dataclass(frozen=True, slots=True)
class Rows:
    """A batch of messages, checked and in bytes; kept until the broker has answered for all of it.

    Attributes:
        keys: routing keys.
        bodies: as many bodies.
        properties: the property flags and values of each row; None where all rows have the publisher's.
        exchanges: the exchange of each row; None where all rows go to the publisher's.
    """

    keys: Sequence[bytes]
    bodies: Sequence[bytes]
    properties: Sequence[bytes] | None = None
    exchanges: Sequence[bytes] | None = None

    def __len__(self) -> int:
        return len(self.keys)

    def pick(self, places: Sequence[int]) -> Rows:
        """Return the rows at these places, in this order."""
        if len(places) == len(self.keys):
            return self
        return Rows(
            [self.keys[i] for i in places],
            [self.bodies[i] for i in places],
            self.properties and [self.properties[i] for i in places],
            self.exchanges and [self.exchanges[i] for i in places],
        )


def as_bytes(
    values: Sequence[str | bytes], what: str, first_row: int, longest: int | None = None
) -> Sequence[bytes]:
    """Return a column of text as bytes, with str as UTF-8.

    Args:
        values: one value for each row.
        what: the column's name in errors.
        first_row: the number of the first of these rows, for errors.
        longest: the most bytes of a value; None for any length.

    Raises:
        RowError: a value is missing, is not text, or is too long.
    """
    data = _as_bytes(values, what, first_row)
    if longest is not None and max(map(len, data), default=0) > longest:
        _refuse_long(data, what, first_row, longest)
    return data


def _as_bytes(values: Sequence[str | bytes], what: str, first_row: int) -> Sequence[bytes]:
    if values and isinstance(values[0], str):
        with contextlib.suppress(TypeError, UnicodeEncodeError):  # the loop below finds out which
            return list(map(str.encode, values))  # type: ignore[arg-type]
    elif set(map(type, values)) <= {bytes}:
        return values  # type: ignore[return-value]  # the types say so
    return [_checked(value, what, first_row + i) for i, value in enumerate(values)]


def _checked(value: object, what: str, row: int) -> bytes:
    if isinstance(value, str):
        try:
            return value.encode()
        except UnicodeEncodeError as cause:
            raise RowError(
                f"row {row}: the {what} is no valid Unicode text ({cause.reason} at character {cause.start}); "
                "give the bytes that are meant"
            ) from None
    if isinstance(value, (bytes, bytearray)):
        return bytes(value)
    if value is None:
        raise RowError(f"row {row}: the {what} is missing (None); fill it, or leave the row out")
    raise RowError(f"row {row}: the {what} is of type {type(value).__name__}; give a str or bytes")


def _refuse_long(values: Sequence[bytes], what: str, first_row: int, longest: int) -> NoReturn:
    row, value = next((i, value) for i, value in enumerate(values) if len(value) > longest)
    raise RowError(
        too_long(f"row {first_row + row}: the {what} {value[:_SHOWN_BYTES]!r}...", len(value))
        + "; shorten it, or use its hash"
    )
