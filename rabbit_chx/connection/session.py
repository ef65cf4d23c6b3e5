"""One AMQP connection with one confirming channel, as bytes in and bytes out. No socket, no clock."""

from __future__ import annotations

import platform
import struct
from collections import deque
from enum import Enum, auto
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING

from pamqp import commands, frame, header
from pamqp.exceptions import PAMQPException

from rabbit_chx.amqp.frames import (
    CONFIRM,
    FRAME_END,
    FRAME_MAX,
    HEARTBEAT_FRAME,
    METHOD_ACK,
    METHOD_FRAME,
    METHOD_NACK,
    METHOD_RETURN,
    Return,
    confirm_head,
    next_frame,
    parse_return,
)
from rabbit_chx.amqp.replies import error_for
from rabbit_chx.connection.ledger import Ledger
from rabbit_chx.connection.methods import ConnectionOpen
from rabbit_chx.errors import (
    AccessRefusedError,
    BrokerRefusedError,
    BrokerTimeoutError,
    ConnectionLostError,
    InputError,
    RabbitChxError,
    UnreachableError,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from pamqp.base import Frame as Method

    from rabbit_chx.amqp import ConnectionSettings

__all__ = ["CHANNEL", "Phase", "Session", "broken_handshake", "closed", "no_handshake"]

CHANNEL = 1
_SAMPLES = 10
_ACK = confirm_head(CHANNEL, METHOD_ACK)
_NACK = confirm_head(CHANNEL, METHOD_NACK)
_SINGLE = b"\x00" + FRAME_END


class Phase(Enum):
    """How far the connection is."""

    OPENING = auto()
    READY = auto()
    CLOSING = auto()
    CLOSED = auto()


class Session:
    """The protocol's side of a publishing connection.

    Give it what the socket received with `receive`, and send what stands in `output`.

    Attributes:
        where: the broker's address without password.
        output: whole frames, to be sent in this order.
        phase: how far the connection is.
        ledger: what the broker has answered for.
        failure: why the session cannot go on, or None.
        blocked: the broker's reason for asking publishers to wait, or None.
        returned: messages that came back as unroutable.
        samples: the first few of them.
        frame_max: largest frame, in bytes, as negotiated.
        heartbeat_s: seconds, as negotiated; 0 is none.
        server: the broker's properties (version, product, ...).
    """

    def __init__(self, settings: ConnectionSettings) -> None:
        self.output: deque[bytes] = deque([header.ProtocolHeader().marshal()])
        self.phase = Phase.OPENING
        self.ledger: Ledger[Any] = Ledger()
        self.failure: RabbitChxError | None = None
        self.blocked: str | None = None
        self.returned = 0
        self.samples: list[Return] = []
        self.frame_max = FRAME_MAX
        self.heartbeat_s = 0
        self.server: dict[str, Any] = {}
        self._settings = settings
        self.where = settings.masked_url
        self._rest = b""
        self._reply: Method | None = None
        self._handlers: dict[str, Callable[[Any], None]] = {
            "Connection.Start": self._on_start,
            "Connection.Secure": self._on_secure,
            "Connection.Tune": self._on_tune,
            "Connection.OpenOk": self._on_open_ok,
            "Connection.Close": self._on_connection_close,
            "Connection.CloseOk": self._on_connection_close_ok,
            "Connection.Blocked": self._on_blocked,
            "Connection.Unblocked": self._on_unblocked,
            "Channel.OpenOk": self._on_channel_open_ok,
            "Channel.Flow": self._on_flow,
            "Channel.Close": self._on_channel_close,
            "Confirm.SelectOk": self._on_confirm_select_ok,
        }

    # -- what the caller does

    def publish(self, wire: bytes, messages: int, what: object = None) -> None:
        """Queue encoded messages and take them down in the ledger, where `what` stands for them."""
        self.ledger.publish(messages, len(wire), what)
        self.output.append(wire)

    def request(self, method: Method) -> None:
        """Send a method whose answer `reply` will hold."""
        self._reply = None
        self._send(method, CHANNEL)

    @property
    def reply(self) -> Method | None:
        """The answer to the last request, or None while it is awaited."""
        return self._reply

    def heartbeat(self) -> None:
        """Queue a heartbeat."""
        self.output.append(HEARTBEAT_FRAME)

    def look_alive(self, silence_s: float) -> None:
        """See whether the broker shows signs of life.

        Args:
            silence_s: seconds since something came from it.

        Raises:
            ConnectionLostError: it has missed two heartbeats.
        """
        if self.heartbeat_s and silence_s > 2 * self.heartbeat_s:
            raise ConnectionLostError(
                f"{self.where}: the broker has sent nothing, not even a heartbeat, for {silence_s:.0f} s: "
                "the connection is taken as lost; look whether broker and network are up"
            )

    def has_news(self, enough: int) -> bool:
        """Whether there is something to decide: a refusal, a failure, or no more than `enough` messages that are open."""
        return self.ledger.open <= enough or bool(self.ledger.refused) or self.failure is not None

    def close(self) -> None:
        """Queue the goodbye; the phase becomes CLOSED when the broker has answered it."""
        if self.phase in (Phase.CLOSING, Phase.CLOSED):
            return
        self.phase = Phase.CLOSING
        self._send(commands.Connection.Close(200, "Goodbye", 0, 0), 0)

    def receive(self, data: bytes) -> None:
        """Take in what the socket received, in pieces of any size."""
        buffer = self._rest + data if self._rest else data
        try:
            self._rest = buffer[self._consume(buffer) :]
        except (ValueError, TypeError, IndexError, struct.error, PAMQPException) as cause:
            self._fail(
                ConnectionLostError(f"{self.where}: what the broker sent cannot be understood: {cause}")
            )

    # -- frames

    def _consume(self, buffer: bytes) -> int:
        """Handle every whole frame of the buffer; where the first incomplete one begins."""
        at = 0
        while True:
            at = self._consume_confirms(buffer, at)
            if at == len(buffer):
                return at
            if buffer.startswith(b"AMQP", at) and len(buffer) - at >= 8:
                raise ValueError(f"it speaks another protocol version, {buffer[at + 4 : at + 8].hex('.')}")
            found = next_frame(buffer, at, self.frame_max)
            if found is None:
                return at
            if found.type == METHOD_FRAME:
                self._on_method(found.payload, buffer[at : found.end])
            # Heartbeats need no answer; headers and bodies here belong to returned messages.
            at = found.end

    def _consume_confirms(self, buffer: bytes, at: int) -> int:
        """Handle the run of acks and nacks that begins at `at`; where it ends."""
        size = CONFIRM.size
        whole = (len(buffer) - at) // size * size
        ledger = self.ledger
        singles: list[int] = []
        for head, tag, tail in CONFIRM.iter_unpack(memoryview(buffer)[at : at + whole]):
            if head == _ACK and tail == _SINGLE:
                singles.append(tag)
            elif head == _ACK and tail[1:] == FRAME_END:
                ledger.ack(tag, multiple=bool(tail[0] & 1))
            elif head == _NACK and tail[1:] == FRAME_END:
                ledger.ack_each(singles)  # a nack covers only what is open
                singles.clear()
                ledger.nack(tag, multiple=bool(tail[0] & 1))
            else:
                break
            at += size
        ledger.ack_each(singles)
        return at

    def _on_method(self, payload: bytes, whole: bytes) -> None:
        if int.from_bytes(payload[:4], "big") == METHOD_RETURN:
            self._on_return(payload)
            return
        _, _, method = frame.unmarshal(whole)
        handler = self._handlers.get(method.name)
        if handler is not None:
            handler(method)
        else:
            self._reply = method  # type: ignore[assignment]  # a method frame always holds a method

    def _send(self, method: Method, channel: int) -> None:
        self.output.append(frame.marshal(method, channel))

    def _fail(self, error: RabbitChxError) -> None:
        if self.failure is None:
            self.failure = error

    # -- opening

    def _on_start(self, method: commands.Connection.Start) -> None:
        self.server = dict(method.server_properties)
        offered = method.mechanisms.split()
        mechanism = next((m for m in self._settings.auth_mechanisms if m in offered), None)
        if mechanism is None:
            wanted = " or ".join(self._settings.auth_mechanisms)
            self._fail(
                AccessRefusedError(
                    f"{self.where}: the broker offers the auth mechanisms {', '.join(offered)}, not {wanted}: "
                    "change auth_mechanism in the URL, or the broker's auth_mechanisms"
                )
            )
            return
        properties: dict[str, Any] = {
            "product": "rabbit_chx",
            "version": _version(),
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
        return f"\0{self._settings.username}\0{self._settings.password.reveal()}"

    def _on_secure(self, _method: commands.Connection.Secure) -> None:
        self._fail(
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
        self.frame_max = min(filter(None, (method.frame_max, self._settings.frame_max, FRAME_MAX)))
        channel_max = min(filter(None, (method.channel_max, self._settings.channel_max)), default=0)
        self._send(commands.Connection.TuneOk(channel_max, self.frame_max, self.heartbeat_s), 0)
        self._send(ConnectionOpen(self._settings.vhost), 0)

    def _on_open_ok(self, _method: commands.Connection.OpenOk) -> None:
        self._send(commands.Channel.Open(), CHANNEL)

    def _on_channel_open_ok(self, _method: commands.Channel.OpenOk) -> None:
        self._send(commands.Confirm.Select(), CHANNEL)

    def _on_confirm_select_ok(self, _method: commands.Confirm.SelectOk) -> None:
        self.phase = Phase.READY

    # -- what the broker says while we publish

    def _on_return(self, payload: bytes) -> None:
        returned = parse_return(payload)
        self.returned += 1
        if len(self.samples) < _SAMPLES:
            self.samples.append(returned)

    def _on_blocked(self, method: commands.Connection.Blocked) -> None:
        self.blocked = method.reason or "no reason given"

    def _on_unblocked(self, _method: commands.Connection.Unblocked) -> None:
        self.blocked = None

    def _on_flow(self, method: commands.Channel.Flow) -> None:
        # RabbitMQ throttles by not reading from the socket and never sends this; AMQP demands the answer.
        self._send(commands.Channel.FlowOk(method.active), CHANNEL)

    # -- the end

    def _on_channel_close(self, method: commands.Channel.Close) -> None:
        self._send(commands.Channel.CloseOk(), CHANNEL)
        self._fail(error_for(method.reply_code or 0, method.reply_text, where=self.where))

    def _on_connection_close(self, method: commands.Connection.Close) -> None:
        self._send(commands.Connection.CloseOk(), 0)
        self.phase = Phase.CLOSED
        self._fail(error_for(method.reply_code or 0, method.reply_text, where=self.where))

    def _on_connection_close_ok(self, _method: commands.Connection.CloseOk) -> None:
        self.phase = Phase.CLOSED


def no_handshake(settings: ConnectionSettings) -> BrokerTimeoutError:
    """The error for a session that did not become READY in time."""
    return BrokerTimeoutError(
        f"{settings.masked_url}: the broker did not finish the AMQP handshake within "
        f"{settings.connection_timeout_s:g} s: is it an AMQP port, and is the broker overloaded?"
    )


def broken_handshake(settings: ConnectionSettings, cause: ConnectionLostError) -> UnreachableError:
    """The error for a connection that ended before the session was READY."""
    tls = "" if settings.tls else "; a port that speaks TLS needs amqps://"
    return UnreachableError(f"{cause}; is AMQP 0-9-1 spoken there? Check the port{tls}")


def closed(where: str) -> InputError:
    """The error for what is asked of a connection after its `close`."""
    return InputError(f"{where}: the connection is closed: open a new one")


def _version() -> str:
    try:
        return version("rabbit-chx")
    except PackageNotFoundError:  # on an executor that got the code as a zip file
        return "unknown"
