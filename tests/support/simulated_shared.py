"""A simulated run of `SharedPublisher`: threads submit single messages while anything goes wrong; each outcome is compared with the broker's.

The publisher's thread is the thread of the run. The threads that submit are events of its world: they happen while it waits.
"""

from __future__ import annotations

import math
import random
import threading
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import pytest
from delivery_checker import Attempt, History, check
from simulated_broker import RING, Broker, queue_for
from simulated_network import Network, SimulatedWaker, simulated
from simulated_run import Answers, Finding, Findings, bound_s, missed_heartbeats
from simulated_scenarios import Scenario, scenario_of
from simulated_world import EndlessRunError, World

from rabbit_chx.amqp import ConnectionSettings
from rabbit_chx.errors import (
    BrokerRefusedError,
    BufferFullError,
    ChannelClosedError,
    NackedError,
    UnknownOutcomeError,
    UnreachableError,
    UnroutableError,
)
from rabbit_chx.publishing import SharedPublisher, SharedStats, shared_publisher, worker

_NOT_SHARED = {"keep_order", "max_reconnects", "retry_first_connection", "on_unroutable"}
_CLOSES_BY_CHANCE = {"connection.close", "channel.close"}
_LATE_S = 0.6  # one poll, and one short attempt to connect


@dataclass
class Submission:
    """A message that the publisher took on.

    Attributes:
        since: the time of its submission.
        done: the time of its outcome.
    """

    id: int
    since: float
    future: Future[None]
    done: float = math.inf

    @property
    def error(self) -> BaseException | None:
        """Its error."""
        return self.future.exception(0)


@dataclass
class Course(Findings):
    """What happened in a run.

    Attributes:
        submissions: in order.
        most: the most messages that were open.
    """

    submissions: list[Submission] = field(default_factory=list)
    stats: SharedStats = field(default_factory=SharedStats)
    most: int = 0

    def __str__(self) -> str:
        return f"{super().__str__()}\n{self.stats}"


def shared_scenario(seed: int, fewest: int = 20, most: int = 400) -> Scenario:
    """Return the scenario of a seed, for a shared publisher."""
    scenario = scenario_of(seed, fewest, most)
    chance = random.Random(seed)  # noqa: S311  # the same scenario each time
    given = {name: value for name, value in scenario.publisher.items() if name not in _NOT_SHARED}
    given["nack_retries"] = chance.choice((0, 0, 3))
    given["linger_s"] = chance.choice((0.0, 0.0, 0.01))
    program = replace(scenario.program, tasks=chance.choice((1, 3, 8)), interrupt_at=None, objections=0)
    return replace(scenario, program=program, publisher=given)


def simulate_shared(scenario: Scenario) -> Course:
    """Run a scenario, and compare each outcome with what the broker did."""
    world = World(scenario.seed)
    limits_s = _limits_s(scenario)
    world.ends_at = (
        world.now + bound_s(scenario) + 3 * limits_s + scenario.program.rows * (scenario.program.idle_s + 1)
    )
    broker = Broker(world, scenario)
    network = Network(world, broker, scenario)
    course = Course(scenario)
    try:
        with simulated(network), _without_threads(network, course):
            publisher = SharedPublisher(
                [ConnectionSettings(host=f"node{number}") for number in range(scenario.targets)],
                "x",
                ring=RING if scenario.publisher.get("routing") == "client" else None,
                block_s=0.0,
                **scenario.publisher,
            )
            _Threads(publisher, network, course).start()
            publisher._worker.run()
            course.stats = publisher.stats()
    except EndlessRunError as cause:
        publisher._outbox.closed = "the run was ended"
        course.faults.append(("hang", str(cause)))
        return course
    course.connections = len(network.lines)
    world.ends_at = math.inf
    world.finish()
    course.faults += _findings(course, broker, limits_s)
    return course


def _limits_s(scenario: Scenario) -> float:
    given = scenario.publisher
    return float(given["reconnect_timeout_s"] + given["confirm_timeout_s"] + given["blocked_timeout_s"])


