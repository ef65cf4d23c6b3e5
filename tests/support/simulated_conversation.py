"""One connection of the simulated broker: from the handshake to its end."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

from pamqp import body, commands, frame, header
from pamqp.base import Frame as Method
from simulated_faults import Fault
from simulated_line import Line, Server

from rabbit_chx.amqp.frames import HEARTBEAT_FRAME

if TYPE_CHECKING:  # which imports this
    from simulated_broker import Broker, Copy

_CHANNEL = 1
_FRAME = struct.Struct(">BHI")
_CONFIRM = struct.Struct(">BHIIQBB")
_ACK, _NACK = 60 << 16 | 80, 60 << 16 | 120
_METHOD, _HEADER, _BODY, _HEARTBEAT = 1, 2, 3, 8
_START_OK, _TUNE_OK, _OPEN = 10 << 16 | 11, 10 << 16 | 31, 10 << 16 | 40
_CLOSE, _CLOSE_OK = 10 << 16 | 50, 10 << 16 | 51
_CHANNEL_OPEN, _CHANNEL_CLOSE_OK = 20 << 16 | 10, 20 << 16 | 41
_PUBLISH, _SELECT = 60 << 16 | 40, 85 << 16 | 10


def _said(method: Method, channel: int = 0) -> bytes:
    return frame.marshal(method, channel)


_GREETING = _said(commands.Connection.Start(mechanisms="PLAIN"))
_ANSWERS = {
    _OPEN: _said(commands.Connection.OpenOk()),
    _CHANNEL_OPEN: _said(commands.Channel.OpenOk(), _CHANNEL),
    _SELECT: _said(commands.Confirm.SelectOk(), _CHANNEL),
    _CLOSE: _said(commands.Connection.CloseOk()),
}
_BLOCKED = _said(commands.Connection.Blocked("low on memory"))
_UNBLOCKED = _said(commands.Connection.Unblocked())


#: In a queue and acked; returned and acked; nacked.
AnswerKind: TypeAlias = Literal["stored", "returned", "refused"]


class Answer(NamedTuple):
    """What the broker said of a row.

    Attributes:
        id: the row's.
        kind: what became of it.
        end: where the frame that says so ends in the bytes from the broker.
    """

    id: int
    kind: AnswerKind
    end: int


class Conversation(Server):
    """Talks to one client.

    Args:
        broker: the broker, which holds what is common to all connections.
        line: the connection.
        faults: what goes wrong with it.
        frame_max: what to offer.

    Attributes:
        line: the connection.
        answers: what was said for each row, in this order.
        heartbeat_s: as agreed on.
    """

    def __init__(self, broker: Broker, line: Line, faults: list[Fault], frame_max: int) -> None:
        self.line = line
        self.answers: list[Answer] = []
        self.heartbeat_s = 0
        self._broker = broker
        self._world = broker.world
        self._frame_max = frame_max
        self._faults = {fault.kind: fault for fault in faults}
        self._ends = {
            fault.byte: fault
            for fault in faults
            if fault.kind in ("connection.close", "channel.close", "nonsense")
        }
        self._buffer = bytearray()
        self._greeted = False
        self._deaf = "mute" in self._faults  # so it is after a close, too: nothing that comes counts
        self._channel_closed = False
        self._blocked = False
        self._said = 0
        self._tag = 0
        self._open: dict[int, tuple[int, bool]] = {}  # by tag the row, and whether it was returned
        self._copies: dict[int, Copy] = {}
        self._due: dict[int, list[tuple[int, bool]]] = {}  # by tick tags, and whether they are refused
        self._publish: tuple[str, str] | None = None
        self._size = 0
        self._properties = b""
        self._body = bytearray()
        self._last_said = self._last_heard = self._world.now

    # -- what the line does

    def received(self, data: bytes) -> None:
        """Take bytes of the client."""
        self._last_heard = self._world.now
        self._buffer += data
        self._broker.when_awake(self._read)

    def ended(self) -> None:
        """Learn that the client is gone. What it has sent before is read first."""
        self._broker.when_awake(self._read)

    def say(self, data: bytes) -> None:
        """Send bytes."""
        self._said += len(data)
        self._last_said = self._world.now
        self.line.down.write(data)

    def die(self) -> None:
        """End with the broker, and forget all."""
        self._deaf = True
        self.line.cut(ConnectionResetError(104, "Connection reset by peer"))

    # -- frames

    def _read(self) -> None:
        buffer = self._buffer
        at = 0
        if not self._greeted and not self._deaf:
            if len(buffer) < 8:
                return
            if bytes(buffer[:8]) != b"AMQP\x00\x00\x09\x01":
                self._complain(f"it begins with {bytes(buffer[:8])!r}")
            self._greeted = True
            at = 8
            self.say(_GREETING)
        while not self._deaf and not self._blocked and len(buffer) - at >= 7:
            kind, channel, size = _FRAME.unpack_from(buffer, at)
            end = at + 7 + size
            if size + 8 > self._frame_max:
                self._complain(f"a frame of {size + 8} bytes, above {self._frame_max}")
                break
            if len(buffer) <= end:
                break
            if buffer[end] != 0xCE:
                self._complain("a frame without its end")
                break
            self._take(kind, channel, bytes(buffer[at + 7 : end]))
            at = end + 1
        if self._deaf:
            buffer.clear()
        else:
            del buffer[:at]
        self.line.up.shut(shut=self._blocked and len(buffer) > 65_536)

    def _take(self, kind: int, channel: int, payload: bytes) -> None:
        if kind == _METHOD:
            (method,) = struct.unpack_from(">I", payload)
            if method != _PUBLISH:
                self._on_method(method, payload)
            elif not self._channel_closed:
                self._on_publish(payload)
        elif self._channel_closed and kind in (_HEADER, _BODY):
            pass
        elif kind == _HEADER:
            _, _, self._size = struct.unpack_from(">HHQ", payload)
            self._properties = payload[12:]
            self._body.clear()
            if not self._size:
                self._on_message()
        elif kind == _BODY:
            self._body += payload
            if len(self._body) >= self._size:
                self._on_message()
        elif kind != _HEARTBEAT or channel:
            self._complain(f"a frame of type {kind}")

    def _complain(self, what: str) -> None:
        self._broker.complaints.append(what)
        self._hang_up()

    def _hang_up(self) -> None:
        self._deaf = True
        self.line.close_by_server()

    def _on_method(self, method: int, payload: bytes) -> None:
        if method in _ANSWERS:
            self.say(_ANSWERS[method])
        elif method == _START_OK:
            self._on_start_ok()
        elif method == _TUNE_OK:
            self._on_tune_ok(payload)
        elif method not in (_CLOSE, _CLOSE_OK, _CHANNEL_CLOSE_OK):
            self._complain(f"an unexpected method {method >> 16},{method & 0xFFFF}")
        if method in (_CLOSE, _CLOSE_OK):
            self._hang_up()

    def _on_start_ok(self) -> None:
        if (denial := self._faults.get("denied")) is not None:
            self._close_connection(denial)
        else:
            self.say(_said(commands.Connection.Tune(0, self._frame_max, self._broker.scenario.heartbeat_s)))

    def _on_tune_ok(self, payload: bytes) -> None:
        _, agreed, self.heartbeat_s = struct.unpack_from(">HIH", payload, 4)
        if not 4096 <= agreed <= self._frame_max:
            self._complain(f"tune-ok with frame_max {agreed}")
        if self.heartbeat_s:
            self._world.after(self.heartbeat_s / 2, self._beat)

    # -- messages

    def _on_publish(self, payload: bytes) -> None:
        at = 7 + payload[6]
        exchange = payload[7:at].decode()
        key = payload[at + 1 : at + 1 + payload[at]].decode()
        if len(payload) != at + 2 + payload[at] or payload[-1] != 1:
            self._complain("a publish that is not mandatory, or has a wrong length")
        self._publish = key, exchange
        if self._broker.alarm and not self._blocked:
            self._block()

    def _on_message(self) -> None:
        if self._publish is None or len(self._body) != self._size:
            self._complain("a message without its publish, or with too long a body")
            return
        self._tag += 1
        if self._tag in self._ends:
            self._end(self._ends[self._tag])
            return
        (key, exchange), content = self._publish, bytes(self._body)
        self._publish = None
        id_ = int(content[: content.index(b" ")])
        self._check(id_, key, exchange, content)
        self._decide(id_, exchange, key, len(content))

    def _check(self, id_: int, key: str, exchange: str, content: bytes) -> None:
        """See that the row came as the program gave it."""
        scenario = self._broker.scenario
        program = scenario.program
        # Where the client routes, the routing key is a queue, and the checker looks whether it is the right one.
        routed = not exchange and scenario.publisher.get("routing") == "client"
        if content != program.row_bodies[id_] or not (routed or key == program.row_keys[id_]):
            self._complain(f"row {id_} came with the key {key!r} and the body {content[:40]!r}")
        if program.columns and (
            exchange != program.exchange_of(id_) or not self._properties.endswith(b"%d" % id_)
        ):
            self._complain(f"row {id_} came with the exchange {exchange!r} and {self._properties!r}")

    def _decide(self, id_: int, exchange: str, key: str, size: int) -> None:
        broker, chance, tag = self._broker, self._world.chance, self._tag
        queue = broker.route(exchange, key)
        scenario = broker.scenario
        refused = False
        if queue is None:
            self._return(key, size)
        elif broker.end_of("full") is not None or (scenario.nacks and chance.random() < scenario.nacks):
            refused = True
            broker.refused += 1
            if chance.random() < 0.1:  # one of the queue's nodes may have it all the same
                broker.store(id_, queue)
        else:
            self._copies[tag] = broker.store(id_, queue)
        self._open[tag] = id_, queue is None
        delay = scenario.confirm_s * chance.random() if queue is not None and not refused else 0.0
        tick = int((self._world.now + delay) / scenario.tick_s) + 1
        if tick not in self._due:
            self._due[tick] = []
            self._world.at(
                tick * scenario.tick_s, partial(self._broker.when_awake, partial(self._answer, tick))
            )
        self._due[tick].append((tag, refused))

    def _return(self, key: str, size: int) -> None:
        self._broker.returned += 1
        self.say(_said(commands.Basic.Return(312, "NO_ROUTE", "x", key), _CHANNEL))
        self.say(frame.marshal(header.ContentHeader(0, size, commands.Basic.Properties()), _CHANNEL))
        for start in range(0, size, self._frame_max - 8):
            piece = b"x" * min(size - start, self._frame_max - 8)
            self.say(frame.marshal(body.ContentBody(piece), _CHANNEL))

    # -- answers

    def _answer(self, tick: int) -> None:
        due = sorted(self._due.pop(tick, ()))
        if not due or self._deaf or self.line.over:
            return  # the queues have them; a kill may still take them
        acks = [tag for tag, refused in due if not refused]
        nacks = [tag for tag, refused in due if refused]
        for tag in acks:
            if (copy := self._copies.pop(tag, None)) is not None:
                self._broker.secure(copy)
        rows = {tag: self._open.pop(tag) for tag, _ in due}
        oldest = next(iter(self._open), self._tag + 1)
        self._say_of(_ACK, acks, min([oldest, *nacks]), rows)
        self._say_of(_NACK, nacks, min([oldest, *acks]), rows)

    def _say_of(self, method: int, tags: list[int], cutoff: int, rows: dict[int, tuple[int, bool]]) -> None:
        """Say it of all tags below the cut-off at once, and of each other one alone."""
        together = [tag for tag in tags if tag < cutoff]
        for group in ([together] if together else []) + [[tag] for tag in tags if tag >= cutoff]:
            self.say(_CONFIRM.pack(1, _CHANNEL, 13, method, group[-1], group is together, 0xCE))
            for tag in group:
                id_, returned = rows[tag]
                kind: AnswerKind = "refused" if method == _NACK else "returned" if returned else "stored"
                self.answers.append(Answer(id_, kind, self._said))

    def heard(self) -> Iterator[Answer]:
        """Yield the answers that the client has read."""
        return (answer for answer in self.answers if answer.end <= self.line.heard)

    # -- faults

    def _end(self, fault: Fault) -> None:
        if fault.kind == "nonsense":
            self.say(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            self._hang_up()
        elif fault.kind == "channel.close":
            self.say(_said(commands.Channel.Close(fault.code, fault.text, 60, 40), _CHANNEL))
            self._channel_closed = True
            self._due.clear()
        else:
            self._close_connection(fault)

    def _close_connection(self, fault: Fault) -> None:
        self.say(_said(commands.Connection.Close(fault.code, fault.text, 0, 0)))
        self._hang_up()

    def heed_alarm(self) -> None:
        """Let the client wait while there is an alarm, and go on after it."""
        if self._broker.alarm:
            if self._tag and not (self._blocked or self._deaf or self.line.over):
                self._block()
        elif self._blocked:
            self._blocked = False
            self._last_heard = self._world.now  # it looks for heartbeats anew
            self.say(_UNBLOCKED)
            self._read()

    def _block(self) -> None:
        self._blocked = True
        self.say(_BLOCKED)

    # -- heartbeats

    def _beat(self) -> None:
        if self._deaf or self.line.over:
            return
        self._broker.when_awake(self._beat_awake)

    def _beat_awake(self) -> None:
        if self._deaf or self.line.over:
            return
        now = self._world.now
        if not self._blocked and now - self._last_heard > 2 * self.heartbeat_s:
            self._broker.hung_up += not self._faults
            self._hang_up()
            return
        if "no heartbeats" not in self._faults and now - self._last_said >= self.heartbeat_s / 2:
            self.say(HEARTBEAT_FRAME)
        self._world.after(self.heartbeat_s / 2, self._beat)
