"""The options of ``format("rabbitmq")``: parsed and checked, as one value."""

from __future__ import annotations

import re
import string
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rabbit_chx.amqp.frames import MAX_SHORTSTR
from rabbit_chx.amqp.header_table import encode_headers
from rabbit_chx.amqp.names import too_long
from rabbit_chx.errors import InputError
from rabbit_chx.routing import KeyMap, key_map_from_json
from spark_connector.options.addresses import Brokers
from spark_connector.options.option_table import OptionValues, read_options
from spark_connector.options.option_values import shown

__all__ = ["MAX_HEADERS_BYTES", "WriteOptions"]

#: All headers of a message travel in one frame, of 128 KiB unless agreed otherwise.
MAX_HEADERS_BYTES = 100_000
#: What a connection name may have in braces.
_NAME_FIELDS = ("app", "stage", "partition", "attempt", "write", "batch")
_ADDRESS = re.compile(r"(?P<host>\[[0-9A-Fa-f:.]+\]|[^\s:/@\[\]]+):(?P<port>\d{1,5})")


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """How to write. It can be pickled, and shows no password. Durations are in seconds, sizes in bytes.

    The attributes are the options of `spark_connector.options.option_table`. These differ:

    Attributes:
        brokers: the addresses to connect to, with user and password.
        exchange: the exchange; empty if only a column names it.
        skip_bad_rows: whether ``badRows`` is skip.
        skip_unroutable: whether ``onUnroutable`` is skip.
        keep_order: whether ``ordering`` is per-key.
        headers: the headers of ``headersConst``.
        ring: predicts the queue of a row, for counting, and for `client_routing`; None to count no queues.
        client_routing: whether ``routing`` is client.
        locality: host and port by queue.
    """

    brokers: Brokers
    exchange: str
    allow_exchange_column: bool
    routing_key: str | None
    ignore_unknown_columns: bool
    mandatory: bool
    persistent: bool
    headers: Mapping[str, str | int | bool]
    message_id: str
    write_name: str | None
    max_message_bytes: int
    max_in_flight: int
    max_in_flight_bytes: int
    keep_order: bool
    skip_bad_rows: bool
    skip_unroutable: bool
    confirm_timeout_s: float
    blocked_timeout_s: float
    reconnect_timeout_s: float
    max_reconnects: int | None
    reconnect_backoff_s: float
    nack_retries: int
    preflight: bool
    on_speculation: str
    ring: KeyMap | None
    ring_via: str | None
    client_routing: bool
    locality: Mapping[str, tuple[str, int]]
    connection_name: str
    report_path: str | None

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> WriteOptions:
        """Return the options of a write.

        Args:
            options: the texts that the user gave to ``.option(...)``; names in any case.

        Raises:
            InputError: an option is unknown, missing, or has a text that cannot be used.
        """
        values = read_options(options)
        brokers = Brokers.of(values)
        if values["exchange"] is None and not values["allowExchangeColumn"]:
            raise InputError("option 'exchange' is missing: name the exchange to publish to")
        _check_byte_length("exchange", values["exchange"])
        _check_byte_length("routingKey", values["routingKey"])
        if not values["confirmTimeout"]:
            raise InputError("option 'confirmTimeout' is 0: give more than 0 seconds")
        ring = _ring(values["ring"])
        _check_routing(values)
        return cls(
            brokers=brokers,
            exchange=values["exchange"] or "",
            allow_exchange_column=values["allowExchangeColumn"],
            routing_key=values["routingKey"],
            ignore_unknown_columns=values["ignoreUnknownColumns"],
            mandatory=values["mandatory"],
            persistent=values["persistent"],
            headers=_headers(values["headersConst"]),
            message_id=values["messageId"],
            write_name=_write_name(values["writeName"], values["messageId"]),
            max_message_bytes=values["maxMessageBytes"],
            max_in_flight=values["maxInFlight"],
            max_in_flight_bytes=values["maxInFlightBytes"],
            keep_order=values["ordering"] == "per-key",
            skip_bad_rows=values["badRows"] == "skip",
            skip_unroutable=values["onUnroutable"] == "skip",
            confirm_timeout_s=values["confirmTimeout"],
            blocked_timeout_s=values["blockedTimeout"],
            reconnect_timeout_s=values["reconnectTimeout"],
            max_reconnects=values["maxReconnects"],
            reconnect_backoff_s=values["reconnectBackoff"],
            nack_retries=values["nackRetries"],
            preflight=values["preflight"],
            on_speculation=values["onSpeculation"],
            ring=ring,
            ring_via=values["ringVia"],
            client_routing=values["routing"] == "client",
            locality=_locality(values["localityMap"], ring),
            connection_name=_name_pattern(values["connectionName"]),
            report_path=_report_path(values["reportPath"]),
        )


