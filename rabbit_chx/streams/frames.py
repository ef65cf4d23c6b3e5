"""The commands of the stream protocol, as values and as bytes. No I/O.

All numbers are big endian. A frame is ``size:u32 key:u16 version:u16 content``; the size counts what follows it. In the key of
a reply the highest bit is set. Texts have a length of 16 bits, arrays and binaries one of 32 bits (-1 is null).
Source: rabbitmq-server v4.3.5, deps/rabbitmq_stream/docs/PROTOCOL.adoc and deps/rabbitmq_stream_common/src/rabbit_stream_core.erl.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, NamedTuple, TypeAlias, TypeVar

import numpy as np

from rabbit_chx.amqp.names import bytes_of, short_string
from rabbit_chx.checks import check_whole, is_whole, shown
from rabbit_chx.errors import InputError
from rabbit_chx.streams.codes import Code

if TYPE_CHECKING:
    from numpy.typing import NDArray

Answer = TypeVar("Answer")
Item = TypeVar("Item")

#: Where to begin in a stream: its first chunk, its last, what comes next, an offset, or a time.
OffsetSpec: TypeAlias = Literal["first", "last", "next"] | int | datetime

#: Most publishers and most subscriptions of a connection: their ids have 8 bits.
MOST_IDS: Final = 256
#: Largest frame of a broker that is not open yet; its replies to the login are short.
_LARGEST_OPENING_FRAME: Final = 1 << 20
#: Largest frame that is taken by default. A Deliver frame is a whole chunk, whatever frame_max says: a leader that gets large messages
#: fast writes many at once (240 MiB in a chunk: sixteen messages of 15 MiB on 4.3.6).
LARGEST_FRAME: Final = 512 << 20

_SIZE: Final = struct.Struct(">I")
#: Size, key and version: the smallest frame.
_HEAD: Final = struct.Struct(">IHH")
_REQUEST_HEAD: Final = struct.Struct(">IHHI")
_TUNE: Final = struct.Struct(">II")
_REPLY_BIT: Final = 0x8000
_MOST_CREDIT: Final = 0xFFFF
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
    EXCHANGE_COMMAND_VERSIONS = 27
    STREAM_STATS = 28
    CREATE_SUPER_STREAM = 29
    DELETE_SUPER_STREAM = 30
    RESOLVE_OFFSET_SPEC = 31


# -- what the broker says by itself


class Delivery(NamedTuple):
    """A chunk of a subscription, as it is in the stream; `chunks.read_chunk` takes it apart."""

    subscription_id: int
    chunk: memoryview


class Confirms(NamedTuple):
    """Rows that are stored, or were stored before, by their publishing ids."""

    publisher_id: int
    ids: NDArray[np.uint64]


class PublishErrors(NamedTuple):
    """Rows that are not stored, by their publishing ids, and why: a `Code` for each."""

    publisher_id: int
    ids: NDArray[np.uint64]
    codes: NDArray[np.uint16]


class StreamChanged(NamedTuple):
    """A stream that is deleted, or has another leader. Its publishers and subscriptions on this connection are gone."""

    stream: str
    code: int


class CreditRefused(NamedTuple):
    """A credit for a subscription that the broker does not have."""

    subscription_id: int
    code: int


Event: TypeAlias = Delivery | Confirms | PublishErrors | StreamChanged | CreditRefused


class Tune(NamedTuple):
    """What the broker proposes: the largest frame in bytes and seconds between heartbeats; 0 is no limit, and none."""

    frame_max: int
    heartbeat_s: int


class Closing(NamedTuple):
    """The broker closes the connection, and why. It waits for an answer."""

    correlation_id: int
    code: int
    reason: str


class Heartbeat(NamedTuple):
    """A sign of life."""


class Reply(NamedTuple):
    """The answer to a request. The content is what is behind the code."""

    key: int
    correlation_id: int
    code: int
    content: memoryview


Message: TypeAlias = Event | Tune | Closing | Heartbeat | Reply


class Fields:
    """Reads a frame's content from its begin to its end.

    Args:
        content: the bytes.

    Raises:
        ValueError: from each method: there are too few bytes for what is read.
    """

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
        """Return all bytes that are left."""
        return self.take(len(self._content) - self._at)

    def whole(self, size: int, *, signed: bool = False) -> int:
        """Return the next whole number of so many bytes."""
        return int.from_bytes(self.take(size), signed=signed)

    def text(self) -> str:
        """Return the next text; "" where it is null."""
        size = self.whole(2, signed=True)
        return str(self.take(max(size, 0)), "utf-8")

    def array(self, item: Callable[[], Item]) -> list[Item]:
        """Return the next array, whose items are read by `item`."""
        count = self.whole(4, signed=True)
        if count > len(self._content) - self._at:  # no item is without a byte
            raise ValueError(
                f"an array of {count} items in a frame of the stream protocol of {len(self._content)} bytes"
            )
        return [item() for _ in range(count)]

    def texts(self) -> dict[str, str]:
        """Return the next array of pairs of texts."""
        return dict(self.array(lambda: (self.text(), self.text())))


# -- bytes that come


class FrameCutter:
    """Cuts the bytes of a connection into frames.

    Attributes:
        largest: the size of the largest frame that is taken, in bytes; None until the connection is open.
    """

    def __init__(self) -> None:
        self.largest: int | None = None
        self._rest = b""  # the begin of a frame
        self._partial: memoryview | None = None  # a frame of which the begin is there
        self._filled = 0

    def cut(self, data: bytes) -> list[memoryview]:
        """Return the frames that are whole now, each without its size.

        Args:
            data: the bytes that came. They are kept as they are: a frame is a view of them.

        Raises:
            InputError: a chunk is larger than `largest`.
            ValueError: another frame is, or it is too small to be one.
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
        view, at = memoryview(buffer), 0
        while len(buffer) - at >= _SIZE.size:
            (size,) = _SIZE.unpack_from(buffer, at)
            largest = _LARGEST_OPENING_FRAME if self.largest is None else self.largest
            if not 4 <= size <= largest:
                if size > largest and self.largest is not None and len(buffer) - at < _HEAD.size:
                    break  # whether it is a chunk comes next
                if (
                    size > largest
                    and self.largest is not None
                    and _HEAD.unpack_from(buffer, at)[1] == Key.DELIVER
                ):
                    raise InputError(
                        f"the broker sends a chunk in a frame of {size:,} bytes, and max_frame_bytes is {largest:,}: raise it, or "
                        "start behind the chunk"
                    )
                raise ValueError(
                    f"{buffer[at : at + 8]!r} begins no frame of the stream protocol: its size would be {size}"
                )
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
        """Put bytes into the frame that is not whole yet, and return how many it took."""
        assert self._partial is not None  # noqa: S101
        taken = min(len(data), len(self._partial) - self._filled)
        self._partial[self._filled : self._filled + taken] = data[:taken]
        self._filled += taken
        return taken


