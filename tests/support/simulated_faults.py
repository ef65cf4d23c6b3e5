"""What goes wrong in a simulated run, and the settings of the run, as values that fit into a JSON file."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any, Literal
from zlib import crc32

#: Keys that begin with it have no queue.
UNROUTABLE = "!"

Kind = Literal[
    # of one connection, while it is opened
    "refused",  # nobody listens
    "swallowed",  # no answer to the connect
    "mute",  # the broker takes the connection and says nothing
    "denied",  # connection.close in the handshake, with `code` and `text`
    # of one connection, later
    "cut up",  # after byte number `byte` to the broker
    "cut down",  # after byte number `byte` from it
    "reset",  # after `at` seconds
    "stall up",  # after `at` seconds no byte comes through for `seconds`; None is for ever
    "stall down",
    "stall both",
    "slow",  # from its beginning, `rate` bytes a second
    "connection.close",  # at message number `byte`, with `code` and `text`
    "channel.close",
    "nonsense",  # at message number `byte`, bytes that are no AMQP
    "no heartbeats",  # the broker sends none
    # of the broker, `at` seconds after the first connection, for `seconds`
    "alarm",
    "frozen",
    "killed",
    "unbound",
    "full",
]

_OF_BROKER = {"alarm", "frozen", "killed", "unbound", "full"}


@dataclass(frozen=True)
class Fault:
    """One thing that goes wrong.

    Attributes:
        kind: what.
        connection: the number of the attempt to connect that meets it, from 0; None where it is the broker's.
        at: seconds after the connection was opened; of a broker, after the run began.
        byte: the number of a byte, or of a message.
        seconds: how long; None is for ever.
        rate: bytes a second.
        code: the reply code.
        text: the reply text.
    """

    kind: Kind
    connection: int | None = None
    at: float = 0.0
    byte: int = 0
    seconds: float | None = 0.0
    rate: float = 0.0
    code: int = 0
    text: str = ""

    @property
    def is_of_broker(self) -> bool:
        """Whether it meets every connection."""
        return self.kind in _OF_BROKER

    @property
    def until(self) -> float:
        """Seconds, as `at`, at which it is over."""
        return math.inf if self.seconds is None else self.at + self.seconds


@dataclass(frozen=True)
class Program:
    """What the program does that publishes.

    Attributes:
        path: the publisher that it uses.
        rows: rows that it hands over.
        calls: in how many calls.
        tasks: how many tasks of asyncio share the publisher.
        body: the most bytes of a body.
        keys: how many keys there are.
        idle_s: seconds that it is elsewhere between two calls, on average.
        columns: whether each row has properties and an exchange of its own.
        cancel_every: of so many calls one is cancelled on its way; 0 is none.
        interrupt_at: seconds after the start at which Ctrl-C comes; None for never.
        objections: of so many calls of `progress` one raises; 0 is none.
        unroutable: how many of the keys have no queue.
    """

    path: Literal["Publisher", "AsyncPublisher"] = "Publisher"
    rows: int = 200
    calls: int = 10
    tasks: int = 1
    body: int = 60
    keys: int = 10
    idle_s: float = 0.0
    columns: bool = False
    cancel_every: int = 0
    interrupt_at: float | None = None
    objections: int = 0
    unroutable: int = 0

    @cached_property
    def row_keys(self) -> list[str]:
        """The routing key of each row; two tasks have none in common."""
        numbers = [crc32(b"%d" % id_) % self.keys for id_ in range(self.rows)]
        return [
            f"{UNROUTABLE if number < self.unroutable else ''}{id_ % self.tasks}.{number}"
            for id_, number in enumerate(numbers)
        ]

    @cached_property
    def row_bodies(self) -> list[bytes]:
        """The body of each row: it begins with the row's number."""
        names = [b"%d " % id_ for id_ in range(self.rows)]
        return [name + b"x" * (id_ * 7919 % max(1, self.body - len(name))) for id_, name in enumerate(names)]

    def exchange_of(self, id_: int) -> str:
        """Return the exchange of a row, where each has one of its own."""
        return f"x.{id_}"


@dataclass(frozen=True)
class Scenario:
    """A run, whole: the same scenario is the same run.

    Attributes:
        seed: what is left to chance comes from it.
        program: what publishes.
        faults: what goes wrong.
        publisher: arguments of the publisher.
        must_complete: whether nothing goes wrong for which the publisher may give up.
        targets: addresses of the broker.
        heartbeat_s: what the broker offers.
        frame_max: what the broker offers on one connection after the other, over and over.
        latency_s: seconds that bytes are on their way.
        piece: the most bytes that are received at once.
        room: bytes that the socket holds.
        confirm_s: the longest that the broker takes to confirm a message.
        tick_s: the broker answers every so many seconds.
        nacks: the share of messages that the broker refuses.
        story: what a regression file tells about it.
    """

    seed: int
    program: Program
    faults: tuple[Fault, ...] = ()
    publisher: dict[str, Any] = field(default_factory=dict)
    must_complete: bool = False
    targets: int = 1
    heartbeat_s: int = 60
    frame_max: tuple[int, ...] = (131_072,)
    latency_s: float = 0.0005
    piece: int = 65_536
    room: int = 262_144
    confirm_s: float = 0.01
    tick_s: float = 0.005
    nacks: float = 0.0
    story: str = ""

    def to_json(self) -> str:
        """Return it as text."""
        return json.dumps(asdict(self), indent=1)

    @classmethod
    def from_json(cls, text: str) -> Scenario:
        """Return what was written by `to_json`."""
        fields = json.loads(text)
        fields["program"] = Program(**fields["program"])
        fields["faults"] = tuple(Fault(**fault) for fault in fields["faults"])
        fields["frame_max"] = tuple(fields["frame_max"])
        return cls(**fields)

    def of_connection(self, number: int) -> list[Fault]:
        """Return what goes wrong with this attempt to connect."""
        return [fault for fault in self.faults if fault.connection == number]

    @property
    def of_broker(self) -> list[Fault]:
        """What goes wrong with the broker."""
        return [fault for fault in self.faults if fault.is_of_broker]
