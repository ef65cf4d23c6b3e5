"""Slots change hands on a broker made of values, with a message for each slot before every operation, and movers that die."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from typing import Any, Literal

import pytest
from few_seeds import few_seeds
from model_broker import ModelBroker
from model_client import ClientKilledError
from model_traffic import Mover, Traffic
from slot_files import NEWEST, slotted

from rabbit_chx import ExchangeRef, Topology
from rabbit_chx.broker.applying import Permission
from rabbit_chx.broker.hand_over import HandOver, drain_park, parts_of
from rabbit_chx.broker.live_broker import Operation, QueueCounts, make_refusal
from rabbit_chx.errors import AccessRefusedError, ApplyError, BrokerRefusedError, PlanRefusedError
from rabbit_chx.topology import BindingDefinition, plan
from rabbit_chx.topology.schema import PlannedChange
from rabbit_chx.topology.slots import HandOverMarker, make_consumer_tag

#: How many movers die before each operation; twenty by `make long WHAT=hand-over`.
_TIMES = int(os.environ.get("HAND_OVER_DEATHS", "4"))
_TWO = slotted(6, '[{ queue = "events.{1..2}" }]', "events.{1..3}")
_THREE = slotted(6, '[{ queue = "events.{1..3}" }]', "events.{1..3}")
_IN_ORDER = Permission(1.0, hand_over="in-order")


def _begun() -> Traffic:
    traffic = Traffic(ModelBroker(NEWEST))
    Mover(traffic).apply(_TWO)
    return traffic


def _check(traffic: Traffic) -> None:
    """Nothing is lost, doubled or parked."""
    traffic.check()
    assert (traffic.lost.total(), traffic.deleted, traffic.parked()) == (0, [], 0)


def test_messages_during_the_hand_over_are_parked_and_forwarded() -> None:
    traffic = _begun()
    done = Mover(traffic).apply(_THREE)
    moved = [(slot, new) for slot, _, new in done.handed_over]
    assert moved == [(f"events.slot.{slot}", "events.3") for slot in ("02", "05")]
    assert (done.unparked, done.overtaken) == (2, ())
    _check(traffic)
    assert plan(_THREE, traffic.model.topology()).changes == ()


def _operations() -> int:
    with few_seeds():  # a worker of pytest collects without the fixtures
        mover = Mover(_begun())
        mover.apply(_THREE)
    return mover.operations


_DEATHS = _operations()


@pytest.mark.parametrize("first", range(_DEATHS))
def test_movers_may_die_before_any_operation(first: int) -> None:
    """One dies there, then others elsewhere; the last one ends what is left. To and fro."""
    traffic = _begun()
    for number in range(_TIMES):
        wanted = _THREE if number % 2 == 0 else _TWO
        try:
            Mover(traffic, (first + number * 7) % _DEATHS).apply(wanted)
        except ClientKilledError:
            behind = Counter(
                binding.source for binding in traffic.model.bindings if ".slot." in binding.source
            )
            assert set(behind.values()) <= {1}, "a slot has two queues"
            assert len(behind) >= 5, "two slots have no queue"
    Mover(traffic).apply(_THREE)
    _check(traffic)
    assert plan(_THREE, traffic.model.topology()).changes == ()


def test_a_second_run_of_a_hand_over_counts_from_before_the_first_one() -> None:
    resumed = set()
    for dies_before in range(_DEATHS):
        traffic = _begun()
        reviewed = plan(_THREE, Mover(traffic).live())
        with pytest.raises(ClientKilledError):
            Mover(traffic, dies_before).apply(reviewed)
        again = plan(_THREE, Mover(traffic).live())
        assert again.checksum == reviewed.checksum or not again.changes
        if again.changes:
            assert again.rings["events"].moments == reviewed.rings["events"].moments
            assert again.refused(allow_moved=reviewed.rings["events"].moved_at_worst) == ()
            resumed.add(len(again.changes))
        Mover(traffic).apply(reviewed if again.changes else again)
        _check(traffic)
        assert plan(_THREE, traffic.model.topology()).changes == ()
    assert len(resumed) > 3


def _binding_change(action: Literal["bind", "unbind"], slot: str, queue: str) -> PlannedChange:
    binding = BindingDefinition(slot, queue, "")
    return PlannedChange(action, *((None, binding) if action == "bind" else (binding, None)))


def test_a_slot_that_is_only_unbound_does_not_take_the_hand_over_of_the_next() -> None:
    left = _binding_change("unbind", "a", "q1")
    away, given = _binding_change("unbind", "b", "q1"), _binding_change("bind", "b", "q2")
    behind = _binding_change("bind", "c", "q2")
    slots, parks = {"a": "events", "b": "events"}, {"events": "events.park"}
    assert list(parts_of((left, away, given, behind), slots, parks)) == [
        (left,),
        HandOver("events", "events.park", away, given),
        (behind,),
    ]
    assert list(parts_of((away, given, left), slots, parks))[1:] == [(left,)]
    assert list(parts_of((away, given), slots, {})) == [(away, given)]


def test_a_park_that_never_gets_empty_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    traffic = _begun()
    monkeypatch.setattr(Mover, "move_messages", lambda _mover, _queue, _exchange, limit: limit)
    traffic.queues["events.park"] = [("events", ExchangeRef("events.slot.00"), 1)]
    with pytest.raises(BrokerRefusedError, match=r"the parking queue events[.]park was emptied 50 times"):
        Mover(traffic).apply(_TWO)


def test_order_without_a_group_is_refused_before_anything_is_changed() -> None:
    traffic = _begun()
    before = traffic.model.topology()
    says = "has no consumer, and a hand-over in order needs a ConsumerGroup"
    with pytest.raises(PlanRefusedError, match=says):
        Mover(traffic).apply(_THREE, _IN_ORDER)
    assert traffic.model.topology() == before


class Watched(Mover):
    """Tells what it is asked for, of slots and messages, while nobody publishes. Groups read all queues, and reply to markers.

    Args:
        parked: how many messages wait in the park.
        refuses: what the broker refuses, as it is told.
        looks: after how many of them the management API lists the consumers.
        consumers: how many of each queue AMQP tells.
    """

    def __init__(
        self, parked: int = 0, refuses: str | None = None, looks: int = 0, consumers: int = 1
    ) -> None:
        super().__init__(_begun())
        self.told: list[str] = []
        self.parked, self._refuses, self._looks, self._consumers = parked, refuses, looks, consumers

    def _count(self) -> None:
        pass

    def perform(self, operation: Operation) -> None:
        subject, action = operation.subject, operation.action
        if "rabbit-chx.trial" in subject.arguments:
            return
        if isinstance(subject, BindingDefinition):
            self.told.append(f"{action} {subject.destination}")
        elif action == "delete":
            self.told.append(f"delete {subject.name}")
        if self.told and self.told[-1] == self._refuses:
            raise make_refusal(self.where, operation, 403, "ACCESS_REFUSED")
        sources = {binding.source for binding in self._model.bindings}
        if action == "unbind" and isinstance(subject, BindingDefinition) and subject.source not in sources:
            return  # a second time, as a broker allows
        super().perform(operation)

    def count(self, queue: str) -> QueueCounts:
        return QueueCounts(self.parked, 0) if queue == "events.park" else QueueCounts(0, self._consumers)

    def move_messages(self, queue: str, exchange: str, limit: int) -> int:  # noqa: ARG002
        moved = min(limit, self.parked)
        if moved:
            self.told.append(f"{moved} from {queue}")
        self.parked -= moved
        return moved

    def send_marker(self, queue: str, marker: HandOverMarker) -> None:
        self.told.append(f"{marker.kind} of {marker.slot} to {queue}")

    def wait_for_reply(
        self,
        marker: HandOverMarker,  # noqa: ARG002
        kind: Literal["flushed", "taken"],
        *,
        timeout_s: float,
        longest_s: float,
        queues: Sequence[str],
    ) -> bool:
        assert timeout_s < longest_s
        self.told.append(f"{kind} by {' and '.join(queues)}")
        return True

    def sleep(self, seconds: float) -> None:
        assert seconds > 0
        self.told.append("pause")

    def _listed(self, kind: str, *path: str) -> Any:
        if kind == "consumers" and self._looks:
            self._looks -= 1
            return []
        if kind == "consumers":
            queues = (f"events.{n}" for n in range(1, 4))
            return [{"queue": {"name": queue}, "consumer_tag": make_consumer_tag("one")} for queue in queues]
        return super()._listed(kind, *path)


def test_consumers_that_the_management_api_does_not_list_yet_are_waited_for() -> None:
    mover = Watched(looks=10)
    assert len(mover.apply(_THREE, _IN_ORDER).handed_over) == 2
    assert mover.told[:8] == ["pause"] * 8  # the plan has looked twice
    for never, pauses, says in (
        (Watched(looks=99), 22, "has consumers that the user cannot list"),
        (Watched(looks=99, consumers=0), 0, "has no consumer"),
    ):
        with pytest.raises(PlanRefusedError, match=says):
            never.apply(_THREE, _IN_ORDER)
        assert never.told.count("pause") == pauses


def test_in_order_the_new_queue_has_its_marker_before_it_has_the_slot() -> None:
    """Else messages come before the marker. What was on its way to a queue is there after a pause: the next marker is behind it.

    A mover that died left seven messages in the park, which the new queue would handle as parked up to its marker.
    """
    mover = Watched(parked=7)
    done = mover.apply(_THREE, _IN_ORDER)
    assert len(done.handed_over) == 2
    assert (done.overtaken, done.unparked) == ((), 7)
    first = mover.told.index("unbind events.1")
    assert "7 from events.park" in mover.told[:first]
    assert mover.told[first : first + 9] == [
        "unbind events.1",
        "pause",
        "flush of events.slot.02 to events.1",
        "flushed by events.1",
        "begin of events.slot.02 to events.3",
        "bind events.3",
        "pause",
        "end of events.slot.02 to events.park",
        "taken by events.3 and events.park",
    ]


def test_in_order_a_slot_whose_old_queue_is_not_read_changes_hands_nevertheless(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    mover = Watched()
    monkeypatch.setattr(mover, "wait_for_reply", lambda *_, **__: False)
    done = mover.apply(_THREE, _IN_ORDER)
    assert len(done.overtaken) == len(done.handed_over) == 2
    assert plan(_THREE, mover.traffic.model.topology()).changes == ()


def test_messages_that_are_parked_late_are_forwarded_too(monkeypatch: pytest.MonkeyPatch) -> None:
    def drained(mover: Watched, *late: int) -> int:
        arriving = iter(late)
        monkeypatch.setattr(mover, "sleep", lambda _: setattr(mover, "parked", mover.parked + next(arriving)))
        return drain_park(mover, "events", "events.park")

    assert drained(Watched(parked=2), 3, 0, 0) == 5
    # A classic queue does not count what it has received and not stored yet, and a get returns it.
    monkeypatch.setattr(Watched, "count", lambda *_: QueueCounts(0, 0))
    assert drained(Watched(), 1, 1, 0) == 2


@pytest.mark.parametrize("level", ["parked", "in-order"])
def test_a_slot_whose_new_queue_is_refused_has_not_changed_hands(
    level: Literal["parked", "in-order"],
) -> None:
    """Its old queue does not have it any more, so something was changed."""
    mover = Watched(refuses="bind events.3")
    says = r"needs write on queue events\.3.*; 0 of 4 changes were done, and a user with that permission does the rest"
    with pytest.raises(ApplyError, match=says) as caught:
        mover.apply(_THREE, Permission(1.0, hand_over=level))
    assert caught.value.applied.handed_over == caught.value.applied.changes == ()
    assert (caught.value.queue, caught.value.reply_code) == ("events.3", 403)
    assert "events.slot.02" not in {binding.source for binding in mover.traffic.model.bindings}


def test_a_slot_whose_old_queue_is_refused_is_where_it_was() -> None:
    mover = Watched(refuses="unbind events.1")
    with pytest.raises(AccessRefusedError, match=r"needs write on queue events\.1"):
        mover.apply(_THREE)
    assert plan(_TWO, mover.traffic.model.topology()).changes == ()


@pytest.mark.parametrize("loss", [False, True])
def test_a_park_is_emptied_before_it_is_deleted(*, loss: bool) -> None:
    """Also where queues may be deleted that have messages."""
    mover = Watched(parked=7)
    ring = (
        '[[exchanges]]\nname = "events"\ntype = "x-consistent-hash"\nring = [{ queue = "events.{1..3}" }]\n'
    )
    wanted = Topology.from_toml(f'owns = ["events.*"]\n{ring}[[queues]]\nname = "events.{{1..3}}"\n')
    done = mover.apply(wanted, Permission(1.0, delete=True, loss=loss))
    assert mover.told.index("7 from events.park") < mover.told.index("delete events.park")
    assert done.unparked == 7
