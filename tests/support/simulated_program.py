"""The programs that publish in a simulated run: with `Publisher` and with `AsyncPublisher`, which are the real ones."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from simulated_broker import RING
from simulated_client import Network, SimulatedLoop
from simulated_faults import Program
from simulated_world import EndlessRunError

from rabbit_chx.amqp import ConnectionSettings
from rabbit_chx.errors import PublishError, RabbitChxError
from rabbit_chx.publishing import AsyncPublisher, Publisher
from rabbit_chx.publishing.delivery import Steps
from rabbit_chx.publishing.encoder import Rows
from rabbit_chx.publishing.publish_report import PublishReport, Tally


class ObjectionError(Exception):
    """What `progress` raises when the scenario says so."""


@dataclass
class Log:
    """What a program did, and what it was told.

    Attributes:
        handed_over: the rows, in order.
        entered: those of them that the publisher took on.
        open: those of them that it takes for unanswered at the end.
        reports: the last report of each stretch, from one flush or error to the next.
        errors: the errors of calls.
        left_out: whether a call was cancelled, interrupted or objected to, so that not all of its rows were handed over.
        swallowed: cancelled calls that did not end by it.
        connecting: whether the first connection was never there.
    """

    handed_over: list[int] = field(default_factory=list)
    entered: set[int] = field(default_factory=set)
    open: set[int] = field(default_factory=set)
    reports: list[PublishReport] = field(default_factory=list)
    errors: list[RabbitChxError] = field(default_factory=list)
    left_out: bool = False
    swallowed: int = 0
    connecting: bool = True


class _Progress:
    """Counts its calls, and objects to some, but not for ever: each new call of the publisher is patient again."""

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


def _observe(publisher: Publisher | AsyncPublisher, network: Network, log: Log) -> None:
    """Keep every final report and all rows that it takes on, and watch the memory while it works."""
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

    delivery.finish, delivery.submit = finished, watched  # type: ignore[method-assign]


def _take_leave(publisher: Publisher | AsyncPublisher, log: Log) -> None:
    """Ask at the end what is still open."""
    log.reports.append(publisher.report)
    delivery = publisher._delivery
    for sent in (*delivery._unsent, *delivery._refused._waiting):
        log.open.update(_ids(sent.rows))
    if delivery._connection is not None:
        for sent, places in delivery._connection.session.ledger.unanswered():
            log.open.update(_ids(sent.rows.pick(places)))


def _ids(rows: Rows) -> Iterator[int]:
    return (int(body.partition(b" ")[0]) for body in rows.bodies)


def publish(network: Network, log: Log) -> None:
    """Run the program of the scenario."""
    program = network.scenario.program
    cuts = sorted(network.world.chance.randint(0, program.rows) for _ in range(program.calls - 1))
    calls = [range(*pair) for pair in zip([0, *cuts], [*cuts, program.rows], strict=True)]
    if program.path == "Publisher":
        _publish(network, log, calls)
        return
    loop = SimulatedLoop(network)
    try:
        loop.run_until_complete(_publish_async(network, log, calls))
    except EndlessRunError:
        loop.cancel_all()
        raise
    finally:
        loop.close()


# -- blocking


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
    """Hand over rows; whether the program goes on."""
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


# -- asyncio


async def _publish_async(network: Network, log: Log, calls: list[range]) -> None:
    program = network.scenario.program
    publisher = AsyncPublisher(**_arguments(network))
    try:
        await publisher.__aenter__()
    except RabbitChxError:
        return
    _observe(publisher, network, log)
    await asyncio.gather(*(_task(publisher, network, log, calls, task) for task in range(program.tasks)))
    flushed = False
    while not flushed:
        try:
            await publisher.flush()
        except PublishError as cause:
            log.errors.append(cause)
        except ObjectionError:
            continue
        flushed = True
    _take_leave(publisher, log)
    await publisher.close()


async def _task(publisher: AsyncPublisher, network: Network, log: Log, calls: list[range], task: int) -> None:
    program, chance = network.scenario.program, network.world.chance
    for number, call in enumerate(calls):
        await asyncio.sleep(chance.expovariate(1) * program.idle_s)
        ids = [id_ for id_ in call if id_ % program.tasks == task]
        log.handed_over += ids
        columns = _columns(program, ids)
        doing = publisher.publish_many if chance.random() < 0.3 else publisher.send
        running = asyncio.create_task(doing(**columns))
        if program.cancel_every and number % program.cancel_every == program.cancel_every - 1:
            await _cancel(running, network, log)
        try:
            await running
        except PublishError as cause:
            log.errors.append(cause)
            if publisher._delivery.failure is not None:
                return
        except ObjectionError:
            log.left_out = True
        except asyncio.CancelledError:
            log.left_out = True
            current = asyncio.current_task()
            if current is not None and current.cancelling():
                raise


async def _cancel(running: asyncio.Task[Any], network: Network, log: Log) -> None:
    """Cancel a call after a while; it ends at once."""
    chance = network.world.chance
    await asyncio.sleep(chance.random() * chance.choice((4 * network.scenario.confirm_s, 3.0)))
    if running.cancel():
        asked = network.world.now
        await asyncio.wait([running])
        if network.world.now - asked > 1 or not (running.cancelled() or running.exception()):
            log.swallowed += 1
