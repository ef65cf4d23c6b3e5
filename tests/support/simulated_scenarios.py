"""Scenarios of simulated runs: values that fit into a JSON file, and what a seed draws.

Half of the drawn ones hold no fault for which the publisher may give up, so that it has to confirm every row (`must_complete`).
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
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
    "stall up",  # after `at` seconds no byte comes through for `seconds`; None: without limit
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
    "missing",  # no exchange: a publish closes the channel with 404
    "forbidden",  # no permission: the first publish of a channel to an exchange closes it with 403
    "poison",  # of a row: the broker stores it perhaps, and closes the channel (4xx) or the connection (5xx) at each copy
]

_OF_BROKER = {"alarm", "frozen", "killed", "unbound", "full", "missing", "forbidden", "poison"}


@dataclass(frozen=True)
class Fault:
    """A fault.

    Attributes:
        kind: what.
        connection: the number of the attempt to connect that meets it, from 0; None where it is the broker's.
        at: seconds after the connection was opened; of a broker, after the run began.
        byte: the number of a byte, or of a message, or of a row.
        seconds: how long; None: without limit.
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
        """True if it meets every connection."""
        return self.kind in _OF_BROKER

    @property
    def until(self) -> float:
        """The end, in seconds as `at`."""
        return math.inf if self.seconds is None else self.at + self.seconds


@dataclass(frozen=True)
class Program:
    """The program that publishes.

    Attributes:
        rows: rows that it hands over.
        calls: in how many calls.
        tasks: how many of them share a `SharedPublisher`.
        body: the most bytes of a body.
        keys: how many keys there are.
        idle_s: seconds that it is elsewhere between two calls, on average.
        columns: whether each row has properties and an exchange of its own.
        interrupt_at: seconds after the start at which Ctrl-C comes; None for never.
        objections: of so many calls of `progress` one raises; 0 is none.
        unroutable: how many of the keys have no queue.
    """

    rows: int = 200
    calls: int = 10
    tasks: int = 1
    body: int = 60
    keys: int = 10
    idle_s: float = 0.0
    columns: bool = False
    interrupt_at: float | None = None
    objections: int = 0
    unroutable: int = 0

    @cached_property
    def row_keys(self) -> list[str]:
        """The routing key of each row; two tasks share none."""
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
        """Return the exchange of a row, if each has its own."""
        return f"x.{id_}"


