"""The broker's side of an AMQP connection: bytes in, bytes out, without a socket and without a clock.

All doubles of an AMQP broker are this one: `scripted_peer` runs it on a socket, `scripted_delivery` on a session, and
`simulated_broker` by the clock of a simulation.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from broker_frames import CHANNEL, said
from pamqp import commands

from rabbit_chx.amqp.frames import FRAME_MAX

_FRAME = struct.Struct(">BHI")
_CONFIRM = struct.Struct(">BHIIQBB")
_CONTENT = struct.Struct(">HHQ")
_METHOD, _HEADER, _BODY, _HEARTBEAT = 1, 2, 3, 8
_START_OK, _TUNE_OK, _OPEN, _CLOSE, _CLOSE_OK = (10 << 16 | number for number in (11, 31, 40, 50, 51))
_CHANNEL_OPEN, _FLOW_OK, _CHANNEL_CLOSE_OK = (20 << 16 | number for number in (10, 21, 41))
_PUBLISH, _QOS, _SELECT = 60 << 16 | 40, 60 << 16 | 10, 85 << 16 | 10
ACK, NACK = 60 << 16 | 80, 60 << 16 | 120
_GREETING = said(commands.Connection.Start(mechanisms="PLAIN"), 0)
_REPLIES = {
    _OPEN: said(commands.Connection.OpenOk(), 0),
    _CHANNEL_OPEN: said(commands.Channel.OpenOk()),
    _SELECT: said(commands.Confirm.SelectOk()),
    _CLOSE: said(commands.Connection.CloseOk(), 0),
    _QOS: said(commands.Basic.QosOk()),
}
BLOCKED = said(commands.Connection.Blocked("low on memory"), 0)
UNBLOCKED = said(commands.Connection.Unblocked(), 0)


@dataclass(frozen=True, slots=True)
class Message:
    """A message from the client.

    Attributes:
        connection: the number of its connection, from 1.
        tag: its delivery tag on that connection.
        content: its properties as bytes.
    """

    connection: int
    tag: int
    exchange: str
    routing_key: str
    mandatory: bool
    content: bytes
    body: bytes

    @property
    def properties(self) -> commands.Basic.Properties:
        """The properties, read by pamqp."""
        properties = commands.Basic.Properties()
        properties.unmarshal(int.from_bytes(self.content[:2]), self.content[2:])
        return properties


#: The bytes that the broker sends for a message.
Answer: TypeAlias = "Callable[[Message], bytes]"


def confirm(method: int, tag: int, *, multiple: bool = False) -> bytes:
    """Return an `ACK` or a `NACK`."""
    return _CONFIRM.pack(_METHOD, CHANNEL, 13, method, tag, multiple, 0xCE)


def ack(message: Message) -> bytes:
    """Confirm a message."""
    return confirm(ACK, message.tag)


def nack(message: Message) -> bytes:
    """Refuse a message."""
    return confirm(NACK, message.tag)


def returned(exchange: str, key: str, body: bytes, content: bytes = b"\0\0", most: int = FRAME_MAX) -> bytes:
    """Return the frames of a basic.return, none larger than `most` bytes."""
    size = most - 8
    frames = [said(commands.Basic.Return(312, "NO_ROUTE", exchange, key))]
    frames.append(_frame(_HEADER, _CONTENT.pack(60, 0, len(body)) + content))
    frames += [_frame(_BODY, body[start : start + size]) for start in range(0, len(body), size)]
    return b"".join(frames)


def unroutable(message: Message) -> bytes:
    """Return a message to its publisher, and then confirm it, as brokers do."""
    return returned(message.exchange, message.routing_key, message.body, message.content) + ack(message)


def nothing(_: Message) -> bytes:
    """Leave a message open."""
    return b""


def hang_up(_: Message) -> bytes:
    """Close the connection without connection.close."""
    raise ConnectionResetError


def _frame(kind: int, payload: bytes) -> bytes:
    return _FRAME.pack(kind, CHANNEL, len(payload)) + payload + b"\xce"


class BrokerConnection:
    """One connection, from the protocol header to its end. Subclasses answer the messages.

    Args:
        send: receives all bytes for the client.
        frame_max: the offered largest frame, in bytes.
        heartbeat_s: the offered seconds between heartbeats; 0 for none. None is sent without `say`.
        number: the number of the connection.

    Attributes:
        published: how many messages arrived; the last delivery tag.
        heartbeat_s: the negotiated seconds, after connection.tune-ok.
        is_deaf: True after its end: nothing that arrives counts.
        is_paused: True while it reads no frames.
        is_channel_closed: True after channel.close: messages are ignored.
    """

    def __init__(
        self,
        send: Callable[[bytes], object],
        *,
        frame_max: int = FRAME_MAX,
        heartbeat_s: int = 0,
        number: int = 1,
    ) -> None:
        self.send = send
        self.frame_max = frame_max
        self.heartbeat_s = heartbeat_s
        self.number = number
        self.published = 0
        self.is_deaf = self.is_paused = self.is_channel_closed = self.is_greeted = False
        self.buffer = bytearray()
        self._publish: tuple[str, str, bool] | None = None
        self._size = 0
        self._content = b""
        self._body = bytearray()

    def on_message(self, message: Message) -> None:
        """Answer a message."""

    def on_publish(self) -> None:
        """Act on basic.publish, before the content of the message."""

    def on_heartbeat(self) -> None:
        """Act on a heartbeat."""

    def on_violation(self, text: str) -> None:
        """Act on a violation of the protocol by the client."""
        raise AssertionError(text)

    def say(self, data: bytes) -> None:
        """Send bytes to the client."""
        self.send(data)

    def hang_up(self) -> None:
        """End the connection."""
        self.is_deaf = True

    def receive(self, data: bytes) -> None:
        """Process bytes of the client."""
        self.buffer += data
        self.read()

    def read(self) -> None:
        """Process the whole frames of the buffer."""
        buffer = self.buffer
        at = 0
        if not self.is_greeted and not self.is_deaf:
            if len(buffer) < 8:
                return
            if buffer[:8] != b"AMQP\x00\x00\x09\x01":
                self.on_violation(f"the protocol header is {bytes(buffer[:8])!r}")
            self.is_greeted = True
            at = 8
            self.say(_GREETING)
        while not self.is_deaf and not self.is_paused and len(buffer) - at >= 7:
            kind, channel, size = _FRAME.unpack_from(buffer, at)
            end = at + 7 + size
            if size + 8 > self.frame_max:
                self.on_violation(f"a frame of {size + 8} bytes, above {self.frame_max}")
                break
            if len(buffer) <= end:
                break
            if buffer[end] != 0xCE:
                self.on_violation("a frame without its end")
                break
            self._on_frame(kind, channel, bytes(buffer[at + 7 : end]))
            at = end + 1
        if self.is_deaf:
            buffer.clear()
        else:
            del buffer[:at]

    def _on_frame(self, kind: int, channel: int, payload: bytes) -> None:
        if kind == _METHOD:
            (method,) = struct.unpack_from(">I", payload)
            if method != _PUBLISH:
                self._on_method(method, payload)
            elif not self.is_channel_closed:
                self._on_publish(payload)
        elif kind == _HEARTBEAT and not channel:
            self.on_heartbeat()
        elif kind not in (_HEADER, _BODY):
            self.on_violation(f"a frame of type {kind} on channel {channel}")
        elif not self.is_channel_closed:
            self._on_content(kind, payload)

    def _on_method(self, method: int, payload: bytes) -> None:
        if method in _REPLIES:
            if method != _QOS or not self.is_channel_closed:
                self.say(_REPLIES[method])
        elif method == _START_OK:
            self.on_start_ok()
        elif method == _TUNE_OK:
            self.on_tune_ok(payload)
        elif method not in (_CLOSE_OK, _CHANNEL_CLOSE_OK, _FLOW_OK):
            self.on_violation(f"an unexpected method {method >> 16},{method & 0xFFFF}")
        if method in (_CLOSE, _CLOSE_OK):
            self.hang_up()

    def on_start_ok(self) -> None:
        """Accept the login."""
        self.say(said(commands.Connection.Tune(0, self.frame_max, self.heartbeat_s), 0))

    def on_tune_ok(self, payload: bytes) -> None:
        """Keep what was negotiated."""
        _, agreed, self.heartbeat_s = struct.unpack_from(">HIH", payload, 4)
        if not 4096 <= agreed <= self.frame_max:
            self.on_violation(f"tune-ok with frame_max {agreed}")

    def _on_publish(self, payload: bytes) -> None:
        at = 7 + payload[6]
        end = at + 1 + payload[at]
        if len(payload) != end + 1:
            self.on_violation("a publish of a wrong length")
        self._publish = payload[7:at].decode(), payload[at + 1 : end].decode(), payload[end] == 1
        self.on_publish()

    def _on_content(self, kind: int, payload: bytes) -> None:
        if kind == _HEADER:
            _, _, self._size = _CONTENT.unpack_from(payload)
            self._content = payload[12:]
            self._body.clear()
        else:
            self._body += payload
        if len(self._body) < self._size:
            return
        if self._publish is None or len(self._body) != self._size:
            self.on_violation("a message without its publish, or with too long a body")
            return
        self.published += 1
        message = Message(self.number, self.published, *self._publish, self._content, bytes(self._body))
        self._publish = None
        self.on_message(message)
