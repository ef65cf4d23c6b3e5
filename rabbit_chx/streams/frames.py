"""The stream protocol without I/O: commands, codes, and frames as bytes.

All numbers are big endian. A frame is ``size:u32 key:u16 version:u16 content``; the size counts what follows it. The highest bit of
the key marks a reply. Texts have a length of 16 bits, arrays and binaries one of 32 bits (-1 is null).
Source: rabbitmq-server v4.3.5, deps/rabbitmq_stream/docs/PROTOCOL.adoc, deps/rabbitmq_stream_common/src/rabbit_stream_core.erl and
deps/rabbitmq_stream_common/include/rabbit_stream.hrl.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeAlias, TypeVar

import numpy as np

from rabbit_chx.checks import bytes_of, check_whole, is_whole, short_string, shown
from rabbit_chx.errors import (
    AccessRefusedError,
    BrokerRefusedError,
    ConnectionLostError,
    InputError,
    MismatchError,
    NotFoundError,
    RabbitChxError,
    UnreachableError,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rabbit_chx.streams.chunks import Fingerprint

Item = TypeVar("Item")

#: The start of a subscription: the first chunk, the last chunk, after the last row, an offset, or a time.
OffsetSpec: TypeAlias = Literal["first", "last", "next"] | int | datetime

#: The most publishers, and the most subscriptions, of a connection: their ids have 8 bits.
MAX_IDS: Final = 256
#: The largest frame that is received before the vhost is open; the replies to the login are short.
_LARGEST_OPENING_FRAME: Final = 1 << 20
#: The largest frame that is received by default. A Deliver frame is a whole chunk, and frame_max does not bound it: a leader that
#: receives large messages fast writes many of them at once (a chunk of 240 MiB: sixteen messages of 15 MiB on 4.3.6).
LARGEST_FRAME: Final = 512 << 20

#: The longest text, such as a filter value, in bytes.
MAX_TEXT_BYTES: Final = 0x7FFF

_SIZE: Final = struct.Struct(">I")
#: Size, key and version: the smallest frame.
_HEAD: Final = struct.Struct(">IHH")
_REPLY_BIT: Final = 0x8000
_MAX_CREDIT: Final = 0xFFFF
_KINDS: Final = {"first": 1, "last": 2, "next": 3}
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class Key(IntEnum):
    """The commands."""

    DECLARE_PUBLISHER = 1
    PUBLISH = 2
    PUBLISH_CONFIRM = 3
    PUBLISH_ERROR = 4
    QUERY_PUBLISHER_SEQUENCE = 5
    DELETE_PUBLISHER = 6
    SUBSCRIBE = 7
    DELIVER = 8
    CREDIT = 9
    STORE_OFFSET = 10
    QUERY_OFFSET = 11
    UNSUBSCRIBE = 12
    CREATE = 13
    DELETE = 14
    METADATA = 15
    METADATA_UPDATE = 16
    PEER_PROPERTIES = 17
    SASL_HANDSHAKE = 18
    SASL_AUTHENTICATE = 19
    TUNE = 20
    OPEN = 21
    CLOSE = 22
    HEARTBEAT = 23
    ROUTE = 24
    PARTITIONS = 25
    CONSUMER_UPDATE = 26
    EXCHANGE_COMMAND_VERSIONS = 27
    STREAM_STATS = 28
    CREATE_SUPER_STREAM = 29
    DELETE_SUPER_STREAM = 30

    @property
    def text(self) -> str:
        """The name in words, for messages."""
        return self.name.lower().replace("_", " ")


class Code(IntEnum):
    """The codes of replies, publish errors and stream changes."""

    OK = 1
    STREAM_DOES_NOT_EXIST = 2
    SUBSCRIPTION_EXISTS = 3
    SUBSCRIPTION_DOES_NOT_EXIST = 4
    STREAM_EXISTS = 5
    STREAM_NOT_AVAILABLE = 6
    SASL_MECHANISM_NOT_SUPPORTED = 7
    AUTHENTICATION_FAILURE = 8
    SASL_ERROR = 9
    SASL_CHALLENGE = 10
    AUTHENTICATION_FAILURE_LOOPBACK = 11
    VHOST_ACCESS_FAILURE = 12
    UNKNOWN_FRAME = 13
    FRAME_TOO_LARGE = 14
    INTERNAL_ERROR = 15
    ACCESS_REFUSED = 16
    PRECONDITION_FAILED = 17
    PUBLISHER_DOES_NOT_EXIST = 18
    NO_OFFSET = 19


def code_in_words(code: int) -> str:
    """Return a code with its name, for messages."""
    try:
        return f"code {code}, {Code(code).name.lower().replace('_', ' ')}"
    except ValueError:
        return f"code {code}"


_MEANINGS: dict[int, tuple[type[RabbitChxError], str]] = {
    Code.STREAM_DOES_NOT_EXIST: (NotFoundError, "check the name and the vhost, or create it; a queue of another type may have that name"),
    Code.SUBSCRIPTION_EXISTS: (BrokerRefusedError, "take another subscription id"),
    # This client ends only subscriptions that it has: the broker has ended this one before.
    Code.SUBSCRIPTION_DOES_NOT_EXIST: (ConnectionLostError, "the stream was deleted or has another leader: connect again"),
    Code.STREAM_EXISTS: (MismatchError, "use what is there, or delete it first"),
    Code.STREAM_NOT_AVAILABLE: (UnreachableError, "wait until a node with a replica is up, or connect to one"),
    Code.FRAME_TOO_LARGE: (BrokerRefusedError, "send smaller rows, or raise stream.frame_max on the broker"),
    Code.ACCESS_REFUSED: (AccessRefusedError, "grant the user the permission: rabbitmqctl set_permissions"),
    Code.PRECONDITION_FAILED: (BrokerRefusedError, "check ids, names and arguments; an id or a name may be in use"),
    Code.PUBLISHER_DOES_NOT_EXIST: (BrokerRefusedError, "declare the publisher again"),
}  # fmt: skip


#: The permission on the stream that a command needs (rabbitmq-server, rabbit_stream_reader.erl, ``handle_frame_post_auth``, 3.10 to 4.3).
#: The broker itself does not name it.
_PERMISSIONS: dict[int, str] = {
    Key.DECLARE_PUBLISHER: "write",
    Key.SUBSCRIBE: "read",
    Key.QUERY_OFFSET: "read",
    Key.CREATE: "configure",
    Key.DELETE: "configure",
}


def refusal(
    where: str, action: str, code: int, stream: str | None = None, key: int | None = None
) -> RabbitChxError:
    """Return the error for a code of the broker.

    Args:
        where: the broker's address without the password.
        action: the refused action, in words.
        code: the code.
        stream: the stream.
        key: the command, which determines the permission that is missing.
    """
    kind, remedy = _MEANINGS.get(code, (BrokerRefusedError, "look at the broker's log"))
    if code == Code.ACCESS_REFUSED and key in _PERMISSIONS:
        remedy = (
            f"the user needs the permission {_PERMISSIONS[key]} on {stream!r}: rabbitmqctl set_permissions"
        )
    message = f"{where}: the broker refuses to {action} ({code_in_words(code)}): {remedy}"
    return kind(message, queue=stream, reply_code=code)


# -- messages from the broker


class DeliveredChunk(NamedTuple):
    """A chunk of a subscription, unchanged from the stream; `chunks.read_chunk` parses it."""

    subscription_id: int
    chunk: memoryview


class Confirms(NamedTuple):
    """Rows that are stored now or were stored before, by their publishing ids."""

    publisher_id: int
    ids: NDArray[np.uint64]


class PublishErrors(NamedTuple):
    """Rows that are not stored: their publishing ids, and a `Code` for each."""

    publisher_id: int
    ids: NDArray[np.uint64]
    codes: NDArray[np.uint16]


class StreamChanged(NamedTuple):
    """A stream was deleted or has another leader. Its publishers and subscriptions on this connection have ended."""

    stream: str
    code: int


class CreditRefused(NamedTuple):
    """The broker does not have the subscription that was given credit."""

    subscription_id: int
    code: int


class ConsumerUpdate(NamedTuple):
    """A single active consumer becomes active or passive; `answer_consumer_update` answers it."""

    subscription_id: int
    is_active: bool
    correlation_id: int


Event: TypeAlias = DeliveredChunk | Confirms | PublishErrors | StreamChanged | CreditRefused | ConsumerUpdate


class Tune(NamedTuple):
    """A proposal: the largest frame in bytes, 0 for unlimited; the seconds between heartbeats, 0 for none."""

    frame_max: int
    heartbeat_s: int


class Closing(NamedTuple):
    """The broker closes the connection, and waits for a reply."""

    correlation_id: int
    code: int
    reason: str


class Reply(NamedTuple):
    """The reply to a request; `content` follows the code."""

    key: int
    correlation_id: int
    code: int
    content: memoryview


#: What a frame has; None for a heartbeat.
Message: TypeAlias = Event | Tune | Closing | Reply | None


class Fields:
    """Reads the fields of a frame in their order. Each method raises a ValueError if the content ends before the field does."""

    def __init__(self, content: memoryview) -> None:
        self._content = content
        self._at = 0

    def take(self, size: int) -> memoryview:
        """Return the next bytes."""
        taken = self._content[self._at : self._at + size]
        if size < 0 or len(taken) < size:
            raise ValueError(
                f"a frame of the stream protocol ends in the middle of a field of {size} bytes: "
                f"{len(self._content)} bytes are too few"
            )
        self._at += size
        return taken

    def rest(self) -> memoryview:
        """Return the remaining bytes."""
        return self.take(len(self._content) - self._at)

    def integer(self, size: int, *, signed: bool = False) -> int:
        """Return the next integer of `size` bytes."""
        return int.from_bytes(self.take(size), signed=signed)

    def text(self) -> str:
        """Return the next text; "" for null."""
        size = self.integer(2, signed=True)
        return str(self.take(max(size, 0)), "utf-8")

    def array(self, item: Callable[[], Item]) -> list[Item]:
        """Return the next array; `item` reads each of its items."""
        count = self.integer(4, signed=True)
        if count > len(self._content) - self._at:  # each item has at least one byte
            raise ValueError(f"an array of {count} items in a frame of {len(self._content)} bytes")
        return [item() for _ in range(count)]

    def numbers(self, dtype: np.dtype[Any]) -> NDArray[Any]:
        """Return the next array of numbers."""
        return np.frombuffer(self.take(self.integer(4) * dtype.itemsize), dtype)


# -- received bytes


class FrameSplitter:
    """Splits the bytes of a connection into frames.

    `largest` is the size of the largest frame that is received, in bytes; None until the connection is open.
    """

    def __init__(self) -> None:
        self.largest: int | None = None
        self._rest = b""  # the beginning of a frame whose size is not known or not accepted yet
        self._partial: memoryview | None = None  # a frame of known size, filled up to `_filled`
        self._filled = 0

    def split(self, data: bytes) -> list[memoryview]:
        """Return the frames that are complete now, each without its size, as views of the data.

        Raises:
            InputError: a chunk is larger than `largest`.
            ValueError: another frame is too large, or a frame is too small.
        """
        frames: list[memoryview] = []
        if self._partial is not None:
            taken = self._fill(memoryview(data))
            if self._filled < len(self._partial):
                return frames
            frames.append(self._partial)
            self._partial = None
            data = data[taken:]

        buffer = self._rest + data if self._rest else data
        view = memoryview(buffer)
        at = 0
        while len(buffer) - at >= _SIZE.size:
            (size,) = _SIZE.unpack_from(buffer, at)
            largest = _LARGEST_OPENING_FRAME if self.largest is None else self.largest
            if not 4 <= size <= largest:
                may_be_chunk = size > largest and self.largest is not None
                if may_be_chunk and len(buffer) - at < _HEAD.size:
                    break  # the key decides, and follows
                if may_be_chunk and _HEAD.unpack_from(buffer, at)[1] == Key.DELIVER:
                    raise InputError(
                        f"the broker sends a chunk in a frame of {size:,} bytes, and max_frame_bytes is {largest:,}: raise it, or "
                        "start after the chunk"
                    )
                raise ValueError(f"{buffer[at : at + 8]!r} begins no frame: its size would be {size}")

            end = at + _SIZE.size + size
            if end > len(buffer):
                self._partial = np.empty(size, np.uint8).data  # it takes no memory until it is filled
                self._filled = 0
                self._fill(view[at + _SIZE.size :])
                at = len(buffer)
                break

            frames.append(view[at + _SIZE.size : end])
            at = end

        self._rest = buffer[at:]
        return frames

    def _fill(self, data: memoryview) -> int:
        """Copy bytes into the incomplete frame, and return the number of copied bytes."""
        assert self._partial is not None
        taken = min(len(data), len(self._partial) - self._filled)
        self._partial[self._filled : self._filled + taken] = data[:taken]
        self._filled += taken
        return taken


_ID: Final = np.dtype(">u8")
_ID_AND_CODE: Final = np.dtype([("id", ">u8"), ("code", ">u2")])


def _publish_errors(fields: Fields) -> PublishErrors:
    publisher_id = fields.integer(1)
    errors = fields.numbers(_ID_AND_CODE)
    return PublishErrors(publisher_id, errors["id"].astype(np.uint64), errors["code"].astype(np.uint16))


#: Readers of unsolicited messages by command. A refused credit has the key of a reply, and no correlation id.
_COMMANDS: Final[dict[int, Callable[[Fields], Message]]] = {
    Key.DELIVER: lambda fields: DeliveredChunk(fields.integer(1), fields.rest()),
    Key.PUBLISH_CONFIRM: lambda fields: Confirms(fields.integer(1), fields.numbers(_ID).astype(np.uint64)),
    Key.PUBLISH_ERROR: _publish_errors,
    Key.METADATA_UPDATE: lambda fields: StreamChanged(code=fields.integer(2), stream=fields.text()),
    _REPLY_BIT | Key.CREDIT: lambda fields: CreditRefused(
        code=fields.integer(2), subscription_id=fields.integer(1)
    ),
    Key.CONSUMER_UPDATE: lambda fields: ConsumerUpdate(
        correlation_id=fields.integer(4),
        subscription_id=fields.integer(1),
        is_active=bool(fields.integer(1)),
    ),
    Key.TUNE: lambda fields: Tune(fields.integer(4), fields.integer(4)),
    Key.CLOSE: lambda fields: Closing(fields.integer(4), fields.integer(2), fields.text()),
    Key.HEARTBEAT: lambda _: None,
}


def parse_frame(frame: memoryview) -> Message:
    """Return the message in a frame without its size; a ValueError if it is damaged or its version was not negotiated."""
    fields = Fields(frame)
    key = fields.integer(2)
    version = fields.integer(2)
    if version != 1:
        raise ValueError(f"version {version} of the command {key:#06x} of the stream protocol")
    if key in _COMMANDS:
        return _COMMANDS[key](fields)
    # 3.10 replies to two commands without the bit.
    if not key & _REPLY_BIT and key not in (Key.ROUTE, Key.PARTITIONS):
        raise ValueError(f"{key:#06x} is not a command that a broker sends in the stream protocol")
    correlation_id = fields.integer(4)
    # Metadata has a code for each stream instead of a common one.
    code = Code.OK if key == _REPLY_BIT | Key.METADATA else fields.integer(2)
    return Reply(key & ~_REPLY_BIT, correlation_id, code, fields.rest())


# -- sent bytes


def frame(key: int, content: bytes) -> bytes:
    """Return a frame of a command without a correlation id."""
    return _HEAD.pack(4 + len(content), key, 1) + content


def reply_to_close(correlation_id: int) -> bytes:
    """Return the frame that answers `Closing`."""
    return frame(_REPLY_BIT | Key.CLOSE, correlation_id.to_bytes(4) + Code.OK.to_bytes(2))


def reply_to_consumer_update(correlation_id: int, start: OffsetSpec | None) -> bytes:
    """Return the frame that answers `ConsumerUpdate`."""
    spec = bytes(2) if start is None else offset_spec(start)
    return frame(_REPLY_BIT | Key.CONSUMER_UPDATE, correlation_id.to_bytes(4) + Code.OK.to_bytes(2) + spec)


def credit(subscription_id: int, chunks: int) -> bytes:
    """Return the frame that asks for more chunks; it has no reply."""
    check_whole("chunks", chunks, 0, _MAX_CREDIT)
    return frame(Key.CREDIT, id_field(subscription_id, "subscription_id") + chunks.to_bytes(2))


def array(items: Iterable[bytes]) -> bytes:
    """Return an array of encoded items."""
    items = list(items)
    return len(items).to_bytes(4) + b"".join(items)


def text_field(text: str | bytes, label: str) -> bytes:
    """Return a text as a field; `label` names it in errors."""
    data = bytes_of(text, label)
    if len(data) > MAX_TEXT_BYTES:
        raise InputError(f"{label} has {len(data)} bytes: the stream protocol has at most {MAX_TEXT_BYTES}")
    return len(data).to_bytes(2) + data


def texts_field(values: Mapping[str, str | bytes], label: str) -> bytes:
    """Return names and values as an array of pairs; `label` names them in errors."""
    return array(
        text_field(name, label) + text_field(value, f"{label} {name!r}") for name, value in values.items()
    )


def name_field(name: str, label: str = "the stream name") -> bytes:
    """Return a name of at most 255 bytes as a field."""
    data = short_string(name, label)
    return len(data).to_bytes(2) + data


def id_field(value: int, label: str) -> bytes:
    """Return the id of a publisher or a subscription."""
    check_whole(label, value, 0, MAX_IDS - 1)
    return value.to_bytes()


def subscription(
    subscription_id: int, stream: str, start: OffsetSpec, chunks: int, properties: Mapping[str, str | bytes]
) -> bytes:
    """Return the content of a Subscribe request with a credit of `chunks`."""
    check_whole("credit", chunks, 0, _MAX_CREDIT)
    return (
        id_field(subscription_id, "subscription_id")
        + name_field(stream)
        + offset_spec(start)
        + chunks.to_bytes(2)
        + texts_field(properties, "the property of the subscription")
    )


def offset_spec(start: OffsetSpec) -> bytes:
    """Return an encoded start of a subscription; a datetime must be aware, and is rounded down to milliseconds."""
    if isinstance(start, str) and start in _KINDS:
        return _KINDS[start].to_bytes(2)
    if is_whole(start, 0, (1 << 64) - 1):
        return b"\0\4" + start.to_bytes(8)
    if isinstance(start, datetime) and start.tzinfo is not None:
        return b"\0\5" + milliseconds(start).to_bytes(8, signed=True)
    if isinstance(start, datetime):
        raise InputError(
            f"the time {start.isoformat()} has no time zone: pass one, as in datetime(2026, 1, 31, tzinfo=UTC)"
        )
    raise InputError(
        f"the start of a stream is {shown(start)}: pass 'first', 'last', 'next', an offset from 0 or an aware datetime"
    )


def _is_end(value: object) -> bool:
    if isinstance(value, datetime):
        return value.tzinfo is not None
    return value in (None, "never") or is_whole(value, 0, (1 << 63) - 1)


def check_range(start: OffsetSpec, end: int | datetime | str | None, expect: Fingerprint | None) -> None:
    """Raise an InputError for an invalid start or end of a range, an end before the start, or a chunk not before it."""
    offset_spec(start)
    if not _is_end(end):
        raise InputError(f"end is {shown(end)}: pass an offset from 0, an aware datetime, 'never', or None")
    for kind in (int, datetime):
        if isinstance(start, kind) and isinstance(end, kind) and end < start:  # type: ignore[operator]
            raise InputError(f"end is {end}, before the start, {start}")
    if expect is None:
        return
    starts_after_it = isinstance(start, int) and expect.offset < start
    if not starts_after_it:
        raise InputError(f"expect is {expect}, and start is {shown(start)}: start at an offset after it")


def milliseconds(time: datetime) -> int:
    """Return an aware time in whole milliseconds since 1970, rounded down."""
    return (time - _EPOCH) // timedelta(milliseconds=1)


# -- contents of replies


class Node(NamedTuple):
    """A node of the cluster, by the address that it advertises for streams."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def node_at(host: str, port: int | str | None) -> Node:
    """Return the node of an advertised address; a ValueError if it is not valid."""
    number = int(port) if isinstance(port, int) or (port or "").isdecimal() else 0  # type: ignore[arg-type]
    if not host or not 0 < number < 1 << 16:
        raise ValueError(
            f"a node advertises the host {host!r} and the port {port!r}: set stream.advertised_host and advertised_port"
        )
    return Node(host, number)


