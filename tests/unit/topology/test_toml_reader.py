"""A file becomes objects, and each wrong field a problem with its path, rule and remedy."""

from __future__ import annotations

import pytest
from topologies import problems_in

from rabbit_chx import ExchangeRef, Topology
from rabbit_chx.errors import TopologyError
from rabbit_chx.topology import (
    BindingDefinition,
    ExchangeDefinition,
    PolicyDefinition,
    QueueDefinition,
    RingMember,
)
from rabbit_chx.topology.fields import read_document
from rabbit_chx.topology.objects import FILE
from rabbit_chx.topology.toml_file import parsed

WHOLE = """
cluster = "rabbit@prod"
max_share_moved = 0.2
owns = ["orders.*"]
[[exchanges]]
name = "orders"
type = "x-consistent-hash"
durable = false
auto_delete = true
internal = true
arguments = { hash-header = "tenant" }
max_share_moved = 0.05
ring = [{ queue = "orders.{1..2}", weight = 3 }, { exchange = "audit" }, { queue = "q", weight = "007", arguments = { a = 1 } }]
[[exchanges]]
name = "events"
type = "x-consistent-hash"
slots = 64
members = [{ queue = "events.{1..2}", weight = 2 }]
[[queues]]
name = "orders.{01..02}"
type = "quorum"
arguments = { x-delivery-limit = 5, x-dead-letter-exchange = "dead.{1..2}" }
owner = "external"
[[queues]]
name = "mine"
durable = false
exclusive = true
auto_delete = true
[[bindings]]
source = "audit"
queue = "a.{1..2}"
routing_key = "k.{1..2}"
arguments = { x = [1, { y = 2.5 }] }
owner = "external"
[[bindings]]
source = "audit"
exchange = "other"
[[policies]]
name = "shards"
pattern = "^images{1..2}$"
apply_to = "exchanges"
definition = { shards-per-node = 4 }
priority = -1
owner = "external"
"""


def test_each_field_is_read() -> None:
    topology = Topology.from_toml(WHOLE)
    assert (topology.cluster, topology.max_share_moved, topology.owns) == ("rabbit@prod", 0.2, ("orders.*",))
    members = (RingMember("events.1", "2"), RingMember("events.2", "2"))
    ring = (
        RingMember("orders.1", "3"), RingMember("orders.2", "3"), RingMember(ExchangeRef("audit"), "1"),
        RingMember("q", "007", {"a": 1}),
    )  # fmt: skip
    assert topology.exchanges == (
        ExchangeDefinition("events", "x-consistent-hash", slots=64, members=members),
        ExchangeDefinition(
            "orders", "x-consistent-hash", False, True, True, {"hash-header": "tenant"}, ring, max_share_moved=0.05
        ),
    )  # fmt: skip
    assert topology.queues[0] == QueueDefinition("mine", durable=False, exclusive=True, auto_delete=True)
    assert topology.queues[2] == QueueDefinition(
        "orders.02", "quorum", arguments={"x-delivery-limit": 5, "x-dead-letter-exchange": "dead.2"}, owner="external"
    )  # fmt: skip
    assert topology.bindings == (
        BindingDefinition("audit", "a.1", "k.1", {"x": [1, {"y": 2.5}]}, "external"),
        BindingDefinition("audit", "a.2", "k.2", {"x": [1, {"y": 2.5}]}, "external"),
        BindingDefinition("audit", ExchangeRef("other")),
    )
    assert topology.policies == (
        PolicyDefinition("shards", "^images{1..2}$", "exchanges", {"shards-per-node": 4}, -1, "external"),
    )


def test_a_file_without_anything_is_an_empty_topology() -> None:
    assert Topology.from_toml("") == Topology()
    assert Topology.from_toml('[[queues]]\nname = "q"') == Topology(queues=(QueueDefinition("q"),))


