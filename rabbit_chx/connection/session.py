"""One AMQP connection with one confirming channel, as bytes in and bytes out. No socket, no clock.

A `Connection` owns the socket and a session; the session has the ledger of the messages. The connection passes received bytes to
`Session.receive` and sends the bytes in `Session.output`.

*Opening.* Start, tune, open-ok, channel open-ok and confirm select-ok each queue the next method; the last one makes the phase READY.
*Confirms.* Nearly all later frames are acks and nacks of fixed size. `_consume_confirms` parses a whole run of them into the ledger. pamqp
parses all other frames; each method has one handler. *Faults* (the broker closes the channel or the connection, or the bytes are not AMQP)
are kept as `failure`, so that the confirms before them in the same bytes still count; the connection raises them.
"""

from __future__ import annotations

import math
import platform
import struct
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, Protocol

from pamqp import commands, frame, header
from pamqp.exceptions import PAMQPException

from rabbit_chx.amqp import ConnectionSettings, Secret
from rabbit_chx.amqp.frames import (
    BODY_FRAME,
    CONFIRM,
    FRAME_END,
    FRAME_MAX,
    HEADER_FRAME,
    HEARTBEAT_FRAME,
    METHOD_ACK,
    METHOD_FRAME,
    METHOD_NACK,
    METHOD_RETURN,
    ControlBytes,
    Frame,
    Return,
    confirm_head,
    next_frame,
    parse_return,
)
from rabbit_chx.amqp.replies import error_for
from rabbit_chx.connection.failures import TOKEN_REFUSED, invalid_bytes, no_mechanism, renewal_error
from rabbit_chx.connection.ledger import Ledger
from rabbit_chx.connection.pamqp_decoding import unmarshal
from rabbit_chx.errors import BrokerRefusedError, RabbitChxError
from rabbit_chx.version import __version__

if TYPE_CHECKING:
    from pamqp.base import Frame as Method

_CHANNEL = 1
_SAMPLES = 10
#: The largest max_message_size that a broker can have: rabbitmq-server v3.10.8, rabbit.hrl, MAX_MSG_SIZE.
_LARGEST_BODY = 512 << 20
_ACK = confirm_head(_CHANNEL, METHOD_ACK)
_NACK = confirm_head(_CHANNEL, METHOD_NACK)
_SINGLE = b"\x00" + FRAME_END
#: Decode errors, ours and pamqp's. The last three are for timestamps out of range and for deeply nested tables.
_UNREADABLE = (
    ValueError,
    TypeError,
    IndexError,
    struct.error,
    PAMQPException,
    OverflowError,
    OSError,
    RecursionError,
)


class Phase(Enum):
    """The state of a connection."""

    OPENING = auto()
    READY = auto()
    CLOSING = auto()
    CLOSED = auto()


