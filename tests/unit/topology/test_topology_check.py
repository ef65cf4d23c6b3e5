"""What a check finds on topologies that are values."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Literal

import pytest

from rabbit_chx.errors import InputError, MismatchError, NotFoundError
from rabbit_chx.routing import ExchangeRef, HashRing, Release
from rabbit_chx.routing.arrays import seeds
from rabbit_chx.routing.bindings import Place
from rabbit_chx.topology import (
    BindingDefinition,
    ExchangeDefinition,
    QueueDefinition,
    RingMember,
    Topology,
    TopologyCheck,
    check,
)
from rabbit_chx.topology.check import CHECK_KINDS

RELEASE = Release("4.3.6")
FILE = """
[[exchanges]]
name = "orders"
type = "x-consistent-hash"
ring = [{ queue = "q1", weight = 2 }, { queue = "q2" }, { queue = "q3" }]
[[queues]]
name = "q{1..3}"
"""
WANTED = Topology.from_toml(FILE)
RING = ("q1", "q1", "q2", "q3")


def live(buckets: tuple[Place, ...] = RING, text: str = FILE, release: Release = RELEASE) -> Topology:
    topology = Topology.from_toml(text)
    rings = {
        exchange.name: HashRing.from_buckets(
            [m.destination for m in exchange.ring for _ in range(int(m.key))], release
        )
        for exchange in topology.exchanges
        if exchange.ring is not None
    }
    read = HashRing.from_buckets(buckets, release, next_bucket=len(buckets))
    return replace(topology, release=release).with_rings({**rings, "orders": read})


def kinds(checked: TopologyCheck) -> list[tuple[str, Place]]:
    assert {finding.kind for finding in checked.findings} <= set(CHECK_KINDS)
    return [(finding.kind, finding.destination) for finding in checked.findings]


def test_what_is_as_it_should_be_is_sound() -> None:
    found = check(live(), WANTED)
    assert found.sound
    assert (found.exchanges, found.unroutable, found.misplaced) == (
        ("orders",),
        {"orders": 0.0},
        {"orders": 0.0},
    )
    assert check(live()).sound
    assert check(live()).misplaced == {}


def test_of_a_sound_ring_only_the_shares_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """To count more takes a second a ring, and `ring list` checks all rings of a broker."""

    def count(*_: object) -> None:
        pytest.fail("more is counted")

    monkeypatch.setattr(HashRing, "indices_of_all_seeds", count)
    monkeypatch.setattr(seeds, "stays_of_seeds", count)
    found = check(live())
    assert found.sound
    assert found.unroutable == {"orders": 0.0}


def test_a_file_of_another_cluster_is_found() -> None:
    wanted = replace(WANTED, cluster="rabbit@prod")
    for cluster, told in ((None, "a cluster whose name is not known"), ("rabbit@test", "rabbit@test")):
        (finding,) = check(replace(live(), cluster=cluster), wanted).findings
        assert finding.kind == "different"
        assert finding.message == f"the topology is for the cluster rabbit@prod, and this is {told}"
    assert check(replace(live(), cluster="rabbit@prod"), wanted).sound


def test_another_order_is_found_with_the_share_of_keys_that_are_elsewhere() -> None:
    there = live(("q2", "q1", "q1", "q3"))
    assert check(there).sound
    found = check(there, WANTED, file="my file.toml")
    (order,) = found.findings
    share = there.rings["orders"].share_moved(live().rings["orders"])
    assert (order.kind, order.exchange, order.destination, order.share) == ("order", "orders", None, share)
    assert found.misplaced == {"orders": share}
    assert order.message == (
        "the ring has another order than the topology: q2 is where q1 belongs; "
        f"{share:.3%} of all keys are elsewhere"
    )
    assert order.fix == (
        "run: rabbit-chx ring repair orders --file 'my file.toml'; it shows the steps, and does them with --apply"
    )


@pytest.mark.parametrize("provenance", ["assumed", "replayed", None])
def test_a_ring_that_was_not_read_is_refused(provenance: Literal["assumed", "replayed"] | None) -> None:
    ring = HashRing.from_bindings([("q1", 2), ("q2", 1), ("q3", 1)], RELEASE)
    rings = {} if provenance is None else {"orders": replace(ring, provenance=provenance)}
    unread = replace(live(), rings=rings)
    for wanted in (WANTED, None):
        with pytest.raises(InputError, match=r"prove nothing: give --ring-via PREFIX"):
            check(unread, wanted)


def test_a_ghost_takes_its_keys_nowhere() -> None:
    there = live((*RING, "gone"))
    found = check(there, WANTED)
    assert kinds(found) == [("unroutable-share", None), ("ghost-bucket", "gone"), ("different", None)]
    unroutable, ghost, different = found.findings
    share = there.rings["orders"].shares()["gone"]
    assert (unroutable.share, ghost.share, found.unroutable) == (share, share, {"orders": share})
    assert f"({share:.3%} at gone, which does not exist)" in unroutable.message
    assert ghost.message == (
        f"gone has 1 bucket and no binding: {share:.3%} of all keys are unroutable, since it does not exist"
    )
    assert different.share == live().rings["orders"].share_moved(there.rings["orders"])


def test_buckets_of_a_queue_that_exists_take_their_keys_there() -> None:
    text = FILE.replace('"q{1..3}"', '"q{1..4}"')
    found = check(live((*RING, "q4"), text), None)
    (ghost,) = found.findings
    assert (ghost.kind, found.unroutable) == ("ghost-bucket", {"orders": 0.0})
    assert ghost.message.endswith("of all keys go there, though nothing binds it")


def test_an_empty_ring_and_a_silent_binding() -> None:
    found = check(live(()), WANTED)
    assert kinds(found) == [
        ("unroutable-share", None), ("hole", None),
        ("silent-binding", "q1"), ("silent-binding", "q2"), ("silent-binding", "q3"), ("different", None),
    ]  # fmt: skip
    assert [finding.share for finding in found.findings] == [1.0, 1.0, 0.0, 0.0, 0.0, 1.0]
    assert found.findings[0].message.startswith(
        "100.000% of all keys end in no queue (100.000% without buckets)"
    )


def test_as_many_buckets_on_other_queues_are_told_by_a_queue() -> None:
    file = '[[exchanges]]\nname = "x"\ntype = "x-consistent-hash"\nring = [{ queue = "a" }, { queue = "b", weight = 2 }]\n'
    wanted = Topology.from_toml(file + '[[queues]]\nname = "a"\n[[queues]]\nname = "b"\n')
    there = wanted.with_rings({"x": HashRing.from_buckets(["a", "a", "b"])})
    says = [finding.message for finding in check(there, wanted).findings]
    assert any(
        "has other buckets than the topology says (a has 2, not 1): " in sentence for sentence in says
    ), says


def test_members_against_the_topology() -> None:
    text = (
        FILE.replace('{ queue = "q3" }', '{ queue = "q4" }')
        .replace("weight = 2", "weight = 3")
        .replace("1..3", "1..4")
    )
    wanted = Topology.from_toml(text)
    found = check(replace(live(), queues=wanted.queues), wanted)
    assert kinds(found) == [("different", None), ("different", "q1"), ("missing", "q4"), ("unexpected", "q3")]
    total, weight, missing, unexpected = found.findings
    assert total.share == found.misplaced["orders"] > 0
    assert weight.message == "q1 is bound with key 2, and the topology says key 3"
    assert missing.share == HashRing.from_bindings([("q1", 3), ("q2", 1), ("q4", 1)], RELEASE).shares()["q4"]
    assert unexpected.share == live().rings["orders"].shares()["q3"]


@pytest.mark.parametrize(
    ("about", "why", "restart"),
    [
        ("exclusive = true", "is exclusive", True),
        ("durable = false", "is not durable", True),
        ("auto_delete = true", "is auto-delete", False),
    ],
)
def test_a_queue_that_goes_by_itself(about: str, why: str, *, restart: bool) -> None:
    text = FILE.replace("q{1..3}", "q{2..3}") + f'[[queues]]\nname = "q1"\n{about}\n'
    there = live(text=text)
    (found,) = check(there).findings
    ring = there.rings["orders"]
    assert (found.kind, found.destination) == ("transient-destination", "q1")
    assert found.share == ring.share_moved(ring.unbind("q1"))
    assert why in found.message
    assert ("its buckets stay" in found.message) is restart
    (older,) = check(live(text=text, release=Release("3.10.8"))).findings
    assert "its buckets stay" not in older.message
    fleeting = text.replace('name = "orders"', 'name = "orders"\ndurable = false')
    assert check(live(text=fleeting)).sound


def test_objects_against_the_topology() -> None:
    head = 'owns = ["x.*", "jobs*"]\ncluster = "rabbit@prod"\n'
    rest = """
