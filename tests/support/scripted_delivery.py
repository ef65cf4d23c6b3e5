"""A delivery with scripted connections, broker and clock, for faults that a real broker does not have on demand."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

from rabbit_chx.amqp import ConnectionSettings
from rabbit_chx.connection.session import Session
from rabbit_chx.errors import ConnectionLostError, RabbitChxError
from rabbit_chx.publishing.delivery import Close, Delivery, Open, Poll, Sleep, Step, Steps, drive
from rabbit_chx.publishing.encoder import Rows
from rabbit_chx.publishing.limits import Limits, Retries
from rabbit_chx.publishing.publish_report import PublishReport

#: What the broker does in a poll of the delivery.
Event: TypeAlias = "Callable[[ScriptedConnection], None]"
A, B = ConnectionSettings(host="a"), ConnectionSettings(host="b")


class ScriptedConnection:
    """A connection without a socket; a script decides what its broker does."""

    backlog = False
    bytes_sent = 0
    bytes_under_way = 1 << 20

    def __init__(self, settings: ConnectionSettings) -> None:
        self.session = Session(settings)
        self.session.output.clear()

    @property
    def bodies(self) -> list[str]:
        """The bodies that were sent over it."""
        return [text for wire in self.session.output for text in wire.decode().split()]


class Encoder:
    """Writes bodies as they are, so that a test can read them."""

    def encode(self, rows: Rows) -> bytes:
        """Return the bodies with a space between them."""
        return b" ".join(rows.bodies)


class Broker:
    """Does a delivery's steps: a script decides what happens in each poll."""

    def __init__(
        self,
        script: Iterable[Event],
        *targets: ConnectionSettings,
        limits: Limits | None = None,
        **retries: Any,
    ) -> None:
        self.connections: list[ScriptedConnection] = []
        self.opened: list[str] = []
        self.closed = 0  # connections that were given up before they were used
        self.slept: list[float] = []
        self.waits: list[float] = []  # of each poll that waits for the broker
        self.refusals: list[RabbitChxError | None] = []  # to open; one for each attempt
        self.now = 0.0
        self._script = iter(script)
        encoder: Any = Encoder()
        self.delivery = Delivery(
            targets or (A,),
            lambda _: encoder,
            limits or Limits(max_in_flight=10),
            Retries(**retries),
            clock=lambda: self.now,
            chance=lambda: 1.0,
        )

    def run(self, steps: Steps) -> None:
        """Do every step of an operation."""
        drive(steps, self.do)

    def do(self, step: Step) -> ScriptedConnection | None:
        """Do one step, as the script says."""
        match step:
            case Open(settings):
                self.opened.append(settings.host)
                if self.refusals and (refusal := self.refusals.pop(0)):
                    raise refusal
                self.connections.append(ScriptedConnection(settings))
                return self.connections[-1]
            case Sleep(seconds):
                self.slept.append(seconds)
                self.now += seconds
            case Close():
                self.closed += 1
            case Poll(wait_s, until_open):
                self.now += wait_s
                connection = self.connections[-1]
                if until_open is not None:  # else it only sends
                    self.waits.append(wait_s)
                    event = next(self._script, None)
                    assert event is not None, "the script ends before the operation"
                    event(connection)
                if connection.session.failure is not None:
                    raise connection.session.failure
        return None

    def publish(self, bodies: str) -> PublishReport:
        """Hand over rows, wait until they are answered, and report."""
        self.hand_over(bodies)
        return self.drain()

    def hand_over(self, bodies: str) -> None:
        """Hand over rows as one batch."""
        texts = [body.encode() for body in bodies.split()]
        self.run(self.delivery.submit(Rows([b"k"] * len(texts), texts)))

    def drain(self) -> PublishReport:
        """Wait until every row is answered, and report."""
        self.run(self.delivery.drain())
        return self.delivery.report


def ack(tag: int = 0, *, multiple: bool = True) -> Event:
    """Return an event: the broker acks a message, or all up to it; the tag 0 is all."""
    return lambda connection: connection.session.ledger.ack(tag, multiple=multiple)


def nack(*tags: int) -> Event:
    """Return an event: the broker refuses these messages."""

    def answer(connection: ScriptedConnection) -> None:
        for tag in tags:
            connection.session.ledger.nack(tag, multiple=False)

    return answer


def returned(messages: int) -> Event:
    """Return an event: so many messages come back as unroutable; the broker acks them later."""

    def answer(connection: ScriptedConnection) -> None:
        connection.session.returned += messages

    return answer


def lost(cause: RabbitChxError | None = None) -> Event:
    """Return an event: the connection ends."""

    def answer(connection: ScriptedConnection) -> None:
        connection.session.failure = cause or ConnectionLostError("the connection was lost")

    return answer


def blocked(connection: ScriptedConnection) -> None:
    """Let the broker ask publishers to wait."""
    connection.session.blocked = "low on memory"


def unblocked(connection: ScriptedConnection) -> None:
    """Let the broker ask publishers to wait no longer."""
    connection.session.blocked = None


def nothing(_: ScriptedConnection) -> None:
    """Let time go by."""


def all_of(*events: Event) -> Event:
    """Return an event: these events come in one poll, in this order."""

    def answer(connection: ScriptedConnection) -> None:
        for event in events:
            event(connection)

    return answer
