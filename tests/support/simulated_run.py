"""A simulated run, and its findings: the product's real code between a program, a network and a broker of one seed."""

from __future__ import annotations

import math
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from delivery_checker import Attempt, History, Verdict, check
from simulated_broker import RING, Broker, queue_for
from simulated_network import Network, simulated
from simulated_scenarios import Program, Scenario
from simulated_world import EndlessRunError, World

from rabbit_chx.amqp import ConnectionSettings
from rabbit_chx.errors import ConnectionLostError, PublishError, RabbitChxError
from rabbit_chx.publishing import Publisher
from rabbit_chx.publishing.delivery import Steps
from rabbit_chx.publishing.encoder import Rows
from rabbit_chx.publishing.publish_report import PublishReport, RowBatch, Tally

_CONFIRM_TIMEOUT_S, _BLOCKED_TIMEOUT_S, _RECONNECT_TIMEOUT_S = 60.0, 300.0, 120.0  # the defaults
_CONNECT_S, _GOODBYE_S = 10.0, 10.0


#: A kind and a message.
Finding: TypeAlias = tuple[str, str]


@dataclass
class Findings:
    """The findings of a run.

    Attributes:
        faults: the findings; empty if every promise was kept.
        errors: errors that were caught.
        verdict: the result of the checker; None if the run did not end.
        connections: attempts to connect.
    """

    scenario: Scenario
    faults: list[Finding] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    verdict: Verdict | None = None
    connections: int = 0

    @property
    def kinds(self) -> set[str]:
        """The kinds of the findings."""
        return {kind for kind, _ in self.faults}

    def __str__(self) -> str:
        lines = [f"{kind}: {words}" for kind, words in self.faults] or ["nothing is wrong"]
        return "\n".join([*lines, f"errors: {self.errors}", f"checker: {self.verdict}"])


@dataclass
class Outcome(Findings):
    """The result of a run.

    Attributes:
        report: the sum of all reports.
        seconds: simulated seconds.
        carried: bytes of the first connection, to the broker and from it.
    """

    report: PublishReport = field(default_factory=PublishReport)
    seconds: float = 0.0
    carried: tuple[int, int] = (0, 0)

    def __str__(self) -> str:
        return f"{super().__str__()}\nreport: {self.report}"


