"""The options of ``format("rabbitmq")`` for a write: each is stated once, as a field of `WriteOptions`."""

from __future__ import annotations

import re
import string
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast, get_args
from urllib.parse import unquote, urlsplit

from rabbit_chx.amqp.fields import encode_headers
from rabbit_chx.amqp.settings import ManagementUrl
from rabbit_chx.checks import MAX_SHORTSTR, too_long
from rabbit_chx.errors import InputError
from rabbit_chx.options import (
    BYTES,
    FLAG,
    TEXT,
    field_of,
    one_of,
    option,
    options_of,
    whole,
)
from rabbit_chx.publishing import Limits, Retries
from rabbit_chx.publishing.options import NACK_RETRIES, CommonOptions
from rabbit_chx.routing.key_map import KeyMap
from rabbit_chx.routing.super_stream import StreamRouting
from rabbit_chx.streams.chunks import Codec
from rabbit_chx.streams.options import WriteLimits, WriterOptions
from spark_connector.options.common import (
    ADDRESS_OPTIONS,
    JSON_OBJECT,
    MANAGEMENT_URL,
    NODE_ADDRESSES,
    RING,
    Brokers,
    check_exclusive,
    check_only,
    either,
    options_from,
    quote_text,
)
from spark_connector.placing.rings import as_ring

#: All headers of a message travel in one frame, of 128 KiB unless agreed otherwise.
MAX_HEADERS_BYTES = 100_000
#: An id of a row has its version in 31 bits, and its number in 32.
MAX_VERSION = (1 << 31) - 1
_LONGEST_APP_ID = 200  # bytes; followed by the digest, it is the name of a publisher
#: A letter alone is a drive of Windows.
_URI = re.compile("[a-z][a-z0-9+.-]+:/", re.IGNORECASE)
#: The names that a connection name may have in braces.
_NAME_FIELDS = ("app", "stage", "partition", "attempt", "write", "batch")


def _headers(text: str) -> dict[str, str | int | bool]:
    headers: dict[str, Any] = JSON_OBJECT.parse(text)
    for name, value in headers.items():
        if not isinstance(value, (str, int)):
            raise InputError(
                f"option 'headersConst': the header {name!r} is a {type(value).__name__}: "
                "pass a text, a whole number, true or false"
            )
        if name in ("CC", "BCC"):
            raise InputError(
                f"option 'headersConst': the header {name!r} gives RabbitMQ further routing keys, and as a text "
                "it closes the channel: leave it out"
            )
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


def _column_names(text: str) -> dict[str, str]:
    names: dict[str, Any] = JSON_OBJECT.parse(text)
    for part, name in names.items():
        if not isinstance(name, str):
            raise InputError(f"option 'columnNames': the column of {part!r} is {name!r:.60}: pass its name")
    return {part.lower(): name for part, name in names.items()}


def _name_pattern(text: str) -> str:
    try:
        parts = [part[1:] for part in string.Formatter().parse(text) if part[1] is not None]
    except ValueError:
        parts = [("{", "", None)]
    for name, form, conversion in parts:
        if name not in _NAME_FIELDS or form or conversion:
            raise InputError(
                f"option 'connectionName' is {quote_text(text)}: what is in braces must be one of "
                + ", ".join(f"{{{known}}}" for known in _NAME_FIELDS)
            )
    return text


def local_path(text: str) -> str | None:
    """Return a local path, which may be given as a ``file:`` URI; None for another file system."""
    if not _URI.match(text):
        return text
    uri = urlsplit(text)
    return unquote(uri.path) if uri.scheme == "file" and not uri.netloc else None


def _report_path(text: str) -> str:
    path = local_path(text)
    if path is None:
        raise InputError(
            f"option 'reportPath' is {quote_text(text)}: a report is not written to a remote file system: pass a path on the driver, "
            "which may be that of a mounted file system; or store the report that spark_connector.publish returns"
        )
    if "\0" in path or not Path(path).parent.is_dir():
        raise InputError(f"option 'reportPath' is {text!r}: its folder is not there on the driver; create it")
    return path


