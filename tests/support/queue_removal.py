"""A queue is removed from a ring and added again, while messages come and consumers of pika or a group handle them."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, AsyncExitStack, ExitStack, contextmanager, suppress
from typing import TypeAlias
from unittest.mock import patch

import pika
import pika.exceptions
from bounded import until
from changed_site import ChangedSite
from delivery_checker import Attempt, History
from numbered_load import NumberedLoad, numbered_load

from rabbit_chx import ConsumerGroup, Topology
from rabbit_chx.broker import applying, pika_parameters
from rabbit_chx.consuming import GroupMessage, GroupTiming
from rabbit_chx.testing import RunningBroker

QUEUES = [f"events.{n}" for n in range(1, 4)]
#: Members that look for a deleted queue quickly, and take nobody for gone and no queue for stuck on a busy machine.
_TIMING = GroupTiming(warm_up_s=0.3, alive_s=0.5, gone_s=30.0, watch_s=0.5, stop_s=60.0)
_STOPPED_S = 60.0
#: On a busy machine a quorum queue of 3.10 is slow.
_DRAIN_S = 200.0

#: Consumes all queues during a block, and counts each message that is handled.
Consume: TypeAlias = Callable[[str, Counter[str]], AbstractContextManager[None]]


@contextmanager
def reader(url: str, queue: str, handled: Counter[str]) -> Iterator[None]:
    """Consume a queue whenever it exists, in a thread, and acknowledge each message after it is counted."""
    ended = threading.Event()

    def read() -> None:
        while not ended.is_set():
            # 3.10 may close the connection (541) where a quorum queue is deleted while a client begins to consume it.
            with suppress(pika.exceptions.ConnectionClosedByBroker):
                consume_while_it_exists()

    def consume_while_it_exists() -> None:
        with pika.BlockingConnection(pika_parameters(url)) as connection:
            while not ended.is_set():
                with suppress(pika.exceptions.ChannelClosedByBroker):  # the queue does not exist
                    channel = connection.channel()
                    channel.basic_qos(prefetch_count=100)
                    for method, _, body in channel.consume(queue, inactivity_timeout=0.1):
                        if ended.is_set():
                            break
                        if method is not None and body is not None and method.delivery_tag is not None:
                            handled[body.decode()] += 1
                            channel.basic_ack(method.delivery_tag)
                    channel.close()
                ended.wait(0.1)

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    try:
        yield
        assert thread.is_alive(), f"the reader of {queue} has ended by itself"
    finally:
        ended.set()
        thread.join(30)


@contextmanager
def pika_readers(url: str, handled: Counter[str]) -> Iterator[None]:
    """Consume each queue with pika whenever it exists."""
    with ExitStack() as readers:
        for queue in QUEUES:
            readers.enter_context(reader(url, queue, handled))
        yield


@contextmanager
def group_members(url: str, handled: Counter[str]) -> Iterator[None]:
    """Consume the queues with two members of a group, in a thread. They have to be there."""
    running: list[asyncio.AbstractEventLoop] = []
    stops: list[Callable[[], None]] = []

    async def handle(message: GroupMessage) -> None:
        handled[message.body.decode()] += 1

    async def consume() -> None:
        async with AsyncExitStack() as stack:
            groups = [
                await stack.enter_async_context(ConsumerGroup(url, QUEUES, member=name, timing=_TIMING))
                for name in ("a", "b")
            ]
            running.append(asyncio.get_running_loop())
            stops.extend(group.stop for group in groups)
            await asyncio.gather(*(group.run(handle) for group in groups))

    with ThreadPoolExecutor(1) as threads:
        consuming = threads.submit(asyncio.run, consume())
        try:
            yield
            assert not consuming.done(), "the group has ended by itself"
        finally:
            for stop in stops:
                running[0].call_soon_threadsafe(stop)
            consuming.result(_STOPPED_S)


@contextmanager
def short_polls(broker: RunningBroker) -> Iterator[None]:
    """Look at a drained queue for 1.4 s instead of 7 s. The broker counts the messages of new queues every second instead of every 5 s."""
    broker.run("rabbitmqctl", "eval", "application:set_env(rabbit, collect_statistics_interval, 1000).")
    with patch.object(applying, "_POLL_INTERVAL_S", 0.1):
        yield


def wait_for(count: int, *handled: Counter[str]) -> None:
    """Wait until so many messages are handled. Each has another body."""
    until(lambda: sum(map(len, handled)) >= count, f"{count} messages are handled", 120, 0.2)


def removal_topology(
    queues: int, type_: str, members: str, arguments: str = "", *, last: str | None = None
) -> Topology:
    """Return a topology that owns all queues and has some of them, the last one of type `last`. `arguments` are as in a file."""
    members = members.format(f'{{ queue = "events.{{1..{queues}}}" }}')
    types = dict.fromkeys(range(1, queues + 1), type_) | ({} if last is None else {queues: last})
    return Topology.from_toml(
        f'owns = ["events.*"]\n[[exchanges]]\nname = "events"\ntype = "x-consistent-hash"\n{members}\n'
        + "".join(
            f'[[queues]]\nname = "events.{n}"\ntype = "{type_}"\narguments = {{ {arguments} }}\n'
            for n, type_ in types.items()
        )
    )


def remove_under_load(
    site: ChangedSite,
    members: str,
    type_: str,
    *,
    rounds: int,
    arguments: str = "",
    consume: Consume = pika_readers,
    per_s: float = 1000,
) -> tuple[NumberedLoad, Counter[str]]:
    """Remove and add a queue `rounds` times; return what was published, and how often each message was handled."""
    two, three = (removal_topology(count, type_, members, arguments) for count in (2, 3))
    steps = [(two, "delete"), (three, "create")] * rounds
    return _change_under_load(site, three, steps, consume, per_s)


def replace_under_load(site: ChangedSite, members: str) -> tuple[NumberedLoad, Counter[str]]:
    """Make the last of three classic queues a quorum queue, and back; return what was published, and how often each message was handled."""
    classic, quorum = (removal_topology(3, "classic", members, last=last) for last in ("classic", "quorum"))
    steps = [(quorum, "replace"), (classic, "replace")]
    return _change_under_load(site, classic, steps, pika_readers, 1000)


def _change_under_load(
    site: ChangedSite, first: Topology, steps: Iterable[tuple[Topology, str]], consume: Consume, per_s: float
) -> tuple[NumberedLoad, Counter[str]]:
    """Apply topologies, each with its action for the last queue, while messages come."""

    def consumers() -> int | None:
        return site.channel.queue_declare("events.3", passive=True).method.consumer_count

    site.apply(first)
    handled: Counter[str] = Counter()
    with consume(site.broker.url, handled):
        with numbered_load(site.broker.url, per_s=per_s) as load:
            for wanted, action in steps:
                if action != "create":
                    until(consumers, "events.3 has a consumer", every_s=0.1)
                changes = site.apply(wanted, drain_s=_DRAIN_S).changes
                assert (action, "events.3") in {(change.action, change.name) for change in changes}
        wait_for(load.count, handled)
    return load, handled


def handled_history(load: NumberedLoad, handled: Mapping[str, Counter[str]]) -> History:
    """Return what the checker needs. A message that was not returned counts as confirmed: the broker has routed it.

    Args:
        load: what was published.
        handled: how often each message was handled, by the queues that it was read from.
    """
    bodies = sorted(f"{key} {n}" for key, count in load.sent.items() for n in range(count))
    number = {body: n for n, body in enumerate(bodies)}
    return History(
        [Attempt(n, body.split()[0]) for body, n in number.items()],
        load.count - load.returned,
        {
            place: [number[body] for body, count in counts.items() for _ in range(count)]
            for place, counts in handled.items()
        },
    )