class StreamMetadata(NamedTuple):
    """The nodes of a stream.

    Attributes:
        leader: the node that accepts rows; None while no leader is elected.
        replicas: the other nodes that have a member of the stream.
        code: OK, or the reason why the nodes are not known.
    """

    leader: Node | None
    replicas: tuple[Node, ...]
    code: int = Code.OK


def read_texts(fields: Fields) -> dict[str, str]:
    """Read pairs of texts."""
    return dict(fields.array(lambda: (fields.text(), fields.text())))


def read_names(fields: Fields) -> tuple[str, ...]:
    """Read an array of texts."""
    return tuple(fields.array(fields.text))


def read_versions(fields: Fields) -> dict[int, tuple[int, int]]:
    """Read the lowest and highest version of each command."""

    def read_version() -> tuple[int, tuple[int, int]]:
        command = fields.integer(2)
        lowest = fields.integer(2)
        highest = fields.integer(2)
        return command, (lowest, highest)

    return dict(fields.array(read_version))


def read_opened(fields: Fields) -> Node | None:
    """Read the advertised address of a node whose vhost is open; None if it advertises none."""
    properties = read_texts(fields)
    host = properties.get("advertised_host")
    return None if host is None else node_at(host, properties.get("advertised_port"))


def read_metadata(fields: Fields) -> dict[str, StreamMetadata]:
    """Read the nodes of each stream."""

    def read_node() -> tuple[int, Node]:
        number = fields.integer(2)
        host = fields.text()
        port = fields.integer(4)
        return number, node_at(host, port)

    nodes = dict(fields.array(read_node))

    def read_stream() -> tuple[str, StreamMetadata]:
        stream = fields.text()
        code = fields.integer(2)
        leader = fields.integer(2)
        replicas = fields.array(lambda: fields.integer(2))
        known = tuple(nodes[replica] for replica in replicas if replica in nodes)
        return stream, StreamMetadata(nodes.get(leader), known, code)

    return dict(fields.array(read_stream))


def read_statistics(fields: Fields) -> dict[str, int]:
    """Read the statistics of a stream by their names."""
    return dict(fields.array(lambda: (fields.text(), fields.integer(8, signed=True))))
