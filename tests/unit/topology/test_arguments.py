"""Arguments that a release refuses, and values that a release compares as equal."""

from __future__ import annotations

from itertools import product

import pytest
from sides import as_live
from topologies import problems_in

from rabbit_chx.errors import TopologyError
from rabbit_chx.routing import Release
from rabbit_chx.topology import LiveTopology, PolicyDefinition, QueueDefinition, Topology, plan
from rabbit_chx.topology.arguments import MEASURED, QUEUE_ARGUMENTS, declaration_faults

QUEUE = '[[queues]]\nname = "q"\n'


@pytest.mark.parametrize(
    ("type_", "argument", "accepting", "refusing"),
    [
        ("quorum", "x-message-ttl = 5", "3.10.8", "3.8.9"),
        ("classic", "x-queue-version = 1", "4.0.5", "4.3.6"),
        ("classic", 'x-queue-mode = "x"', "4.3.6", "4.0.5"),
        ("classic", 'x-max-age = "1D"', "3.8.9", "3.10.8"),
        ("classic", "x-consumer-timeout = 5", "4.0.5", "4.3.6"),
        ("classic", 'x-queue-master-locator = "random"', "4.0.5", "4.3.6"),
        ("stream", "x-stream-filter-size-bytes = 5", "3.10.8", "4.0.5"),
        ("stream", "x-max-length-bytes = 5", "3.10.8", "3.8.9"),
    ],
)
def test_an_argument_is_refused_on_the_releases_that_refuse_it(
    type_: str, argument: str, accepting: str, refusing: str
) -> None:
    text = f'{QUEUE}type = "{type_}"\narguments = {{ {argument} }}'
    wanted = Topology.from_toml(text)
    assert Topology.from_toml(text, release=Release(accepting)) == wanted
    with pytest.raises(TopologyError):
        Topology.from_toml(text, release=Release(refusing))
    assert plan(wanted, LiveTopology(release=Release(accepting))).refusals == ()
    if "master-locator" not in argument:  # there the broker says whether it permits it
        (refusal,) = plan(wanted, LiveTopology(release=Release(refusing))).refusals
        assert (refusal.kind, refusal.allow_with) == ("declaration", None)
        assert refusal.message.count(f"RabbitMQ {refusing}") == 1


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


def test_a_file_for_an_older_broker_has_no_mistake() -> None:
    mirrored = PolicyDefinition("mirrored", "^q$", definition={"ha-mode": "all"})
    wanted = Topology(
        queues=(QueueDefinition("q", arguments={"x-queue-master-locator": "random"}),), policies=(mirrored,)
    )
    assert wanted.problems == ()
    assert Topology.from_toml(wanted.to_toml()) == wanted
    assert len(as_live(wanted, release=Release("4.3.6")).problems) == 2


def test_a_type_of_a_plugin_has_its_own_rules() -> None:
    queue = QueueDefinition("q", "delayed", exclusive=True, arguments={"x-max-age": 5})
    assert declaration_faults(queue, Release("4.3.6")) == []


@pytest.mark.parametrize(
    ("release", "type_", "old", "new", "equal"),
    [
        ("4.3.6", "stream", {"x-max-age": "1D"}, {"x-max-age": "24h"}, True),
        ("4.3.6", "stream", {"x-max-age": "1Y"}, {"x-max-age": "12M"}, False),
        ("4.0.5", "stream", {"x-max-age": "1D"}, {"x-max-age": "24h"}, False),
        ("4.3.6", "stream", {}, {"x-max-age": "24h"}, False),
        ("4.3.6", "classic", {"x-unknown": 1}, {"x-unknown": 2}, True),
        ("4.3.6", "classic", {"x-max-length": 1}, {"x-max-length": 2}, False),
        ("4.3.6", "quorum", {"x-quorum-target-group-size": 3}, {"x-quorum-target-group-size": 5}, False),
        ("4.0.5", "quorum", {"x-consumer-timeout": 3}, {}, True),
    ],
)  # fmt: skip
def test_a_queue_is_replaced_only_if_the_broker_refuses_its_declaration(
    release: str, type_: str, old: dict[str, object], new: dict[str, object], *, equal: bool
) -> None:
    live = LiveTopology(queues=(QueueDefinition("q", type_, arguments=old),), release=Release(release))
    wanted = Topology(queues=(QueueDefinition("q", type_, arguments=new),))
    assert [str(change) for change in plan(wanted, live).changes] == ([] if equal else ["replace queue q"])