@dataclass(frozen=True)
class Scenario:
    """All of a run: the same scenario is the same run.

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
        """Return the faults of this attempt to connect."""
        return [fault for fault in self.faults if fault.connection == number]

    @property
    def of_broker(self) -> list[Fault]:
        """The faults of the broker."""
        return [fault for fault in self.faults if fault.is_of_broker]


_HANDSHAKE_BYTES = 600
_ROW_BYTES = 130  # of frames around a body
_MOST_PIECES = 3000
_MOST_TURNS_S = 400.0

#: What a broker says when it closes something: those after which another connection may do better, and those after which not.
_PASSING_CLOSES = [
    (320, "CONNECTION_FORCED - broker forced connection closure"),
    (541, "INTERNAL_ERROR"),
    (504, "CHANNEL_ERROR"),
]
_FATAL_CLOSES = [
    (404, "NOT_FOUND - no exchange 'x' in vhost '/'"),
    (403, "ACCESS_REFUSED - access to exchange 'x' in vhost '/' refused for user 'guest'"),
    (406, "PRECONDITION_FAILED - message size 20000000 is larger than configured max size 16777216"),
]
_ROW_CLOSES = [
    (541, "INTERNAL_ERROR"),
    (501, "FRAME_ERROR"),
    (406, "PRECONDITION_FAILED - message size 20000000 is larger than configured max size 16777216"),
    (403, "ACCESS_REFUSED - access to topic 'k' in exchange 'x' in vhost '/' refused for user 'guest'"),
]
_PASSING_DENIALS = [
    (530, "NOT_ALLOWED - access to vhost '/' refused for user 'guest': connection limit (1) is reached"),
    (541, "INTERNAL_ERROR - access to vhost '/' refused: vhost '/' is down"),
]
_FATAL_DENIALS = [(403, "ACCESS_REFUSED - Login was refused using authentication mechanism PLAIN")]


def scenario_of(seed: int, fewest: int = 20, most: int = 1000) -> Scenario:
    """Return the scenario of a seed.

    Args:
        seed: any number.
        fewest: the fewest rows to publish.
        most: the most rows to publish; most scenarios are nearer to the fewest.
    """
    return _Drawing(seed, fewest, most).scenario()


def doubtful(scenario: Scenario) -> Scenario:
    """Return the scenario with late confirms, a lost connection, and a broker that returns or refuses what was sent before or is sent again."""
    chance = random.Random(scenario.seed)  # noqa: S311  # the same scenario each time
    lost_at = chance.expovariate(2.0)
    kind: Any = chance.choice(("unbound", "missing", "forbidden", "full"))
    begins_at = max(0.0, lost_at + chance.uniform(-0.5, 0.2))
    fatal = [code for code, _ in _FATAL_CLOSES]  # without a cause, and no broker does that
    faults = (
        Fault("reset", 0, lost_at),
        Fault(kind, at=begins_at, seconds=chance.choice((0.5, 5.0, None))),
        *(fault for fault in scenario.faults if fault.kind == "poison" or fault.code not in fatal),
    )
    confirm_s, nacks = chance.choice((0.01, 1.0, 5.0)), chance.choice((0.0, 0.1))
    return replace(scenario, faults=faults, must_complete=False, confirm_s=confirm_s, nacks=nacks)


def _forced(faults: list[Fault], leave: int) -> list[Fault]:
    """Return the faults, of which so many closes have another code than 320."""
    closes = [fault for fault in faults if fault.kind.endswith(".close") and fault.code != 320]
    code, text = _PASSING_CLOSES[0]
    return [replace(fault, code=code, text=text) if fault in closes[leave:] else fault for fault in faults]


class _Drawing:
    """Draws one scenario."""

    def __init__(self, seed: int, fewest: int, most: int) -> None:
        self._seed = seed
        self._chance = random.Random(seed)  # noqa: S311  # the same scenario each time
        self._must_complete = self._chance.random() < 0.5
        self._rows = round(math.exp(self._chance.uniform(math.log(fewest), math.log(most))))
        self._stalls = 0

    def scenario(self) -> Scenario:
        """Draw it."""
        pick = self._chance.choice
        program = self._program()
        publisher = self._publisher(program)
        if not (program.columns or program.unroutable) and self._chance.random() < 0.2:
            publisher["routing"] = "client"
        size = program.rows * (program.body // 2 + _ROW_BYTES)
        confirm_s, tick_s = self._answers(program, publisher)
        scenario = Scenario(
            seed=self._seed,
            program=program,
            publisher=publisher,
            must_complete=self._must_complete,
            targets=pick((1, 1, 2, 3)),
            heartbeat_s=pick((0, 2, 10, 60)),
            frame_max=pick(((131_072,), (131_072,), (4096,), (131_072, 4096), (8192, 5000, 131_072))),
            latency_s=pick((0.0001, 0.0005, 0.005, 0.1)),
            piece=pick(
                [piece for piece in (65_536, 65_536, 8192, 1460, 100, 7) if size / piece < _MOST_PIECES]
            ),
            room=pick((262_144, 262_144, 20_000, 4096)),
            confirm_s=confirm_s,
            tick_s=tick_s,
            nacks=self._nacks(publisher),
        )
        return replace(scenario, faults=self._faults(scenario, size))

    # -- the program and its publisher

    def _program(self) -> Program:
        chance, pick, rows = self._chance, self._chance.choice, self._rows
        program = Program(
            rows=rows,
            calls=chance.randint(1, 12),
            body=pick((16, 60, 60, 300, 2000, 10_000) if rows < 300 else (16, 60, 60, 300)),
            keys=pick((1, 3, 20, 200)),
            idle_s=pick((0.0, 0.0, 0.01, 0.5, 10.0)),
            columns=chance.random() < 0.2,
            objections=pick((0, 0, 0, 0, 3)),
            unroutable=0 if self._must_complete else pick((0, 0, 0, 1)),
        )
        if not self._must_complete and chance.random() < 0.1:
            return replace(program, interrupt_at=chance.expovariate(1.0))
        return program

    def _publisher(self, program: Program) -> dict[str, Any]:
        pick = self._chance.choice
        window = pick([window for window in (1, 5, 20, 100, 1000) if program.rows / window < 150])
        given: dict[str, Any] = {
            "max_in_flight": window,
            "max_in_flight_bytes": pick((8 << 20, 8 << 20, 20_000)),
            "keep_order": pick((False, True)),
            "backoff_s": pick((0.01, 0.2, 1.0)),
        }
        if self._must_complete:
            return given | {
                "confirm_timeout_s": pick((20.0, 60.0)),
                "blocked_timeout_s": 300.0,
                "reconnect_timeout_s": 600.0,
                "retry_first_connection": True,
                "nack_retries": 30,
            }
        return given | {
            "confirm_timeout_s": pick((2.0, 20.0, 60.0)),
            "blocked_timeout_s": pick((0.0, 5.0, 300.0)),
            "reconnect_timeout_s": pick((0.0, 10.0, 120.0)),
            "max_reconnects": pick((None, None, 0, 3)),
            "retry_first_connection": pick((False, True)),
            "nack_retries": pick((0, 1, 3)),
            "on_unroutable": pick(("raise", "report")),
        }

    def _answers(self, program: Program, publisher: dict[str, Any]) -> tuple[float, float]:
        """Return the delay and the interval of the broker's answers."""
        chance = self._chance
        windows = 1 + program.calls + program.rows / max(1, publisher["max_in_flight"] // 2)
        if chance.random() < 0.003 and windows < 20:
            publisher["confirm_timeout_s"] = 900.0
            return 600.0, 0.5  # ten minutes late
        longest = publisher["confirm_timeout_s"] / (4 if self._must_complete else 1)
        waits = [
            wait
            for wait in (0.001, 0.001, 0.02, 0.3, 3.0, 15.0)
            if wait * windows < _MOST_TURNS_S and wait < longest
        ]
        return chance.choice(waits or [0.001]), chance.choice((0.001, 0.01, 0.2))

    def _nacks(self, publisher: dict[str, Any]) -> float:
        if self._must_complete:
            return 0.0 if publisher["keep_order"] else self._chance.choice((0.0, 0.0, 0.03))
        return self._chance.choice((0.0, 0.0, 0.0, 0.01, 0.2))

    # -- what goes wrong

    def _faults(self, scenario: Scenario, size: int) -> tuple[Fault, ...]:
        chance = self._chance
        program = scenario.program
        windows = 1 + program.rows / max(1, scenario.publisher["max_in_flight"] // 2)
        run_s = program.calls * program.idle_s + windows * (
            scenario.confirm_s / 2 + scenario.tick_s + 2 * scenario.latency_s
        )
        kinds: list[Callable[[int | None, float, int], Fault]] = [self._of_line] * 4
        kinds += [self._of_opening] * 2 + [self._of_talk] * 3 + [self._of_broker] * 2
        faults: list[Fault] = []
        connection = 0
        for _ in range(chance.choice((0, 1, 1, 2, 3, 5))):
            fault = chance.choice(kinds)(connection, chance.random() * run_s, size)
            faults.append(fault)
            connection += fault.connection is not None and chance.random() < 0.8
        poison = self._poison()
        if self._must_complete:  # two closes over the same open row are its fault
            faults = _forced(faults, leave=0 if poison else 1)
        return (*faults, *poison)

    def _poison(self) -> list[Fault]:
        chance = self._chance
        if chance.random() > 0.2:
            return []
        rows = chance.sample(range(self._rows), chance.randint(1, 3))
        closes = [chance.choice(_ROW_CLOSES) for _ in rows]
        return [
            Fault("poison", byte=row, code=code, text=text)
            for row, (code, text) in zip(rows, closes, strict=True)
        ]

    def _of_line(self, connection: int | None, at: float, size: int) -> Fault:
        chance = self._chance
        kinds = ["cut up", "cut up", "cut down", "cut down", "reset", "slow"]
        if not (self._must_complete and self._stalls):
            kinds += ["stall up", "stall down", "stall both"]
        kind: Any = chance.choice(kinds)
        if kind == "slow":
            return Fault(kind, connection, rate=max(3000.0, size / chance.uniform(1, 60)))
        if kind.startswith("stall"):
            self._stalls += 1
            return Fault(kind, connection, at, seconds=chance.choice((None, chance.expovariate(0.1))))
        most = size if kind == "cut up" else _HANDSHAKE_BYTES + 21 * self._rows
        return Fault(kind, connection, at, byte=round(math.exp(chance.uniform(0, math.log(most)))))

    def _of_opening(self, connection: int | None, *_: object) -> Fault:
        chance = self._chance
        kind: Any = chance.choice(("refused", "swallowed", "mute", "denied"))
        if kind != "denied":
            return Fault(kind, connection)
        code, text = self._words(_PASSING_DENIALS, _FATAL_DENIALS)
        return Fault(kind, connection, code=code, text=text)

    def _of_talk(self, connection: int | None, *_: object) -> Fault:
        chance = self._chance
        message = chance.randint(1, self._rows)
        kind: Any = chance.choice(("connection.close", "channel.close", "nonsense", "no heartbeats"))
        if kind in ("nonsense", "no heartbeats"):
            return Fault(kind, connection, byte=message)
        code, text = self._words(_PASSING_CLOSES, _FATAL_CLOSES)
        return Fault(kind, connection, byte=message, code=code, text=text)

    def _of_broker(self, _: int | None, at: float, __: int) -> Fault:
        chance = self._chance
        kinds = ["killed"]
        if not (self._must_complete and self._stalls):
            kinds += ["frozen", "alarm"]
            if not self._must_complete:
                kinds += ["unbound", "full"]
        kind: Any = chance.choice(kinds)
        self._stalls += kind in ("frozen", "alarm")
        seconds = (
            min(chance.expovariate(0.02), 240.0) if kind == "alarm" else min(chance.expovariate(0.2), 40.0)
        )
        return Fault(kind, at=at, seconds=seconds)

    def _words(self, passing: list[tuple[int, str]], fatal: list[tuple[int, str]]) -> tuple[int, str]:
        if self._must_complete or self._chance.random() < 0.7:
            return self._chance.choice(passing)
        return self._chance.choice(fatal)
