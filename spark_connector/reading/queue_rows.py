"""Messages of queues as Arrow batches, in the columns that Spark gets."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any, NamedTuple

import pyarrow as pa

from rabbit_chx.amqp import AmqpField
from rabbit_chx.amqp.header_table import properties_in
from rabbit_chx.streams.messages import as_text, time_text

_TEXTS = pa.map_(pa.string(), pa.string())
#: The columns with their types; those behind the first four are there for who asks for them.
_COLUMNS: dict[str, Any] = {
    "key": pa.binary(),
    "value": pa.binary(),
    "queue": pa.string(),
    "redelivered": pa.bool_(),
    "exchange": pa.string(),
    "message_id": pa.string(),
    "properties": _TEXTS,
    "headers": _TEXTS,
}
_ALWAYS = 4


class Delivery(NamedTuple):
    """A message that the broker has delivered, and that is not settled yet.

    Attributes:
        tag: its number on the channel.
        redelivered: whether it was delivered before, to anybody.
        exchange: where it was published to; bytes if it is not UTF-8, as pika gives it.
        key: its routing key, likewise.
        properties: property flags and values, as `rabbit_chx.amqp.header_table.properties_in` reads them.
        body: its body.
    """

    tag: int
    redelivered: bool
    exchange: str | bytes
    key: str | bytes
    properties: bytes
    body: bytes

    @property
    def size(self) -> int:
        """Bytes of its body and properties."""
        return len(self.body) + len(self.properties)


def batch_of(queue: str, messages: Sequence[Delivery], include: Sequence[str]) -> pa.RecordBatch:
    """Return messages of a queue as columns, in their order.

    Args:
        queue: the queue's name.
        messages: the messages.
        include: the further columns, in their order.
    """
    properties = [properties_in(message.properties) for message in messages] if include else []
    values: dict[str, Callable[[], list[Any]]] = {
        "key": lambda: [message.key for message in messages],  # Arrow encodes texts as UTF-8
        "value": lambda: [message.body for message in messages],
        "queue": lambda: [queue] * len(messages),
        "redelivered": lambda: [message.redelivered for message in messages],
        "exchange": lambda: [
            name if isinstance(name := message.exchange, str) else name.decode(errors="replace")
            for message in messages
        ],
        "message_id": lambda: [each.get("message_id") for each in properties],
        "properties": lambda: [_texts(each) for each in properties],
        "headers": lambda: [_headers(each.get("headers", ())) for each in properties],
    }
    names = (*list(_COLUMNS)[:_ALWAYS], *include)
    return pa.RecordBatch.from_arrays(
        [pa.array(values[name](), _COLUMNS[name]) for name in names],
        schema=pa.schema([(name, _COLUMNS[name]) for name in names]),
    )


def _texts(properties: dict[str, Any]) -> list[tuple[str, str | None]] | None:
    texts = [
        (name, as_text(time_text(1000 * value) if name == "timestamp" else value))
        for name, value in properties.items()
        if name != "headers"
    ]
    return texts or None


def _headers(table: Sequence[tuple[bytes, AmqpField]]) -> list[tuple[str, str | None]] | None:
    # Of two headers with one name the last counts: Spark's maps have no name twice.
    return list({as_text(name) or "": as_text(_plain(field)) for name, field in table}.items()) or None


def _plain(field: AmqpField) -> Any:  # noqa: ANN401  # whatever a header holds
    """Return the value of a field as what JSON has for it; times and decimals are texts."""
    value = field.value
    match field.type:
        case "array":
            return [_plain(element) for element in value]
        case "table":
            return {as_text(name) or "": _plain(element) for name, element in value}
        case "timestamp":
            return time_text(1000 * value)
        case "decimal":
            return str(Decimal(value[1]).scaleb(-value[0]))
    return value
