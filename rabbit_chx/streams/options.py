"""The options of `StreamReader` and `StreamPublisher`, each declared once, as `rabbit_chx.options` describes.

`ReadLimits` and `WriteLimits` are values, which several readers or publishers may share.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from datetime import datetime
from typing import Literal, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from rabbit_chx.amqp import ConnectionSettings
from rabbit_chx.checks import bytes_of
from rabbit_chx.connection.tokens import Credentials
from rabbit_chx.errors import ConnectionLostError, InputError
from rabbit_chx.options import (
    BYTES,
    COUNT,
    FLAG,
    POSITIVE_SECONDS,
    SECONDS,
    TEXT,
    WHOLE,
    ValueKind,
    check_options,
    declared,
    documented,
    one_of,
    option,
    size,
    value_of,
    whole,
)
from rabbit_chx.routing.key_map import KeyMap
from rabbit_chx.routing.super_stream import StreamRouting
from rabbit_chx.streams import frames
from rabbit_chx.streams.chunks import (
    CODECS,
    MAX_SUB_ENTRY_BYTES,
    MAX_SUB_ENTRY_ROWS,
    Codec,
    Fingerprint,
    Piece,
)
from rabbit_chx.streams.connection import StreamConnection
from rabbit_chx.streams.rows import FilterValue, schema_of

# -- A subscription of a stream, as a `StreamReader` and a member of a `StreamGroup` read it: its chunks, and the credit that bounds them
# The broker sends one chunk for each credit. It gets so much that the chunks that are under way or wait here have about 8 MiB together, if
# each is as large as the largest of the latest ones. A chunk of more bytes comes alone. When the credit is replenished is up to the user:
# before a wait it must be, and a user that must not hold two large chunks does so only then.

#: The most rows of a batch by default, and the most unpacked bytes; a single piece may have more.
BATCH_ROWS = 65_536
BATCH_BYTES = 16 << 20
_READ_AHEAD_BYTES = 8 << 20
_MAX_CREDIT = 128
_ID = 0


@dataclass(eq=False)
class StreamSubscription:
    """A subscription of a stream over one connection at a time, for one thread. Received chunks stay when a connection is lost.

    Attributes:
        stream: the stream's name.
        waiting: the received chunks that were not taken.
        pieces: the rest of the chunk that was taken last.
        bytes_received: the bytes of all chunks, also those of other subscriptions of the connection.
        is_paused: whether the broker has made this single active consumer passive.
    """

    stream: str
    waiting: deque[memoryview] = field(default_factory=deque)
    pieces: deque[Piece] = field(default_factory=deque)
    bytes_received: int = 0
    is_paused: bool = False
    _connection: StreamConnection = field(init=False)
    _credit: int = 1  # chunks that the broker may still send
    _limit: int = 1  # chunks that may be under way or wait here
    _largest_chunk: int = 0  # in bytes, of the latest chunks

    def begin(
        self, connection: StreamConnection, start: frames.OffsetSpec, properties: Mapping[str, str | bytes]
    ) -> None:
        """Subscribe over a connection."""
        self._connection = connection
        # The broker waits for more than half of the *first* credit. That is 1 here, so it never waits.
        connection.subscribe(_ID, self.stream, start, 1, properties)
        self._credit = self._limit = 1
        self.is_paused = False

    def drop(self) -> None:
        """Drop what was received and not taken."""
        self.waiting.clear()
        self.pieces.clear()

    def resume(self) -> None:
        """End the pause, and let the broker send a chunk."""
        self.is_paused = False
        # The broker may have dropped credit during the pause.
        self._connection.give_credit(_ID, 1)
        self._credit = 1

    @property
    def is_large(self) -> bool:
        """Whether a chunk may be so large that a second one would exceed the bound."""
        return self._largest_chunk >= _READ_AHEAD_BYTES // 2

    def receive(self, wait_s: float) -> list[frames.Event]:
        """Receive within a time, and return the events that are not chunks of this subscription; ConnectionLostError if it has ended."""
        others: list[frames.Event] = []
        for event in self._connection.events(wait_s):
            match event:
                case frames.DeliveredChunk(subscription_id, data):
                    self.bytes_received += len(data)
                    if subscription_id == _ID:
                        self.waiting.append(data)
                        self._credit -= 1
                    else:
                        others.append(event)
                case frames.ConsumerUpdate(_, is_active, _):
                    self.is_paused = self.is_paused or not is_active
                    others.append(event)
                case frames.CreditRefused() if self.is_paused:
                    pass  # it has crossed with the update
                case frames.StreamChanged() | frames.CreditRefused():
                    raise ConnectionLostError(
                        f"{self._connection.where}: the broker has ended the subscription of stream {self.stream!r}: the stream is "
                        "deleted, or its replica or leader has changed",
                        queue=self.stream,
                    )
                case _:
                    others.append(event)

        return others

    def take(self) -> memoryview:
        """Remove and return the first waiting chunk."""
        data = self.waiting.popleft()
        # Half of the one before, so that the effect of a single large chunk fades.
        self._largest_chunk = max(len(data), self._largest_chunk // 2)
        return data

    def replenish(self) -> None:
        """Give the broker credit for further chunks, once half of it is used."""
        if self.is_paused:
            return
        # The limit only doubles: the first chunk often has the publisher's first row alone, and larger ones follow.
        limit = min(max(1, _READ_AHEAD_BYTES // max(1, self._largest_chunk)), _MAX_CREDIT, 2 * self._limit)
        left = self._credit + len(self.waiting)
        if self._largest_chunk and left <= limit // 2:
            self._connection.give_credit(_ID, limit - left)
            self._credit = limit - len(self.waiting)
            self._limit = limit


#: The addresses of a broker, or of several that are tried in turn.
StreamTargets: TypeAlias = "str | ConnectionSettings | Sequence[str | ConnectionSettings]"

_URL = ValueKind("`str` or `ConnectionSettings`, or a list of them")
_URL_MEANING = (
    "``rabbitmq-stream://user:password@host:5552/vhost``, with TLS ``rabbitmq-stream+tls://`` (5551), or the AMQP URI of the same host; or "
    "settings of a connection; several are tried in turn"
)
_ADDRESSES = ValueKind("mapping of `str` to `str`")
_ADDRESSES_MEANING = 'the address to connect to for an address that a node advertises: ``{"rabbit-0:5552": "127.0.0.1:15552"}``'
_CREDENTIALS = ValueKind("function")
_CREDENTIALS_MEANING = (
    "returns an OAuth 2 token and its expiry, instead of a password in the URL; as in `Publisher`"
)
_FINGERPRINT = ValueKind("`Fingerprint`")
_BATCH_BYTES = "16 MiB"


# -- reading


@documented()
@dataclass(frozen=True)
class ReadLimits:
    """The sizes and the time limits of a `StreamReader`."""

    batch_rows: int = option(
        COUNT,
        f"approximate maximum number of rows of a batch; it also ends at about {_BATCH_BYTES} of unpacked rows. Sub-entries are not split, "
        f"nor are chunks of less than {_BATCH_BYTES} without sub-entries",
        BATCH_ROWS,
    )
    max_wait_s: float = option(
        SECONDS,
        'with ``end="never"``: maximum time from the arrival of a row to the return of its batch, while the loop is not slower. A longer one '
        "makes larger batches, which cost less",
        0.1,
    )
    timeout_s: float = option(
        POSITIVE_SECONDS,
        'maximum time without a chunk, including reconnects. With ``end="never"`` the maximum time in which a stored chunk may not arrive: no '
        "silence is an error while the leader has no further chunk",
        60.0,
    )
    max_frame_bytes: int = option(
        size(1 << 20),
        "size of the largest chunk that is received. Brokers send chunks of hundreds of MiB where messages are large",
        frames.LARGEST_FRAME,
    )
    max_sub_entry_bytes: int = option(
        BYTES,
        "size of the rows of the largest sub-entry that is unpacked; a larger one is an error before it is unpacked",
        MAX_SUB_ENTRY_BYTES,
    )

    def __post_init__(self) -> None:
        check_options(self)


@dataclass(frozen=True)
class ReaderOptions:
    """The options of `StreamReader`. It is not validated: a traceback of its constructor would show the password."""

    url: StreamTargets = field(repr=False, metadata=declared(_URL, _URL_MEANING))
    stream: str = field(metadata=declared(TEXT, "the stream's name"))
    _: KW_ONLY
    start: frames.OffsetSpec = option(
        ValueKind('`"first"`, `"last"`, `"next"`, an offset, or an aware datetime'),
        '``"last"`` is the last chunk, ``"next"`` after the last row, a datetime the first chunk of that time or later. The time of a chunk is '
        "the clock of the leader that wrote it, in milliseconds",
        "first",
    )
    end: int | datetime | Literal["never"] | None = option(
        ValueKind('an offset, an aware datetime, or `"never"`'),
        'the first offset that is not read; or a datetime: the first chunk of that time or later is not read; or ``"never"`` to return '
        "rows as they arrive, until `stop` is called",
        otherwise="the end of the stream at the time of opening",
    )
    include: Collection[str] = option(
        ValueKind("list of `str`"),
        'further columns: ``"exchange"``, ``"message_id"``, ``"properties"``, ``"headers"``; see `rabbit_chx.streams.rows`',
        (),
    )
    filters: Collection[str | bytes] = option(
        ValueKind("list of `str` or `bytes`"),
        "read only rows with one of these filter values, which needs RabbitMQ 3.13. The broker omits chunks in which its Bloom filter "
        "excludes them all. In the other chunks the reader omits rows whose annotation ``x-stream-filter-value`` has another value: "
        "`StreamPublisher` and AMQP publishers write it. Rows without it are returned; other clients of the stream protocol do not write it",
        (),
    )
    match_unfiltered: bool = option(
        FLAG, "with `filters`: whether rows that were published without a filter value are read too", False
    )
    addresses: Mapping[str, str] | None = option(_ADDRESSES, _ADDRESSES_MEANING)
    on_missing: Literal["raise", "count"] = option(
        one_of("raise", "count"),
        "whether offsets that the stream lacks between start and end raise a MissingRowsError, or are counted in `missing`",
        "raise",
    )
    name: str | None = option(
        TEXT,
        "keep the position on the broker under this name, by `store_offset`. The reader then starts after the stored offset, and at `start` "
        "only if none is stored. One reader at a time may use a name in a stream. The broker removes a position together with its row. So if "
        "none is stored and retention has removed rows, those before the start are missing (see `on_missing`), unless `start` is an offset, "
        "or a time after the first row",
    )
    expect: Fingerprint | None = option(
        _FINGERPRINT,
        "the `fingerprint` of the reader that ended where this one starts. A log that was rewritten since then is a MissingRowsError. If "
        "retention has removed that chunk, nothing is compared",
    )
    limits: ReadLimits = option(value_of(ReadLimits), "the sizes and the time limits", ReadLimits())
    check_crc: bool = option(FLAG, "whether the CRC of each chunk is checked", True)
    credentials: Credentials | None = option(_CREDENTIALS, _CREDENTIALS_MEANING)


@dataclass(frozen=True)
class RangeOptions(ReaderOptions):
    """The options of `RangeReader`."""

    _: KW_ONLY
    landmarks: Collection[Fingerprint] = option(
        ValueKind("list of `Fingerprint`"),
        "fingerprints of chunks that the stream had when the offsets `start` and `end` were found. A chunk that differs from its landmark is "
        "a MissingRowsError",
        (),
    )


# -- publishing


@documented()
@dataclass(frozen=True)
class WriteLimits:
    """The window and the time limits of a `StreamPublisher`, and its check of names. The publisher validates them."""

    window: int = option(COUNT, "maximum number of unconfirmed rows of a stream", 20_000)
    confirm_timeout_s: float = option(
        POSITIVE_SECONDS,
        "maximum time without a confirm, after which the connection is replaced; also the timeout of requests",
        60.0,
    )
    reconnect_timeout_s: float = option(
        SECONDS, "maximum time to reconnect after a loss; each confirm restarts it", 120.0
    )
    management_url: str | None = field(  # not validated here: a traceback would show the password
        default=None,
        repr=False,
        metadata=declared(
            TEXT,
            "``http[s]://user:password@host:15672`` of a broker from 3.13 on, to count the names. The login is by default that of `url`",
            "the names are not counted",
            None,
        ),
    )


@dataclass(frozen=True)
class WriterOptions:
    """The options of `StreamPublisher`. It is not validated: a traceback of its constructor would show the password."""

    url: StreamTargets = field(repr=False, metadata=declared(_URL, _URL_MEANING))
    _: KW_ONLY
    stream: str | None = option(TEXT, "the stream for all rows")
    super_stream: str | None = option(
        TEXT,
        "the super stream whose partitions get the rows, by murmur3, as in the Java, .NET and Go clients",
    )
    routing: StreamRouting | None = option(
        ValueKind('`"hash"` or `"key"`'),
        'with a super stream: ``"key"``: the key of a row is the binding key of a partition, as for AMQP clients and the Java client\'s '
        "``.key()``",
        otherwise="hash, with a warning if the binding keys are not ``0``, ``1`` and so on",
    )
    ring: KeyMap | None = option(
        ValueKind("`HashRing`, `SlotTable` or `ModulusHashExchange`"),
        "the ring of a hash exchange as it was read from a broker, or its slot table, or an ``x-modulus-hash`` exchange; the destinations are "
        "streams",
    )
    create: int = option(
        WHOLE,
        "how many streams to create, with the defaults of the broker, if the target does not exist: 1 for a stream, the number of partitions "
        "for a super stream (``NAME-0``, ``NAME-1`` and so on; RabbitMQ 3.13), which an existing one must have. Needs configure permission",
        0,
    )
    name: str | None = option(
        TEXT,
        "the reference under which the streams remember the ids, at most 230 bytes: for one writer of a stream at a time, and the same in "
        "each run",
    )
    exchange: str | None = option(
        TEXT,
        "the annotation ``x-exchange`` of the rows: the name of the ring's exchange, which is required with a ring",
        otherwise="the super stream, or nothing",
    )
    limits: WriteLimits = option(
        value_of(WriteLimits), "the window, the time limits, and the check of names", WriteLimits()
    )
    filter_value: FilterValue | None = option(
        ValueKind('`"key"`, or a function of the key'),
        "the filter value of each row, by which a `StreamReader` selects. The function gets the key (bytes), returns str or bytes, and is "
        "called once for each distinct key of a call. Needs RabbitMQ 3.13",
    )
    sub_entry_rows: int | None = option(
        whole(1, MAX_SUB_ENTRY_ROWS),
        "maximum number of rows of a sub-entry: rows that are stored, compressed and confirmed together, which is faster for small rows. "
        "With `name`, a sub-entry ends where an id is a multiple of it: pass the same number in each run. AMQP consumers receive only "
        "sub-entries that are not compressed",
        otherwise="single rows",
    )
    compression: Codec = option(one_of(*CODECS), "compression of sub-entries", "none")
    addresses: Mapping[str, str] | None = option(_ADDRESSES, _ADDRESSES_MEANING)
    credentials: Credentials | None = option(_CREDENTIALS, _CREDENTIALS_MEANING)


# -- The filters of a reader. No I/O
# The broker omits chunks whose Bloom filter excludes all filter values, and a reader omits the other rows of the chunks that it receives.
# Source: osiris 1.13.1, osiris_bloom.erl; rabbitmq-server v4.3.6, rabbit_stream_utils.erl, ``filter_spec``.
#
# The broker does not report that it has omitted the last chunks of a range. So a second subscription without filters has the last chunk
# delivered: its replica has the whole range then. When no more chunks arrive, a third subscription starts where the filtered one is, with the
# same filters: the broker sends its first chunk, if there is one, before the reply to a later request (`rabbit_chx.streams.log_lookup`). So no
# further chunk of the range matches if none arrives. Omitted offsets are missing rows only if the log begins after them.


_COLUMN = "filter_value"


@dataclass(frozen=True, slots=True)
class Filters:
    """The filter values of the rows to read, and whether rows without one are read, too."""

    values: tuple[bytes, ...]
    match_unfiltered: bool

    @classmethod
    def of(cls, values: Collection[str | bytes], match_unfiltered: bool) -> Filters:  # noqa: FBT001  # as users give it
        """Return the filters; an InputError for invalid ones."""
        if isinstance(values, str | bytes):
            raise InputError(f"filters is the single value {values!r:.60}: pass a list, as [{values!r:.60}]")
        if not values:
            raise InputError("match_unfiltered is for filters: pass filters, or leave it out")
        texts = tuple(dict.fromkeys(bytes_of(value, "a filter") for value in values))
        for text in texts:
            if not 0 < len(text) <= frames.MAX_TEXT_BYTES:
                raise InputError(
                    f"the filter {text!r:.60} has {len(text)} bytes: pass 1 to {frames.MAX_TEXT_BYTES}"
                )
        return cls(texts, match_unfiltered)

    @property
    def properties(self) -> dict[str, str | bytes]:
        """The properties of a subscription."""
        values: dict[str, str | bytes] = {
            f"filter.{number}": value for number, value in enumerate(self.values)
        }
        return values | {"match-unfiltered": str(self.match_unfiltered).lower()}

    def columns(self, include: Sequence[str]) -> tuple[str, ...]:
        """Return the optional columns that `select` needs."""
        return tuple(dict.fromkeys([*include, _COLUMN]))

    def select(self, rows: pa.RecordBatch, include: Sequence[str]) -> pa.RecordBatch:
        """Return the rows with one of the filter values, and those without the annotation: other clients of the protocol do not write it."""
        wanted = pa.array([*self.values, *([b""] if self.match_unfiltered else [])], pa.binary())
        given = rows[_COLUMN]
        rows = rows.filter(pc.or_(given.is_null(), pc.is_in(given, value_set=wanted)))
        return rows.select(schema_of(include).names)
