"""A queue is removed from a ring and added again, while messages come and consumers of pika handle them."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress

import pika
import pika.exceptions
from changed_site import ChangedSite
from numbered_load import NumberedLoad, numbered_load

from rabbit_chx import Topology
from rabbit_chx.broker import pika_parameters

QUEUES = [f"events.{n}" for n in range(1, 4)]
_PER_S = 1000


@contextmanager
def reader(url: str, queue: str, handled: Counter[str]) -> Iterator[None]:
    """Consume a queue whenever it exists, in a thread, and acknowledge each message after it is counted."""
    ended = threading.Event()

    def read() -> None:
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


def wait_for(count: int, handled: Counter[str]) -> None:
    end = time.monotonic() + 120
    while len(handled) < count:
        assert time.monotonic() < end, f"{len(handled)} of {count} messages are handled"
        time.sleep(0.2)


def removal_topology(queues: int, type_: str, members: str) -> Topology:
    """Return a topology that owns all queues and has some of them."""
    members = members.format(f'{{ queue = "events.{{1..{queues}}}" }}')
    return Topology.from_toml(
        f'owns = ["events.*"]\n[[exchanges]]\nname = "events"\ntype = "x-consistent-hash"\n{members}\n'
        f'[[queues]]\nname = "events.{{1..{queues}}}"\ntype = "{type_}"\n'
    )


def remove_under_load(
    site: ChangedSite, members: str, type_: str, *, rounds: int
) -> tuple[NumberedLoad, Counter[str]]:
    """Remove and add a queue `rounds` times; return what was published, and how often each message was handled."""
    two, three = (removal_topology(count, type_, members) for count in (2, 3))
    site.apply(three)
    url = site.broker.url
    handled: Counter[str] = Counter()
    with ExitStack() as readers:
        for queue in QUEUES:
            readers.enter_context(reader(url, queue, handled))
        with numbered_load(url, per_s=_PER_S) as load:
            for _ in range(rounds):
                removed = site.apply(two).changes
                assert ("delete", "events.3") in {(change.action, change.name) for change in removed}
                site.apply(three)
        wait_for(load.count, handled)
    return load, handled