[[exchanges]]
name = "x.topic"
type = "topic"
[[queues]]
name = "jobs"
arguments = { x-max-length = 5 }
[[bindings]]
source = "x.topic"
queue = "jobs"
routing_key = "a"
[[policies]]
name = "p"
pattern = "none"
definition = { max-length = 1 }
"""
    wanted = Topology.from_toml(head + FILE + rest)
    other = (
        rest.replace("= 5", "= 6")
        .replace('routing_key = "a"', 'routing_key = "b"')
        .replace('name = "p"', 'name = "o"')
    )
    extra = '[[queues]]\nname = "jobs.old"\n[[queues]]\nname = "theirs"\n'
    there = replace(live(text=FILE + other + extra), cluster="rabbit@test")
    found = check(there, wanted, file="f.toml")
    assert [
        (finding.kind, finding.exchange, finding.destination, finding.share) for finding in found.findings
    ] == [
        ("different", None, None, None),
        ("different", None, "jobs", None),
        ("missing", None, None, None),
        ("unexpected", None, "jobs.old", None),
        ("missing", "x.topic", "jobs", None),
        ("unexpected", "x.topic", "jobs", None),
    ]
    cluster, different, policy, *_ = found.findings
    assert cluster.message == "the topology is for the cluster rabbit@prod, and this is rabbit@test"
    assert different.message == "queue jobs differs: arguments.x-max-length is 6, not 5"
    assert policy.message == "policy p is not there: what it sets does not apply"
    assert policy.fix == "run: rabbit-chx topology plan f.toml, and then: rabbit-chx topology apply f.toml"
    assert check(there, wanted, exchange="orders").findings == (cluster,)


def test_a_hash_exchange_that_is_not_there_or_hashes_something_else() -> None:
    (missing,) = check(Topology(queues=WANTED.queues, release=RELEASE), WANTED).findings
    assert (missing.kind, missing.exchange) == ("missing", "orders")
    header = FILE.replace('hash"\n', 'hash"\narguments = { hash-header = "tenant" }\n')
    (different,) = check(live(), Topology.from_toml(header)).findings
    assert (different.kind, different.exchange, different.share) == ("different", "orders", 1.0)
    assert different.message.endswith("keys are hashed otherwise")


def test_what_is_external_is_for_its_owner() -> None:
    wanted = Topology.from_toml(FILE.replace('hash"\n', 'hash"\nowner = "external"\n'))
    (order,) = check(live(("q2", "q1", "q1", "q3")), wanted).findings
    assert (order.kind, order.fix) == ("order", "it is external: ask its owner, or correct the topology")


def test_one_exchange_by_name() -> None:
    there = live()
    assert check(there, exchange="orders").sound
    with pytest.raises(NotFoundError, match="there is no exchange 'other'"):
        check(there, exchange="other")
    plain = Topology.from_toml(FILE + '[[exchanges]]\nname = "x"\n')
    with pytest.raises(MismatchError, match="type direct"):
        check(plain, exchange="x")
    for name, type_ in (("amq.direct", "direct"), ("amq.topic", "topic"), ("", "direct")):
        with pytest.raises(
            MismatchError, match=f"exchange '{name}' is of type {type_}, not x-consistent-hash"
        ):
            check(there, exchange=name)
    with pytest.raises(NotFoundError, match=r"there is no exchange 'amq\.other'"):
        check(there, exchange="amq.other")


def test_several_exchanges_by_name() -> None:
    other = FILE.replace('"orders"', '"other"').partition("[[queues]]")[0]
    there = live(text=FILE + other)
    assert check(there, exchange=["other", "orders", "other"]).exchanges == ("other", "orders")
    assert check(there).exchanges == ("orders", "other")


def test_a_second_binding() -> None:
    there = live()
    members = there.exchanges[0].ring or ()
    twice = replace(
        there, exchanges=(replace(there.exchanges[0], ring=(*members, replace(members[1], key="5"))),)
    )
    assert kinds(check(twice)) == [("second-binding", "q2")]


def test_ring_members_that_are_exchanges_lead_on() -> None:
    text = """
