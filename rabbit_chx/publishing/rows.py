"""Rows as columns of bytes: checked for AMQP, and copied where their owner could change them afterwards."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rabbit_chx.amqp.frames import MAX_SHORTSTR
from rabbit_chx.publishing.byte_column import as_bytes

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from rabbit_chx.publishing.properties import Properties

__all__ = ["RowDefaults", "Rows"]

_NO_PROPERTIES = frozenset({"keys", "bodies", "exchanges"})


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


@dataclass(frozen=True, slots=True)
class RowDefaults:
    """The exchange and the properties of a row whose columns do not give them.

    Attributes:
        exchange: the publisher's exchange.
        properties: the publisher's properties.
    """

    exchange: str
    properties: Properties

    def rows(self, columns: Mapping[str, Sequence[Any]], first_row: int) -> Rows:
        """Return rows that AMQP can carry.

        Args:
            columns: ``keys``, ``bodies``, and where they are given ``exchanges`` and properties by name, all of one length.
            first_row: the number of the first of these rows, for errors.

        Raises:
            RowError: AMQP cannot carry a value.
        """
        keys = as_bytes(columns["keys"], "routing key", first_row, MAX_SHORTSTR)
        bodies = as_bytes(columns["bodies"], "body", first_row)
        if len(columns) == 2:
            return Rows(keys, bodies)
        exchanges = columns.get("exchanges")
        if exchanges is not None:
            names = [self.exchange if name is None else name for name in exchanges]
            exchanges = as_bytes(names, "exchange", first_row, MAX_SHORTSTR)
        properties = {name: values for name, values in columns.items() if name not in _NO_PROPERTIES}
        encoded = self.properties.of_rows(properties, first_row) if properties else None
        return Rows(keys, bodies, encoded, exchanges)
