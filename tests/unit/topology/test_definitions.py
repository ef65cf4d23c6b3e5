"""What real brokers export is understood, and what is left out is said."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest
from definitions_file import definitions_file
from hypothesis import given
from sides import as_live
from stored_files import STORED_DEFINITIONS, judge_definitions
from topologies import topologies

from rabbit_chx import HashRing, Release, Topology
from rabbit_chx.errors import InputError, TopologyError
from rabbit_chx.topology import (
    BindingDefinition,
    ExchangeDefinition,
    Imported,
    LiveTopology,
    PolicyDefinition,
    QueueDefinition,
    arrange,
    check,
    plan,
)

FILES = Path(__file__).parent / "definitions"
EXPORTS = sorted(path.name for path in FILES.glob("*.json"))


def read(**lists: Any) -> Topology:
    """Return the topology of a definitions file of these lists."""
    return Topology.from_definitions(json.dumps({"queues": [], **lists}))


def exported(name: str) -> str:
    return (FILES / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("name", EXPORTS)
def test_an_export_says_what_is_stored_and_no_secrets(name: str) -> None:
    """A TOML file beside the export has its objects, and what is left out."""
    imported = Imported.from_definitions(exported(name))
    topology = imported.topology
    left_out = "".join(f"# left out: {line}\n" for line in imported.left_out)
    stored = (FILES / name).with_suffix(".toml").read_text(encoding="utf-8")
    assert f"{topology.to_toml()}{left_out}" == stored
    assert "s3cret" in exported(name)
    assert "s3cret" not in stored
    assert (topology.release, topology.ring("orders").provenance) == (Release(name[6:-5]), None)
    assert Topology.from_toml(topology.to_toml()) == topology
    assert Topology.from_definitions(definitions_file(topology)) == topology
    assert Topology.from_definitions(definitions_file(topology, None), vhost="any") == topology


def ours(topology: Topology) -> Topology:
    """Return a topology of objects that a definitions file can say: ours, without slots, with listed queues."""
    exchanges = tuple(
        replace(exchange, owner="ours", slots=None, members=None, ring=exchange.ring or () if exchange.type == "x-consistent-hash" else None, max_share_moved=None)
        for exchange in topology.exchanges
    )  # fmt: skip
    queues = {queue.name: replace(queue, owner="ours", exclusive=False) for queue in topology.queues}
    for binding in topology.bindings:
        if isinstance(binding.destination, str):
            queues.setdefault(binding.destination, QueueDefinition(binding.destination))
    bindings = tuple(replace(binding, owner="ours") for binding in topology.bindings)
    policies = tuple(replace(policy, owner="ours") for policy in topology.policies)
    return Topology(exchanges, tuple(queues.values()), bindings, policies)


@pytest.mark.extended
@given(topologies())
def test_a_topology_is_what_its_definitions_say(topology: Topology) -> None:
    said = ours(topology)
    for vhost in ("/", None):
        assert Topology.from_definitions(definitions_file(said, vhost)) == said


def test_another_vhost_is_read_by_its_name() -> None:
    other = Imported.from_definitions(exported("whole-4.3.6.json"), vhost="other")
    assert other.topology == Topology(queues=(QueueDefinition("elsewhere"),))
    assert "31 objects of vhost /" in other.left_out
    with pytest.raises(
        TopologyError, match="the file does not contain the vhost 'prod'; pass one of '/', 'other'"
    ):
        Topology.from_definitions(exported("whole-4.3.6.json"), vhost="prod")
    assert Topology.from_definitions(exported("vhost-4.3.6.json"), vhost="prod").queues


@pytest.mark.parametrize("kind", ["x-modulus-hash", "topic"])
def test_an_exchange_with_a_binding_that_is_left_out_is_not_read_as_a_whole(kind: str) -> None:
    """The keys of the other queues of an x-modulus-hash exchange depend on it."""
    exchanges = ExchangeDefinition("x", kind), ExchangeDefinition("whole", kind)
    bindings = [BindingDefinition(*ends) for ends in (("x", "q"), ("x", "exclusive"), ("whole", "q"))]
    file = Topology(exchanges, (QueueDefinition("q"),), tuple(bindings))
    topology = Topology.from_definitions(definitions_file(file))
    assert topology.sources_left_out == {"x"}
    if kind == "x-modulus-hash":
        assert topology.modulus("x").provenance is None


def test_a_file_without_a_release_and_with_old_empty_tables_is_read() -> None:
    queue = {"name": "q", "arguments": []}
    imported = Imported.from_definitions(json.dumps({"queues": [queue], "rabbit_version": "unknown"}))
    assert imported == Imported(Topology(queues=(QueueDefinition("q"),)))
    assert imported.topology.release is None


@pytest.mark.parametrize("text", STORED_DEFINITIONS, ids=STORED_DEFINITIONS.values())
def test_mistakes_and_what_an_import_makes_otherwise_are_named_on_a_line_each(text: str) -> None:
    assert judge_definitions(text) == STORED_DEFINITIONS[text]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[", "invalid JSON: .*; export the file again"),
        ("definitions.json", "this is the name of a file: pass its text"),
    ],
)
def test_a_text_that_is_not_json_is_refused(text: str, says: str) -> None:
    with pytest.raises(TopologyError, match=f"^the definitions file has a mistake:\n.*{says}"):
        Topology.from_definitions(text)


HASH = {"name": "x", "type": "x-consistent-hash"}
MEMBERS = ("q3", "q1", "q2")


def ring_file(*queues: str) -> Topology:
    """Return the topology of a definitions file of a ring, in this order of bindings."""
    bindings = [
        {"source": "x", "destination": queue, "destination_type": "queue", "routing_key": "1"}
        for queue in queues
    ]
    return read(exchanges=[HASH], queues=[{"name": queue} for queue in queues], bindings=bindings)


@pytest.fixture(scope="module")
def live() -> LiveTopology:
    """A broker with the ring of MEMBERS, which was read."""
    return ring_file(*MEMBERS).with_rings({"x": HashRing.from_buckets(MEMBERS, Release("4.3.6"))})


@pytest.mark.parametrize("order", list(permutations(MEMBERS)))
def test_a_file_with_the_same_members_changes_nothing(live: LiveTopology, order: tuple[str, ...]) -> None:
    file = ring_file(*order)
    planned = plan(file, live)
    assert not planned.changes
    assert not planned.refusals
    assert planned.rings["x"].moved == 0
    assert check(live, file).sound
    ring = (arrange(file, live).exchange("x") or ExchangeDefinition("")).ring or ()
    assert tuple(member.destination for member in ring) == MEMBERS


def test_new_members_are_bound_at_the_end_and_missing_ones_unbound(live: LiveTopology) -> None:
    more = plan(ring_file("q1", "q2", "q3", "q4"), live)
    assert [str(change) for change in more.changes] == ["create queue q4", "bind x -> q4 (key 1)"]
    assert not more.refusals
    fewer = plan(ring_file("q2", "q1"), live)
    assert [str(change) for change in fewer.changes] == ["unbind x -> q3 (key 1)"]
    (refusal,) = fewer.refusals
    assert (refusal.kind, str(refusal.allow_with)[:18]) == ("moved", "--allow moved=0.83")
    assert not fewer.rings["x"].proposals
    assert not fewer.refused(allow_moved=0.84)
    assert not plan(replace(ring_file("q2", "q1"), max_share_moved=0.9), live).refusals
    for members in (("q2", "q1"), (*MEMBERS, "q4")):
        checked = check(live, ring_file(*members))
        assert checked.misplaced == {"x": plan(ring_file(*members), live).rings["x"].moved}
        assert not any("repair" in finding.fix for finding in checked.findings)


@pytest.mark.parametrize(
    ("of_broker", "entry", "type_"),
    [
        ("quorum", {}, "quorum"),
        ("quorum", {"exclusive": True}, "classic"),
        ("quorum", {"durable": False}, "classic"),
        ("quorum", {"auto_delete": True}, "classic"),
        ("quorum", {"arguments": {"x-queue-type": "stream"}}, "stream"),
        ("undefined", {}, "classic"),
        (None, {}, "classic"),
    ],
)
def test_a_queue_without_a_type_has_the_default_of_the_vhost(
    of_broker: str | None, entry: dict[str, Any], type_: str
) -> None:
    queues = [{"name": "q", **entry}]
    of_file = {"vhosts": [{"name": "/", "metadata": {"default_queue_type": "stream"}}]}
    live = as_live(Topology(), default_queue_type=of_broker)
    for vhosts, expected in (({}, type_), (of_file, type_ if entry else "stream")):
        wanted = read(queues=queues, **vhosts)
        (change,) = plan(wanted, live).changes
        assert isinstance(change.wanted, QueueDefinition)
        assert (change.wanted.type, change.wanted.exclusive) == (expected, False)


def test_a_topology_file_names_the_default_that_it_does_not_have() -> None:
    vhost = as_live(Topology(), default_queue_type="quorum")
    (warning,) = plan(Topology.from_toml('[[queues]]\nname = "q"'), vhost).warnings
    assert "the default queue type of the vhost is quorum" in warning
    assert not plan(Topology.from_toml('[[queues]]\nname = "q"\ntype = "classic"'), vhost).warnings
    assert not plan(Topology.from_toml('[[queues]]\nname = "q"'), LiveTopology()).warnings


FIRST, LAST = {"max-length": 1}, {"max-length": 2}
#: RabbitMQ imports it, and no AMQP client can send it.
HUGE = {"max-length": [1 << 70, 1.5]}


def test_of_a_field_that_is_there_twice_the_first_counts() -> None:
    for first, last in (("true", "false"), ("false", "true")):
        text = f'{{"queues": [{{"name": "q", "auto_delete": {first}, "auto_delete": {last}}}]}}'
        file = Imported.from_definitions(text)
        assert file.topology.queues == (QueueDefinition("q", auto_delete=first == "true"),)
        assert ["auto_delete" in oddity.message for oddity in file.oddities] == [True]


@pytest.mark.parametrize(
    ("kind", "entries", "made"),
    [
        ("exchanges", [{"type": "topic"}, {"type": "fanout"}], [ExchangeDefinition("n", "topic")]),
        ("exchanges", [{"type": "topic", "arguments": HUGE}, {"type": "fanout"}], []),
        ("queues", [{"auto_delete": True}, {}], [QueueDefinition("n", auto_delete=True)]),
        ("queues", [{}, {"auto_delete": True}], [QueueDefinition("n")]),
        ("policies", [FIRST, LAST], [PolicyDefinition("n", "^q", definition=LAST)]),
        ("policies", [LAST, FIRST], [PolicyDefinition("n", "^q", definition=FIRST)]),
        ("policies", [HUGE, LAST], [PolicyDefinition("n", "^q", definition=LAST)]),
        ("policies", [FIRST, HUGE], []),  # it has replaced the first one, and is left out
    ],
)
def test_of_two_entries_of_one_name_the_one_counts_that_rabbitmq_takes(
    kind: str, entries: list[dict[str, Any]], made: list[Any]
) -> None:
    """The first exchange and queue that it makes, and the last policy."""
    if kind == "policies":
        entries = [{"pattern": "^q", "definition": definition} for definition in entries]
    topology = read(**{kind: [{"name": "n", **entry} for entry in entries]})
    assert [*getattr(topology, kind)] == made


def test_operator_policies_of_a_file_are_compared() -> None:
    value = {"pattern": "^q", "definition": {"max-length": 5}, "priority": 1, "apply-to": "queues"}
    file = read(parameters=[{"component": "operator_policy", "name": "caps", "value": value}])
    (policy,) = file.file.operator_policies
    (warning,) = plan(file, LiveTopology()).warnings
    assert "operator policy caps of the file is not on the broker" in warning
    assert not plan(file, as_live(Topology(), operator_policies=(policy,))).warnings


OPERATOR = {"pattern": "^q", "definition": {"max-length": 5}, "apply-to": "queues"}


@pytest.mark.parametrize(
    ("lists", "says"),
    [
        ({"exchanges": [5], "queues": [{"name": "q", "vhost": "/"}]}, r"exchanges\[0\]: .* an object"),
        ({"exchanges": [{"name": 5, "type": "topic"}]}, r"exchanges\[0\]: its name is 5, not a string"),
        ({"parameters": [{"component": "operator_policy", "name": "p", "value": OPERATOR}]}, "its priority is missing"),
        ({"parameters": [{"component": "operator_policy", "name": "p", "value": 5}]}, "its value is 5, not an object"),
        ({"parameters": [{"component": "vhost-limits", "name": "limit", "value": {}}]}, "name must be limits"),
    ],
)  # fmt: skip
def test_an_entry_that_rabbitmq_refuses_is_a_mistake(lists: dict[str, Any], says: str) -> None:
    with pytest.raises(TopologyError, match=says):
        read(**lists)


@pytest.mark.parametrize("flag", [None, "yes"])
def test_an_exchange_with_a_flag_that_is_none_is_read_with_the_default_and_named(flag: object) -> None:
    """RabbitMQ 4.3 imports it: a plan that did not know it would create it, which the broker refuses."""
    exchanges = [{"name": "y", "type": "topic", "durable": flag, "internal": flag}]
    imported = Imported.from_definitions(json.dumps({"exchanges": exchanges}))
    assert imported.topology.exchanges == (ExchangeDefinition("y", "topic"),)
    (odd,) = imported.oddities
    assert (odd.kind, "exchange y (its durable is" in odd.message) == ("odd-object", True)


def test_the_finding_of_odd_objects_lists_a_few() -> None:
    queues = [{"name": f"q{n}\n", "durable": True} for n in range(50)]
    (odd,) = Imported.from_definitions(json.dumps({"queues": queues})).oddities
    assert odd.message.startswith("50 objects that ")
    assert odd.message.endswith("; and 47 more")


def test_limits_of_the_vhost_and_what_cannot_be_compared_are_left_out_by_name() -> None:
    limits = {"component": "vhost-limits", "name": "limits", "value": {"max-queues": 5}}
    value = {"pattern": "", "definition": {"max-length": 5}, "priority": 1}
    caps = {"component": "operator_policy", "name": "p", "value": value}
    imported = Imported.from_definitions(json.dumps({"queues": [], "parameters": [limits, caps]}))
    assert "limits of the vhost: max-queues 5" in imported.left_out
    (odd,) = imported.oddities
    assert "parameter p (RabbitMQ has no default for its apply-to)" in odd.message
    assert not imported.topology.file.operator_policies


def test_a_binding_that_is_there_twice_is_named_once() -> None:
    bound = {"source": "x", "destination": "q", "destination_type": "queue", "routing_key": "1"}
    lists = {"exchanges": [HASH], "queues": [{"name": "q"}], "bindings": [bound, bound]}
    (odd,) = Imported.from_definitions(json.dumps(lists)).oddities
    assert odd.message.startswith("1 object that ")
    assert odd.message.endswith(": binding x -> q (listed twice)")


def test_a_plan_does_not_send_what_amqp_cannot_carry() -> None:
    wanted = Topology(queues=(QueueDefinition("q", arguments={"x-f": [1.5]}),))
    (refusal,) = plan(wanted, LiveTopology()).refusals
    assert (refusal.kind, "queue q" in refusal.message) == ("argument", True)
    assert wanted.problems
    assert not plan(wanted, as_live(wanted)).refusals


def test_a_text_is_read_which_may_begin_with_a_byte_order_mark() -> None:
    assert Topology.from_definitions('\ufeff{"queues": [{"name": "q"}]}').queues[0].name == "q"
    wrong: tuple[Any, ...] = ({"queues": []}, None, Path("definitions.json"))
    for text in wrong:
        with pytest.raises(InputError, match="is not the text of a definitions file: pass the text"):
            Topology.from_definitions(text)
