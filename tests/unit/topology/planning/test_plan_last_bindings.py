"""Exchanges that the broker deletes with their last binding are not lost by a plan on the way."""

from __future__ import annotations

from dataclasses import replace

import pytest
from sides import as_live

from rabbit_chx import Release
from rabbit_chx.topology import LiveTopology, QueueDefinition, Topology, plan

BOUND = Topology.from_toml(
    """
    owns = ["q"]
    [[exchanges]]
    name = "x"
    auto_delete = true
    [[queues]]
    name = "q"
    [[bindings]]
    source = "x"
    queue = "q"
    routing_key = "old"
    """
)
LIVE = as_live(replace(BOUND, owns=()), release=Release("4.3.6"))


def said(wanted: Topology, live: LiveTopology = LIVE) -> list[str]:
    """What the plan says of exchanges that go by themselves."""
    return [
        refusal.text for refusal in plan(wanted, live).refusals if "with its last binding" in refusal.text
    ]


def test_a_replaced_queue_would_take_its_only_exchange_with_it() -> None:
    (says,) = said(replace(BOUND, queues=(QueueDefinition("q", arguments={"x-max-length": 5}),)))
    assert says.startswith("exchange x is deleted by the broker with its last binding")


def test_a_deleted_queue_would_take_the_exchange_of_somebody_else_with_it() -> None:
    assert said(Topology(owns=("q",)))


def test_a_binding_that_gives_way_to_another_takes_nothing_with_it() -> None:
    other = replace(BOUND.bindings[0], routing_key="new")
    assert not said(replace(BOUND, bindings=(other,)))


@pytest.mark.parametrize(
    "live",
    [
        replace(LIVE, exchanges=(replace(LIVE.exchanges[0], auto_delete=False),)),
        as_live(LIVE, sources_left_out=frozenset({"x"})),
    ],
    ids=["it stays without bindings", "a binding of it is to a queue of a connection"],
)
def test_another_exchange_stays(live: LiveTopology) -> None:
    assert not said(Topology(owns=("q",)), live)


def test_what_is_deleted_anyway_may_go_before() -> None:
    assert not said(Topology(owns=("q", "x")))
