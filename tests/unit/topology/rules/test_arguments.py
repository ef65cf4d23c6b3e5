"""Arguments that a release refuses: what is a mistake of a file, and what a plan is refused for."""

from __future__ import annotations

from itertools import product

import pytest
from topologies import problems_in

from rabbit_chx import Release, Topology
from rabbit_chx.topology import ExchangeDefinition, LiveTopology, QueueDefinition, plan
from rabbit_chx.topology.rules.arguments import MEASURED, QUEUE_ARGUMENTS, declaration_faults


@pytest.mark.parametrize("name", QUEUE_ARGUMENTS)
def test_a_file_has_a_mistake_if_every_release_refuses_it(name: str) -> None:
    for type_, value in product(("classic", "quorum", "stream"), ("x", "1D", -1, 0, 1, 1 << 62, True)):
        queue = QueueDefinition("q", type_, arguments={name: value})
        text = Topology(queues=(queue,)).to_toml()
        refused = {release for release in MEASURED if problems_in(text, release)}
        assert bool(problems_in(text)) is (refused == set(MEASURED)), (text, refused)
        for release in MEASURED if refused < set(MEASURED) else ():
            refusals = plan(Topology.from_toml(text), LiveTopology(release=release)).refusals
            assert bool(refusals) is (release in refused) or "master-locator" in name


def test_a_type_of_a_plugin_has_its_own_rules() -> None:
    queue = QueueDefinition("q", "delayed", exclusive=True, arguments={"x-max-age": 5})
    assert declaration_faults(queue, Release("4.3.6")) == []


def test_an_argument_of_one_type_of_exchange_has_no_rule_in_another() -> None:
    for type_, is_faulty in (("x-recent-history", True), ("topic", False)):
        exchange = ExchangeDefinition("x", type_, arguments={"x-recent-history-length": 0})
        assert bool(declaration_faults(exchange, Release("4.3.6"))) is is_faulty