def _confirms(fields: Fields) -> Confirms:
    return Confirms(fields.whole(1), _numbers(fields, _ID).astype(np.uint64))


def _publish_errors(fields: Fields) -> PublishErrors:
    publisher_id, errors = fields.whole(1), _numbers(fields, _ID_AND_CODE)
    return PublishErrors(publisher_id, errors["id"].astype(np.uint64), errors["code"].astype(np.uint16))


def _stream_changed(fields: Fields) -> StreamChanged:
    code = fields.whole(2)
    return StreamChanged(fields.text(), code)


def _credit_refused(fields: Fields) -> CreditRefused:
    code = fields.whole(2)
    return CreditRefused(fields.whole(1), code)


_ID: Final = np.dtype(">u8")
_ID_AND_CODE: Final = np.dtype([("id", ">u8"), ("code", ">u2")])


def _numbers(fields: Fields, kind: np.dtype[Any]) -> NDArray[Any]:
    return np.frombuffer(fields.take(fields.whole(4) * kind.itemsize), kind)


#: What a broker sends by itself, by the command; the credit that is refused has the key of a reply, and no correlation id.
_COMMANDS: Final[dict[int, Callable[[Fields], Message]]] = {
    Key.DELIVER: lambda fields: Delivery(fields.whole(1), fields.rest()),
    Key.PUBLISH_CONFIRM: _confirms,
    Key.PUBLISH_ERROR: _publish_errors,
    Key.METADATA_UPDATE: _stream_changed,
    _REPLY_BIT | Key.CREDIT: _credit_refused,
    Key.TUNE: lambda fields: Tune(fields.whole(4), fields.whole(4)),
    Key.CLOSE: lambda fields: Closing(fields.whole(4), fields.whole(2), fields.text()),
    Key.HEARTBEAT: lambda _: Heartbeat(),
}


