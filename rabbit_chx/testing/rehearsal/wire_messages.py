"""Messages with any header table: pika sends neither all types of fields nor a name twice."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

import pika

from rabbit_chx.amqp.header_table import encode_table

if TYPE_CHECKING:
    from rabbit_chx.amqp.client_fields import HeaderTable
    from rabbit_chx.topology.upgrade_exchange import SampledMessage

__all__ = ["wire_properties"]

_FLAGS = struct.Struct(">H")


class _WithTable(pika.BasicProperties):
    """Properties whose header table is encoded here."""

    def __init__(self, table: HeaderTable, **properties: Any) -> None:  # noqa: ANN401
        super().__init__(**properties)
        self._table = table

    def encode(self) -> list[bytes]:
        """Return the pieces of the properties: first the flags, then the table, which is before all that is hashed."""
        pieces: list[bytes] = super().encode()
        (flags,) = _FLAGS.unpack(pieces[0])
        return [_FLAGS.pack(flags | self.FLAG_HEADERS), encode_table(self._table), *pieces[1:]]


def wire_properties(message: SampledMessage) -> pika.BasicProperties:
    """Return what pika sends for the headers and properties of a message, each with its type of the wire.

    Args:
        message: the message.
    """
    properties: dict[str, Any] = dict(message.properties)
    if not message.headers:
        return pika.BasicProperties(**properties)
    return _WithTable(message.headers, **properties)
