"""A queue is removed from a ring and added again, while messages come and consumers handle them: each message is handled."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress

import pika
import pika.exceptions
import pytest
from changed_site import ChangedSite, changed_site
from few_seeds import few_seeds
from numbered_load import numbered_load

from rabbit_chx import Broker, Topology
from rabbit_chx.broker import pika_parameters
from rabbit_chx.errors import ApplyError
from rabbit_chx.routing.ground import Ground
from rabbit_chx.testing import RunningBroker

_QUEUES = [f"events.{n}" for n in range(1, 4)]
_PER_S = 1000
pytestmark = pytest.mark.broker


@pytest.fixture
def site(broker: RunningBroker) -> Iterator[ChangedSite]:
    with few_seeds(), changed_site(broker) as made:
        yield made


@contextmanager
def _reader(url: str, queue: str, handled: Counter[str]) -> Iterator[None]:
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


def _wait_for(count: int, handled: Counter[str]) -> None:
    end = time.monotonic() + 120
    while len(handled) < count:
        assert time.monotonic() < end, f"{len(handled)} of {count} messages are handled"
        time.sleep(0.2)


def _topology(queues: int, type_: str, members: str) -> Topology:
    """Return a topology that owns all queues and has some of them."""
    members = members.format(f'{{ queue = "events.{{1..{queues}}}" }}')
    return Topology.from_toml(
        f'owns = ["events.*"]\n[[exchanges]]\nname = "events"\ntype = "x-consistent-hash"\n{members}\n'
        f'[[queues]]\nname = "events.{{1..{queues}}}"\ntype = "{type_}"\n'
    )


@pytest.mark.parametrize("type_", ["classic", "quorum"])
@pytest.mark.parametrize("members", ["ring = [{}]", "slots = 6\nmembers = [{}]"], ids=["ring", "slots"])
@pytest.mark.parametrize(
    "rounds",
    [
        pytest.param(3, marks=pytest.mark.timeout(400)),
        pytest.param(50, marks=[pytest.mark.extended, pytest.mark.timeout(3600)]),
    ],
)
def test_a_queue_is_removed_under_load(site: ChangedSite, members: str, type_: str, rounds: int) -> None:
    two, three = (_topology(count, type_, members) for count in (2, 3))
    site.apply(three)
    url = site.broker.url
    handled: Counter[str] = Counter()
    with ExitStack() as readers:
        for queue in _QUEUES:
            readers.enter_context(_reader(url, queue, handled))
        with numbered_load(url, per_s=_PER_S) as load:
            for _ in range(rounds):
                removed = site.apply(two).changes
                assert ("delete", "events.3") in {(change.action, change.name) for change in removed}
                site.apply(three)
        _wait_for(load.count, handled)
    assert load.returned == 0
    assert Counter(body.split()[0] for body in handled) == load.sent
    site.check_done(three)


@pytest.mark.parametrize("type_", ["classic", "quorum"])
def test_a_queue_that_is_filled_by_its_name_stays_unbound(site: ChangedSite, type_: str) -> None:
    """Nothing reads it. Its record is that of the ring without it, and the next application deletes it when it is empty."""
    two, three = (_topology(count, type_, "ring = [{}]") for count in (2, 3))
    site.apply(three)
    site.channel.confirm_delivery()
    site.channel.basic_publish("", "events.3", b"1", pika.BasicProperties(delivery_mode=2))
    says = "queue events.3 still has 1 message and no consumers, so nothing empties it: it is unbound and was not deleted"
    for _ in range(2):
        with pytest.raises(ApplyError, match=says):
            site.apply(two, drain_s=1.0)
    with Broker(site.broker.url, site.broker.management_url) as broker:  # without a ring source
        live = broker.topology()
    assert live.rings["events"].ground == Ground("recorded")
    assert live.rings["events"].buckets == site.live().rings["events"].buckets
    assert "events.3" in {queue.name for queue in live.queues}
    assert live.rings["events"].destinations == ("events.1", "events.2")
    site.channel.queue_purge("events.3")
    site.apply(two)
    site.check_done(two)