def parse_frame(frame: memoryview) -> Message:
    """Return what a frame says.

    Args:
        frame: the frame without its size.

    Raises:
        ValueError: it is damaged, or a command or a version that was not agreed on.
    """
    fields = Fields(frame)
    key, version = fields.whole(2), fields.whole(2)
    if version != 1:
        raise ValueError(f"version {version} of the command {key:#06x} of the stream protocol")
    if key in _COMMANDS:
        return _COMMANDS[key](fields)
    if not key & _REPLY_BIT and key not in (Key.ROUTE, Key.PARTITIONS):  # 3.10 answers them without the bit
        raise ValueError(f"{key:#06x} is no command of the stream protocol that a broker sends us")
    correlation_id = fields.whole(4)
    # Metadata has no code of its own, but one for each stream.
    code = Code.OK if key == _REPLY_BIT | Key.METADATA else fields.whole(2)
    return Reply(key & ~_REPLY_BIT, correlation_id, code, fields.rest())


# -- bytes that go


def frame(key: int, content: bytes) -> bytes:
    """Return a frame of a command that has no reply, or is one."""
    return _HEAD.pack(4 + len(content), key, 1) + content


def _texts(values: Mapping[str, str], what: str) -> bytes:
    pairs = [_text(name, what) + _text(value, f"{what} {name!r}") for name, value in values.items()]
    return _array(pairs)


def _array(items: Iterable[bytes]) -> bytes:
    items = list(items)
    return len(items).to_bytes(4) + b"".join(items)


def _text(text: str, what: str) -> bytes:
    data = bytes_of(text, what)
    if len(data) > 0x7FFF:
        raise InputError(f"{what} has {len(data)} bytes: the stream protocol carries at most {0x7FFF}")
    return len(data).to_bytes(2) + data


def _name(name: str, what: str = "the stream name") -> bytes:
    data = short_string(name, what)
    return len(data).to_bytes(2) + data


def _id(value: int, what: str) -> bytes:
    check_whole(what, value, 0, MOST_IDS - 1)
    return value.to_bytes()


def offset_spec(start: OffsetSpec) -> bytes:
    """Return where to begin in a stream, as it is in a frame.

    Args:
        start: "first", "last", "next", an offset from 0, or a time with its time zone. Times count in milliseconds since 1970.

    Raises:
        InputError: it is none of these.
    """
    if isinstance(start, str) and start in _KINDS:
        return _KINDS[start].to_bytes(2)
    if is_whole(start, 0, (1 << 64) - 1):
        return b"\0\4" + start.to_bytes(8)
    if isinstance(start, datetime) and start.tzinfo is not None:
        return b"\0\5" + milliseconds(start).to_bytes(8, signed=True)
    if isinstance(start, datetime):
        raise InputError(
            f"the time {start.isoformat()} has no time zone: give one, as in datetime(2026, 1, 31, tzinfo=UTC)"
        )
    raise InputError(
        f"the start of a stream is {shown(start)}: give 'first', 'last', 'next', an offset from 0 or an aware datetime"
    )


def milliseconds(time: datetime) -> int:
    """Return an aware time as the broker counts it: whole milliseconds since 1970, rounded down."""
    return (time - _EPOCH) // timedelta(milliseconds=1)


