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


NEWER, NEWEST = Release("4.4.0"), Release("4.3.6")
#: Arguments and a setting that 4.4 uses, and no release before it.
OF_4_4 = """
[[queues]]
name = "q"
type = "quorum"
arguments = { x-member-placement-tag = "fast" }
[[queues]]
name = "s"
type = "stream"
arguments = { x-stream-initial-offset = 5 }
[[policies]]
name = "placed"
pattern = "^q"
definition = { member-placement-tag = "fast" }
"""


def test_what_a_newer_release_may_use_is_called_neither_ignored_nor_unknown() -> None:
    wanted = Topology.from_toml(OF_4_4, release=NEWER)
    told = wanted.ignored_arguments(NEWER)
    assert len(told) == 2
    for sentence in told:
        assert "which RabbitMQ 4.4.0 is not known to use" in sentence
        assert "4.4.0 ignores" not in sentence
        assert "remove" not in sentence
    planned = plan(wanted, LiveTopology(release=NEWER))
    assert planned.refusals == ()
    for sentence in wanted.ignored_arguments(NEWEST):
        assert "which RabbitMQ 4.3.6 ignores" in sentence
    for sentence in wanted.ignored_arguments():
        assert "which RabbitMQ up to 4.3.6 ignores" in sentence


def test_a_setting_of_a_policy_is_a_mistake_only_for_a_release_that_was_compared() -> None:
    policies = Topology.from_toml(OF_4_4).policies
    assert problems_in(OF_4_4) == []
    (problem,) = problems_in(OF_4_4, NEWEST)
    assert "RabbitMQ has no setting member-placement-tag" in str(problem)
    # `export` leaves out what has a problem.
    assert LiveTopology(policies=policies, release=NEWER).problems == ()