HASH = '[[exchanges]]\nname = "x"\ntype = "x-consistent-hash"\n'
QUEUE = '[[queues]]\nname = "q"\n'


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('cluter = "c"', "cluter: the file has no field `cluter`; did you mean `cluster`?"),
        ("zzz = 1", "zzz: the file has no field `zzz`; its fields are cluster, max_share_moved, owns, exchanges"),
        ('[[queue]]\nname = "q"', "queue: the file has no field `queue`; did you mean `queues`?"),
        (f'{QUEUE}[[queue]]\nname = "q"', "queue: the file has no field `queue`; did you mean `queues`?"),
        (f"{QUEUE}auto-delete = true", "did you mean `auto_delete`?"),
        (f"{QUEUE}Type = 'quorum'", "did you mean `type`?"),
        ('queues = "q"', "queues: `queues` is a list of tables; begin each one with [[queues]]"),
        ('[queues.q]\ntype = "quorum"', "queues: `queues` is a list of tables"),
        ('queues = ["q"]', "queues[0]: a queue is a table; write it as { name = value, ... }"),
        ("cluster = 5", "cluster: a name is text that is not empty; write the name in quotes"),
        ("max_share_moved = 5", "max_share_moved: a share is a number from 0 to 1; write 5 % as 0.05"),
        ("max_share_moved = nan", "max_share_moved: a share is a number from 0 to 1"),
        ('max_share_moved = "0.5"', "max_share_moved: a share is a number from 0 to 1"),
        ('owns = "a"', 'owns: this is a list of names; write it as ["orders.*"]'),
        ('vhost = "/"', "vhost: the file has no field `vhost`; leave it out: a file is for any vhost"),
        ('[[queues]]\nname = ["a"]', 'queues[0].name: this is one name; write an entry for each, or a range, as in "orders.{1..4}"'),
        ("[[queues]]", "queues[0].name: a queue needs `name`; write it: its name"),
        ('[[queues]]\nname = ""', "queues[0].name: a name is text that is not empty"),
        (f'{QUEUE}type = "quroum"', "queues[0].type: a queue's type is classic, quorum or stream; write \"quorum\""),
        (f"{QUEUE}type = 5", "queues[0].type: a queue's type is classic, quorum or stream; write one of them"),
        (f'{QUEUE}durable = "yes"', "queues[0].durable: this is true or false; write one of them, without quotes"),
        (f"{QUEUE}durable = 1", "queues[0].durable: this is true or false"),
        (f'{QUEUE}owner = "me"', "queues[0].owner: an owner is ours or external"),
        (f"{QUEUE}arguments = 5", "queues[0].arguments: this is a table; write it as { name = value, other = value }"),
        (f"{QUEUE}arguments = {{ a = [2020-01-01] }}", "queues[0].arguments: the argument 'a' is datetime.date(2020, 1, 1) (date); give text, a number"),
        (f"{QUEUE}arguments = {{ a = [inf] }}", "queues[0].arguments: the argument 'a' is inf; give a finite number"),
        (f"{QUEUE}arguments = {{ a = {1 << 63} }}", "queues[0].arguments: the argument 'a' is a number of more than 64 bits; give a smaller one"),
        (f"{HASH}ring = [{{ weight = 1 }}]", "exchanges[0].ring[0].queue: the destination is either a queue or an exch"),
        (f'{HASH}ring = [{{ queue = "a", exchange = "b" }}]', "exchanges[0].ring[0].exchange: the destination is either"),
        (f'{HASH}ring = [{{ queue = "a", weight = 0 }}]', "ring[0].weight: a weight is a whole number from 1 to 10000000; leave"),
        (f'{HASH}ring = [{{ queue = "a", weight = true }}]', "ring[0].weight: a weight is a whole number"),
        (f'{HASH}ring = [{{ queue = "a", weight = false }}]', "ring[0].weight: a weight is a whole number from 1 to 10000000; write such"),
        (f'{HASH}ring = [{{ queue = "a", weight = "1\\n" }}]', "ring[0].weight: a weight is a whole number"),
        (f'{HASH}ring = [{{ queue = "a", weight = 1.0 }}]', "ring[0].weight: a weight is a whole number"),
        (f'{HASH}ring = [{{ queue = "a", weight = "-1" }}]', "ring[0].weight: a weight is a whole number"),
        (f'{HASH}ring = [{{ queue = "a", weight = 10000001 }}]', "ring[0].weight: a weight is a whole number from 1 to 10000000; divide"),
        (f'{HASH}ring = [{{ queue = "a", wieght = 2 }}]', "exchanges[0].ring[0].wieght: a member has no field `wieght`; did you mean `weight`?"),
        (f'{HASH}ring = ["a"]', 'exchanges[0].ring[0]: a member is a table; write it as { queue = "...", weight = 1 }'),
        (f'{HASH}ring = {{ queue = "a" }}', "exchanges[0].ring: `ring` is a list of tables; write each one as ring = [{ ... }]"),
        (HASH, 'exchanges[0].ring: an exchange of type x-consistent-hash needs its members, in the order in which they are bound; write ring = [{ queue = "...", weight = 1 }]'),
        (f"{HASH}slots = 4", "exchanges[0].members: `slots` is the number of slots, and `members` share them; write `members` too"),
        (f'{HASH}members = [{{ queue = "a" }}]', "write `slots` too, or `ring` instead of `members`"),
        (f'{HASH}ring = []\nslots = 4\nmembers = [{{ queue = "a" }}]', "exchanges[0].slots: slots make the ring, so an exchange has either"),
        (f'{HASH}slots = 0\nmembers = [{{ queue = "a" }}]', "exchanges[0].slots: the number of slots is a whole number from 1"),
        (f"{HASH}slots = 4\nmembers = [{{ weight = 1 }}]", "members[0].queue: a member needs `queue`"),
        ('[[exchanges]]\nname = "x"\nring = []', "exchanges[0].ring: only an exchange of type x-consistent-hash has a ring, and this is of type direct; write type"),
        ('[[exchanges]]\nname = "x"\ntype = "topic"\nmax_share_moved = 1', "exchanges[0].max_share_moved: only an exchange of type x-consistent-hash or x-modulus-hash hashes keys, and this is of type topic; leave"),
        ('[[bindings]]\nqueue = "q"', "bindings[0].source: a binding needs `source`"),
        ('[[bindings]]\nsource = "x"', "bindings[0].queue: the destination is either a queue or an exchange; write `queue` or `exchange`"),
        ('[[bindings]]\nsource = ""\nqueue = "q"', "bindings[0].source: a name is text that is not empty"),
        ('[[bindings]]\nsource = "x"\nqueue = "q"\nrouting_key = 5', "bindings[0].routing_key: this is text; write it in quotes"),
        ('[[policies]]\nname = "p"\npattern = ".*"', "policies[0].definition: a policy needs `definition`"),
        ('[[policies]]\nname = "p"\npattern = ".*"\ndefinition = {}\napply_to = "queue"', 'write "queues"'),
        ('[[policies]]\nname = "p"\npattern = ".*"\ndefinition = {}\npriority = "1"', "policies[0].priority: a priority is a whole number"),
        ('[[queues]]\nname = "q.{4..1}"', "queues[0].name: {4..1} counts down; write {1..4}"),
        ('[[bindings]]\nsource = "x"\nqueue = "q.{1..4}"\nrouting_key = "{1..5}"', "bindings[0].routing_key: ranges of one entry go together, and queue has {1..4}"),
        (f'{HASH}ring = [{{ queue = "a.{{b..c}}" }}]', "exchanges[0].ring[0].queue: {b..c} is not a range of whole numbers"),
    ],
)  # fmt: skip
def test_a_wrong_field_is_one_problem(text: str, problem: str) -> None:
    found = problems_in(text)
    assert len(found) == 1, found
    assert problem in found[0]


