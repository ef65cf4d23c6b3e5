"""A message as the broker sees it before it routes: routing keys, headers and three properties."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from rabbit_chx.amqp.client_fields import Client, Headers, Table, field_for, table_for
from rabbit_chx.amqp.fields import INTEGER_RANGES, AmqpField, shortstr, shown
from rabbit_chx.errors import ChannelClosedError, InputError, NotDeterminedError

__all__ = ["HASH_PROPERTIES", "Message", "property_bytes", "property_seconds", "refuse_random_id"]

#: Those that an exchange can hash.
HASH_PROPERTIES = ("correlation_id", "message_id", "timestamp")
OTHER_PROPERTIES = (
    "content_type", "content_encoding", "headers", "delivery_mode", "priority", "reply_to", "expiration", "type",
    "user_id", "app_id", "cluster_id",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Message:
    """What routing sees of a message.

    Attributes:
        routing_keys: the routing key, then those of CC, then those of BCC.
        headers: the header table of the wire, in order, without BCC.
        message_id: its bytes, or None.
        correlation_id: its bytes, or None.
        timestamp: seconds since 1970, or None.
        client: who sends it.
    """

    routing_keys: tuple[bytes, ...]
    headers: Table
    message_id: bytes | None
    correlation_id: bytes | None
    timestamp: int | None
    client: Client = "pika"

    @classmethod
    def of(
        cls,
        routing_key: str | bytes,
        headers: Headers | None,
        properties: object,
        *,
        cc: Iterable[str | bytes],
        bcc: Iterable[str | bytes],
        client: Client,
    ) -> Message:
        """The message that a client sends, given as :meth:`ConsistentHashExchange.route` takes it.

        Mirrors rabbitmq-server ``deps/rabbit/src/rabbit_basic.erl``, ``header_routes/1`` and ``strip_bcc_header/1``,
        v3.7.8 to v4.3.6: of CC and BCC the first of that name counts, of its elements those of type longstr.

        Raises:
            InputError: a client cannot send it, or something is given twice.
            ChannelClosedError: CC or BCC is no array.
        """
        key = shortstr(routing_key, "the routing key")
        table = _with_routes(_headers(headers, properties, client), cc, bcc)
        return cls(
            (key, *_routes(table, b"CC"), *_routes(table, b"BCC")),
            _without_first(table, b"BCC"),
            property_bytes("message_id", _property(properties, "message_id"), client),
            property_bytes("correlation_id", _property(properties, "correlation_id"), client),
            property_seconds(_property(properties, "timestamp"), client),
            client,
        )


def property_bytes(name: str, value: object, client: Client) -> bytes | None:
    """The bytes of message_id or correlation_id, or None where the client sends none.

    pika sends text and bytes, empty ones too; aio-pika sends ``str`` of anything, ``b"a"`` as the text ``b'a'``, and
    leaves out what is empty or 0. Mirrors aio-pika ``message.py``, ``Message.__init__`` and ``optional`` (9.0 to 10.2.1). See
    `refuse_random_id` for what happens to a message without an id.

    Raises:
        InputError: the client cannot send it.
    """
    if value is None or (client == "aio-pika" and not value):
        return None
    if client == "aio-pika":
        value = str(value)
    if not isinstance(value, (str, bytes)):
        raise InputError(f"the {name} is {value!r:.60}: give str or bytes")
    return shortstr(value, f"the {name}")


def refuse_random_id(name: str, value: bytes | None, client: Client) -> None:
    """Refuses to hash the message_id that aio-pika makes up where there is none.

    Mirrors aiormq 7.2.4, ``aiormq/channel.py``, ``Channel.basic_publish``.

    Raises:
        NotDeterminedError: it is a random one.
    """
    if name == "message_id" and value is None and client == "aio-pika":
        raise NotDeterminedError(
            "aio-pika gives a message without message_id a random one, and the exchange hashes that: give a message_id"
        )


def property_seconds(value: object, client: Client) -> int | None:
    """The seconds of the property timestamp, or None: pika takes an int, aio-pika a number or a datetime too.

    aio-pika makes a datetime of a number, so that it rounds to microseconds first and ends with the year 9999. Mirrors
    aio-pika ``message.py``, ``encode_timestamp_number``.

    Raises:
        InputError: the client cannot send it, or it is a timedelta, which aio-pika adds to the time of sending.
    """
    if value is None:
        return None
    if client == "aio-pika" and isinstance(value, timedelta):
        raise InputError(f"the timestamp {value!r:.60} depends on when it is sent: give a datetime")
    if client == "aio-pika" and isinstance(value, (int, float)):
        try:
            value = datetime.fromtimestamp(value, UTC)
        except (ValueError, OverflowError, OSError):
            raise InputError(
                f"aio-pika cannot send the timestamp {shown(value)}: give seconds of the years 1970 to 9999"
            ) from None
    if client == "aio-pika" and isinstance(value, datetime):
        return int(field_for(value, client).value)
    if isinstance(value, bool) or not isinstance(value, int) or int(value) not in INTEGER_RANGES["timestamp"]:
        raise InputError(f"the timestamp is {value!r:.60}: give seconds since 1970 as an int")
    return int(value)


def _property(properties: object, name: str) -> Any:  # noqa: ANN401
    if isinstance(properties, Mapping):
        for given in properties:
            if given not in HASH_PROPERTIES and given not in OTHER_PROPERTIES:
                raise InputError(
                    f"AMQP has no property {given!r:.60}: give message_id, correlation_id or timestamp"
                )
        return properties.get(name)
    if properties is not None and not hasattr(properties, "message_id"):
        raise InputError(
            f"{properties!r:.60} are no properties: give a mapping of names or a BasicProperties"
        )
    return getattr(properties, name, None)


def _headers(headers: Headers | None, properties: object, client: Client) -> Table:
    inside = _property(properties, "headers")
    if headers is not None and inside:
        raise InputError("headers are given twice, by headers= and in the properties: give them once")
    return table_for(inside or {} if headers is None else headers, client)


def _with_routes(table: Table, cc: Iterable[str | bytes], bcc: Iterable[str | bytes]) -> Table:
    """The headers with those that `cc` and `bcc` stand for."""
    for name, routes in (("CC", cc), ("BCC", bcc)):
        if isinstance(routes, (str, bytes)) or not hasattr(routes, "__iter__"):
            raise InputError(f"{name.lower()} is {routes!r:.60}: give a list of routing keys, even of one")
        keys = [shortstr(route, f"a routing key of {name}") for route in routes]
        if not keys:
            continue
        if any(given == name.encode() for given, _ in table):
            raise InputError(f"{name} is given twice, by {name.lower()}= and as a header: give it once")
        table = (*table, (name.encode(), AmqpField("array", [AmqpField("longstr", key) for key in keys])))
    return table


def _routes(table: Table, name: bytes) -> list[bytes]:
    field = next((field for given, field in table if given == name), None)
    if field is None:
        return []
    if field.type != "array":
        raise ChannelClosedError(
            f"the header {name.decode()} is a {field.type}: the broker takes an array alone, and closes the channel",
            reply_code=406,
        )
    return [item.value for item in field.value if item.type == "longstr"]


def _without_first(table: Table, name: bytes) -> Table:
    for position, (given, _) in enumerate(table):
        if given == name:
            return (*table[:position], *table[position + 1 :])
    return table