class Node(NamedTuple):
    """A node of the cluster, by the address that it advertises for streams."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


def node_at(host: str, port: int | str | None) -> Node:
    """Return the node of an advertised address.

    Raises:
        ValueError: it is no address.
    """
    number = int(port) if isinstance(port, int) or (port or "").isdecimal() else 0  # type: ignore[arg-type]
    if not host or not 0 < number < 1 << 16:
        raise ValueError(
            f"a node advertises the host {host!r} and the port {port!r}: set stream.advertised_host and advertised_port"
        )
    return Node(host, number)


class StreamPlaces(NamedTuple):
    """Where a stream is.

    Attributes:
        leader: the node that takes rows for it; None where there is none now.
        replicas: the other nodes that have it, and give rows.
        code: OK, or why nothing else is known.
    """

    leader: Node | None
    replicas: tuple[Node, ...]
    code: int = Code.OK


class Request(NamedTuple, Generic[Answer]):
    """A command that has a reply.

    Attributes:
        key: the command.
        content: what is in its frame behind the correlation id.
        read: reads the content of the reply.
    """

    key: Key
    content: bytes
    read: Callable[[Fields], Answer]

    def __repr__(self) -> str:
        return f"Request({self.key!r}, {len(self.content)} bytes)"  # not the login, which is such content

    def frame(self, correlation_id: int) -> bytes:
        """Return the whole frame; the reply repeats the correlation id."""
        return _REQUEST_HEAD.pack(8 + len(self.content), self.key, 1, correlation_id) + self.content


def _nothing(_: Fields) -> None:
    """Read a reply that has only a code."""


def peer_properties(properties: Mapping[str, str]) -> Request[dict[str, str]]:
    """Tell who we are, and ask who the broker is."""
    return Request(Key.PEER_PROPERTIES, _texts(properties, "the client property"), Fields.texts)


def sasl_handshake() -> Request[list[str]]:
    """Ask for the mechanisms of the login."""
    return Request(Key.SASL_HANDSHAKE, b"", lambda fields: fields.array(fields.text))


def sasl_authenticate(mechanism: str, response: bytes) -> Request[None]:
    """Log in."""
    content = _text(mechanism, "the mechanism") + len(response).to_bytes(4) + response
    return Request(Key.SASL_AUTHENTICATE, content, _nothing)


def tune(agreed: Tune) -> bytes:
    """Return the frame that answers the broker's proposal."""
    return frame(Key.TUNE, _TUNE.pack(*agreed))


def open_vhost(vhost: str) -> Request[Node | None]:
    """Name the virtual host; the reply holds the node's advertised address, where it tells one."""

    def read(fields: Fields) -> Node | None:
        told = fields.texts()
        host = told.get("advertised_host")
        return None if host is None else node_at(host, told.get("advertised_port"))

    return Request(Key.OPEN, _name(vhost, "the vhost"), read)


def exchange_command_versions() -> Request[dict[int, tuple[int, int]]]:
    """Ask for the commands that the broker knows, each with its lowest and highest version."""
    ours = b"".join(number.to_bytes(2) for number in (Key.DELIVER, 1, 1))

    def read(fields: Fields) -> dict[int, tuple[int, int]]:
        return dict(fields.array(lambda: (fields.whole(2), (fields.whole(2), fields.whole(2)))))

    return Request(Key.EXCHANGE_COMMAND_VERSIONS, _array([ours]), read)


def close(code: int, reason: str) -> Request[None]:
    """Say goodbye."""
    return Request(Key.CLOSE, code.to_bytes(2) + _text(reason, "the reason"), _nothing)


def closed(correlation_id: int) -> bytes:
    """Return the frame that answers the broker's `Closing`."""
    return frame(_REPLY_BIT | Key.CLOSE, correlation_id.to_bytes(4) + Code.OK.to_bytes(2))


def metadata(streams: Sequence[str]) -> Request[dict[str, StreamPlaces]]:
    """Ask where streams are."""

    def read(fields: Fields) -> dict[str, StreamPlaces]:
        nodes = dict(fields.array(lambda: (fields.whole(2), node_at(fields.text(), fields.whole(4)))))

        def places() -> tuple[str, StreamPlaces]:
            stream, code, leader = fields.text(), fields.whole(2), fields.whole(2)
            replicas = fields.array(lambda: fields.whole(2))
            known = tuple(nodes[replica] for replica in replicas if replica in nodes)
            return stream, StreamPlaces(nodes.get(leader), known, code)

        return dict(fields.array(places))

    return Request(Key.METADATA, _array(_name(stream) for stream in streams), read)


def partitions(super_stream: str) -> Request[tuple[str, ...]]:
    """Ask for the streams of a super stream, in its order."""
    content = _name(super_stream, "the super stream name")
    return Request(Key.PARTITIONS, content, lambda fields: tuple(fields.array(fields.text)))


