"""What a rehearsal declares, what it sends, and what it says about brokers. These are made up, to have some that disagree."""

from __future__ import annotations

from dataclasses import replace

from upgrade_topologies import MIXED, keys

from rabbit_chx import Topology
from rabbit_chx.amqp import AmqpField
from rabbit_chx.amqp.header_table import properties_in
from rabbit_chx.analysis import Hashing
from rabbit_chx.routing import ExchangeRef, HashedOn, HashRing, Place, Release
from rabbit_chx.testing.rehearsal import (
    IN_ARRAYS,
    Trial,
    UpgradeProof,
    exchange_proof,
    stand_in_for,
    wire_properties,
)
from rabbit_chx.topology.upgrade import hash_exchanges
from rabbit_chx.topology.upgrade_exchange import SampledMessage, hash_upgrade


def test_a_destination_exchange_is_a_fanout_with_a_queue_behind_it() -> None:
    stand_in = stand_in_for(MIXED, hash_exchanges(MIXED)[3])
    assert stand_in.exchange == "orders"
    assert stand_in.places["behind audit"] == ExchangeRef("audit")
    assert {exchange.name: exchange.type for exchange in stand_in.topology.exchanges} == {
        "audit": "fanout", "orders": "x-consistent-hash",
    }  # fmt: skip
    assert stand_in.topology.problems == ()
    assert not stand_in.renamed


def test_queues_are_classic_and_ours() -> None:
    tenants = next(exchange for exchange in hash_exchanges(MIXED) if exchange.name == "tenants")
    stand_in = stand_in_for(MIXED, tenants)
    assert {(queue.type, queue.owner) for queue in stand_in.topology.queues} == {("classic", "ours")}
    ours = stand_in.topology.exchange("tenants")
    assert ours is not None
    assert (ours.arguments, ours.ring) == (tenants.arguments, tenants.ring)


def test_bindings_of_a_modulus_exchange_keep_their_keys() -> None:
    images = next(exchange for exchange in hash_exchanges(MIXED) if exchange.name == "images")
    bindings = stand_in_for(MIXED, images).topology.bindings
    assert {(binding.destination, binding.routing_key) for binding in bindings} == {
        ("images.0", "9"),
        ("images.1", "10"),
    }


def test_names_of_the_broker_are_replaced() -> None:
    text = """
    [[exchanges]]
    name = "x"
    type = "x-consistent-hash"
    arguments = { alternate-exchange = "amq.fanout" }
    internal = true
    ring = [{ exchange = "amq.topic" }, { queue = "behind amq.topic" }]
    """
    topology = Topology.from_toml(text)
    stand_in = stand_in_for(topology, topology.exchanges[0])
    assert stand_in.places == {
        "behind amq.topic'": ExchangeRef("amq.topic"), "behind amq.topic": "behind amq.topic",
    }  # fmt: skip
    exchange = stand_in.topology.exchange("x")
    assert exchange is not None
    assert (dict(exchange.arguments), exchange.internal, stand_in.renamed) == ({}, False, True)
    assert stand_in.topology.exchange("amq-topic") is not None


# -- properties with a header table of ours


def test_all_types_and_a_name_twice_are_sent() -> None:
    headers = (
        (b"h", AmqpField("unsignedbyte", 7)),
        (b"h", AmqpField("array", [AmqpField("float", 1.5)])),
    )
    properties = wire_properties(SampledMessage("k", "", headers, {"message_id": b"m1", "timestamp": 5}))
    wire = b"".join(properties.encode())
    assert properties_in(wire)["headers"] == headers
    assert wire.endswith(b"\x02m1" + (5).to_bytes(8))


def test_properties_without_headers_are_those_of_pika() -> None:
    assert wire_properties(SampledMessage("k", properties={"message_id": "m"})).message_id == "m"


# -- the prediction beside what brokers did. What they did is made up here, to have brokers that disagree


OLD, NEW = Release("3.12.14"), Release("4.3.6")
UPGRADE = hash_upgrade(
    "x",
    (("a", "1"), ("b", "1")),
    None,
    HashedOn("header", b"h"),
    keys(10, Hashing("h")),
    releases=(OLD, NEW),
)


def trial(*, after: bool) -> Trial:
    """Return what a broker does that agrees with the mirror."""
    assert UPGRADE.sample is not None
    assert UPGRADE.rings is not None
    places: dict[int, Place] = {}
    for number in range(10):
        side = UPGRADE.sample.after if after else UPGRADE.sample.before
        place = side[number]
        assert isinstance(place, str)
        places[number] = place
        if after:
            stays = UPGRADE.sample.before[number]
            assert isinstance(stays, str)
            places[number + IN_ARRAYS] = stays
    ring = UPGRADE.rings.after if after else UPGRADE.rings.before
    return Trial(NEW if after else OLD, len(places), places, ring)


def test_brokers_that_agree() -> None:
    assert UPGRADE.sample is not None
    proof = exchange_proof(UPGRADE, trial(after=False), trial(after=True))
    assert (proof.published, proof.compared, proof.in_arrays, proof.mismatches) == (30, 10, 10, ())
    assert proof.predicted == proof.measured == len(UPGRADE.sample.moved)
    assert UpgradeProof(OLD, NEW, ("", ""), True, (proof,)).complete
    assert not UpgradeProof(OLD, NEW, ("", ""), False, (proof,)).complete


def test_a_message_elsewhere_and_a_message_nowhere_are_mismatches() -> None:
    there = trial(after=True)
    places = dict(there.places)
    places[3] = "elsewhere"
    del places[4]
    proof = exchange_proof(UPGRADE, trial(after=False), replace(there, places=places))
    assert [(mismatch.key, mismatch.found) for mismatch in proof.mismatches] == [
        ("key-3", "elsewhere"),
        ("key-4", "(neither in a queue nor returned)"),
    ]
    whole = UpgradeProof(OLD, NEW, ("", ""), True, (proof,))
    assert (whole.mismatches, whole.complete) == (2, False)


def test_another_ring_is_a_mismatch() -> None:
    there = replace(trial(after=True), ring=HashRing.from_buckets(["b", "a"], NEW))
    (mismatch,) = exchange_proof(UPGRADE, trial(after=False), there).mismatches
    assert (mismatch.key, mismatch.release) == (None, NEW)
