"""One AMQP connection with one confirming channel, as bytes in and bytes out. No socket, no clock.

A `Connection` owns the socket and a session; the session has the ledger of the messages. The connection passes received bytes to
`Session.receive` and sends the bytes in `Session.output`.

*Opening.* Start, tune, open-ok, channel open-ok and confirm select-ok each queue the next method; the last one makes the phase READY.
*Confirms.* Nearly all later frames are acks and nacks of fixed size. `_consume_confirms` parses a whole run of them into the ledger. pamqp
parses all other frames; each method has one handler. *Faults* (the broker closes the channel or the connection, or the bytes are not AMQP)
are kept as `failure`, so that the confirms before them in the same bytes still count; the connection raises them.
"""

from __future__ import annotations

import asyncio
import math
import platform
import struct
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol, TypeVar
from weakref import WeakSet

from pamqp import commands, decode, frame, header
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
    error_for,
    next_frame,
    parse_return,
)
from rabbit_chx.connection.failures import TOKEN_REFUSED, invalid_bytes, no_mechanism, renewal_error
from rabbit_chx.errors import BrokerRefusedError, RabbitChxError
from rabbit_chx.version import __version__

if TYPE_CHECKING:
    from pamqp.base import Frame as Method

# -- Decode what pamqp (4.0.1, decode.py) does not: a text that is not UTF-8, and a time after the year 9999
# A routing key, a property and the name of a header may be such a text; microseconds are such a time. They are an error of pamqp, which ends the
# connection of each consumer that gets the message, again and again until the broker drops it, and good ones with it. So the bytes of such a
# text are surrogate escapes, and such a time is its number.
#
# pamqp has one table of decoders for the process. Ours decode as pamqp does unless it is our connection that reads.

_is_unmarshalling: ContextVar[bool] = ContextVar("_is_unmarshalling", default=False)
_readers: WeakSet[asyncio.Task[object]] = WeakSet()


def unmarshal(data: bytes) -> Any:  # pamqp's tuple
    """Return the frame at the beginning of bytes, as ``pamqp.frame.unmarshal`` does."""
    _install()
    before = _is_unmarshalling.set(True)
    try:
        return frame.unmarshal(data)
    finally:
        _is_unmarshalling.reset(before)


def decode_all(reader: asyncio.Task[object]) -> None:
    """Decode all that this task reads: that of aiormq which reads from a connection."""
    _install()
    _readers.add(reader)


def _install() -> None:
    decode.METHODS.update(shortstr=_short_string, timestamp=_timestamp, table=_table)
    decode.TABLE_MAPPING.update({b"T": _timestamp, b"F": _table})


def _is_ours() -> bool:
    if _is_unmarshalling.get():
        return True
    try:
        return asyncio.current_task() in _readers
    except RuntimeError:  # no loop runs
        return False


def _short_string(value: bytes) -> tuple[int, str]:
    try:
        return decode.short_str(value)
    except UnicodeDecodeError:
        if not _is_ours():
            raise
        end = value[0] + 1
        return end, value[1:end].decode(errors="surrogateescape")


def _timestamp(value: bytes) -> tuple[int, Any]:
    try:
        return decode.timestamp(value)
    except (ValueError, OverflowError, OSError):
        if not _is_ours():
            raise
        return 8, int.from_bytes(value[:8])


def _table(value: bytes) -> tuple[int, Any]:
    try:
        return decode.field_table(value)
    except UnicodeDecodeError:
        if not _is_ours():
            raise
        end = 4 + int.from_bytes(value[:4])
        at = 4
        table = {}
        while at < end:
            size, name = _short_string(value[at:end])
            consumed, table[name] = decode.embedded_value(value[at + size : end])
            at += size + consumed
        return end, table


# -- The publisher confirms of one channel. No I/O
# The broker numbers the messages of a confirming channel 1, 2, 3, ... (the delivery tag). It confirms them in any order, singly or all tags
# up to one (`multiple`). rabbitmq-server v4.3.0, rabbit_channel.erl, send_confirms_and_nacks/1: a `multiple` ack never covers a rejected
# message, and a confirm covers only open messages.

Batch = TypeVar("Batch")


class Part(NamedTuple, Generic[Batch]):
    """Some messages of a batch, by their indices in it."""

    batch: Batch
    indices: list[int]


class _SentBatch(NamedTuple, Generic[Batch]):
    last: int  # delivery tag of its last message
    messages: int
    size: int
    batch: Batch


