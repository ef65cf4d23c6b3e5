"""Records of rings as values: what a record proves of the ring, and how it is stored."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations

import pytest

from rabbit_chx import ExchangeRef, HashRing, Release
from rabbit_chx.errors import InputError, NotDeterminedError
from rabbit_chx.topology import ring_records
from rabbit_chx.topology.ring_records import BrokerStart, RingRecord, Step, make_settled_record, prove_ring

NEWEST = Release("4.3.6")
RELEASES = (NEWEST, Release("4.0.5", store="khepri"))
#: Members of rings, and what another program binds; the first destination may be bound twice.
MEMBERS = (("a", "1"), ("a", "2"), ("b", "1"), ("c", "2"))
OTHERS = (*MEMBERS, ("d", "1"), ("d", "2"), ("b", "2"))
HERE = BrokerStart("rabbit@one", "mark", {"rabbit@one": 0.0})


def proven(ring: HashRing, *records: RingRecord) -> HashRing | None:
    """Return the ring by records and the bindings of a ring; None if they do not determine it."""
    assert ring.release is not None
    try:
        return prove_ring(records, ring.bindings or (), ring.release, HERE)
    except NotDeterminedError:
        return None


@pytest.mark.parametrize("release", [*RELEASES, Release("3.10.5")], ids=str)
def test_whatever_others_bind_and_unbind_the_ring_of_a_settled_record_is_the_true_one_or_none(
    release: Release,
) -> None:
    """All rings of three bindings and three changes.

    Nothing shows a binding of the record that was bound again, and before 3.8.24 the holes of two bindings of one destination that are gone.
    """
    determined = 0
    for members in (each for count in range(4) for each in permutations(MEMBERS, count)):
        ring = HashRing.from_bindings(members, release)
        record = replace(make_settled_record("x", ring, members), start=HERE)
        reached = {ring}
        for _ in range(3):
            reached |= {
                changed
                for before in reached
                for changed in (
                    *(before.unbind(*binding) for binding in before.bindings or ()),
                    *(before.bind(*other) for other in OTHERS if other not in members),
                )
            }
        for after in reached:
            found = proven(after, record)
            assert found is None or found.buckets == after.buckets, (members, after.bindings)
            determined += found is not None
    assert determined > 500


def test_records_that_leave_two_rings_determine_none() -> None:
    ring = HashRing.from_bindings([("a", "1"), ("b", "1")], NEWEST)
    back = HashRing.from_bindings([("b", "1"), ("a", "1")], NEWEST)
    record, other = (
        replace(make_settled_record("x", each, each.bindings or ()), start=HERE) for each in (ring, back)
    )
    assert proven(ring, record, record) == ring
    assert proven(ring, record, other) is None
    there_and_back = (Step("unbind", ("a", "1")), Step("bind", ("a", "1")))
    assert proven(ring, replace(record, steps=there_and_back)) is None
    assert proven(ring, replace(record, steps=there_and_back[:1])) == ring
    twice = [("a", "1"), ("a", "1"), ("b", "1")]  # with different arguments
    with pytest.raises(NotDeterminedError, match="a=1 is bound several times, with different arguments"):
        prove_ring([record], twice, NEWEST, HERE)


def test_the_record_of_another_cluster_says_nothing() -> None:
    record = replace(
        make_settled_record("x", HashRing.from_buckets(["b", "a"]), [("b", "1"), ("a", "1")]),
        start=BrokerStart("rabbit@one", nodes={"rabbit@one": 0.0}),
    )
    bound = [("a", "1"), ("b", "1")]
    assert prove_ring([record], bound, NEWEST, BrokerStart("rabbit@one")).buckets == ("b", "a")
    for other in (BrokerStart("rabbit@two"), BrokerStart("rabbit@one", nodes={"rabbit@two": 0.0})):
        with pytest.raises(NotDeterminedError, match="is of the cluster rabbit@one"):
            prove_ring([record], bound, NEWEST, other)


def test_the_clock_of_a_client_shows_no_restart() -> None:
    """The mark does; in a cluster it outlasts the restart of one node."""
    later = replace(HERE, nodes={"rabbit@one": 11.0})
    assert HERE.has_restarted(later, marks=True) is False
    assert HERE.has_restarted(replace(later, mark="other"), marks=True) is True
    assert HERE.has_restarted(later, marks=False) is True
    two = replace(HERE, nodes={"rabbit@one": 0.0, "rabbit@two": 0.0})
    assert two.has_restarted(later, marks=True) is True


def test_a_large_record_is_compressed_and_read_again() -> None:
    bindings = [(f"orders.partition.{n:05}", "1") for n in range(3_000)]
    ring = HashRing.from_bindings(bindings, NEWEST)
    steps = tuple(Step("unbind", binding) for binding in bindings)
    record = replace(make_settled_record("x" * 250, ring, bindings), steps=steps, written="now", writer="me")
    record = replace(record, adopted=True)
    arguments = ring_records.record_arguments(record)
    assert arguments is not None
    assert arguments["encoding"] == "zlib"
    assert len(arguments["content"]) < 60_000
    assert ring_records.read_record(arguments) == record
    assert ring_records.record_arguments(record, 8_192) is None
    assert all(len(name) <= 255 for name in ring_records.record_names("x" * 250))


def test_a_record_whose_order_is_of_unknown_provenance_is_refused() -> None:
    record = make_settled_record("x", HashRing.from_bindings([("a", "1")], NEWEST), [("a", "1")])
    arguments = ring_records.record_arguments(replace(record, origin="guessed"))  # type: ignore[arg-type]
    with pytest.raises(InputError, match="the provenance 'guessed' of its order is unknown"):
        ring_records.read_record(arguments or {})


def test_steps_are_parted_where_the_bindings_would_be_those_of_an_earlier_step() -> None:
    state = make_settled_record("x", HashRing.from_bindings(MEMBERS[2:], NEWEST), MEMBERS[2:]).state
    steps = [Step("unbind", MEMBERS[2]), Step("bind", MEMBERS[2]), Step("unbind", MEMBERS[3])]
    assert [(number, len(part)) for number, _, part in ring_records.split_steps(state, steps)] == [
        (0, 1),
        (1, 2),
    ]


def test_only_queues_that_a_restart_deletes_are_transient() -> None:
    assert list(ring_records.transient_places(["a", ExchangeRef("b"), "b", "b"], ["b"])) == ["b"]
