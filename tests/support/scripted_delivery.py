"""A delivery whose connections, clock and broker are scripted: its session and the broker exchange bytes, without a socket."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

from amqp_broker import ACK, BLOCKED, NACK, UNBLOCKED, BrokerConnection, Message, confirm
from amqp_broker import returned as returned_frames

from rabbit_chx.amqp import ConnectionSettings
from rabbit_chx.connection.session import Session
from rabbit_chx.errors import ConnectionLostError, RabbitChxError
from rabbit_chx.publishing.delivery import Close, Delivery, Open, Poll, Sleep, Step, Steps, drive
from rabbit_chx.publishing.encoder import Encoder, Rows
from rabbit_chx.publishing.options import Limits, Retries
from rabbit_chx.publishing.publish_report import PublishReport

#: What the broker does in a poll of the delivery.
Event: TypeAlias = "Callable[[ScriptedConnection], None]"
A, B = ConnectionSettings(host="a"), ConnectionSettings(host="b")


def _encoder(frame_max: int) -> Encoder:
    return Encoder(b"x", b"\0\0", mandatory=True, frame_max=frame_max)


#: Bytes on the wire of a row whose body is one letter.
ROW_BYTES = len(_encoder(131_072).encode(Rows([b"k"], [b"a"])))


class ScriptedConnection(BrokerConnection):
    """A connection that is open: the session of the client, and the broker's side of it.

    Attributes:
        fails_over: the bodies over which the channel fails.
    """

    backlog = False
    bytes_sent = 0
    bytes_under_way = 1 << 20
    fails_over = ""

    def __init__(self, settings: ConnectionSettings) -> None:
        self.session = Session(settings)
        super().__init__(self.session.receive)
        self._bodies: list[str] = []
        self._read_output()

    def _read_output(self) -> None:
        while self.session.output:
            self.receive(self.session.output.popleft())

    def on_message(self, message: Message) -> None:
        """Keep its body. A channel that fails over it answers nothing behind it."""
        self._bodies.append(message.body.decode())
        self.is_channel_closed = self._bodies[-1] in self.fails_over

    @property
    def bodies(self) -> list[str]:
        """The bodies that were sent over it."""
        self._read_output()
        return self._bodies


class Broker:
    """Executes the steps of a delivery; a script decides what happens in each poll.

    Attributes:
        fails_over: the bodies over which each later channel fails.
        closed: connections that were closed before they were used.
        refusals: the outcomes of the next attempts to connect.
    """

    def __init__(
        self,
        script: Iterable[Event],
        *targets: ConnectionSettings,
        limits: Limits | None = None,
        **retries: Any,
    ) -> None:
        self.connections: list[ScriptedConnection] = []
        self.fails_over = ""
        self.opened: list[str] = []
        self.closed = 0
        self.slept: list[float] = []
        self.refusals: list[RabbitChxError | None] = []
        self.now = 0.0
        self._script = iter(script)
        self.delivery = Delivery(
            targets or (A,),
            _encoder,
            limits or Limits(max_in_flight=10),
            Retries(**retries),
            clock=lambda: self.now,
            jitter=lambda: 1.0,
        )

    def follow(self, script: Iterable[Event]) -> None:
        """Follow another script from now on."""
        self._script = iter(script)

    def run(self, steps: Steps) -> None:
        """Execute every step of an operation."""
        drive(steps, self.do)

    def do(self, step: Step) -> ScriptedConnection | None:
        """Execute one step."""
        match step:
            case Open(settings):
                self.opened.append(settings.host)
                if self.refusals and (refusal := self.refusals.pop(0)):
                    raise refusal
                self.connections.append(ScriptedConnection(settings))
                self.connections[-1].fails_over = self.fails_over
                return self.connections[-1]
            case Sleep(seconds):
                self.slept.append(seconds)
                self.now += seconds
            case Close():
                self.closed += 1
            case Poll(wait_s):
                self.now += wait_s
                connection = self.connections[-1]
                if wait_s:  # else it only sends
                    event = next(self._script, None)
                    assert event is not None, "the script ends before the operation"
                    event(connection)
                if connection.session.failure is not None:
                    raise connection.session.failure
        return None

    def publish(self, bodies: str) -> PublishReport:
        """Submit rows, wait until they are answered, and report."""
        self.hand_over(bodies)
        return self.drain()

    def hand_over(self, bodies: str, exchanges: Sequence[str] | None = None) -> None:
        """Submit rows as one batch."""
        texts = [body.encode() for body in bodies.split()]
        names = None if exchanges is None else [name.encode() for name in exchanges]
        self.run(self.delivery.submit(Rows([b"k"] * len(texts), texts, exchanges=names)))

    def drain(self) -> PublishReport:
        """Wait until every row is answered, and report."""
        self.run(self.delivery.drain())
        return self.delivery.report


def ack(tag: int = 0, *, multiple: bool = True) -> Event:
    """Return an event: the broker acks a message, or all up to it; the tag 0 is all."""
    return lambda connection: connection.say(confirm(ACK, tag, multiple=multiple))


def nack(*tags: int) -> Event:
    """Return an event: the broker refuses these messages."""
    return lambda connection: connection.say(b"".join(confirm(NACK, tag) for tag in tags))


def returned(messages: int) -> Event:
    """Return an event: the broker returns so many messages as unroutable, and acks them later."""
    return lambda connection: connection.say(returned_frames("x", "k", b"body") * messages)


def lost(cause: RabbitChxError | None = None) -> Event:
    """Return an event: the connection ends."""
    return lambda connection: connection.session.fail(cause or ConnectionLostError("the connection was lost"))


def blocked(connection: ScriptedConnection) -> None:
    """Let the broker block publishers."""
    connection.say(BLOCKED)


def unblocked(connection: ScriptedConnection) -> None:
    """Let the broker unblock publishers."""
    connection.say(UNBLOCKED)


def nothing(_: ScriptedConnection) -> None:
    """Let time pass."""


def all_of(*events: Event) -> Event:
    """Return an event: these events happen in one poll, in this order."""

    def happen(connection: ScriptedConnection) -> None:
        for event in events:
            event(connection)

    return happen
