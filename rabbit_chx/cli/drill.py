"""``rabbit-chx drill``: a change is tried on a copy while messages pass."""

from __future__ import annotations

import asyncio
import logging
import shutil
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePath
from typing import Any

import click

from rabbit_chx.analysis import Hashing
from rabbit_chx.analysis.wording import plural
from rabbit_chx.broker.scratch_vhost import scratch_vhost
from rabbit_chx.cli.arguments import hashed_value
from rabbit_chx.cli.broker_options import BrokerOptions, LiveBroker, unwound_by_signals
from rabbit_chx.cli.command import (
    DIFFERENCE,
    DONE,
    PARTLY,
    TEXT,
    Number,
    Outcome,
    argument,
    command,
    option,
    options,
)
from rabbit_chx.cli.inputs import read_topology
from rabbit_chx.cli.report import ASSUMED, document, entry, numbers, texts
from rabbit_chx.cli.rings import exchange_in, hash_arguments_of
from rabbit_chx.cli.samples import SampleOptions, sample_options
from rabbit_chx.cli.stderr import say
from rabbit_chx.errors import InputError, NotFoundError
from rabbit_chx.rendering import Block, Facts, Line, Lines, Section, Table, sign_of_life
from rabbit_chx.testing.drill import CommandRun, DrillLoad, DrillRecord, copy_of, drilled
from rabbit_chx.testing.drill_verdict import COUNTS, DrillVerdict
from rabbit_chx.topology import ExchangeDefinition, Topology, plan
from rabbit_chx.topology.objects import HASH_EXCHANGE, SlotNames
from rabbit_chx.topology.reach import reached_from

_KEYS = 100
_KEY_PATTERN = "key-{n}"
_MOST_ROWS = 20
_PROMISES = ("lost", "out-of-order", "unroutable", "refused")
#: Of many seconds, those are shown that have one of these.
_EVENTS = COUNTS[2:]


@dataclass(frozen=True, slots=True)
class DrillOptions:
    """How a command is tried."""

    rate: float = option(
        type=Number(1, 10_000), default=200.0, show_default=True, metavar="N", help="Messages per second."
    )
    seconds: float = option(
        type=Number(0, 3_600),
        default=2.0,
        show_default=True,
        help="How long messages pass before COMMAND, and after it.",
    )
    timeout: float = option(
        type=Number(0, 86_400, min_open=True),
        default=600.0,
        show_default=True,
        metavar="SECONDS",
        help="End COMMAND after this time.",
    )
    work: float = option(
        type=Number(0, 60),
        default=0.0,
        show_default=True,
        metavar="SECONDS",
        help="How long a consumer takes for each message, as yours does. Queues of busy consumers are longer, so that more is "
        "overtaken.",
    )
    group: bool = option(
        is_flag=True,
        help="Consume with a ConsumerGroup, as topology apply --hand-over in-order needs.",
    )
    allow: tuple[str, ...] = option(
        type=click.Choice(_PROMISES), multiple=True, help="A promise that may be broken. Repeat it for more."
    )