def route(routing_key: str, super_stream: str) -> Request[tuple[str, ...]]:
    """Ask for the streams that a super stream's exchange has for a routing key."""
    content = _name(routing_key, "the routing key") + _name(super_stream, "the super stream name")
    return Request(Key.ROUTE, content, lambda fields: tuple(fields.array(fields.text)))


def declare_publisher(publisher_id: int, stream: str, reference: str | None) -> Request[None]:
    """Announce a publisher; with a reference the broker drops rows whose id is not above the last one."""
    content = (
        _id(publisher_id, "publisher_id") + _name(reference or "", "the publisher's name") + _name(stream)
    )
    return Request(Key.DECLARE_PUBLISHER, content, _nothing)


def delete_publisher(publisher_id: int) -> Request[None]:
    """Take a publisher back."""
    return Request(Key.DELETE_PUBLISHER, _id(publisher_id, "publisher_id"), _nothing)


def query_publisher_sequence(reference: str, stream: str) -> Request[int]:
    """Ask for the last id of a reference; 0 where there is none."""
    content = _name(reference, "the publisher's name") + _name(stream)
    return Request(Key.QUERY_PUBLISHER_SEQUENCE, content, lambda fields: fields.whole(8))


def subscribe(
    subscription_id: int, stream: str, start: OffsetSpec, chunks: int, properties: Mapping[str, str]
) -> Request[None]:
    """Ask for the chunks of a stream, so many for now."""
    check_whole("credit", chunks, 0, _MOST_CREDIT)
    content = (
        _id(subscription_id, "subscription_id") + _name(stream) + offset_spec(start) + chunks.to_bytes(2)
    )
    return Request(Key.SUBSCRIBE, content + _texts(properties, "the property of the subscription"), _nothing)


def unsubscribe(subscription_id: int) -> Request[None]:
    """End a subscription; chunks that are under way still come."""
    return Request(Key.UNSUBSCRIBE, _id(subscription_id, "subscription_id"), _nothing)


def credit(subscription_id: int, chunks: int) -> bytes:
    """Return the frame that asks for more chunks; it has no reply."""
    check_whole("chunks", chunks, 0, _MOST_CREDIT)
    return frame(Key.CREDIT, _id(subscription_id, "subscription_id") + chunks.to_bytes(2))


def stream_stats(stream: str) -> Request[dict[str, int]]:
    """Ask for the figures of a stream."""

    def read(fields: Fields) -> dict[str, int]:
        return dict(fields.array(lambda: (fields.text(), fields.whole(8, signed=True))))

    return Request(Key.STREAM_STATS, _name(stream), read)


def resolve_offset_spec(stream: str, start: OffsetSpec, properties: Mapping[str, str]) -> Request[int]:
    """Ask for the offset where a subscription would begin."""
    content = _name(stream) + offset_spec(start) + _texts(properties, "the property")

    def read(fields: Fields) -> int:
        if (kind := fields.whole(2)) != 4:
            raise ValueError(f"an offset of kind {kind} for {start!r} in {stream!r}")
        return fields.whole(8)

    return Request(Key.RESOLVE_OFFSET_SPEC, content, read)


def create_stream(stream: str, arguments: Mapping[str, str]) -> Request[None]:
    """Make a stream."""
    return Request(Key.CREATE, _name(stream) + _texts(arguments, "the argument"), _nothing)


def delete_stream(stream: str) -> Request[None]:
    """Delete a stream with its rows."""
    return Request(Key.DELETE, _name(stream), _nothing)


def create_super_stream(
    super_stream: str, streams: Sequence[str], binding_keys: Sequence[str], arguments: Mapping[str, str]
) -> Request[None]:
    """Make a super stream with its streams."""
    content = (
        _name(super_stream, "the super stream name")
        + _array(_name(stream) for stream in streams)
        + _array(_name(key, "the binding key") for key in binding_keys)
        + _texts(arguments, "the argument")
    )
    return Request(Key.CREATE_SUPER_STREAM, content, _nothing)


def delete_super_stream(super_stream: str) -> Request[None]:
    """Delete a super stream with its streams."""
    return Request(Key.DELETE_SUPER_STREAM, _name(super_stream, "the super stream name"), _nothing)
