"""The frames of messages and confirms, as bytes: a publisher handles hundreds of thousands of them.

AMQP 0-9-1, sections 2.3.5 and 4.2.3: a frame is ``type:u8 channel:u16 size:u32 payload end:u8``. A message is three of them: the method
basic.publish, the content header, the body. pamqp handles all other methods (see `connection.session`).
"""

from __future__ import annotations

import re
import struct
from typing import Final, NamedTuple

from rabbit_chx import errors
from rabbit_chx.amqp.exchange_types import exchange_type_remedy


class ControlBytes(bytes):
    """Bytes of a heartbeat or a method. Sending them does not count as progress of messages."""

    __slots__ = ()


METHOD_FRAME: Final = 1
HEADER_FRAME: Final = 2
BODY_FRAME: Final = 3
HEARTBEAT: Final = 8

FRAME_END: Final = b"\xce"
#: Bytes of a frame that are not payload.
FRAME_OVERHEAD: Final = 8
#: Largest frame to negotiate, in bytes: the broker's default. Larger frames are not faster.
FRAME_MAX: Final = 131_072
#: Most bytes of a message's property flags and values: they are sent in one frame, after 12 bytes of class, weight and body size.
MAX_PROPERTIES: Final = FRAME_MAX - FRAME_OVERHEAD - 12
HEARTBEAT_FRAME: Final = ControlBytes(b"\x08\x00\x00\x00\x00\x00\x00\xce")

BASIC: Final = 60
#: Class and method, at the start of a method frame's payload.
METHOD_PUBLISH: Final = BASIC << 16 | 40
METHOD_RETURN: Final = BASIC << 16 | 50
METHOD_ACK: Final = BASIC << 16 | 80
METHOD_NACK: Final = BASIC << 16 | 120

#: A whole basic.ack or basic.nack frame: the part before the delivery tag, the tag, bits and end.
CONFIRM: Final = struct.Struct(">11sQ2s")

_FRAME_TYPES: Final = frozenset({METHOD_FRAME, HEADER_FRAME, BODY_FRAME, HEARTBEAT})
_FRAME_HEADER: Final = struct.Struct(">BHI")
_PUBLISH_HEAD: Final = struct.Struct(">BHIIHB")
_HEADER_HEAD: Final = struct.Struct(">BHIHH")
_BODY_SIZE: Final = struct.Struct(">Q")


class Frame(NamedTuple):
    """A received frame; `end` is the offset after it."""

    type: int
    channel: int
    payload: bytes
    end: int


class Return(NamedTuple):
    """A basic.return: the reply code and text, the routing key and the exchange. It carries no delivery tag."""

    code: int
    text: str
    key: bytes
    exchange: bytes = b""


def next_frame(buffer: bytes, start: int, largest: int) -> Frame | None:
    """Return the frame that begins at `start`, or None where it is not wholly there yet.

    Args:
        buffer: the bytes that were received.
        start: the offset of the frame's first byte.
        largest: the negotiated largest frame, in bytes.
    """
    if len(buffer) - start < FRAME_OVERHEAD:
        return None
    frame_type, channel, size = _FRAME_HEADER.unpack_from(buffer, start)
    if frame_type not in _FRAME_TYPES:
        raise ValueError(f"{buffer[start : start + 8]!r} is not an AMQP frame")
    if size + FRAME_OVERHEAD > largest:
        raise ValueError(f"an AMQP frame of {size} bytes, but {largest} were agreed on")
    payload = start + _FRAME_HEADER.size
    end = payload + size
    if len(buffer) <= end:
        return None
    if buffer[end : end + 1] != FRAME_END:
        raise ValueError(f"an AMQP frame of {size} bytes does not end with its end mark")
    return Frame(frame_type, channel, buffer[payload:end], end + 1)


def confirm_head(channel: int, method: int) -> bytes:
    """Return a basic.ack or basic.nack frame up to its delivery tag."""
    return _FRAME_HEADER.pack(METHOD_FRAME, channel, 13) + method.to_bytes(4)


