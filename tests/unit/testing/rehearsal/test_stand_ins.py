"""What a rehearsal declares."""

from __future__ import annotations

from upgrade_topologies import MIXED

from rabbit_chx import Topology
from rabbit_chx.routing import ExchangeRef
from rabbit_chx.testing.rehearsal.stand_ins import stand_in_for
from rabbit_chx.topology.upgrade import hash_exchanges


def test_a_destination_exchange_is_a_fanout_with_a_queue_behind_it() -> None:
    stand_in = stand_in_for(MIXED, hash_exchanges(MIXED)[3])
    assert stand_in.exchange == "orders"
    assert stand_in.places["behind audit"] == ExchangeRef("audit")
    assert {one.name: one.type for one in stand_in.topology.exchanges} == {
        "audit": "fanout", "orders": "x-consistent-hash",
    }  # fmt: skip
    assert stand_in.topology.problems == ()
    assert not stand_in.renamed


def test_queues_are_classic_and_ours() -> None:
    tenants = next(one for one in hash_exchanges(MIXED) if one.name == "tenants")
    stand_in = stand_in_for(MIXED, tenants)
    assert {(one.type, one.owner) for one in stand_in.topology.queues} == {("classic", "ours")}
    ours = stand_in.topology.exchange("tenants")
    assert ours is not None
    assert (ours.arguments, ours.ring) == (tenants.arguments, tenants.ring)


def test_bindings_of_a_modulus_exchange_keep_their_keys() -> None:
    images = next(one for one in hash_exchanges(MIXED) if one.name == "images")
    bindings = stand_in_for(MIXED, images).topology.bindings
    assert {(one.destination, one.routing_key) for one in bindings} == {("images.0", "9"), ("images.1", "10")}


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