def _check_byte_length(name: str, text: str | None) -> None:
    size = len((text or "").encode("utf-8", "surrogatepass"))
    if size > MAX_SHORTSTR:
        raise InputError(too_long(f"option {name!r}", size))


def _write_name(name: str | None, message_id: str) -> str | None:
    if name is not None and message_id != "auto":
        raise InputError(
            f"option 'writeName' is {shown(name)}, but messageId is {message_id!r}: the name is for ids that are made, so set "
            "messageId to auto, or leave the name out"
        )
    return name


def _headers(given: Mapping[str, Any] | None) -> dict[str, str | int | bool]:
    headers: dict[str, str | int | bool] = {}
    for name, value in (given or {}).items():
        if not isinstance(value, (str, int)):
            raise InputError(
                f"option 'headersConst': the header {name!r} is a {type(value).__name__}: "
                "give a text, a whole number, true or false"
            )
        if name in ("CC", "BCC"):
            raise InputError(
                f"option 'headersConst': the header {name!r} gives RabbitMQ further routing keys, and as a text "
                "it closes the channel: leave it out"
            )
        headers[name] = value
    try:
        size = len(encode_headers(headers))
    except InputError as cause:
        raise InputError(f"option 'headersConst': {cause}") from None
    if size > MAX_HEADERS_BYTES:
        raise InputError(
            f"option 'headersConst' is {size:,} bytes long, and AMQP carries headers in one frame: "
            f"{MAX_HEADERS_BYTES:,} are possible; put them into the value"
        )
    return headers


def _ring(text: str | None) -> KeyMap | None:
    if text is None:
        return None
    if not text.lstrip().startswith("{"):
        try:
            text = Path(text).read_text()
        except (OSError, ValueError) as cause:
            raise InputError(
                f"option 'ring' is {shown(text)}: it is not a JSON object, and cannot be read as a file "
                f"({type(cause).__name__}): give ring.to_json(), or the path of a file with it"
            ) from None
    try:
        ring = key_map_from_json(text)
    except InputError as cause:
        raise InputError(f"option 'ring': {cause}") from None
    if not ring.destinations:
        raise InputError(
            "option 'ring' has no buckets, or its slots no queue, so it predicts nothing: bind queues first, or leave it out"
        )
    return ring


def _check_routing(values: OptionValues) -> None:
    if values["ring"] is not None and values["ringVia"] is not None:
        raise InputError("options 'ring' and 'ringVia' are both given: give one of them")
    if values["ringVia"] is not None and values["exchange"] is None:
        raise InputError("option 'ringVia' needs the option 'exchange', which says whose ring is read")
    if values["routing"] == "client" and values["allowExchangeColumn"]:
        raise InputError(
            "options 'routing' and 'allowExchangeColumn' contradict each other: routing=client goes past all exchanges; "
            "leave one of them out"
        )


def _locality(given: Mapping[str, Any] | None, ring: KeyMap | None) -> dict[str, tuple[str, int]]:
    if given is None:
        return {}
    if ring is None:
        raise InputError("option 'localityMap' needs the option 'ring', which says where a task's rows go")
    locality: dict[str, tuple[str, int]] = {}
    for queue, address in given.items():
        match = _ADDRESS.fullmatch(address) if isinstance(address, str) else None
        if match is None or not 1 <= int(match["port"]) <= 65535:
            raise InputError(f"option 'localityMap': {queue!r} is at {shown(str(address))}: give 'host:port'")
        locality[queue] = (match["host"].strip("[]"), int(match["port"]))
    return locality


def _name_pattern(text: str) -> str:
    try:
        parts = [part[1:] for part in string.Formatter().parse(text) if part[1] is not None]
    except ValueError:
        parts = [("{", "", None)]
    for name, form, conversion in parts:
        if name not in _NAME_FIELDS or form or conversion:
            raise InputError(
                f"option 'connectionName' is {shown(text)}: what is in braces must be one of "
                + ", ".join(f"{{{known}}}" for known in _NAME_FIELDS)
            )
    return text


def _report_path(text: str | None) -> str | None:
    if text is None:
        return None
    if "\0" in text or not Path(text).parent.is_dir():
        raise InputError(
            f"option 'reportPath' is {text!r}: its folder does not exist on the driver; make it first"
        )
    return text