def test_an_external_hash_exchange_needs_no_ring() -> None:
    assert Topology.from_toml(f'{HASH}owner = "external"').exchanges[0].ring is None
    assert Topology.from_toml(f"{HASH}ring = []").exchanges[0].ring == ()


def test_all_problems_of_all_entries_are_found_at_once() -> None:
    text = "max_share_moved = 2\n[[queues]]\nnme = 'q'\ndurable = 1\n[[queues]]\ntype = 'x'\n[[bindings]]\nsource = 5\n"
    assert [line.partition(":")[0] for line in problems_in(text)] == [
        "max_share_moved", "queues[0].nme", "queues[0].durable", "queues[1].name", "queues[1].type",
        "bindings[0].queue", "bindings[0].source",
    ]  # fmt: skip


def test_what_is_wrong_in_one_field_is_no_second_problem() -> None:
    assert len(problems_in('[[exchanges]]\nname = "x"\ntype = 5\nring = [{ queue = "q" }]')) == 1
    assert len(problems_in('[[queues]]\nname = "q"\ntype = "quroum"\nexclusive = true')) == 1
    assert len(problems_in('[[queues]]\nname = "amq.q"\nowner = "externl"')) == 1


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a = 1\nb = x", "t.toml has a mistake:\n  line 2, the text: this is not TOML: Invalid value in `b = x`; text is written in q"),
        ("a = 1\n\na = 2", "line 3, the text: this is not TOML: Cannot overwrite a value in `a = 2`; .* each key once"),
        ("my/topology.toml", "in `my/topology.toml`; this is the name of a file: give its text"),
        ("a = ", "line 1, the text: this is not TOML: Invalid value in `a =`"),
        (f"a = {'[' * 5000}", "this is not TOML|nested too deep"),
    ],
)  # fmt: skip
def test_text_that_is_no_toml_says_where(text: str, says: str) -> None:
    with pytest.raises(TopologyError, match=says) as caught:
        parsed(text, "t.toml")
    assert (caught.value.file, len(caught.value.problems)) == ("t.toml", 1)


def test_entries_know_their_place_and_their_wrong_fields() -> None:
    objects = read_document(parsed('[[queues]]\nname = "q.{1..2}"\ndurable = 5'), FILE)
    assert [(queue.path, queue.bad, queue.value.name, queue.value.durable) for queue in objects.queues] == [
        ("queues[0]", frozenset({"durable"}), "q.1", True),
        ("queues[0]", frozenset({"durable"}), "q.2", True),
    ]
