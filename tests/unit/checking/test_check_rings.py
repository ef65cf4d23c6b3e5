"""The share of keys that a ring sends elsewhere than the topology says, by the queues of its slots."""

from __future__ import annotations

from dataclasses import replace

import pytest
from slot_files import live_of, slotted

from rabbit_chx.routing import ExchangeRef
from rabbit_chx.topology import BindingDefinition, QueueDefinition, check

FIRST = "events.slot.00"


@pytest.mark.parametrize(
    ("queues", "is_misplaced"),
    [
        (("events.1",), False),
        (("events.1", "other.1"), False),  # its queue gets the keys, too
        (("other.1",), True),
        (("other.1", "other.2"), True),
    ],
)
def test_the_keys_of_a_slot_are_misplaced_if_it_is_not_bound_to_its_queue(
    queues: tuple[str, ...], *, is_misplaced: bool
) -> None:
    wanted = slotted(4, '[{ queue = "events.{1..4}" }]')
    live = live_of(wanted)
    live = replace(
        live,
        bindings=(
            *(binding for binding in live.bindings if binding.source != FIRST),
            *(BindingDefinition(FIRST, queue, "") for queue in queues),
        ),
        queues=(*live.queues, QueueDefinition("other.1"), QueueDefinition("other.2")),
    )
    share = live.rings["events"].shares()[ExchangeRef(FIRST)]
    assert check(live, wanted).misplaced == {"events": share if is_misplaced else 0.0}


@pytest.mark.parametrize("moved", [1, 2, 4])
def test_slots_at_other_queues_are_found_also_where_the_order_is_not_known(moved: int) -> None:
    wanted = slotted(4, '[{ queue = "events.{1..4}" }]')
    live = live_of(wanted)
    slots = [f"events.slot.{number:02}" for number in range(moved)]
    kept = (binding for binding in live.bindings if binding.source not in slots)
    others = (BindingDefinition(slot, "other.1", "") for slot in slots)
    live = replace(
        live, bindings=(*kept, *others), queues=(*live.queues, QueueDefinition("other.1")), rings={}
    )
    (found,) = [
        finding for finding in check(live, wanted).findings if "than in the topology" in finding.message
    ]
    assert (found.names, found.share) == (tuple(slots), moved / 4)
    assert f"{25 * moved}.0% of all keys" in found.message
