"""Slots change hands on a real broker under load: nothing is lost, nothing is doubled, and in order nothing is overtaken."""

from __future__ import annotations

import logging
import os
from dataclasses import replace
from itertools import cycle, pairwise
from pathlib import Path
from typing import Any

import pika
import pytest
from bounded import until
from changed_site import ChangedSite
from dying_applier import dying_applier
from numbered_load import numbered_load
from ordered_readers import ordered_readers
from placed_death import PlacedDeath

from rabbit_chx import Topology
from rabbit_chx.errors import ApplyError, BrokerRefusedError, InputError, PlanRefusedError
from rabbit_chx.planning.slot_layout import collapse

_QUEUES = [f"events.{n}" for n in range(1, 4)]
#: How often slots change hands to and fro, and how often movers die at each step: more by `make long WHAT=hand-over`.
_PER_S = float(os.environ.get("HAND_OVER_PER_S", "500"))
_ORDERED_PER_S = float(os.environ.get("HAND_OVER_ORDERED_PER_S", "100"))
_ROUNDS = int(os.environ.get("HAND_OVER_ROUNDS", "1"))
_SLOTS = 6 if _ROUNDS == 1 else 12
#: After which steps a mover of two slots dies. The lock is 1, then each slot is unbound and bound, and the lock is given back.
#: Here those that leave something of their own; all of them by `make long WHAT=hand-over`, and before each operation on the model broker.
_STEPS = [
    *(PlacedDeath("operation", count) for count in ((1, 2, 5) if _ROUNDS == 1 else range(1, 7))),
    *(PlacedDeath(after, 20) for after in ("take", "copy", "ack")),
    *(PlacedDeath(after, 1) for after in ("take", "copy", "ack") if _ROUNDS > 1),
]
#: After which steps a mover of one slot dies that hands it over in order: unbind, flush, its reply, begin, bind, end, its reply.
_ORDERED_STEPS = [
    PlacedDeath("operation", 2), PlacedDeath("reply", 1), PlacedDeath("marker", 2), PlacedDeath("marker", 3),
    *([PlacedDeath("marker", 1), PlacedDeath("operation", 3), PlacedDeath("reply", 2)] if _ROUNDS > 1 else []),
]  # fmt: skip
_ORDERED = 'type = "quorum"\narguments = { x-single-active-consumer = true }\n'
_log = logging.getLogger(__name__)  # `make long WHAT=hand-over` shows it
pytestmark = [pytest.mark.broker, pytest.mark.timeout(180 * _ROUNDS)]


def _topology(layout: str, more: str = "") -> Topology:
    return Topology.from_toml(
        f'owns = ["events.slot.*", "events.park"]\n[[exchanges]]\nname = "events"\ntype = "x-consistent-hash"\n'
        f'{layout}\n[[queues]]\nname = "events.{{1..3}}"\n{more}'
    )


def _slots(members: int, slots: int = 12, more: str = "") -> Topology:
    return _topology(f'slots = {slots}\nmembers = [{{ queue = "events.{{1..{members}}}" }}]', more)


def _wait_for_consumers(site: ChangedSite, count: int) -> None:
    """Wait until the management API lists so many consumers, which takes it some seconds."""
    until(lambda: len(site.request("GET", "consumers")) >= count, f"{count} consumers")


def _wait_for_parked(site: ChangedSite, count: int) -> None:
    until(lambda: _count(site, "events.park") >= count, f"{count} messages are parked")


def _count(site: ChangedSite, queue: str) -> int:
    return site.channel.queue_declare(queue, passive=True).method.message_count or 0