class Ledger(Generic[Batch]):
    """Counts the messages that are sent, acked, nacked and open on one channel.

    Attributes:
        sent: messages published; the last delivery tag.
        answered: messages that the broker acked or nacked.
        acked: messages that the broker acked, including returned ones.
        open: messages without a confirm.
        open_bytes: bytes on the wire of the batches that have an open message.
        refused: the nacked messages, until `take_refused` returns them.
    """

    def __init__(self) -> None:
        self.sent = 0
        self.answered = 0
        self.acked = 0
        self.nacked = 0
        self.open = 0
        self.open_bytes = 0
        self._low = 0  # the low-water mark: every tag up to here is answered
        self._ahead: set[int] = set()  # answered tags above it
        self._entries: deque[_SentBatch[Batch]] = deque()  # batches with an open message, oldest first
        self.refused: list[Part[Batch]] = []

    def enter(self, messages: int, size: int, batch: Batch) -> None:
        """Enter a batch of `messages` with `size` bytes on the wire; `take_refused` and `unanswered` return `batch`."""
        self.sent += messages
        self.open += messages
        self.open_bytes += size
        self._entries.append(_SentBatch(self.sent, messages, size, batch))

    def has_news(self, until_open: int) -> bool:
        """Return whether at most this many messages are open, or the broker refused one."""
        return self.open <= until_open or bool(self.refused)

    @property
    def is_last_open(self) -> bool:
        """True if the last message is not answered."""
        return self.is_open(self.sent)

    def is_open(self, tag: int) -> bool:
        """Return whether the message with this tag has no answer."""
        return self._low < tag <= self.sent and tag not in self._ahead

    def find_open(self, after: int = 0) -> Iterator[tuple[int, Batch, int]]:
        """Yield the open messages behind a tag, oldest first: the tag, the batch, and the index in it."""
        for entry in self._entries:
            first = entry.last - entry.messages + 1
            for tag in range(max(first, after + 1), entry.last + 1):
                if self.is_open(tag):
                    yield tag, entry.batch, tag - first

    def take_refused(self) -> list[Part[Batch]]:
        """Remove and return the nacked messages, by batch."""
        refused = self.refused
        self.refused = []
        return refused

    def find_unanswered(self) -> list[Part[Batch]]:
        """Return the open messages by batch, oldest first."""
        return list(self._open_through(self.sent))

    def ack(self, tag: int, *, multiple: bool) -> None:
        """Enter a basic.ack; raise a ValueError for a tag that was not published."""
        self._check(tag)
        if multiple:
            self._answer_through(tag or self.sent)  # AMQP 0-9-1: tag 0 means all
        elif tag == self._low + 1:
            self._advance_low(tag)
        elif tag > self._low:
            self._ahead.add(tag)
            self._advance_low(self._low)

    def ack_each(self, tags: list[int]) -> None:
        """Enter a basic.ack of each single tag; raise a ValueError for a tag that was not published."""
        if tags:
            self._check(max(tags))
            low = self._low
            self._ahead.update([tag for tag in tags if tag > low])
            self._advance_low(low)

    def nack(self, tag: int, *, multiple: bool) -> None:
        """Enter a basic.nack; raise a ValueError for a tag that was not published."""
        self._check(tag)
        last = (tag or self.sent) if multiple else tag
        parts = list(self._open_through(last, 0 if multiple else tag - 1))
        # Counted before they are answered: an interruption between the two must not turn a nack into an ack.
        self.nacked += sum(len(part.indices) for part in parts)
        self.ack(tag, multiple=multiple)
        for part in parts:
            if self.refused and self.refused[-1].batch is part.batch:
                self.refused[-1].indices.extend(part.indices)
            else:
                self.refused.append(part)

    def _check(self, tag: int) -> None:
        if tag > self.sent:
            raise ValueError(f"the broker confirmed delivery tag {tag}, but only {self.sent} were published")

    def _open_through(self, tag: int, after: int = 0) -> Iterator[Part[Batch]]:
        after = max(after, self._low)
        for entry in self._entries:
            first = entry.last - entry.messages + 1
            if first > tag:
                return
            if entry.last <= after:
                continue
            tags = range(max(first, after + 1), min(entry.last, tag) + 1)
            if indices := [tag - first for tag in tags if tag not in self._ahead]:
                yield Part(entry.batch, indices)

    def _answer_through(self, tag: int) -> None:
        if tag <= self._low:
            return
        ahead = self._ahead
        if len(ahead) <= tag - self._low:
            self._ahead = {answered for answered in ahead if answered > tag}
        else:
            ahead.difference_update(range(self._low + 1, tag + 1))
        self._advance_low(tag)

    def _advance_low(self, tag: int) -> None:
        """Advance the low-water mark to a tag and past contiguous confirms."""
        ahead = self._ahead
        while tag + 1 in ahead:
            tag += 1
            ahead.remove(tag)
        self._low = tag
        self.answered = tag + len(ahead)
        self.acked = self.answered - self.nacked
        self.open = self.sent - self.answered
        entries = self._entries
        while entries and entries[0].last <= tag:
            self.open_bytes -= entries.popleft().size


class RowLedger(Ledger[Batch]):
    """A ledger that names each row that the broker acks. Its batches have `numbers`, one for each message.

    Attributes:
        confirmed: the numbers of acked rows, until the user takes them.
    """

    def __init__(self) -> None:
        super().__init__()
        self._numbers: dict[int, int] = {}  # by delivery tag, of the open messages
        self.confirmed: list[int] = []

    def enter(self, messages: int, size: int, batch: Batch) -> None:
        """Enter a batch as `Ledger.enter`."""
        self._numbers.update(zip(range(self.sent + 1, self.sent + messages + 1), batch.numbers, strict=True))  # type: ignore[attr-defined]
        super().enter(messages, size, batch)

    def ack(self, tag: int, *, multiple: bool) -> None:
        """Enter a basic.ack as `Ledger.ack`."""
        first = self._low + 1 if multiple else tag
        last = tag or self.sent
        super().ack(tag, multiple=multiple)
        self._confirm(range(first, last + 1))

    def ack_each(self, tags: list[int]) -> None:
        """Enter a basic.ack of each single tag as `Ledger.ack_each`."""
        super().ack_each(tags)
        self._confirm(tags)

    def nack(self, tag: int, *, multiple: bool) -> None:
        """Enter a basic.nack as `Ledger.nack`."""
        confirmed = len(self.confirmed)
        super().nack(tag, multiple=multiple)
        del self.confirmed[confirmed:]  # it answers the messages as an ack does

    def _confirm(self, tags: Iterable[int]) -> None:
        numbers = self._numbers
        self.confirmed += [numbers.pop(tag) for tag in tags if tag in numbers]


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