@contextmanager
def _without_threads(network: Network, course: Course) -> Iterator[None]:
    """Let the run itself be the publisher's thread."""

    class Event(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            network.world.sleep(timeout or 0.0)
            return self.is_set()

    me = object()
    threads = SimpleNamespace(
        Event=Event,
        Lock=threading.Lock,
        Thread=lambda **_: SimpleNamespace(start=lambda: None),
        current_thread=lambda: me,
        TIMEOUT_MAX=threading.TIMEOUT_MAX,
    )
    log = SimpleNamespace(
        warning=lambda *_: None,
        exception=lambda *_: course.errors.append(traceback.format_exc()),
    )
    with pytest.MonkeyPatch.context() as patch:
        for module in (shared_publisher, worker):
            patch.setattr(module, "threading", threads)
            patch.setattr(module, "time", network.world)
            patch.setattr(module, "jitter", network.world.chance.random)
        patch.setattr(worker, "Waker", lambda: SimulatedWaker(network.world))
        patch.setattr(worker, "_log", log)
        patch.setattr(worker, "_WORKERS", set())
        yield


class _Threads:
    """The threads that submit: each its own rows, in order. Every second one waits for each outcome."""

    def __init__(self, publisher: SharedPublisher, network: Network, course: Course) -> None:
        self._publisher = publisher
        self._network = network
        self._course = course
        program = network.scenario.program
        self._left = [list(range(task, program.rows, program.tasks))[::-1] for task in range(program.tasks)]

    def start(self) -> None:
        for task in range(len(self._left)):
            self._later(task)

    def _later(self, task: int, seconds: float | None = None) -> None:
        world, program = self._network.world, self._network.scenario.program
        pause_s = (
            world.chance.expovariate(1) * (program.idle_s * program.calls / program.rows)
            if seconds is None
            else seconds
        )
        world.after(pause_s, lambda: self._submit(task))

    def _submit(self, task: int) -> None:
        left, world = self._left[task], self._network.world
        if not left:
            self._end()
            return
        program = self._network.scenario.program
        id_ = left[-1]
        columns: dict[str, Any] = (
            {"exchange": program.exchange_of(id_), "message_id": str(id_)} if program.columns else {}
        )
        try:
            future = self._publisher.submit(program.row_keys[id_], program.row_bodies[id_], **columns)
        except BufferFullError:
            self._later(task, 0.05)
            return
        left.pop()
        submission = Submission(id_, world.now, future)
        self._course.submissions.append(submission)
        outbox = self._publisher._outbox
        self._course.most = max(self._course.most, len(outbox._open))

        def done(_: Future[None]) -> None:
            submission.done = world.now
            if task % 2:
                self._later(task)

        future.add_done_callback(done)
        if not task % 2:
            self._later(task)

    def _end(self) -> None:
        if not any(self._left) and len(self._course.submissions) == self._network.scenario.program.rows:
            self._publisher._worker.begin_to_close()


def _findings(course: Course, broker: Broker, limits_s: float) -> Iterator[Finding]:
    scenario, stats = course.scenario, course.stats
    yield from (("crash", words) for words in course.errors)
    yield from (("protocol", words) for words in broker.complaints)
    open_ = [one.id for one in course.submissions if not one.future.done()]
    if open_ or len(course.submissions) != scenario.program.rows:
        yield "hang", f"{len(course.submissions)} submitted, without an outcome: {open_[:5]}"
        return
    late = [one.id for one in course.submissions if one.done > one.since + limits_s + _LATE_S]
    if late:
        yield "late", f"{late[:5]} of {limits_s} s"
    confirmed = [one.id for one in course.submissions if one.error is None]
    # A refused row is overtaken; without retries only where its refusal was lost with a connection.
    ordered = not broker.refused or not (scenario.publisher["nack_retries"] or stats.reconnects)
    given = set(confirmed) if ordered else set()
    course.verdict = check(
        History(
            attempted=[Attempt(one.id, scenario.program.row_keys[one.id]) for one in course.submissions],
            acked=set(confirmed),
            found=broker.found,
            queue_for=queue_for,
            republished=stats.republished,
        )
    )
    in_order = check(
        History(
            attempted=[
                Attempt(one.id, scenario.program.row_keys[one.id])
                for one in course.submissions
                if one.id in given
            ],
            acked=(),
            found={queue: [id_ for id_ in ids if id_ in given] for queue, ids in broker.found.items()},
            ordered=True,
        )
    )
    yield from ((kind, str(course.verdict)) for kind in course.verdict.faults)
    yield from ((kind, str(in_order)) for kind in in_order.faults)
    yield from _wrong_errors(course, broker)
    yield from (("count", words) for words in _miscounts(course, len(confirmed)))
    if course.most > scenario.publisher["max_in_flight"]:
        yield "memory", f"{course.most} messages"
    if scenario.must_complete:
        wrong = [one for one in course.submissions if one.error is not None and not _may_fail(one, broker)]
        if wrong:
            yield "gave up", f"{wrong[0].id}: {wrong[0].error!r}"
        yield from missed_heartbeats(broker)


def _may_fail(one: Submission, broker: Broker) -> bool:
    nacked = (one.error, one.error and one.error.__cause__)
    return one.id in broker.poison or any(isinstance(error, NackedError) for error in nacked)


def _wrong_errors(course: Course, broker: Broker) -> Iterator[Finding]:
    """Yield errors that are not those of their message."""
    found = {id_ for ids in broker.found.values() for id_ in ids}
    answers = Answers.heard_of(broker)
    lies = any(
        fault.kind in _CLOSES_BY_CHANCE and fault.code != 320 for fault in course.scenario.faults
    )  # not over a row
    refuses = any(fault.kind in ("missing", "forbidden") for fault in course.scenario.faults)
    checks: list[tuple[type, Callable[[int], bool]]] = [
        (UnroutableError, lambda id_: id_ in answers.returned and id_ not in found),
        (NackedError, answers.refused.__contains__),
        (BrokerRefusedError, lambda id_: lies or refuses or id_ in broker.poison),
        (UnknownOutcomeError, lambda _: True),
        (UnreachableError, lambda id_: id_ not in found),
    ]
    for one in course.submissions:
        error = one.error
        if error is not None and one.id in found and excludes_a_queue(error):
            yield "not in no queue", f"{one.id}: {error!r}"
        if error is None:
            if one.id in broker.poison:
                yield "blamed", f"{one.id} is confirmed"
            continue
        is_right = next((is_right for kind, is_right in checks if isinstance(error, kind)), None)
        if is_right is None or not is_right(one.id):
            denied = any(fault.kind == "denied" for fault in course.scenario.faults)
            if denied and isinstance(error, BrokerRefusedError) and one.id not in found:
                continue  # the login
            yield "blamed", f"{one.id}: {error!r}"


def excludes_a_queue(error: BaseException) -> bool:
    """Return whether an error says that no queue has its message."""
    if isinstance(error, ChannelClosedError):
        return (error.reply_code or 0) < 500
    return not isinstance(error, (NackedError, UnknownOutcomeError))


def _miscounts(course: Course, confirmed: int) -> Iterator[str]:
    stats = course.stats
    outcomes = stats.confirmed + stats.returned + stats.nacked + stats.failed
    if (
        stats.in_flight
        or stats.in_flight_bytes
        or outcomes != stats.submitted
        or stats.confirmed != confirmed
    ):
        yield f"{confirmed} confirmed: {stats}"
    unknown = sum(isinstance(one.error, UnknownOutcomeError) for one in course.submissions)
    if unknown != stats.unknown or stats.submitted != len(course.submissions):
        yield f"{unknown} unknown: {stats}"
    if stats.reconnects > max(0, course.connections - 1):
        yield f"{course.connections} connections: {stats}"