_COMMON = options_of(CommonOptions)
_LIMITS = options_of(Limits)
_RETRIES = options_of(Retries)
_WRITER = options_of(WriterOptions)
_COLUMN_NAMES = replace(JSON_OBJECT, parse=_column_names)
_HEADERS = replace(JSON_OBJECT, parse=_headers)
_NAME_PATTERN = replace(TEXT, parse=_name_pattern)
_REPORT_PATH = replace(TEXT, parse=_report_path)


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions:
    """The options of a write. It can be pickled, and shows no password. Durations are in seconds, sizes in bytes.

    Attributes:
        brokers: the addresses to connect to, with user and password.
        exchange: the exchange; empty if only a column contains it.
        ring: predicts the queue of a row, for counting, and for `client_routing`; None to count no queues.
    """

    brokers: Brokers
    # fmt: off
    exchange: str = option(
        TEXT, "the exchange, of any type, which must exist", default="", heading="What is published",
    )
    queue: str = option(
        TEXT,
        "instead of `exchange`: the queue, which must exist; a column `key` is not published",
        default="", only="amqp",
    )
    allow_exchange_column: bool = option(FLAG, "allow the column `exchange`", default=False, only="amqp")
    routing_key: str | None = option(
        TEXT, "instead of the column `key`: the routing key of every row", only="amqp",
    )
    column_names: Mapping[str, str] = option(
        _COLUMN_NAMES, 'other names of columns, as `{"expiration": "ttl_ms"}`', default={}, only="amqp",
    )
    ignore_unknown_columns: bool = option(
        FLAG, "ignore columns that are not part of a message", default=False,
    )
    mandatory: bool = field_of(_COMMON["mandatory"], only="amqp")
    persistent: bool = field_of(_COMMON["persistent"], only="amqp")
    headers: Mapping[str, str | int | bool] = option(
        _HEADERS, "headers of every message; a row's header of the same name overrides", default={},
        only="amqp", spark="headersConst",
    )
    message_id: str = option(
        one_of("none", "column", "auto"), "see [Stable ids](../spark/write.md#stable-ids)", default="none",
        only="amqp",
    )
    write_name: str | None = option(
        TEXT, "with `messageId=auto`: name of a batch write, which gives a repeated job the same ids",
        only="amqp",
    )
    max_message_bytes: int = option(BYTES, "maximum size of a body", default=16 << 20)
    max_in_flight: int = field_of(_LIMITS["max_in_flight"], heading="How fast", only="amqp")
    max_in_flight_bytes: int = field_of(_LIMITS["max_in_flight_bytes"], only="amqp")
    keep_order: bool = field_of(
        _RETRIES["keep_order"], kind=either("none", "per-key"),
        meaning="`per-key`: see [Order](../spark/write.md#order); not allowed with `spark.speculation`", only="amqp",
        spark="ordering",
    )
    skip_bad_rows: bool = option(
        either("fail", "skip"), "reaction to [bad rows](../spark/write.md#delivery)", default=False,
        heading="When something goes wrong", spark="badRows",
    )
    skip_unroutable: bool = option(
        either("fail", "skip"), "reaction to [unroutable rows](../spark/write.md#delivery)", default=False,
        only="amqp", spark="onUnroutable",
    )
    confirm_timeout_s: float = field_of(_LIMITS["confirm_timeout_s"])
    blocked_timeout_s: float = field_of(_LIMITS["blocked_timeout_s"], only="amqp")
    reconnect_timeout_s: float = field_of(_RETRIES["reconnect_timeout_s"])
    max_reconnects: int | None = field_of(_RETRIES["max_reconnects"], only="amqp")
    backoff_s: float = field_of(_RETRIES["backoff_s"], only="amqp", spark="reconnectBackoff")
    nack_retries: int = field_of(_RETRIES["nack_retries"], default=NACK_RETRIES, only="amqp")
    preflight: bool = option(FLAG, "check broker and exchange before the first task", default=True)
    on_speculation: str = option(
        one_of("warn", "fail", "ignore"), "reaction to `spark.speculation`, which publishes rows twice",
        default="warn",
    )
    ring: KeyMap | None = option(
        RING,
        "JSON of a `HashRing`, `SlotTable` or `ModulusHashExchange`, or the path of such a file; the report then has rows per queue",
        heading="Placement and prediction",
    )
    ring_via: str | None = option(
        TEXT,
        "instead of `ring`: prefix that runs `rabbitmqctl` on a broker node, such as `docker exec NAME`, `kubectl exec POD --`, or `env` on the "
        "node; the ring is read before and after the write or micro-batch",
    )
    routing: str | None = option(
        one_of("exchange", "client", *get_args(StreamRouting)),
        "`client` instead of `exchange`: [routing in the client](../spark/write.md#routing-in-the-client), with `ringVia`. With `superStream`: "
        "`hash` (default), or `key`, which is the binding key of a partition",
    )
    super_stream: str = option(
        TEXT,
        "instead of `exchange`: rows are placed as by the clients for Java, .NET and Go (murmur3)",
        default="", heading="Into streams",
    )
    exactly_once: bool = option(
        either("at-least-once", "exactly-once"),
        "[exactly once](../spark/streams.md#write) needs `place_for_streams`, and `superStream` or `exchange` with its ring",
        default=False, spark="delivery",
    )
    app_id: str | None = option(
        TEXT, "name of the job, the same in each run; of a streaming query by default its id",
        only="exactly-once", heading="Exactly once",
    )
    version: int | None = option(
        whole(1, MAX_VERSION),
        "number of the batch, from 1 to 2,147,483,647; increases with each batch, and is the same if the batch is repeated; in `foreachBatch` the batch id plus 1",
        only="exactly-once",
    )
    verify: str = option(
        one_of("tail", "full"),
        "[verification](../spark/streams.md#write) of stored rows", default="tail",
        only="exactly-once",
    )
    order_by: str | None = option(
        TEXT,
        "column that orders the rows of each stream, before key and value; by default the `order_by` of `place_for_streams`, which marks it",
        only="exactly-once",
    )
    skip_stale: bool = option(
        either("fail", "skip"), "reaction to a stream that has rows of a later version",
        default=False, only="exactly-once", spark="onStaleVersion",
    )
    window: int = field_of(options_of(WriteLimits)["window"], only="streams", heading="Into streams")
    filter_value_column: str | None = option(
        TEXT,
        "column with the [filter value](../streams/python.md#filters) of each row, may be `key`; null: no filter",
        only="streams",
    )
    sub_entry_rows: int | None = field_of(
        _WRITER["sub_entry_rows"],
        meaning="rows per [sub-entry](../streams/python.md#sub-entries) (clients call it sub-entry size); by default rows are single",
        only="streams",
    )
    compression: Codec = field_of(_WRITER["compression"], only="streams")
    node_addresses: Mapping[str, str] = field_of(NODE_ADDRESSES, only="streams")
    management_url: ManagementUrl | None = option(
        MANAGEMENT_URL,
        "`http[s]://host:15672`, by default with the login of `url`: instead of `ring`, its "
        "[record](../operate/managed-brokers.md#the-broker-keeps-the-record), which takes AMQP, too (`addresses` may map its port); counts "
        "the publisher names of each stream",
        only="once or recorded",
    )
    connection_name: str = option(
        _NAME_PATTERN, "name of the connection in the management UI; also `{write}` and `{batch}`",
        default="spark:{app}:{stage}.{partition}.{attempt}", heading="Names and reports",
    )
    report_path: str | None = option(
        _REPORT_PATH,
        "local file or folder on the driver for the report as JSON; a streaming query needs a folder",
    )
    # fmt: on

    @classmethod
    def parse(cls, texts: Mapping[str, str]) -> WriteOptions:
        """Return the options of a write, with names in any case; an InputError if one is unknown, missing, or not valid."""
        options = options_from(cls, texts, streams=None)
        _check_protocol(options, texts)
        _check(options)
        return options

    def column_of(self, part: str) -> str:
        """Return the name of the column of a part of a message."""
        return self.column_names.get(part, part)

    @property
    def limits(self) -> Limits:
        """The limits of the publisher of a task."""
        return Limits(**{name: getattr(self, name) for name in _LIMITS})

    @property
    def retries(self) -> Retries:
        """The retries of the publisher of a task, also of its first connection: its rows are read already."""
        own = {name: getattr(self, name) for name in _RETRIES if name != "retry_first_connection"}
        return Retries(**own, retry_first_connection=True)

    @property
    def client_routing(self) -> bool:
        """True if rows go straight to the queues of the ring."""
        return self.routing == "client"

    @property
    def stream_routing(self) -> StreamRouting | None:
        """How rows are routed to a super stream; None if it is not given."""
        return cast("StreamRouting", self.routing) if self.routing in get_args(StreamRouting) else None

    @property
    def to_streams(self) -> bool:
        """True if rows are published by the stream protocol."""
        return self.brokers.addresses[0].protocol == "stream"

    @property
    def needs_hashing(self) -> str | None:
        """The first given option that needs an exchange that hashes; None without one."""
        given = {
            "routing": self.client_routing,
            "ring": self.ring is not None,
            "ringVia": self.ring_via is not None,
            "ordering": self.keep_order,
        }
        return next((name for name, is_given in given.items() if is_given), None)

    @property
    def target(self) -> str:
        """The name of the exchange, of the super stream or of the queue; empty if only a column contains it."""
        return self.super_stream or self.exchange or self.queue

    @property
    def place(self) -> str:
        """The target with its kind, for logs and reports."""
        kind = "super stream" if self.super_stream else "queue" if self.queue else "exchange"
        return f"{kind} {self.target!r}"

    @property
    def reads_record(self) -> bool:
        """True if the ring of the streams is that of the record on the broker."""
        placed = self.super_stream or self.ring is not None or self.ring_via is not None
        return self.to_streams and not placed and self.management_url is not None


