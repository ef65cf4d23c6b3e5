"""The changes of one ring: what no topology file can say, or does not say; `steps.toml` has the others."""

from __future__ import annotations

from dataclasses import replace

import pytest
from one_hash_exchange import hashing, with_buckets

from rabbit_chx import Release, Topology
from rabbit_chx.topology import ExchangeDefinition, LiveTopology, QueueDefinition, RingMember, arrange, plan


def test_a_new_ring_is_arranged_as_written() -> None:
    assert arrange(hashing(*"bca"), LiveTopology()) == hashing(*"bca")


def test_a_live_ring_is_arranged_so_that_no_key_moves() -> None:
    arranged = arrange(hashing(*"bca"), with_buckets(hashing(*"abc"), *"abc"))
    assert arranged == hashing(*"abc")


def test_a_destination_that_is_wanted_twice_has_no_other_order() -> None:
    live = with_buckets(hashing(*"abc"), *"abc")
    ring = plan(hashing("b", "a", RingMember("a", "2")), live).rings["orders"]
    assert ring.moved_at_worst == 1.0
    assert ring.proposals == ()


def test_a_replaced_exchange_keeps_a_member_without_a_queue_and_is_refused() -> None:
    live = with_buckets(hashing(*"abc"), *"abc")
    exchange = ExchangeDefinition("orders", "x-consistent-hash", durable=False)
    wanted = Topology((exchange,), tuple(QueueDefinition(name) for name in "bcdefgh"), owns=("a",))

    planned = plan(wanted, live)
    assert any(
        "queue a is neither in the topology nor on the broker" in refusal.text for refusal in planned.refusals
    )


def test_a_new_ring_that_no_broker_takes_is_refused() -> None:
    heavy = hashing(RingMember("a", "10000000"), "b")
    (refusal,) = plan(heavy, LiveTopology(release=Release("3.13.7"))).refusals
    assert (refusal.kind, "makes a ring of more than 10000000 buckets" in refusal.message) == ("ring", True)


@pytest.mark.parametrize("after", ["ab", "cd", ""])
def test_flows_to_an_exchange_that_hashes_something_else_are_not_known(after: str) -> None:
    """Without a common destination, the flows of equal hashes have the right sum, and are wrong all the same."""
    live, wanted = with_buckets(hashing(*"ab"), *"ab"), hashing(*after)
    hashed = replace(wanted.exchanges[0], arguments={"hash-header": "customer"})

    ring = plan(replace(wanted, exchanges=(hashed,)), live).rings["orders"]
    matrix = ring.matrix()
    assert ring.moved == 1.0
    if after:
        assert matrix is None
    else:
        assert matrix is not None
        assert matrix.keys() == {("a", None), ("b", None)}
