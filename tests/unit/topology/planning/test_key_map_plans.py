"""The changes of one ring: a new, kept, replaced or deleted exchange, and one that is external."""

from __future__ import annotations

from dataclasses import replace

from one_hash_exchange import hashing, steps, with_buckets

from rabbit_chx.topology import (
    ExchangeDefinition,
    LiveTopology,
    QueueDefinition,
    RingMember,
    Topology,
    arrange,
    plan,
)

_CHX = "x-consistent-hash"


def test_a_new_ring_is_arranged_as_written() -> None:
    assert arrange(hashing(*"bca"), LiveTopology()) == hashing(*"bca")


def test_a_binding_with_another_number_of_buckets_than_its_key_is_made_again() -> None:
    """Unbinding and binding do it, so the exchange is not replaced."""
    heavy = hashing(ring=(RingMember("a", "2"), RingMember("b")))

    for buckets in ("ab", "aaab"):
        planned = plan(heavy, with_buckets(heavy, *buckets))
        assert {change.action for change in planned.changes} == {"unbind", "bind"}
        assert planned.rings["orders"].after.buckets == (*"aab",)
        assert planned.refusals == ()


def test_ghost_buckets_of_a_queue_that_is_deleted_need_no_other_queue() -> None:
    live = replace(
        with_buckets(hashing("b"), "a", "b"), queues=(QueueDefinition("a", "quorum"), QueueDefinition("b"))
    )
    wanted = replace(live, queues=(QueueDefinition("b"),), owns=("*",))

    assert steps(wanted.objects, live) == [
        "bind orders -> a (key 1)",
        "unbind orders -> a (key 1)",
        "delete a",
    ]
    assert [refusal.allow_with for refusal in plan(wanted.objects, live).refusals] == ["--allow-delete"]


def test_deleting_a_queue_takes_it_out_of_a_ring_of_others() -> None:
    live = with_buckets(hashing("a", "b"), "a", "b")
    wanted = Topology((), (), owns=("a",))

    planned = plan(wanted, live)

    assert [change.action for change in planned.changes] == ["unbind", "delete"]
    assert planned.rings["orders"].after.buckets == ("b",)
    assert len(planned.unmanaged) == len("bcdefgh") + 1


def test_keys_that_are_hashed_on_something_else_all_move() -> None:
    live = with_buckets(hashing(*"abc"), *"abc")

    assert plan(hashing(*"abc", durable=False), live).rings["orders"].moved == 0.0
    assert plan(hashing(*"abc", arguments={"hash-header": "h"}), live).rings["orders"].moved == 1.0


def test_a_ring_of_others_that_differs_is_refused_and_not_changed() -> None:
    live = with_buckets(hashing("a", "b"), "a", "b")

    assert plan(hashing("a", "b", owner="external"), live).refusals == ()
    planned = plan(hashing("b", "a", owner="external"), live)
    assert planned.changes == ()
    assert ["is external, and its ring differs" in refusal.text for refusal in planned.refusals] == [True]


def test_a_destination_that_is_wanted_twice_has_no_other_order() -> None:
    live = with_buckets(hashing(*"abc"), *"abc")
    twice = (RingMember("b"), RingMember("a"), RingMember("a", "2"))
    wanted = replace(live, exchanges=(ExchangeDefinition("orders", _CHX, ring=twice),))

    ring = plan(wanted.objects, live).rings["orders"]
    assert ring.moved_at_worst == 1.0
    assert ring.proposals == ()


def test_a_replaced_exchange_keeps_a_member_without_a_queue_and_is_refused() -> None:
    live = with_buckets(hashing(*"abc"), *"abc")
    exchange = ExchangeDefinition("orders", _CHX, durable=False)
    wanted = Topology((exchange,), tuple(QueueDefinition(name) for name in "bcdefgh"), owns=("a",))

    planned = plan(wanted, live)
    assert any(
        "queue a is neither in the topology nor on the broker" in refusal.text for refusal in planned.refusals
    )


def test_weights_that_are_older_than_the_limit_of_the_release_stay_as_they_are() -> None:
    heavy, light = RingMember("a", "20000"), RingMember("b")

    def holding(*members: RingMember) -> Topology:
        return replace(hashing("a"), exchanges=(ExchangeDefinition("orders", _CHX, ring=members),))

    live = with_buckets(holding(heavy, light), *["a"] * 20_000, "b")
    kept = plan(holding(heavy, light), live)
    assert (kept.changes, kept.refusals) == ((), ())
    (refusal,) = plan(holding(light, heavy), live).refusals
    assert "at most 10000" in refusal.text
    assumed = replace(live, rings={})
    assert len(plan(holding(heavy, light), assumed).rings["orders"].before.buckets) == 20_001
