"""Slots change hands on a real broker under load: nothing is lost, nothing is doubled, and in order nothing is overtaken."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from typing import TYPE_CHECKING, Any

import pika
import pytest
from changed_site import ChangedSite, changed_site
from dying_applier import dying_applier
from group_stage import eventually
from numbered_load import numbered_load

from rabbit_chx import ConsumerGroup, Topology
from rabbit_chx.errors import ApplyError, BrokerRefusedError, InputError, PlanRefusedError
from rabbit_chx.topology import plan
from rabbit_chx.topology.slots.folding import folded

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rabbit_chx import GroupMessage
    from rabbit_chx.testing import RunningBroker


_QUEUES = [f"events.{n}" for n in range(1, 4)]
#: How often slots change hands to and fro, and at how many points the mover dies: more by `make hand-over`.
_PER_S = float(os.environ.get("HAND_OVER_PER_S", "1000"))
_ROUNDS = int(os.environ.get("HAND_OVER_ROUNDS", "1"))
_SLOTS = 6 if _ROUNDS == 1 else 12
pytestmark = [pytest.mark.broker, pytest.mark.timeout(180 * _ROUNDS)]


def _slots(members: int, slots: int = 12, more: str = "") -> Topology:
    return Topology.from_toml(
        f'owns = ["events.slot.*", "events.park"]\n[[exchanges]]\nname = "events"\ntype = "x-consistent-hash"\n'
        f'slots = {slots}\nmembers = [{{ queue = "events.{{1..{members}}}" }}]\n[[queues]]\nname = "events.{{1..3}}"\n{more}'
    )


def _ring() -> Topology:
    return Topology.from_toml(
        'owns = ["events.slot.*", "events.park"]\n[[exchanges]]\nname = "events"\ntype = "x-consistent-hash"\n'
        'ring = [{ queue = "events.{1..3}" }]\n[[queues]]\nname = "events.{1..3}"\n'
    )


def _wait_for_consumers(site: ChangedSite, count: int) -> None:
    """Wait until the management API lists so many consumers, which takes it some seconds."""
    end = time.monotonic() + 30
    while len(site.request("GET", "consumers")) < count:
        assert time.monotonic() < end, "the consumers are not listed"
        time.sleep(0.1)


def _count(site: ChangedSite, queue: str) -> int:
    return site.channel.queue_declare(queue, passive=True).method.message_count or 0


@pytest.fixture
def site(broker: RunningBroker) -> Iterator[ChangedSite]:
    with changed_site(broker) as made:
        yield made


def test_nothing_is_lost_or_doubled_while_slots_change_hands(site: ChangedSite) -> None:
    site.apply(_slots(2, _SLOTS))
    moved = parked = 0
    with numbered_load(site.broker.url, per_s=_PER_S) as load:
        for _ in range(_ROUNDS):
            for members, client in ((3, "pika"), (2, "aio-pika")):
                done = site.apply(_slots(members, _SLOTS), client)
                moved += len(done.handed_over)
                parked += done.unparked
    logging.getLogger(__name__).info("%d messages, %d moves, %d parked", load.count, moved, parked)
    assert moved == 2 * (_SLOTS // 3) * _ROUNDS
    found = load.found(site.broker.url, [*_QUEUES, "events.park"])
    assert load.returned == 0
    assert (len(found), found.total()) == (load.count, load.count)
    site.check_done(_slots(2, _SLOTS))


def test_moving_in_and_out_under_load(site: ChangedSite) -> None:
    """The share that moves by queue was said before. Each message is there once."""
    site.apply(_ring())
    with numbered_load(site.broker.url, per_s=_PER_S / 2) as load:
        into = site.planned(_slots(3, 6))
        assert 0 < into.rings["events"].moved < 0.7
        site.apply(into)
        assert folded(site.live()).exchange("events") == _slots(3, 6).exchange("events")
        site.apply(_ring())
    found = load.found(site.broker.url, _QUEUES)
    assert load.returned == 0
    assert (len(found), found.total()) == (load.count, load.count)
    assert [one.name for one in site.live().exchanges if one.name.startswith("events")] == ["events"]


def test_a_mover_that_dies_leaves_work_for_the_next(site: ChangedSite) -> None:
    """Killed before any of its operations, with messages coming: the next application ends it, and none is lost."""
    site.apply(_slots(2))
    with dying_applier(site) as applier:
        for _ in range(_ROUNDS):
            with numbered_load(site.broker.url, per_s=_PER_S / 2) as load:
                # The lock is 0. The first slot is unbound by 1 and bound by 2.
                # Both are sent in one flight, so neither has left a mover that dies at 2. Here the first one has.
                for before in (2, 3, 6):
                    assert applier.killed(_slots(3), before)
                    for queue in _QUEUES[:2] if before == 2 else ():
                        site.channel.queue_unbind(queue, "events.slot.00", "")
                    live = site.live()
                    unbound = [one for one in live.exchanges if ".slot." in one.name]
                    assert {one.name for one in unbound} == {f"events.slot.{n:02d}" for n in range(12)}
                done = site.apply(_slots(3))
                assert done.changes
                site.apply(_slots(2))
            found = load.found(site.broker.url, [*_QUEUES, "events.park"])
            assert len(found) == load.count
            twice = found.total() - load.count
            logging.getLogger(__name__).info("%d messages, 3 deaths, %d messages twice", load.count, twice)
            assert twice <= 300  # what was under way when it died
    assert site.planned(_slots(2)).changes == ()


def test_what_is_parked_is_work_to_do(site: ChangedSite) -> None:
    """As after a death between the last bind and the end: the plan has no changes, and an application empties the park."""
    site.apply(_slots(2))
    site.channel.queue_unbind("events.1", "events.slot.00", "")
    site.channel.confirm_delivery()
    for number in range(300):
        site.channel.basic_publish("events", f"k{number}", b"", mandatory=True)
    parked = _count(site, "events.park")
    assert parked
    site.channel.queue_bind("events.1", "events.slot.00", "")
    with site.connected() as broker:
        made = plan(_slots(2), broker.topology())
        assert made.changes == ()
        done = broker.apply(made)
    assert (done.changes, done.unparked) == ((), parked)
    assert _count(site, "events.park") == 0


def test_a_full_queue_leaves_its_messages_in_the_park(site: ChangedSite) -> None:
    full = '[[queues]]\nname = "full"\narguments = { x-max-length = 1, x-overflow = "reject-publish" }\n'
    into_full = Topology.from_toml(_slots(2, 2, full).to_toml().replace("events.{1..2}", "full", 1))
    site.apply(into_full)
    site.channel.queue_unbind("full", "events.slot.00", "")
    for number in range(100):
        site.channel.basic_publish("events", f"k{number}", b"")
    parked = _count(site, "events.park")
    with pytest.raises((ApplyError, BrokerRefusedError), match="a queue refuses it, which is full"):
        site.apply(into_full)
    left = _count(site, "events.park")
    assert left + _count(site, "full") >= parked
    assert left >= parked - 2


def test_order_needs_a_group_on_both_queues(site: ChangedSite) -> None:
    site.apply(_slots(2))
    with pytest.raises(
        PlanRefusedError,
        match=r"queue events[.]1 has no consumer, and a hand-over in order needs a ConsumerGroup",
    ):
        site.apply(_slots(3), hand_over="in-order")
    site.channel.basic_consume("events.1", lambda *_: None, consumer_tag="other")
    _wait_for_consumers(site, 1)
    with pytest.raises(PlanRefusedError, match="has a consumer 'other', which is no member of a group"):
        site.apply(_slots(3), hand_over="in-order")
    with pytest.raises(InputError, match="hand_over is 'fast': give parked or in-order"):
        site.apply(_slots(3), hand_over="fast")


def test_nothing_is_overtaken_in_order(site: ChangedSite) -> None:
    """Two members of a group read while slots go to a third queue and back."""
    quorum = 'type = "quorum"\narguments = { x-single-active-consumer = true }\n'
    site.apply(_slots(2, 3, quorum))
    handled: dict[str, list[int]] = {}

    async def handle(message: GroupMessage) -> None:
        key, number = message.body.decode().split()
        handled.setdefault(key, []).append(int(number))

    def move() -> None:
        with numbered_load(site.broker.url, per_s=500) as load:
            for members in (3, 2):
                done = site.apply(_slots(members, 3, quorum), hand_over="in-order")
                assert (len(done.handed_over), done.overtaken) == (1, ())
        sent.update(load.sent)

    sent: dict[str, int] = {}

    async def story() -> None:
        url = site.broker.url
        async with (
            ConsumerGroup(url, _QUEUES, member="a") as one,
            ConsumerGroup(url, _QUEUES, member="b") as two,
        ):
            runs = [asyncio.create_task(group.run(handle)) for group in (one, two)]
            await eventually(lambda: one.members == two.members == ("a", "b"), "both know of each other")
            await asyncio.to_thread(_wait_for_consumers, site, 6)
            await asyncio.to_thread(move)
            await eventually(lambda: sum(map(len, handled.values())) >= sum(sent.values()), "all is handled")
            one.stop()
            two.stop()
            await asyncio.gather(*runs)

    asyncio.run(story())
    assert {key: list(range(count)) for key, count in sent.items()} == handled


def test_the_wire_types_of_headers_survive_the_park(site: ChangedSite) -> None:
    """A short integer, which both clients would send as another type. The keys of CC make no further copy."""
    site.apply(_slots(2, 2))
    site.channel.queue_unbind("events.1", "events.slot.00", "")
    site.channel.queue_unbind("events.2", "events.slot.01", "")
    headers = {"n": 5, "time": None, "text": "é", "CC": [f"k{n}" for n in range(20)]}
    properties = pika.BasicProperties(headers=headers, message_id="m", priority=3)
    site.channel.confirm_delivery()
    site.channel.basic_publish("events", "key", b"body", properties)
    assert _count(site, "events.park") == 1
    site.apply(_slots(2, 2))
    assert sum(_count(site, queue) for queue in _QUEUES[:2]) == 1
    got = [site.channel.basic_get(queue, auto_ack=True) for queue in _QUEUES[:2]]
    one: Any
    [one] = [each for each in got if each[0] is not None]
    method, came, body = one
    assert (method.exchange, method.routing_key, body) == ("events", "key", b"body")
    assert came == properties