@dataclass(frozen=True, slots=True)
class DrillReport:
    """What a command did to messages.

    Attributes:
        exchange: the exchange that they were published to.
        source: what was copied, in words.
        run: the command.
        how: how it was tried.
        verdict: what became of the messages.
        left: the queues in which messages were left, and how many.
    """

    exchange: str
    source: str
    run: CommandRun
    how: DrillOptions
    verdict: DrillVerdict
    left: Mapping[str, int] = field(default_factory=dict)

    @property
    def broken(self) -> dict[str, int]:
        """The promises that were broken and may not be, and how often."""
        total = self.verdict.total
        found = {promise: total[promise.replace("-", "_")] for promise in _PROMISES}
        return {promise: count for promise, count in found.items() if count and promise not in self.how.allow}

    @property
    def code(self) -> int:
        """The exit code."""
        if self.broken:
            return DIFFERENCE
        return DONE if self.run.exit_code == 0 and self.verdict.by_second and not self.unproven else PARTLY

    @property
    def unproven(self) -> int:
        """How many messages are still in queues, so that their fate is open."""
        return 0 if "lost" in self.how.allow else sum(self.left.values())

    def blocks(self) -> Iterator[Block]:
        """Return the verdict, the seconds, and examples."""
        yield Facts(list(self._facts()))
        if self.verdict.by_second:
            yield from self._table()
        if self.verdict.examples:
            yield Section("For example", [Lines(self.verdict.examples)])

    def _facts(self) -> Iterator[tuple[str, str]]:
        run, verdict, total = self.run, self.verdict, self.verdict.total
        yield "exchange", self.exchange
        yield "copied", self.source
        ended = "ended by --timeout" if run.exit_code is None else f"exit code {run.exit_code}"
        yield (
            "command",
            f"{_program(run)}: {ended}, from {run.began_s or 0:.1f} s to {run.ended_s or 0:.1f} s",
        )
        yield "messages", ", ".join(f"{total[name]:,} {heading}" for name, heading in self._columns()[:-1])
        at_end = f"{verdict.moved_at_end:,} of {plural(verdict.keys, 'key')} have another queue at the end"
        yield "moved", f"{at_end}; {len(verdict.movers):,} had one at some time"
        if self.left:
            yield "left", ", ".join(f"{count:,} in {queue}" for queue, count in self.left.items())
        yield "verdict", self._verdict()

    def _verdict(self) -> str:
        if broken := self.broken:
            return "broken: " + ", ".join(f"{count:,} {promise}" for promise, count in broken.items())
        if not self.verdict.by_second:
            return "nothing is proven: no message came"
        if self.unproven:
            return f"not proven: {self.unproven:,} still in queues; lower --rate or --work"
        kept = "each message came, in the order of its key"
        allowed = f", but for what --allow lets pass: {', '.join(self.how.allow)}" if self.how.allow else ""
        return (
            kept + allowed + ("" if self.run.exit_code == 0 else "; but COMMAND failed, so this shows little")
        )

    def _columns(self) -> list[tuple[str, str]]:
        """Return the counts that are shown, each with its heading."""
        shown = [name for name in COUNTS if name != "refused" or self.verdict.total[name]]
        return [(name, name.replace("_", " ")) for name in shown]

    def _table(self) -> Iterator[Block]:
        total, seconds = self.verdict.total, self.verdict.by_second
        columns = [column for column in self._columns() if total[column[0]]]
        rows = [
            (f"{second:,}", self._phase(second), *(counts[name] or "" for name, _ in columns))
            for second, counts in seconds.items()
            if len(seconds) <= _MOST_ROWS or not counts["published"] or any(counts[name] for name in _EVENTS)
        ][:_MOST_ROWS]
        headings = [*texts("second", ""), *numbers(*(heading for _, heading in columns))]
        yield Table(headings, rows, ["all", "", *(total[name] for name, _ in columns)])
        if len(rows) < len(seconds):
            yield Line(
                f"The others of {len(seconds):,} seconds are not shown: --output json has all of them."
            )

    def _phase(self, second: int) -> str:
        if self.run.began_s is None or second < int(self.run.began_s):
            return "before"
        return "COMMAND" if self.run.ended_s is None or second <= int(self.run.ended_s) else "after"

    def as_json(self) -> dict[str, Any]:
        """Return the JSON document of this command."""
        verdict, total = self.verdict, self.verdict.total
        return document(
            "drill",
            mode="copy",
            **entry(self, "exchange", "source"),
            command={"program": _program(self.run), **entry(self.run, "exit_code", "began_s", "ended_s")},
            **entry(self.how, "rate", "seconds", "work", "group", "allow"),
            totals={name: total[name] for name in COUNTS},
            **entry(verdict, "keys", "moved_at_end"),
            moved_keys=len(verdict.movers),
            by_second=[
                {"second": second, "phase": self._phase(second).lower()}
                | {name: counts[name] for name in COUNTS}
                for second, counts in verdict.by_second.items()
            ],
            **entry(self, "left", "broken"),
            examples=verdict.examples,
        )


def _program(run: CommandRun) -> str:
    return PurePath(run.words[0]).name  # the other words may hold a password