#: Every option of a write, in the order of the documents.
OPTIONS = (*ADDRESS_OPTIONS, *options_of(WriteOptions).values())


def _check_protocol(options: WriteOptions, texts: Mapping[str, str]) -> None:
    """Check that the options are those of the protocol, and that one determines the placement of rows."""
    if options.stream_routing is not None and not options.super_stream:
        raise InputError(
            f"option 'routing' is {options.routing!r}, which is for a super stream: pass superStream; or leave it out"
        )
    if options.to_streams and options.routing is not None and options.stream_routing is None:
        raise InputError(
            f"option 'routing': rows go to streams by the stream protocol, which has no {options.routing!r}: pass 'hash' or 'key' with "
            "superStream, or leave it out"
        )
    unfit = {}
    if options.to_streams:
        once = ", since exactly once works only into streams" if options.exactly_once else ""
        unfit["amqp"] = (
            f": rows go to streams by the stream protocol, which has no such option{once}; leave it out"
        )
    else:
        unfit["streams"] = (
            ": rows go by AMQP: pass superStream, or rabbitmq-stream:// in the url; or leave it out"
        )
    if not options.exactly_once:
        kinds = ("exactly-once",) if options.reads_record else ("exactly-once", "once or recorded")
        unfit |= dict.fromkeys(
            kinds, ": delivery is at-least-once: set delivery to exactly-once; or leave it out"
        )
    check_only(OPTIONS, texts, unfit)
    check_exclusive(superStream=options.super_stream, exchange=options.exchange, queue=options.queue)
    _check_queue(options)
    placed = options.ring is not None or options.ring_via is not None
    if options.super_stream and placed:
        raise InputError("option 'superStream' needs no ring: leave 'ring' and 'ringVia' out")
    if options.to_streams and options.exchange and not (placed or options.reads_record):
        once = "exactly once works only into streams, not into other queues. " if options.exactly_once else ""
        raise InputError(
            f"{once}Spark writes directly to the streams of exchange {options.exchange!r}, so it needs the ring: pass managementUrl if "
            "it is recorded, or ringVia, such as 'docker exec NAME', or ring"
        )
    if options.compression != "none" and options.sub_entry_rows is None:
        raise InputError(
            f"option 'compression' is {options.compression!r}, and needs the option 'subEntryRows': set it, such as to 100"
        )
    check_exclusive(subEntryRows=options.sub_entry_rows, filterValueColumn=options.filter_value_column)
    if options.app_id is not None and len(options.app_id.encode()) > _LONGEST_APP_ID:
        raise InputError(
            f"option 'appId' is {quote_text(options.app_id)}: pass at most {_LONGEST_APP_ID} bytes"
        )