[[exchanges]]
name = "orders"
type = "x-consistent-hash"
ring = [{ queue = "q1" }, { exchange = "slot" }]
[[exchanges]]
name = "slot"
type = "fanout"
[[queues]]
name = "q1"
"""
    there = live(("q1", ExchangeRef("slot")), text)
    share = there.rings["orders"].shares()[ExchangeRef("slot")]
    (found,) = check(there).findings
    assert (found.kind, found.share) == ("unroutable-share", share)
    assert "at exchange slot, which leads to no queue" in found.message
    assert found.fix == "bind a queue to exchange slot, or take it out of the ring"
    bound = '[[bindings]]\nsource = "slot"\nqueue = "q1"\n'
    assert check(live(("q1", ExchangeRef("slot")), text + bound)).sound


def test_a_queue_whose_name_the_broker_made() -> None:
    members = WANTED.exchanges[0].ring or ()
    ring = (members[0], replace(members[1], destination="amq.gen-x"), members[2])
    read = live(("q1", "q1", "amq.gen-x", "q3"))
    there = replace(read, exchanges=(replace(WANTED.exchanges[0], ring=ring),))
    assert kinds(check(there)) == [("transient-destination", "amq.gen-x")]


def test_a_fanout_to_a_queue_that_the_topology_leaves_out_is_a_way() -> None:
    text = """
