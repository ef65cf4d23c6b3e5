"""A command that is tried: messages pass through a copy of a topology while it runs."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import time
from collections.abc import Awaitable, Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from rabbit_chx.amqp import ConnectionSettings
from rabbit_chx.broker.management import Management
from rabbit_chx.broker.pika_connection import PikaConnection
from rabbit_chx.consuming import ConsumerGroup
from rabbit_chx.consuming.queue_consumers import HandleMessage, QueueConsumers
from rabbit_chx.errors import BrokerTimeoutError, NotFoundError, PublishError, RabbitChxError
from rabbit_chx.publishing import AsyncPublisher, PublishReport
from rabbit_chx.testing.drill_verdict import DrillVerdict, SentBatch, drill_verdict
from rabbit_chx.topology import QueueDefinition, Topology
from rabbit_chx.topology.live_broker import try_count
from rabbit_chx.topology.reading import LiveExchange

if TYPE_CHECKING:
    from rabbit_chx.consuming.channels import ConsumingConnection
    from rabbit_chx.consuming.message import GroupMessage, ShardMessage

_TICK_S = 0.02
#: A gap that is as short is met by some message, if there are so many.
_LEAST_PAUSE_S = 0.002
_LOOK_S = 0.25
_LINE_EVERY_S = 5.0
_GOODBYE_S = 5.0
_AGAIN_S = 0.2
#: How many messages a consumer is sent ahead: one that takes time for each, and one that does not.
_BUSY, _IDLE = 10, 100
#: The drill ends when nothing has come for so long: where all is there, and where messages are missing.
_QUIET_S, _PATIENCE_S, _LONGEST_S = 0.5, 3.0, 300.0
#: Where consumed queues are not empty, it waits for longer.
_STALLED_S = 30.0
_READY_S = 60.0


def copy_of(topology: Topology) -> Topology:
    """Return what is declared in the scratch vhost: all of a topology, whoever declares it elsewhere.

    Args:
        topology: what there is.
    """
    missing = [QueueDefinition(place) for place in topology.unlisted if isinstance(place, str)]
    return replace(
        topology,
        cluster=None,
        max_share_moved=None,
        exchanges=tuple(
            replace(exchange, owner="ours", max_share_moved=None) for exchange in topology.exchanges
        ),
        queues=(*(replace(queue, owner="ours", exclusive=False) for queue in topology.queues), *missing),
        bindings=tuple(replace(binding, owner="ours") for binding in topology.bindings),
        policies=tuple(replace(policy, owner="ours") for policy in topology.policies),
    )


# -- the command


@dataclass(slots=True)
class CommandRun:
    """A command, what is before and after it, and what became of it.

    Attributes:
        words: the command.
        environment: its environment.
        seconds: how long there is traffic before it and after it.
        timeout_s: how long it may take.
        began_s: when it began, in seconds from the beginning of the traffic.
        ended_s: when it ended.
        exit_code: its exit code; None where it was ended, because it took too long.
    """

    words: Sequence[str]
    environment: Mapping[str, str] = field(repr=False)
    seconds: float
    timeout_s: float
    began_s: float | None = None
    ended_s: float | None = None
    exit_code: int | None = None
    _origin: float = 0.0

    @property
    def now(self) -> float:
        """The seconds since the beginning of the traffic."""
        return time.monotonic() - self._origin

    def ticks(self, said: Callable[[str], None], status: Callable[[], str]) -> Generator[int]:
        """Run the command in its time, and yield the present second again and again until the traffic may end.

        Args:
            said: called with what happens, in words.
            status: returns how far the traffic is, in words.
        """
        self._origin = time.monotonic()
        line_at = _LINE_EVERY_S
        with closing(self._moments(said)) as moments:
            for second in moments:
                if self.now > line_at:
                    said(f"{self.now:.0f} s: {status()}")
                    line_at += _LINE_EVERY_S
                yield second

    def _moments(self, said: Callable[[str], None]) -> Generator[int]:
        yield 0
        while self.now < self.seconds:
            yield int(self.now)
        self.began_s = round(self.now, 3)
        said(f"COMMAND begins: {self.words[0]}")
        ending, limit_s = None, self.began_s + self.timeout_s
        with _running(self.words, self.environment) as process:
            while process.poll() is None:
                if self.now > limit_s:
                    ending = signal.SIGTERM if ending is None else signal.SIGKILL
                    os.killpg(process.pid, ending)
                    limit_s = self.now + _GOODBYE_S
                yield int(self.now)
        self.exit_code = process.returncode if ending is None else None
        self.ended_s = round(self.now, 3)
        took = f"after {self.ended_s - self.began_s:.1f} s"
        if ending is not None:
            said(f"COMMAND was ended {took}: it takes longer than --timeout allows")
        else:
            said(f"COMMAND ended with exit code {self.exit_code} {took}")
        while self.now < self.ended_s + self.seconds:
            yield int(self.now)


@contextmanager
def _running(words: Sequence[str], environment: Mapping[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    """Start a command, whose output goes to stderr; end it and what it started if it runs at the end of the block."""
    process = subprocess.Popen(  # noqa: S603  # it is the user's
        words, env=environment, stdin=subprocess.DEVNULL, stdout=2, stderr=2, start_new_session=True
    )
    try:
        yield process
    finally:
        while process.poll() is None:
            os.killpg(process.pid, signal.SIGTERM)
            try:
                process.wait(_GOODBYE_S)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


# -- the traffic


@dataclass(frozen=True, slots=True)
class DrillLoad:
    """The messages that are published.

    Attributes:
        exchange: the exchange that they are published to.
        keys: their keys, which take turns.
        properties: what the exchange hashes in place of the routing key: a property's name, and its value for each key.
        rate: messages per second.
        work_s: how long a consumer takes for a message, in seconds.
        group: whether the consumers are members of a ConsumerGroup.
        parks: the parking queues, which nobody consumes.
    """

    exchange: str
    keys: Sequence[str]
    properties: Mapping[str, Sequence[Any]]
    rate: float
    work_s: float = 0.0
    group: bool = False
    parks: frozenset[str] = frozenset()


@dataclass(slots=True)
class DrillRecord:
    """What was published and what came.

    Attributes:
        sent: how many messages were published.
        before: how many of them before the command began.
        batches: what was published, in order.
        arrivals: the number and the queue of each message that came, in order.
        left: the queues in which messages are left at the end, and how many.
    """

    sent: int = 0
    before: int = 0
    batches: list[SentBatch] = field(default_factory=list)
    arrivals: list[tuple[int, str]] = field(default_factory=list)
    left: dict[str, int] = field(default_factory=dict)
    _came: set[int] = field(default_factory=set)
    _last: float = 0.0

    def verdict(self, keys: Sequence[str]) -> DrillVerdict:
        """Return what became of the messages."""
        return drill_verdict(self.batches, self.arrivals, keys, self.before, sum(self.left.values()))

    def __str__(self) -> str:
        return f"{self.sent:,} messages published, {len(self._came):,} of them came"

    def take(self, work_s: float) -> Callable[[ShardMessage | GroupMessage], Awaitable[None]]:
        """Return what handles a message, in so many seconds."""

        async def handle(message: ShardMessage | GroupMessage) -> None:
            if work_s:
                await asyncio.sleep(work_s)
            if message.body.isdigit() and int(message.body) < self.sent:  # COMMAND may publish too
                self.arrivals.append((int(message.body), message.queue))
                self._came.add(int(message.body))
            self._last = time.monotonic()

        return handle

    async def publish(self, url: str, load: DrillLoad, run: CommandRun, ending: asyncio.Event) -> None:
        """Publish at the rate until the end, over a new connection after each error."""
        while not ending.is_set():
            with suppress(RabbitChxError):  # the counts tell of it
                async with AsyncPublisher(
                    url, load.exchange, on_unroutable="report", keep_order=True
                ) as publisher:
                    while not ending.is_set():
                        await self._publish_due(publisher, load, run)
                        await asyncio.sleep(max(1 / load.rate, _LEAST_PAUSE_S))
            await asyncio.sleep(0 if ending.is_set() else _AGAIN_S)

    async def _publish_due(self, publisher: AsyncPublisher, load: DrillLoad, run: CommandRun) -> None:
        second, numbers = int(run.now), range(self.sent, int(run.now * load.rate))
        at = [number % len(load.keys) for number in numbers]
        if not at:
            return
        properties = {name: [values[n] for n in at] for name, values in load.properties.items()}
        self.sent = numbers.stop
        report = PublishReport()
        try:
            report = await publisher.publish_many(
                [load.keys[n] for n in at], [str(number) for number in numbers], properties=properties
            )
        except PublishError as error:
            report = error.report
            raise
        finally:
            self.batches.append(SentBatch(second, numbers, report.confirmed, report.returned))

    async def all_came(self, work_s: float, is_empty: Callable[[], Awaitable[bool]]) -> None:
        """Wait until what was confirmed has come, and nothing more comes; or until nothing has come for some seconds.

        Args:
            work_s: how long a consumer takes for a message.
            is_empty: returns whether the consumed queues are empty; else it waits for longer.
        """
        confirmed = sum(batch.confirmed for batch in self.batches)
        self._last = began = time.monotonic()
        while (now := time.monotonic()) < began + _LONGEST_S:
            patience_s = _QUIET_S if len(self._came) >= confirmed else _PATIENCE_S
            if now > self._last + patience_s + work_s:
                if now > self._last + _STALLED_S + work_s or await is_empty():
                    return
                await asyncio.sleep(_LOOK_S)
            await asyncio.sleep(_TICK_S)


class _Queues:
    """The queues of the scratch vhost that are consumed."""

    def __init__(self, management: Management, vhost: str, parks: frozenset[str]) -> None:
        self._management = management
        self._vhost = vhost
        self._parks = parks
        self.types: dict[str, str] = {}

    async def look(self) -> dict[str, str]:
        """Return the types of the queues by their names, those that a connection has for itself apart."""
        with suppress(RabbitChxError):  # it may be away for a moment
            self.types = await asyncio.to_thread(self.listed)
        return {name: type_ for name, type_ in self.types.items() if name not in self._parks}

    def listed(self) -> dict[str, str]:
        """Return the types of all queues by their names, as the management API lists them now."""
        listed = self._management.request("GET", "queues", self._vhost)
        return {queue["name"]: queue.get("type", "classic") for queue in listed if not queue.get("exclusive")}


class _PlainReaders(QueueConsumers):
    """A consumer of each queue, from the moment on at which it is there."""

    def __init__(self, url: str, exchange: str, queues: _Queues, prefetch: int) -> None:
        super().__init__(url, exchange, prefetch=prefetch, look_every_s=_LOOK_S)
        self._of = queues
        self.ready = asyncio.Event()

    async def _look(self, connection: ConsumingConnection) -> Mapping[str, str]:  # noqa: ARG002  # asks another API
        return {queue: queue for queue in await self._of.look()}

    def _arguments(self, queue: str) -> dict[str, Any] | None:
        return {"x-stream-offset": "first"} if self._of.types[queue] == "stream" else None

    async def _looked(self, connection: ConsumingConnection) -> None:  # noqa: ARG002  # as above
        self.ready.set()


class _GroupReaders:
    """A member of a group for each queue, so that one whose queue is deleted does not end the others."""

    def __init__(self, url: str, queues: _Queues) -> None:
        self._url = url
        self._of = queues
        self._stop = asyncio.Event()
        self.ready = asyncio.Event()

    async def run(self, handle: HandleMessage) -> None:
        """Consume until `stop` is called."""
        members: dict[str, asyncio.Task[None]] = {}
        async with asyncio.TaskGroup() as tasks:
            while not self._stop.is_set():
                for queue in await self._of.look():
                    if queue not in members or members[queue].done():
                        members[queue] = tasks.create_task(self._member(queue, handle))
                self.ready.set()
                await asyncio.sleep(_LOOK_S)

    async def _member(self, queue: str, handle: Any) -> None:  # noqa: ANN401  # of messages of a group
        with suppress(NotFoundError):  # COMMAND has deleted it
            async with ConsumerGroup(self._url, [queue], member=f"drill {queue}", journal=None) as group:
                running = asyncio.create_task(group.run(handle))
                stopping = asyncio.create_task(self._stop.wait())
                await asyncio.wait({running, stopping}, return_when=asyncio.FIRST_COMPLETED)
                stopping.cancel()
                group.stop()
                await running

    def stop(self) -> None:
        """Let `run` return."""
        self._stop.set()


def _first_of(error: BaseException) -> BaseException:
    return _first_of(error.exceptions[0]) if isinstance(error, BaseExceptionGroup) else error


async def drilled(
    url: str, management: Management, load: DrillLoad, run: CommandRun, said: Callable[[str], None]
) -> DrillRecord:
    """Publish to the copy and consume it while a command runs, and return what became of the messages.

    Args:
        url: the AMQP URI, with the scratch vhost.
        management: the broker's HTTP API.
        load: what to publish.
        run: the command.
        said: called with what happens, in words.

    Raises:
        RabbitChxError: the queues cannot be consumed.
    """
    settings, record, ending = ConnectionSettings.from_uri(url), DrillRecord(), asyncio.Event()
    queues = _Queues(management, settings.vhost, load.parks)
    readers: _GroupReaders | _PlainReaders = _GroupReaders(url, queues)
    if not load.group:
        readers = _PlainReaders(url, load.exchange, queues, _BUSY if load.work_s else _IDLE)

    async def is_empty() -> bool:
        with suppress(RabbitChxError):  # it may be away for a moment
            return not (await asyncio.to_thread(_left, settings, queues)).keys() - load.parks
        return False

    try:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(readers.run(record.take(load.work_s)))
            try:
                await asyncio.wait_for(readers.ready.wait(), _READY_S)
            except TimeoutError:
                raise BrokerTimeoutError(
                    f"the queues of the copy are not consumed after {_READY_S:g} s: check that the broker answers over AMQP"
                ) from None
            with closing(run.ticks(said, lambda: str(record))) as ticks:
                next(ticks)
                publishing = tasks.create_task(record.publish(url, load, run, ending))
                for _ in ticks:
                    if run.began_s is None:
                        record.before = record.sent
                    await asyncio.sleep(_TICK_S)
            ending.set()
            await publishing
            await record.all_came(load.work_s, is_empty)
            readers.stop()
    except BaseExceptionGroup as errors:
        raise _first_of(errors) from None
    try:
        record.left = await asyncio.to_thread(_left, settings, queues)
    except RabbitChxError as error:
        said(f"what is left in queues is not known, and counts as lost: {error}")
    return record


def _left(settings: ConnectionSettings, queues: _Queues) -> dict[str, int]:
    with closing(PikaConnection(settings)) as connection:
        names = [name for name, type_ in queues.listed().items() if type_ != "stream"]
        counts = {name: try_count(connection, name) for name in names}
    return {name: found.messages for name, found in counts.items() if found is not None and found.messages}


def watched(
    settings: ConnectionSettings,
    management: Management,
    exchange: LiveExchange,
    run: CommandRun,
    said: Callable[[str], None],
) -> DrillVerdict:
    """Watch the real traffic of an exchange while a command runs, and return what became of the messages.

    An error does not end the command, which is at work on a real broker.

    Args:
        settings: the AMQP connection; its user must read ``amq.rabbitmq.trace`` and declare a queue.
        management: the broker's HTTP API; its user needs the tag administrator.
        exchange: the exchange.
        run: the command.
        said: called with what happens, in words.

    Raises:
        RabbitChxError: as in `traced_batches`.
    """
    observer, traced = Observer(exchange.release, exchange.arguments), 0
    lost: RabbitChxError | None = None

    def seen() -> Generator[tuple[int, object, frozenset[str]]]:
        nonlocal traced, lost
        with (
            closing(traced_batches(settings, management, exchange.vhost, exchange.name)) as batches,
            closing(run.ticks(said, lambda: f"{traced:,} messages seen")) as ticks,
        ):
            next(batches)
            for second in ticks:
                try:
                    batch = next(batches, [])
                except RabbitChxError as error:
                    lost = error
                    said(f"nothing is seen any more: {error}")
                    continue
                if lost is not None:
                    time.sleep(_TICK_S)
                traced += len(batch)
                for observed in map(observer.observe, batch):
                    yield second, observed.seed, observed.queues

    with closing(seen()) as messages:
        verdict = live_verdict(messages)
    if lost is not None:
        raise lost
    return verdict
