"""Where a sample goes."""

from __future__ import annotations

from upgrade_topologies import keys

from rabbit_chx.amqp import AmqpField
from rabbit_chx.analysis import Refused
from rabbit_chx.routing import ConsistentHashExchange, HashRing, Release
from rabbit_chx.topology.upgrade_exchange import SampledMessage, SampleMovement, routes_of


def test_what_one_side_refuses_moves_and_what_both_refuse_does_not() -> None:
    refused = Refused("closed")
    movement = SampleMovement(keys(4), ["a", "a", refused, refused], ["a", "b", "a", Refused("other")])
    assert [move.message.key for move in movement.moved] == ["key-1", "key-2"]
    assert (movement.refused(after=False), movement.refused(after=True)) == (2, 1)
    assert movement.matrix.amounts == {("a", "a"): 1, ("a", "b"): 1}
    assert movement.matrix.moved == 1


def test_a_matrix_has_its_places_in_one_order() -> None:
    movement = SampleMovement(keys(3), ["b", "a", None], ["a", None, "b"])
    assert (movement.matrix.before, movement.matrix.after) == (("a", "b", None), ("a", "b", None))


def test_a_message_that_closes_the_connection_is_refused() -> None:
    empty = SampledMessage("[]", "", ((b"h", AmqpField("array", [])),))
    ring = HashRing.from_bindings([("a", 1), ("b", 1)], Release("4.0.9"))
    (route,) = routes_of(ConsistentHashExchange("x", ring, {"hash-header": "h"}), [empty])
    assert isinstance(route, Refused)