[[exchanges]]
name = "orders"
type = "x-consistent-hash"
ring = [{ exchange = "slot" }]
[[exchanges]]
name = "slot"
type = "fanout"
"""
    there = live((ExchangeRef("slot"),), text)
    assert not check(there).sound
    assert check(replace(there, sources_left_out=frozenset({"slot"}))).sound


def test_an_alternate_exchange_does_not_get_the_messages_of_a_ghost() -> None:
    text = FILE.replace('hash"\n', 'hash"\narguments = { alternate-exchange = "amq.fanout" }\n')
    ghost = check(live((*RING, "gone"), text)).findings[1]
    assert ghost.message.endswith("does not exist, and the alternate exchange 'amq.fanout' does not get them")


def test_the_page_names_each_kind() -> None:
    folder = Path(__file__).resolve().parents[3] / "docs" / "commands"
    pages = [(folder / name).read_text(encoding="utf-8") for name in ("ring-check.md", "topology-check.md")]
    assert [kind for kind in CHECK_KINDS if f"| `{kind}` |" not in "".join(pages)] == []


def test_exchanges_of_the_broker_are_not_missed() -> None:
    own = Topology(tuple(ExchangeDefinition(name, "topic", owner="external") for name in ("amq.topic", "")))
    assert check(Topology(), own).sound


def test_bindings_of_an_exchange_of_another_type_are_no_findings_beside_its_type() -> None:
    there = Topology(
        (ExchangeDefinition("orders", "topic"),),
        (QueueDefinition("q1"),),
        (BindingDefinition("orders", "q1", "k"),),
    )
    wanted = Topology(
        (ExchangeDefinition("orders", "x-consistent-hash", ring=(RingMember("q1"),)),),
        (QueueDefinition("q1"),),
        owns=("*",),
    )
    assert [finding.kind for finding in check(there, wanted).findings] == ["different"]
