"""The objects of a vhost as a list has them: rings in no known order, and what a topology does not have."""

from __future__ import annotations

import pytest

from rabbit_chx.errors import InputError
from rabbit_chx.routing import Release
from rabbit_chx.topology import BindingDefinition, ExchangeDefinition, QueueDefinition, RingMember
from rabbit_chx.topology.vhost_objects import assume_ring, vhost_objects

RELEASE = Release("4.3.6")


def test_a_ring_of_listed_members_is_assumed() -> None:
    ring = assume_ring([RingMember("b", "2"), RingMember("a")], RELEASE)

    assert ring.buckets == ("b", "b", "a")
    assert ring.provenance == "assumed"
    assert ring.ground.doubt


def test_a_weight_that_the_release_refuses_makes_no_ring() -> None:
    with pytest.raises(InputError, match="takes at most 10000"):
        assume_ring([RingMember("a", "10001")], RELEASE)


def test_a_ring_and_a_binding_to_a_queue_that_is_not_listed_are_left_out() -> None:
    hashing, direct = ExchangeDefinition("x", "x-consistent-hash"), ExchangeDefinition("d")
    bindings = [
        BindingDefinition("x", "q", "no weight"),
        BindingDefinition("d", "q", "k"),
        BindingDefinition("d", "exclusive", "k"),
    ]

    found = vhost_objects([hashing, direct], [QueueDefinition("q")], bindings, [], release=RELEASE)

    assert found.rings == {}
    assert found.lists["bindings"] == (bindings[1],)
    assert found.sources_left_out == {"d"}
    assert [text.partition(":")[0] for text in found.left_out] == [
        "binding of d to exclusive",
        "the ring of x",
    ]