def bound_s(scenario: Scenario) -> float:
    """Return the simulated seconds within which a run must be over, from the bounds that its publisher has."""
    given, program = scenario.publisher, scenario.program
    outage_s = (
        2 * given.get("confirm_timeout_s", _CONFIRM_TIMEOUT_S)
        + given.get("reconnect_timeout_s", _RECONNECT_TIMEOUT_S)
        + 3 * scenario.heartbeat_s
        + (scenario.targets + 1) * _CONNECT_S
        + _GOODBYE_S
    )
    faults_s = sum(fault.until if math.isfinite(fault.until) else fault.at for fault in scenario.faults)
    blocked_s = sum(fault.kind == "alarm" for fault in scenario.faults) * given.get(
        "blocked_timeout_s", _BLOCKED_TIMEOUT_S
    )
    windows = 3 + program.rows / max(1, given.get("max_in_flight", 1000) // 2) + program.calls
    turns_s = windows * (scenario.confirm_s + scenario.tick_s + 4 * scenario.latency_s + 0.3)
    retries_s = program.rows * scenario.nacks * 40
    rates = [fault.rate for fault in scenario.faults if fault.kind == "slow"]
    slow_s = 4 * program.rows * (program.body + 400) / min(rates) if rates else 0.0
    idle_s = 20 * program.calls * program.idle_s
    repeats = 2 + len(scenario.faults)
    # After a close, or a second loss, the open rows are sent one by one.
    turns_s += min(program.rows, given.get("max_in_flight", 1000)) * (
        scenario.confirm_s + scenario.tick_s + 4 * scenario.latency_s + 0.3
    )
    total: float = outage_s * repeats + faults_s + blocked_s + (turns_s + slow_s) * repeats
    return total + retries_s + idle_s + 60


def simulate(scenario: Scenario) -> Outcome:
    """Run a scenario, and check the promises of the publisher."""
    world = World(scenario.seed)
    world.ends_at = world.now + bound_s(scenario)
    broker = Broker(world, scenario)
    network = Network(world, broker, scenario)
    log, outcome, began = Log(), Outcome(scenario), world.now
    try:
        with simulated(network):
            publish(network, log)
    except EndlessRunError as cause:
        outcome.faults.append(("hang", str(cause)))
        return outcome
    except Exception:  # noqa: BLE001  # whatever escapes is a finding
        outcome.faults.append(("crash", traceback.format_exc()))
        return outcome
    outcome.seconds, outcome.connections = world.now - began, network.attempts
    outcome.carried = next(((line.up.carried, line.down.carried) for line in network.lines), (0, 0))
    world.ends_at = math.inf
    world.finish()
    outcome.errors = [str(error) for error in log.errors]
    outcome.report = sum(log.reports, PublishReport())
    answers = Answers.heard_of(broker)
    outcome.verdict = _verdict(broker, log, outcome.report, answers)
    outcome.faults = list(_wrong(outcome, broker, network, log, answers))
    return outcome


@dataclass(frozen=True)
class Answers:
    """The rows of the answers that the publisher has read.

    Attributes:
        returned: rows that were returned and acked.
        refused: rows that were nacked.
        acks: acks of stored rows; a row that was sent twice may have two.
    """

    stored: set[int]
    returned: set[int]
    refused: set[int]
    acks: int

    @classmethod
    def heard_of(cls, broker: Broker) -> Answers:
        """Return the answers of all connections of a broker."""
        by_kind: dict[str, list[int]] = {"stored": [], "returned": [], "refused": []}
        for conversation in broker.conversations:
            for answer in conversation.heard():
                by_kind[answer.kind].append(answer.id)
        stored, returned, refused = by_kind.values()
        return cls(set(stored), set(returned), set(refused), len(stored))


def _verdict(broker: Broker, log: Log, report: PublishReport, answers: Answers) -> Verdict:
    scenario = broker.scenario
    # A report has numbers, and the ledger knows rows: those that it holds for answered are the confirmed ones,
    # unless their only answer was another one.
    answered = log.entered - log.open - log.closed
    keeps_order = scenario.publisher.get("keep_order", False)
    return check(
        History(
            attempted=[Attempt(id_, scenario.program.row_keys[id_]) for id_ in log.handed_over],
            acked=answered - ((answers.returned | answers.refused) - answers.stored),
            found=broker.found,
            queue_for=queue_for,
            # A refused row is overtaken; with keep_order only where a connection was lost as well.
            ordered=not broker.refused or (keeps_order and not report.reconnects),
            republished=report.republished + report.retried,
        )
    )


def _wrong(
    outcome: Outcome, broker: Broker, network: Network, log: Log, answers: Answers
) -> Iterator[Finding]:
    scenario, report, verdict = outcome.scenario, outcome.report, outcome.verdict
    assert verdict is not None
    for kind in verdict.faults:
        yield kind, str(verdict)
    if report.confirmed > verdict.ok:  # a return or a refusal that it takes for a confirm
        yield "lost", f"{verdict.ok} rows are there: {report}"
    for words in broker.complaints:
        yield "protocol", words
    if network.memory.excess:
        yield "memory", network.memory.excess
    yield from (("count", words) for words in _miscounts(report, broker, network, log, answers))
    yield from (("rows failed", words) for words in _misplaced(broker, log))
    stored = len({id_ for ids in broker.found.values() for id_ in ids})
    # A queue may have a row that another one refused, or over which the broker failed inside.
    may_be = report.confirmed + report.unknown + min(report.nacked, broker.refused)
    if stored > may_be and not any(fault.code >= 500 for fault in broker.poison.values()):
        yield "not in no queue", f"{stored} rows are in a queue: {report}"
    if scenario.must_complete:
        yield from _incomplete(outcome, broker, log)


def _incomplete(outcome: Outcome, broker: Broker, log: Log) -> Iterator[Finding]:
    """Yield what is missing in a run without a fault for which the publisher may give up."""
    scenario, report = outcome.scenario, outcome.report
    poison = broker.poison.keys() & log.entered
    if log.closed != poison:
        yield "blamed", f"{sorted(log.closed)} for {sorted(poison)}"
    named = {sample.key for sample in report.samples if sample.code >= 400}
    if (
        not named >= {scenario.program.row_keys[id_] for id_ in poison}
        and scenario.publisher.get("routing") != "client"
    ):
        yield "not named", f"{named} for {sorted(poison)}"
    if log.connecting or any(error.reply_code is None for error in log.errors):
        yield (
            "gave up",
            f"nothing happened for which it may: {outcome.errors or 'it has never connected'}",
        )
    elif not log.left_out and report.confirmed != scenario.program.rows - len(poison):
        yield "gave up", f"{report.confirmed} of {scenario.program.rows} rows are confirmed"
    yield from missed_heartbeats(broker)


def missed_heartbeats(broker: Broker) -> Iterator[Finding]:
    """Yield what is wrong if the broker closed sound connections."""
    if broker.hung_up and not any(fault.kind == "frozen" for fault in broker.scenario.faults):
        yield "heartbeat", f"the broker missed the heartbeats of {broker.hung_up} connections"


def _miscounts(
    report: PublishReport, broker: Broker, network: Network, log: Log, answers: Answers
) -> Iterator[str]:
    """Yield the wrong counts of the reports."""
    counts = (report.confirmed, report.returned, report.nacked, report.unknown)
    if min(counts) < 0 or sum(counts) != report.rows:
        yield f"they do not add up: {report}"
    rows = len(log.handed_over)
    if report.rows > rows or (report.rows < rows and not (log.left_out or log.errors)):
        yield f"{rows} rows were handed over: {report}"
    unheard = log.entered - log.open - log.closed - answers.stored - answers.returned - answers.refused
    if unheard:
        yield f"rows are taken for answered that never were: {sorted(unheard)[:5]}"
    stored = answers.acks
    if report.confirmed > stored:
        yield f"the publisher has heard {stored} confirms: {report}"
    if not broker.returned and not log.left_out and report.confirmed != stored:
        yield f"the publisher has heard {stored} confirms, and not one return: {report}"
    if report.returned > broker.returned:
        yield f"the broker returned {broker.returned}: {report}"
    if report.nacked + report.retried > broker.refused + broker.closed:
        yield f"the broker refused {broker.refused}, and closed {broker.closed} times: {report}"
    if report.reconnects > max(0, len(network.lines) - 1):
        yield f"{len(network.lines)} connections were opened: {report}"


def _misplaced(broker: Broker, log: Log) -> Iterator[str]:
    """Yield the reports that do not name exactly the rows that are not confirmed; the last one is not final."""
    found = {id_ for ids in broker.found.values() for id_ in ids}
    ids = sorted(log.entered)
    for report in log.reports[:-1]:
        own, ids = ids[: report.rows], ids[report.rows :]
        if len(report.rows_failed) != report.rows - report.confirmed:
            yield f"{len(report.rows_failed)} of {report}"
        named = {own[row] for row in report.rows_failed}
        if missing := set(own) - named - found:
            yield f"{sorted(missing)[:5]} are confirmed, and in no queue: {report}"


# -- the program


class ObjectionError(Exception):
    """The error that `progress` raises in some scenarios."""


@dataclass
class Log:
    """The calls of a program, and their results.

    Attributes:
        handed_over: the rows, in order.
        entered: those of them that the publisher took on.
        open: those of them that it takes for unanswered at the end.
        closed: those of them that it blames for a close by the broker.
        reports: the last report of each stretch, from one flush or error to the next.
        errors: the errors of calls.
        left_out: whether a call was interrupted or objected to, so that not all of its rows were handed over.
        connecting: whether the first connection was never there.
    """

    handed_over: list[int] = field(default_factory=list)
    entered: set[int] = field(default_factory=set)
    open: set[int] = field(default_factory=set)
    closed: set[int] = field(default_factory=set)
    reports: list[PublishReport] = field(default_factory=list)
    errors: list[RabbitChxError] = field(default_factory=list)
    left_out: bool = False
    connecting: bool = True


class _Progress:
    """Counts its calls, and raises in some, up to a limit for each call of the publisher."""

    def __init__(self, every: int) -> None:
        self._every = every
        self._calls = 0

    def __call__(self, _: PublishReport) -> None:
        self._calls += 1
        if self._every and self._calls % self._every == 0 and self._calls <= 4 * self._every:
            raise ObjectionError


def _arguments(network: Network) -> dict[str, Any]:
    scenario = network.scenario
    return {
        "url": [ConnectionSettings(host=f"node{number}") for number in range(scenario.targets)],
        "exchange": "x",
        "progress": _Progress(scenario.program.objections),
        "ring": (lambda: RING) if scenario.publisher.get("routing") == "client" else None,
        **scenario.publisher,
    }


def _columns(program: Program, ids: Sequence[int]) -> dict[str, Any]:
    columns: dict[str, Any] = {
        "keys": [program.row_keys[id_] for id_ in ids],
        "bodies": [program.row_bodies[id_] for id_ in ids],
    }
    if program.columns:
        columns["properties"] = {"message_id": [str(id_) for id_ in ids]}
        columns["exchanges"] = [program.exchange_of(id_) for id_ in ids]
    return columns


def _observe(publisher: Publisher, network: Network, log: Log) -> None:
    """Keep every final report and all accepted rows, and watch the memory."""
    log.connecting = False
    network.memory.publisher = publisher
    delivery = publisher._delivery
    finish, submit = delivery.finish, delivery.submit

    def finished() -> Tally:
        tally = finish()
        assert tally.final is not None
        log.reports.append(tally.final)
        return tally

    def watched(rows: Rows) -> Steps:
        before = delivery.tally.rows
        try:
            yield from submit(rows)
        finally:
            if delivery.tally.rows > before:
                log.entered.update(_ids(rows))

    refuse = delivery._refuse_closing

    def refused(cause: RabbitChxError, alone: RowBatch) -> None:
        log.closed.update(_ids(alone.rows))
        refuse(cause, alone)

    delivery._refuse_closing = refused  # type: ignore[method-assign]
    delivery.finish, delivery.submit = finished, watched  # type: ignore[method-assign]


def _take_leave(publisher: Publisher, log: Log) -> None:
    """Log the rows that are open at the end."""
    log.reports.append(publisher.report)
    delivery = publisher._delivery
    for sent in (*delivery._unsent, *delivery._refused._waiting):
        log.open.update(_ids(sent.rows))
    if delivery._connection is not None:
        for sent, places in delivery._connection.session.ledger.find_unanswered():
            log.open.update(_ids(sent.rows.pick(places)))


def _ids(rows: Rows) -> Iterator[int]:
    return (int(body.partition(b" ")[0]) for body in rows.bodies)


def publish(network: Network, log: Log) -> None:
    """Run the program of the scenario."""
    program = network.scenario.program
    cuts = sorted(network.world.chance.randint(0, program.rows) for _ in range(program.calls - 1))
    calls = [range(*pair) for pair in zip([0, *cuts], [*cuts, program.rows], strict=True)]
    try:
        _publish(network, log, calls)
    except BaseException:
        # A publisher warns if it is collected without having been closed, and here the run was ended, not its program.
        if network.memory.publisher is not None:
            network.memory.publisher._delivery.failure = ConnectionLostError("the run was ended")
        raise


def _publish(network: Network, log: Log, calls: list[range]) -> None:
    program = network.scenario.program
    if program.interrupt_at is not None:
        network.interrupt_at = network.world.now + program.interrupt_at
    try:
        publisher = Publisher(**_arguments(network))
    except (RabbitChxError, KeyboardInterrupt):
        return
    _observe(publisher, network, log)
    try:
        for ids in calls:
            network.be_elsewhere(network.world.chance.expovariate(1) * program.idle_s)
            log.handed_over += ids
            if not _call(publisher, network, log, ids):
                break
        while not _flushed(publisher, log):
            pass
    except KeyboardInterrupt:
        log.left_out = True
    network.interrupt_at = None
    _take_leave(publisher, log)
    publisher.close()


def _call(publisher: Publisher, network: Network, log: Log, ids: range) -> bool:
    """Submit rows; return True if the program continues."""
    columns = _columns(network.scenario.program, ids)
    try:
        if network.world.chance.random() < 0.3:
            publisher.publish_many(**columns)
        else:
            publisher.send(**columns)
    except PublishError as cause:
        log.errors.append(cause)
        return publisher._delivery.failure is None
    except ObjectionError:
        log.left_out = True
    return True


def _flushed(publisher: Publisher, log: Log) -> bool:
    try:
        publisher.flush()
    except PublishError as cause:
        log.errors.append(cause)
    except ObjectionError:
        return False
    return True