@pytest.mark.slow
def test_nothing_is_lost_or_doubled_while_slots_change_hands(site: ChangedSite) -> None:
    site.apply(_slots(2, _SLOTS))
    moved = parked = 0
    with numbered_load(site.broker.url, per_s=_PER_S) as load:
        for _ in range(_ROUNDS):
            for members in (3, 2):
                done = site.apply(_slots(members, _SLOTS))
                moved += len(done.handed_over)
                parked += done.unparked
    assert moved == 2 * (_SLOTS // 3) * _ROUNDS
    found = load.found(site.broker.url, _QUEUES)
    assert load.returned == 0
    assert (len(found), found.total()) == (load.count, load.count)
    assert _count(site, "events.park") == 0
    site.check_done(_slots(2, _SLOTS))
    says = "%d messages at %.0f/s, %d moves, %d messages parked: lost 0, doubled 0, parked still 0"
    _log.warning(says, load.count, load.per_s, moved, parked)


def test_a_ring_moves_into_slots_and_out_under_load_without_loss(site: ChangedSite) -> None:
    """The share that moves by queue was said before. Each message is there once."""
    ring = _topology('ring = [{ queue = "events.{1..3}" }]')
    site.apply(ring)
    with numbered_load(site.broker.url, per_s=_PER_S / 2) as load:
        into = site.planned(_slots(3, 6))
        assert 0 < into.rings["events"].moved < 0.7
        site.apply(into)
        live = collapse(site.live())[0].exchange("events")  # with the slots of each member
        assert live is not None
        assert live.members is not None
        members = tuple(replace(member, slots=None) for member in live.members)
        assert replace(live, members=members) == _slots(3, 6).exchange("events")
        site.apply(ring)
    found = load.found(site.broker.url, _QUEUES)
    assert load.returned == 0
    assert (len(found), found.total()) == (load.count, load.count)
    assert {name for exchange in site.live().exchanges if (name := exchange.name).startswith("events")} == {
        "events"
    }


def test_a_mover_that_dies_leaves_work_for_the_next(site: ChangedSite) -> None:
    """Killed after each step, with messages coming: the next application ends it. Only what it had copied is there twice."""
    two, three = _slots(2, 6), _slots(3, 6)
    site.apply(two)
    messages = copied = twice = 0
    with dying_applier(site) as applier:
        for _ in range(_ROUNDS):
            copied_now = 0
            with numbered_load(site.broker.url, per_s=_PER_S) as load:
                for step, wanted in zip(_STEPS, cycle([three, two])):
                    if step.after != "operation":  # it takes a park with messages in it to get there
                        for queue in _QUEUES:  # as a mover that died after its second operation
                            site.channel.queue_unbind(queue, "events.slot.00", "")
                        _wait_for_parked(site, step.count)
                    copied_now += applier.died(wanted, step)
                    site.wait_until_unlocked()
                    site.apply(wanted)
                    assert _count(site, "events.park") == 0
            found = load.found(site.broker.url, _QUEUES)
            assert load.returned == 0
            assert len(found) == load.count
            twice_now = found.total() - load.count
            assert twice_now <= copied_now
            messages, copied, twice = messages + load.count, copied + copied_now, twice + twice_now
    assert twice > 0  # or no mover died between a copy and the end of its original
    site.check_done(two)
    says = "%d messages at %.0f/s, %d deaths: lost 0; %d were copied and parked when a mover died, %d are there twice; parked still 0"
    _log.warning(says, messages, load.per_s, _ROUNDS * len(_STEPS), copied, twice)


def test_a_full_queue_leaves_its_messages_in_the_park(site: ChangedSite) -> None:
    full = '[[queues]]\nname = "full"\narguments = { x-max-length = 1, x-overflow = "reject-publish" }\n'
    into_full = Topology.from_toml(_slots(2, 2, full).to_toml().replace("events.{1..2}", "full", 1))
    site.apply(into_full)
    site.channel.queue_unbind("full", "events.slot.00", "")
    for number in range(100):
        site.channel.basic_publish("events", f"k{number}", b"")
    parked = _count(site, "events.park")
    with pytest.raises((ApplyError, BrokerRefusedError), match="a queue rejects it"):
        site.apply(into_full)
    left = _count(site, "events.park")
    assert left + _count(site, "full") >= parked
    assert left >= parked - 2


def test_a_consumer_outside_of_a_group_is_no_hand_over_in_order(site: ChangedSite) -> None:
    site.apply(_slots(2))
    site.channel.basic_consume("events.1", lambda *_: None, consumer_tag="other")
    _wait_for_consumers(site, 1)
    with pytest.raises(PlanRefusedError, match="has a consumer 'other', which is not a member of a group"):
        site.apply(_slots(3), hand_over="in-order")
    with pytest.raises(InputError, match="hand_over is 'fast': pass parked or in-order"):
        site.apply(_slots(3), hand_over="fast")


@pytest.mark.extended
def test_nothing_is_overtaken_in_order(site: ChangedSite, tmp_path: Path) -> None:
    """Two members of a group read while slots go to a third queue and back."""
    slots, moved = _SLOTS // 2, 0
    site.apply(_slots(2, slots, _ORDERED))
    with ordered_readers(site.broker.url, _QUEUES, tmp_path / "handled") as handled_of:
        _wait_for_consumers(site, 6)
        with numbered_load(site.broker.url, per_s=_ORDERED_PER_S) as load:
            for _ in range(_ROUNDS):
                for members in (3, 2):
                    done = site.apply(_slots(members, slots, _ORDERED), hand_over="in-order")
                    assert done.overtaken == ()
                    moved += len(done.handed_over)
        handled = handled_of(load.count)
    assert load.returned == 0
    assert {key: list(range(count)) for key, count in load.sent.items()} == handled
    assert moved == 2 * (slots // 3) * _ROUNDS
    assert _count(site, "events.park") == 0
    says = "in order: %d messages at %.0f/s, %d moves: lost 0, doubled 0, overtaken 0, parked still 0"
    _log.warning(says, load.count, load.per_s, moved)


@pytest.mark.slow
def test_a_mover_that_dies_in_order_leaves_work_for_the_next(site: ChangedSite, tmp_path: Path) -> None:
    """Killed after each step: the next application ends it, and the group goes on. Messages may be overtaken then."""
    two, three = _slots(2, 3, _ORDERED), _slots(3, 3, _ORDERED)
    site.apply(two)
    with (
        ordered_readers(site.broker.url, _QUEUES, tmp_path / "handled") as handled_of,
        dying_applier(site) as applier,
    ):
        _wait_for_consumers(site, 6)
        with numbered_load(site.broker.url, per_s=_ORDERED_PER_S) as load:
            wanted = cycle([three, two])
            for step, to in zip(_ORDERED_STEPS * _ROUNDS, wanted, strict=False):
                applier.died(to, step, "in-order")
                site.wait_until_unlocked()
                site.apply(to, hand_over="in-order")
                assert _count(site, "events.park") == 0
        handled = handled_of(load.count)
    assert load.returned == 0
    assert {key: list(range(count)) for key, count in load.sent.items()} == {
        key: sorted(numbers) for key, numbers in handled.items()
    }
    late = sum(a > b for numbers in handled.values() for a, b in pairwise(numbers))
    says = "in order: %d messages at %.0f/s, %d deaths: lost 0, doubled 0, parked still 0; %d were overtaken"
    _log.warning(says, load.count, load.per_s, _ROUNDS * len(_ORDERED_STEPS), late)


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
    got: Any = [site.channel.basic_get(queue, auto_ack=True) for queue in _QUEUES[:2]]
    [(method, came, body)] = [each for each in got if each[0] is not None]
    assert (method.exchange, method.routing_key, body) == ("events", "key", b"body")
    assert came == properties