def publish_head(channel: int, exchange: bytes, key_length: int) -> bytes:
    """Return a basic.publish frame up to its routing key."""
    size = 9 + len(exchange) + key_length  # class, method, reserved, two lengths, bits
    head = _PUBLISH_HEAD.pack(METHOD_FRAME, channel, size, METHOD_PUBLISH, 0, len(exchange))
    return head + exchange + bytes([key_length])


def header_head(channel: int, properties_length: int, *, mandatory: bool) -> bytes:
    """Return the end of the publish frame, which contains `mandatory`, and the content header up to the body size.

    A whole message is ``publish_head + key + header_head + body length as u64 + properties + body_head + body + FRAME_END``. An empty body
    has no body frame; `body_head` is then empty.
    """
    return (
        (b"\x01" if mandatory else b"\x00")
        + FRAME_END
        + _HEADER_HEAD.pack(HEADER_FRAME, channel, 12 + properties_length, BASIC, 0)
    )


def body_head(channel: int, body_length: int, chunk: int) -> bytes:
    """Return the end of the content header, and the header of the first body frame."""
    if not body_length:
        return b""
    return FRAME_END + _FRAME_HEADER.pack(BODY_FRAME, channel, min(body_length, chunk))


def body_size(body_length: int) -> bytes:
    """Return a body's length, as encoded in the content header."""
    return _BODY_SIZE.pack(body_length)


def split_body(channel: int, body: bytes, chunk: int) -> bytes:
    """Return a body too long for one frame, with the frame borders inside it but without the first header."""
    view = memoryview(body)
    parts: list[bytes | memoryview] = [view[:chunk]]
    for start in range(chunk, len(body), chunk):
        piece = view[start : start + chunk]
        parts += (FRAME_END, _FRAME_HEADER.pack(BODY_FRAME, channel, len(piece)), piece)
    return b"".join(parts)


def parse_return(payload: bytes) -> Return:
    """Read the payload of a basic.return; the key may hold any bytes."""
    text, at = _shortstr(payload, 6)
    exchange, at = _shortstr(payload, at)
    key, _ = _shortstr(payload, at)
    return Return(int.from_bytes(payload[4:6]), text.decode(errors="replace"), key, exchange)


def _shortstr(payload: bytes, at: int) -> tuple[bytes, int]:
    end = at + 1 + payload[at] if at < len(payload) else at + 1
    if end > len(payload):
        raise ValueError("a method ends too early")
    return payload[at + 1 : end], end


# -- Reply codes of AMQP 0-9-1 (section 1.2) and the broker's texts, as errors of this library


#: The broker is stopped, has an internal error (for example while a vhost starts), lacks a resource, or lost its
#: place in the protocol, for example by damaged bytes.
_PASSING_CODES = frozenset({320, 501, 502, 504, 505, 506, 541})


#: A refused login tells no release. For example, 4.3.6 refuses each one after a change on a full disk (403 over AMQP, 401 over HTTP).
IF_RIGHT = "if they are right, look at the broker's log"
_UNKNOWN_TYPE = "unknown exchange type '(.*)'"