def _check_queue(options: WriteOptions) -> None:
    """Check that no option contradicts the queue of all rows."""
    if options.queue and (name := options.needs_hashing):
        raise InputError(
            f"option {name!r} needs an exchange that hashes, and all rows go to queue {options.queue!r}: pass exchange, or leave {name!r} out"
        )
    check_exclusive(queue=options.queue, routingKey=options.routing_key)
    check_exclusive(queue=options.queue, allowExchangeColumn=options.allow_exchange_column or None)


def _check(options: WriteOptions) -> None:
    """Check what the kinds of the options do not."""
    if not options.target and not options.allow_exchange_column:
        raise InputError(
            "option 'exchange' is missing: name the exchange to publish to, or a queue, or a superStream"
        )
    for name in ("exchange", "queue", "super_stream", "routing_key"):
        size = len((getattr(options, name) or "").encode("utf-8", "surrogatepass"))
        if size > MAX_SHORTSTR:
            raise InputError(too_long(f"option {options_of(WriteOptions)[name].spark_name!r}", size))
    check_exclusive(ring=options.ring, ringVia=options.ring_via)
    if options.ring_via is not None and not options.exchange:
        raise InputError("option 'ringVia' requires the option 'exchange', whose ring it reads")
    if options.client_routing and options.allow_exchange_column:
        raise InputError(
            "options 'routing' and 'allowExchangeColumn' contradict each other: routing=client goes past all exchanges; "
            "leave one of them out"
        )
    if options.write_name is not None and options.message_id != "auto":
        raise InputError(
            f"option 'writeName' is {quote_text(options.write_name)}, but messageId is {options.message_id!r}: the name is for ids "
            "that are made, so set messageId to auto, or leave the name out"
        )