class Session:
    """The protocol of a publishing connection.

    Attributes:
        ledger: the published messages and their confirms.
        secret: the password or token that the broker has.
        where: the broker's address without its password.
        output: whole frames to send, in order.
        failure: the error that ended the connection, or None.
        blocked: the broker's reason for blocking publishers, or None.
        marks: the marks of probes.
        passed: those of answered probes.
        reply: the reply to the last request; None until it arrives.
        returned: the number of messages returned as unroutable; the broker acks them, too.
        samples: the first few returned messages.
        on_returned: called with each returned message, its properties and its body; None to drop both.
        frame_max: the negotiated largest frame, in bytes.
        heartbeat_s: negotiated seconds between heartbeats; 0 for none.
        longest_silence_s: seconds without a byte from the broker after which the connection is lost.
        server: the broker's properties (version, product, ...).
    """

    def __init__(self, settings: ConnectionSettings) -> None:
        self.ledger: Ledger[Any] = Ledger()
        self.secret = settings.password
        self.where = settings.masked_url
        self.output: deque[bytes] = deque([ControlBytes(header.ProtocolHeader().marshal())])
        self.failure: RabbitChxError | None = None
        self.phase = Phase.OPENING
        self.blocked: str | None = None
        self.marks: set[bytes | None] = set()
        self.passed: set[bytes | None] = set()
        self._probes: deque[bytes | None] = deque()  # the marks of those without an answer
        self.returned = 0
        self.samples: list[Return] = []
        self.on_returned: Callable[[Return, bytes, bytes], None] | None = None
        self.frame_max = FRAME_MAX
        self.heartbeat_s = 0
        self.longest_silence_s = math.inf
        self.server: dict[str, Any] = {}
        self._settings = settings
        self._rest = b""
        self._is_renewing = False  # whether the broker has not answered a new token
        self.reply: Method | None = None
        self._content: _Content | None = None  # of the last returned message, until it is complete
        self._handlers: dict[str, Callable[[Any], None]] = {
            "Connection.Start": self._on_start,
            "Connection.Secure": self._on_secure,
            "Connection.Tune": self._on_tune,
            "Connection.OpenOk": lambda _: self._send(commands.Channel.Open(), _CHANNEL),
            "Connection.Close": self._on_connection_close,
            "Connection.CloseOk": self._on_connection_close_ok,
            "Connection.UpdateSecretOk": self._on_update_secret_ok,
            "Connection.Blocked": self._on_blocked,
            "Connection.Unblocked": self._on_unblocked,
            "Basic.QosOk": self._on_probe_ok,
            "Channel.OpenOk": lambda _: self._send(commands.Confirm.Select(), _CHANNEL),
            # RabbitMQ throttles by not reading from the socket and never sends this; AMQP requires the reply.
            "Channel.Flow": lambda flow: self._send(commands.Channel.FlowOk(flow.active), _CHANNEL),
            "Channel.Close": self._on_channel_close,
            "Confirm.SelectOk": self._on_confirm_select_ok,
        }

    # -- for the caller

    def publish(self, wire: bytes, messages: int, batch: object = None) -> None:
        """Queue `messages` encoded messages; the ledger returns `batch` with them."""
        self.ledger.enter(messages, len(wire), batch)
        self.output.append(wire)

    def request(self, method: Method) -> None:
        """Send a method; `reply` is its reply after it arrives."""
        self.reply = None
        self._send(method, _CHANNEL)

    @property
    def probes(self) -> int:
        """The probes without an answer; with none, the broker has processed all that was sent before the last probe."""
        return len(self._probes)

    def probe(self, mark: bytes | None = None) -> None:
        """Ask the channel to answer once it has processed the messages before; their confirms may come later. Then `passed` has the mark.

        A channel processes its methods in order, and basic.qos changes nothing where nobody consumes.
        """
        self._send(commands.Basic.Qos(), _CHANNEL)
        self._probes.append(mark)
        self.marks.add(mark)

    def heartbeat(self) -> None:
        """Queue a heartbeat."""
        self.output.append(HEARTBEAT_FRAME)

    def update_secret(self, secret: Secret) -> None:
        """Queue a token for the broker, unless the broker has it."""
        if secret != self.secret:
            self._send(commands.Connection.UpdateSecret(secret.reveal(), "token renewal"), 0)
            self._is_renewing = True
        self.secret = secret

    def close(self) -> None:
        """Queue connection.close; the phase becomes CLOSED with the broker's reply."""
        if self.phase in (Phase.CLOSING, Phase.CLOSED):
            return
        self.phase = Phase.CLOSING
        self._send(commands.Connection.Close(200, "Goodbye", 0, 0), 0)

    def receive(self, data: bytes) -> None:
        """Process received bytes, in pieces of any size."""
        buffer = self._rest + data if self._rest else data
        try:
            self._rest = buffer[self._consume(buffer) :]
        except _UNREADABLE as cause:
            self.fail(invalid_bytes(self.where, cause))

    def fail(self, error: RabbitChxError) -> None:
        """Keep the error that ends the connection; the first one counts."""
        if self.failure is None:
            self.failure = error

    # -- frames

    def _consume(self, buffer: bytes) -> int:
        """Handle each whole frame of the buffer, and return where the first incomplete frame begins."""
        at = 0
        while True:
            at = self._consume_confirms(buffer, at)
            if at == len(buffer):
                return at
            if buffer.startswith(b"AMQP", at) and len(buffer) - at >= 8:
                raise ValueError(f"it speaks another protocol version, {buffer[at + 4 : at + 8].hex('.')}")
            frame = next_frame(buffer, at, self.frame_max)
            if frame is None:
                return at
            if frame.type == METHOD_FRAME:
                self._on_method(frame.payload, buffer[at : frame.end])
            elif self._content is not None and frame.type in (HEADER_FRAME, BODY_FRAME):
                self._add_content(self._content, frame)
            # A heartbeat needs no reply.
            at = frame.end

    def _consume_confirms(self, buffer: bytes, at: int) -> int:
        """Handle the run of acks and nacks at `at`, and return its end."""
        size = CONFIRM.size
        run_size = (len(buffer) - at) // size * size
        ledger = self.ledger
        singles: list[int] = []
        for head, tag, tail in CONFIRM.iter_unpack(memoryview(buffer)[at : at + run_size]):
            if head == _ACK and tail == _SINGLE:
                singles.append(tag)
            elif head == _ACK and tail[1:] == FRAME_END:
                ledger.ack(tag, multiple=bool(tail[0] & 1))
            elif head == _NACK and tail[1:] == FRAME_END:
                ledger.ack_each(singles)  # a nack covers only open messages
                singles.clear()
                ledger.nack(tag, multiple=bool(tail[0] & 1))
            else:
                break
            at += size
        ledger.ack_each(singles)
        return at

    def _on_method(self, payload: bytes, frame_bytes: bytes) -> None:
        if int.from_bytes(payload[:4], "big") == METHOD_RETURN:
            self._on_return(payload)
            return
        _, _, method = unmarshal(frame_bytes)
        handler = self._handlers.get(method.name)
        if handler is not None:
            handler(method)
        else:
            self.reply = method  # a method frame always contains a method

    def _send(self, method: Method, channel: int) -> None:
        self.output.append(ControlBytes(frame.marshal(method, channel)))

    # -- opening

    def _on_start(self, method: commands.Connection.Start) -> None:
        self.server = dict(method.server_properties)
        offered = method.mechanisms.split()
        mechanism = next((name for name in self._settings.auth_mechanisms if name in offered), None)
        if mechanism is None:
            self.fail(no_mechanism(self._settings, offered))
            return
        properties: dict[str, Any] = {
            "product": "rabbit_chx",
            "version": __version__,
            "platform": f"Python {platform.python_version()}",
            "capabilities": {
                "authentication_failure_close": True,
                "basic.nack": True,
                "connection.blocked": True,
                "publisher_confirms": True,
            },
        }
        if self._settings.connection_name:
            properties["connection_name"] = self._settings.connection_name
        self._send(commands.Connection.StartOk(properties, mechanism, self._login(mechanism)), 0)

    def _login(self, mechanism: str) -> str:
        if mechanism == "EXTERNAL":
            return ""
        return f"\0{self._settings.username}\0{self.secret.reveal()}"

    def _on_secure(self, _method: commands.Connection.Secure) -> None:
        self.fail(
            BrokerRefusedError(
                f"{self.where}: the broker asks for a further login step, which is not supported"
            )
        )

    def _on_tune(self, method: commands.Connection.Tune) -> None:
        wanted = self._settings.heartbeat_s
        if wanted is None:
            self.heartbeat_s = method.heartbeat
        else:  # AMQP 0-9-1, connection.tune-ok: the client decides; 0 is none
            self.heartbeat_s = min(wanted, method.heartbeat) if wanted and method.heartbeat else wanted
        if self.heartbeat_s:
            self.longest_silence_s = 2 * self.heartbeat_s
        self.frame_max = min(filter(None, (method.frame_max, self._settings.frame_max, FRAME_MAX)))
        channel_max = min(filter(None, (method.channel_max, self._settings.channel_max)), default=0)
        self._send(commands.Connection.TuneOk(channel_max, self.frame_max, self.heartbeat_s), 0)
        self._send(_OpenAnyVhost(self._settings.vhost), 0)

    def _on_confirm_select_ok(self, _method: commands.Confirm.SelectOk) -> None:
        self.phase = Phase.READY

    # -- while it is open

    def _on_return(self, payload: bytes) -> None:
        returned = parse_return(payload)
        self.returned += 1
        if len(self.samples) < _SAMPLES:
            self.samples.append(returned)
        if self.on_returned is not None:
            self._content = _Content(returned)

    def _add_content(self, content: _Content, frame: Frame) -> None:
        if frame.type == HEADER_FRAME:
            content.size = int.from_bytes(frame.payload[4:12])
            content.properties = frame.payload[12:]
            if content.size > _LARGEST_BODY:
                raise ValueError(f"it returns a message of {content.size:,} bytes, and no broker accepts one")
        else:
            content.body += frame.payload
        if len(content.body) >= content.size:
            self._content = None
            assert self.on_returned is not None  # else there is no content
            self.on_returned(content.returned, content.properties, bytes(content.body))

    def _on_update_secret_ok(self, _method: commands.Connection.UpdateSecretOk) -> None:
        self._is_renewing = False

    def _on_blocked(self, method: commands.Connection.Blocked) -> None:
        self.blocked = method.reason or "no reason given"

    def _on_unblocked(self, _method: commands.Connection.Unblocked) -> None:
        self.blocked = None

    def _on_probe_ok(self, _method: commands.Basic.QosOk) -> None:
        self.passed.add(self._probes.popleft())

    # -- closing

    def _on_channel_close(self, method: commands.Channel.Close) -> None:
        self._send(commands.Channel.CloseOk(), _CHANNEL)
        self.fail(error_for(method.reply_code or 0, method.reply_text, where=self.where))

    def _on_connection_close(self, method: commands.Connection.Close) -> None:
        self._send(commands.Connection.CloseOk(), 0)
        self.phase = Phase.CLOSED
        if self._is_renewing and method.reply_code in TOKEN_REFUSED:
            self.fail(renewal_error(self.where, method.reply_text))
        self.fail(error_for(method.reply_code or 0, method.reply_text, where=self.where))

    def _on_connection_close_ok(self, _method: commands.Connection.CloseOk) -> None:
        self.phase = Phase.CLOSED


@dataclass
class _Content:
    """The content of a returned message, as far as it has arrived."""

    returned: Return
    size: int = 0
    properties: bytes = b""
    body: bytearray = field(default_factory=bytearray)


class OpenConnection(Protocol):
    """The interface of a connection for a delivery."""

    session: Session

    @property
    def backlog(self) -> bool:
        """True if bytes wait to be sent."""

    @property
    def bytes_sent(self) -> int:
        """Bytes of messages written to the socket."""

    @property
    def bytes_under_way(self) -> int:
        """Bytes of messages that the socket accepted and the peer did not acknowledge; 0 if the system does not report it."""


class _OpenAnyVhost(commands.Connection.Open):
    """connection.open without pamqp's restriction of vhost names, which RabbitMQ does not have."""

    def validate(self) -> None:
        """Accept any name; the broker checks it."""