@command(
    example="rabbit-chx drill --exchange orders -- rabbit-chx topology apply topology.toml --yes",
)
def drill(
    *,
    words: tuple[str, ...] = argument(
        nargs=-1, required=True, type=click.UNPROCESSED, metavar="-- COMMAND..."
    ),
    exchange: str | None = option(
        type=TEXT,
        metavar="NAME",
        help="Publish to a copy of this exchange, and of what its messages reach. With --topology: of the file.",
    ),
    topology: str | None = option(
        metavar="FILE", help="Copy what this topology file says, and not what is on the broker."
    ),
    how: DrillOptions = options(DrillOptions),
    sample: SampleOptions = sample_options(_KEY_PATTERN, _KEYS),
    broker: BrokerOptions = options(BrokerOptions),
) -> Outcome:
    """Try a change before it is done: run COMMAND on a copy while numbered messages pass.

    The exchange, its queues and bindings are copied into a temporary vhost. Messages are published there at a rate, and each
    queue has a consumer, those that COMMAND makes too. COMMAND runs with AMQP_URL and the RABBIT_CHX_ variables that name the
    temporary vhost; its output goes to stderr. Nothing else is touched, unless COMMAND itself names another broker or vhost.
    The vhost is deleted at the end, after Ctrl-C too.

    The exit code is 1 if a message that was confirmed is lost, if messages of a key are out of order, or if messages are
    unroutable or refused. It is 3 if that is not so, but COMMAND failed, no message came, or messages are left in queues. Messages
    that come twice are counted: delivery is at least once.
    """
    at = broker.live()
    environment = at.environment()
    if shutil.which(words[0], path=environment.get("PATH")) is None:
        if "=" in words[0] or "://" in words[0]:  # it may hold a password
            raise InputError("the first word of COMMAND is no program: write -- env NAME=VALUE ./change.sh")
        raise InputError(
            f"there is no program {words[0]!r}: write the command behind --, such as -- ./change.sh"
        )
    run = CommandRun(words, environment, how.seconds, how.timeout)
    wanted, name, source = (
        _from_broker(at, exchange) if topology is None else _from_file(at, topology, exchange)
    )
    load = _load(wanted, name, how, sample)
    management = at.management("a temporary vhost is made over the management API")
    with unwound_by_signals(), scratch_vhost(management, at.settings.username) as vhost:
        scratch = at.in_vhost(vhost)
        say(
            f"the copy is in vhost {vhost}, which is deleted at the end; if this is killed: rabbitmqctl delete_vhost {vhost}"
        )
        with replace(scratch, ring_source=None).broker() as opened, sign_of_life("copying"):
            opened.apply(plan(copy_of(wanted), opened.topology()), allow_moved=1.0)
        run.environment = scratch.environment()
        record = _run(drilled(scratch.url, management, load, run, say))
    return _outcome(DrillReport(name, source, run, how, record.verdict(load.keys), record.left))


def _run(drilling: Coroutine[Any, Any, DrillRecord]) -> DrillRecord:
    """Run the drill; a signal cancels it, so that it ends in order."""
    log = logging.getLogger("aiormq")
    level = log.level
    log.setLevel(
        logging.CRITICAL
    )  # it tells of each queue that COMMAND deletes, and of a lost connection with its traceback

    async def interruptible() -> DrillRecord:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None  # noqa: S101  # this is one
        with unwound_by_signals(lambda: loop.call_soon_threadsafe(task.cancel)):
            return await drilling

    try:
        return asyncio.run(interruptible())
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None
    finally:
        log.setLevel(level)


def _outcome(report: DrillReport) -> Outcome:
    return Outcome(report, code=report.code)


def _from_broker(at: LiveBroker, exchange: str | None) -> tuple[Topology, str, str]:
    if exchange is None:
        raise InputError("there is nothing to copy: give --exchange NAME, or --topology FILE")
    at.management("exchanges and bindings are read over the management API")
    with at.broker() as opened, sign_of_life("reading the broker"):
        topology = opened.topology()
    ring = topology.rings.get(exchange)
    if ring is not None and ring.provenance == "assumed":
        say(f"the ring of exchange {exchange!r} is {ASSUMED}")
    try:
        reached = reached_from(topology, [exchange])
    except InputError as error:
        raise NotFoundError(f"{error}; check the vhost of the URL too", exchange=exchange) from None
    return reached, exchange, f"what is at {at.settings.masked_url}"


def _from_file(at: LiveBroker, file: str, exchange: str | None) -> tuple[Topology, str, str]:
    given = read_topology(file, at.settings.vhost)
    named = None if exchange is None else given.topology.exchange(exchange)
    return given.topology, (named or exchange_in(given, exchange)).name, given.name


def _load(topology: Topology, name: str, how: DrillOptions, sample: SampleOptions) -> DrillLoad:
    """Return what is published: each key where the exchange looks for it, and as the routing key.

    Raises:
        InputError: a key is no value of what the exchange hashes.
    """
    exchange = topology.exchange(name) or ExchangeDefinition(name)
    arguments = hash_arguments_of(exchange) if exchange.type == HASH_EXCHANGE else {}
    hashing = Hashing(arguments.get("hash-header"), arguments.get("hash-property"))
    pattern = "{n}" if hashing.hash_property == "timestamp" else _KEY_PATTERN
    keys = sample.read_or_make(pattern, _KEYS).keys
    values = [hashed_value(hashing, key) for key in keys]
    properties: dict[str, Sequence[Any]] = {}
    if hashing.hash_header is not None:
        properties["headers"] = [{hashing.hash_header: value} for value in values]
    elif hashing.hash_property is not None:
        properties[hashing.hash_property] = values
    parks = {SlotNames(other.name, 1).park for other in topology.exchanges if other.type == HASH_EXCHANGE}
    return DrillLoad(name, keys, properties, how.rate, how.work, how.group, frozenset(parks))