def check_mode(options: WriteOptions, *, streaming: bool) -> None:
    """Check the options whose meaning differs between a batch and a stream.

    An option may be for batches only, and a batch with exactly-once needs its name and version.
    """
    if streaming and options.write_name is not None:
        raise InputError(
            "option 'writeName' is for batch writes: the ids of a stream have the streaming query, which a restart keeps; "
            "leave the name out"
        )
    if not options.exactly_once:
        return
    if streaming and options.version is not None:
        raise InputError(
            "option 'version' is for batch writes: that of a micro-batch is its number plus 1; leave it out"
        )
    if streaming and options.skip_stale:
        raise InputError(
            "option 'onStaleVersion' is 'skip', which is for batch writes: a query would leave micro-batches out; leave it out"
        )
    for name, value in () if streaming else (("appId", options.app_id), ("version", options.version)):
        if value is None:
            raise InputError(
                f"option {name!r} is missing: with delivery exactly-once a batch needs appId, the name of the job, and version, the "
                "number of the batch, which are the same when the same rows are written again"
            )


class _Texts(dict[str, str]):
    """Options by name. The values are not shown: one may be a password, and tracebacks may show local variables."""

    def __repr__(self) -> str:
        return f"<options {', '.join(self)}>"


def to_texts(options: Mapping[str, object], ring: KeyMap | str | None) -> Mapping[str, str]:
    """Return Python values as the texts that Spark would pass.

    None is an option that is not given. `ring` is the value of the option of that name; an InputError if both are given.
    """
    result = _Texts()
    for name, value in options.items():
        if isinstance(value, (str, int, float)):
            result[name] = str(value).lower() if isinstance(value, bool) else str(value)
        elif value is not None:
            # The value is not shown: it may hold a password.
            raise InputError(f"option {name!r} is a {type(value).__name__}: pass a text, number or boolean")
    if ring is not None:
        if any(name.lower() == "ring" for name in result):
            raise InputError("the ring is given twice, as an argument and as an option: pass it once")
        result["ring"] = as_ring(ring).to_json()
    return result


def check_speculation(options: WriteOptions, *, speculation: bool | None) -> tuple[str, ...]:
    """Return notes for the report on the effect of speculative execution; an InputError if the options exclude it. None is unknown."""
    if options.exactly_once:  # a copy of a task assigns the same ids to the same rows
        return ()
    must_be_off = options.keep_order or options.on_speculation == "fail"
    if speculation is False or (options.on_speculation == "ignore" and not must_be_off):
        return ()
    why = "ordering is per-key" if options.keep_order else "onSpeculation is fail"
    if speculation is None:
        if must_be_off:
            raise InputError(
                f"{why}, and this Spark does not report whether spark.speculation is on: "
                "call spark_connector.register(spark) before the write"
            )
        return ("this Spark does not report whether spark.speculation is on",)
    if must_be_off:
        raise InputError(
            f"spark.speculation is on, whose copies of a task publish its rows again, and {why}: set "
            "spark.speculation to false"
            + ("" if options.keep_order else ", or onSpeculation to warn or ignore")
        )
    return ("spark.speculation is on: copies of a task publish its rows again, and do not count here",)