#: The code; the broker's words as a regular expression, where '.*' spans names, which are in quotes; the error; the remedy. The first match
#: applies. The texts are those of rabbitmq-server 3.10 to 4.3.
_MEANINGS: tuple[tuple[int, str, type[errors.RabbitChxError], str], ...] = (
    (320, "", errors.ConnectionLostError, "connect again once the broker is back; look at its log"),
    (403, "internal exchange", errors.AccessRefusedError, "publish to one that is not internal"),
    (403, "token has expired", errors.ConnectionLostError, "no new token arrived in time: connect again"),
    (403, "access to .* refused", errors.AccessRefusedError, "grant the user the permission: rabbitmqctl set_permissions"),
    (403, "reserved prefix", errors.AccessRefusedError, "names that begin with amq. are the broker's own: choose another name"),
    (403, "queue .* in exclusive use", errors.AccessRefusedError, "one consumer has the queue for itself: stop it first"),
    (403, "", errors.AccessRefusedError, f"check user name, password and auth_mechanism; {IF_RIGHT}"),
    (404, "home node .* is down or inaccessible", errors.UnreachableError, "wait until that node is up"),
    (404, "", errors.NotFoundError, "check the name and the vhost, or declare it first"),
    (405, "locked queue", errors.BrokerRefusedError, "the queue is exclusive to another connection: use it there, or name another"),
    (406, _UNKNOWN_TYPE, errors.BrokerRefusedError, ""),
    (406, "message size", errors.BrokerRefusedError, "send smaller bodies, or raise max_message_size in the broker's configuration"),
    (406, "user_id property", errors.BrokerRefusedError, "pass the name of the connected user as user_id, or none"),
    (406, "invalid expiration", errors.BrokerRefusedError, "pass the milliseconds as text, such as '60000'"),
    (406, "fast reply consumer", errors.BrokerRefusedError, "consume from amq.rabbitmq.reply-to on the same channel first"),
    (406, "does not have a (running )?replica", errors.UnreachableError, "wait until a node with a replica of the stream is up"),
    (406, "queue limit in .* is reached", errors.BrokerRefusedError, "delete queues, or raise the limit"),
    (406, "exchange limit of .* is reached", errors.BrokerRefusedError, "delete exchanges, or raise cluster_exchange_limit in the broker's configuration"),
    (406, "inequivalent arg", errors.MismatchError, "use what is there, or delete it first and declare it again"),
    (406, "delivery acknowledgement .* timed out", errors.BrokerRefusedError, "take fewer messages at once, or raise consumer_timeout of the broker"),
    (406, "", errors.MismatchError, "correct what it names"),
    (503, _UNKNOWN_TYPE, errors.BrokerRefusedError, ""),
    (530, "limit .* is reached", errors.ConnectionLimitError, "close connections, or raise the limit"),
    (530, "channels opened .* has reached the", errors.ConnectionLimitError, "open fewer channels (a group needs one for each queue), or raise the limit"),
    (530, "^NOT_ALLOWED - access to vhost .* refused for user", errors.AccessRefusedError, "grant the user permissions on the vhost"),
    (530, "^NOT_ALLOWED - vhost .* not found$", errors.NotFoundError, "check the vhost in the URL, or create it"),
    (541, "feature flag is disabled", errors.BrokerRefusedError, "a feature flag or the broker's configuration disables this queue type"),
    (541, "Feature .*transient_nonexcl_queues.* is deprecated", errors.BrokerRefusedError, "declare the queue as durable, or as exclusive"),
    (541, "Feature .* is deprecated", errors.BrokerRefusedError, "do without it, or permit it in the broker's configuration"),
    (541, "", errors.BrokerRefusedError, "look at the broker's log: it failed inside, often over an argument it does not expect"),
)  # fmt: skip


def error_for(
    code: int, text: str, *, where: str, exchange: str | None = None, queue: str | None = None
) -> errors.RabbitChxError:
    """Return the error for a channel or connection that the broker closed."""
    kind: type[errors.RabbitChxError] = errors.BrokerRefusedError
    remedy = "look at the broker's log"
    for known_code, words, meant, advice in _MEANINGS:
        if known_code != code:
            continue
        found = re.search(words, text, re.DOTALL)
        if found:
            # Only of an unknown type the remedy depends on a name.
            kind = meant
            remedy = advice or exchange_type_remedy(found[1])
            break
    message = f"{where}: the broker answered {code} {text.strip().rstrip('.')}: {remedy}"
    return kind(message, exchange=exchange, queue=queue, reply_code=code)


_NOT_ALLOWED = 530


def is_transient(error: errors.RabbitChxError) -> bool:
    """Return whether a later attempt to connect may succeed without any change of the settings."""
    if isinstance(error, errors.InputError):
        return False
    return (
        isinstance(error, (errors.UnreachableError, errors.ConnectionLimitError))
        or error.reply_code in _PASSING_CODES
    )


def may_be_limit(error: errors.RabbitChxError) -> bool:
    """Return whether a vhost is refused without a reason, as the stream protocol does at a limit of connections.

    It does so without permission and without the vhost, too: who has opened the vhost before may try again.
    """
    return type(error) is errors.BrokerRefusedError and error.reply_code == _NOT_ALLOWED
