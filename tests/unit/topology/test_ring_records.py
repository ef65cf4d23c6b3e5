"""Records of rings as values: what a record proves of the ring, and how it is stored."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import permutations

import pytest
from stored_cases import stored_cases

from rabbit_chx import ExchangeRef, HashRing, Release
from rabbit_chx.errors import InputError, NotDeterminedError
from rabbit_chx.topology import ring_records
from rabbit_chx.topology.mark import MARK, Mark, Stamp
from rabbit_chx.topology.ring_records import RingRecord, Step, make_record, prove_ring

NEWEST = Release("4.3.6")
RELEASES = (NEWEST, Release("4.0.5", store="khepri"))
#: Members of rings, and what another program binds; the first destination may be bound twice.
MEMBERS = (("a", "1"), ("a", "2"), ("b", "1"), ("c", "2"))
OTHERS = (*MEMBERS, ("d", "1"), ("d", "2"), ("b", "2"))
NODES = dict.fromkeys(("a", "b", "c", "d", "e", MARK), frozenset({"rabbit@one"}))
HERE = Mark(Stamp("rabbit@one", "/", "m", "s"), 2, nodes=NODES)
BOUND = "a=1 b=2 c=1"


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
        record = replace(make_record("x", ring, members), stamp=HERE.stamp)
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
        replace(make_record("x", each, each.bindings or ()), stamp=HERE.stamp) for each in (ring, back)
    )
    assert proven(ring, record, record) == ring
    assert proven(ring, record, other) is None


STORED = stored_cases(__file__, "records.txt", r"^(?!#|->)(\S.*)\n-> (.*)")


@pytest.mark.parametrize(("given", "told"), STORED, ids=[given for given, _ in STORED])
def test_a_record_proves_a_ring_or_nothing(given: str, told: str) -> None:
    case = dict(part.partition(" ")[::2] for part in given.split("; "))
    record, mark = record_of(case), mark_of(case)
    bound = bindings_of(case.get("bound", case.get("record", BOUND)))
    now = release_of(case["now"]) if "now" in case else record.state.release
    try:
        ring = prove_ring([record], bound, now, mark)
    except NotDeterminedError as error:
        found = str(error).removeprefix("the record of T by W does not determine it: ")
    else:
        found = " ".join("?" if place is None else str(place) for place in ring.buckets)
    assert found == told


def record_of(case: Mapping[str, str]) -> RingRecord:
    members, release = bindings_of(case.get("record", BOUND)), release_of(case.get("release", "4.3.6 khepri"))
    ring = HashRing.from_bindings(members, release)
    if "buckets" in case:
        places = [None if place == "?" else place for place in case["buckets"].split()]
        ring = HashRing.from_buckets(places, release, next_bucket=len(places))
    record = make_record("x", ring, members)
    steps = [
        Step("bind" if step[0] == "+" else "unbind", *bindings_of(step[1:]))
        for step in case.get("steps", "").split()
    ]
    names = {"cluster": "rabbit@one", "vhost": "/", "identity": "m", "start": "s"}
    stamp = Stamp(**{name: none_or(case.get(name, value)) for name, value in names.items()})
    state = record.state._replace(end_known="end" not in case)
    return replace(
        record,
        state=state,
        steps=tuple(steps),
        written="T",
        writer="W",
        stamp=stamp,
        transient=case.get("transient", ""),
        foreign=tuple(bindings_of(case.get("foreign", ""))),
    )


def mark_of(case: Mapping[str, str]) -> Mark:
    stamp = Stamp("rabbit@one", "/", none_or(case.get("mark", "m")), "s")
    messages = none_or(case.get("messages", "2"))
    given = dict(entry.partition("=")[::2] for entry in case.get("nodes", "").split())
    nodes = {name: given.get(name, "rabbit@one") for name in NODES}
    passing = (entry.partition(":") for entry in case.get("passing", "").split())
    return Mark(
        stamp,
        None if messages is None else int(messages),
        case.get("doubt", ""),
        case.get("policies", ""),
        {name: frozenset(filter(None, of.split(","))) for name, of in nodes.items() if of != "-"},
        frozenset(ExchangeRef(name) if kind == "exchange" else name for kind, _, name in passing),
    )


def bindings_of(text: str) -> list[tuple[str, str]]:
    return [(name, key) for name, _, key in (member.partition("=") for member in text.split())]


def release_of(text: str) -> Release:
    version, store = text.split()
    return Release(version) if store == "?" else Release(version, store)  # type: ignore[arg-type]


def none_or(text: str) -> str | None:
    return None if text == "-" else text


def test_a_large_record_is_compressed_and_read_again() -> None:
    bindings = [(f"orders.partition.{n:05}", "1") for n in range(3_000)]
    ring = HashRing.from_bindings(bindings, NEWEST)
    steps = tuple(Step("unbind", binding) for binding in bindings)
    record = replace(make_record("x" * 250, ring, bindings), steps=steps, written="now", writer="me")
    record = replace(record, transient="queue t", foreign=(("d", "1"),), stamp=HERE.stamp)
    arguments = ring_records.record_arguments(record)
    assert arguments is not None
    assert arguments["encoding"] == "zlib"
    assert len(arguments["content"]) < 60_000
    assert ring_records.read_record(arguments) == record
    assert ring_records.record_arguments(record, 8_192) is None
    assert all(len(name) <= 255 for name in ring_records.record_names("x" * 250))


def test_a_record_whose_order_is_of_unknown_provenance_is_refused() -> None:
    record = make_record("x", HashRing.from_bindings([("a", "1")], NEWEST), [("a", "1")])
    arguments = ring_records.record_arguments(replace(record, origin="guessed"))  # type: ignore[arg-type]
    with pytest.raises(InputError, match="the provenance 'guessed' of its order is unknown"):
        ring_records.read_record(arguments or {})


def test_steps_are_parted_where_the_bindings_would_be_those_of_an_earlier_step() -> None:
    state = make_record("x", HashRing.from_bindings(MEMBERS[2:], NEWEST), MEMBERS[2:]).state
    steps = [Step("unbind", MEMBERS[2]), Step("bind", MEMBERS[2]), Step("unbind", MEMBERS[3])]
    assert [(number, len(part)) for number, _, part in ring_records.split_steps(state, steps)] == [
        (0, 1),
        (1, 2),
    ]


def test_a_record_of_an_earlier_format_or_without_a_mark_is_ignored() -> None:
    record = make_record("x", HashRing.from_bindings([("a", "1")], NEWEST), [("a", "1")])
    arguments = ring_records.record_arguments(record) or {}
    with pytest.raises(InputError, match="an earlier program: the command record makes a new one"):
        ring_records.read_record({**arguments, "format_version": 1})
    with pytest.raises(InputError, match="the format version 3, and this program reads 2: update"):
        ring_records.read_record({**arguments, "format_version": 3})
    entry = {"name": "rabbit-chx.ring.x", "arguments": arguments}
    (damaged,) = ring_records.records_in([entry]).values()
    assert damaged == ring_records.DamagedRecord(
        "rabbit-chx.ring.x", f"it does not name the queue {MARK} that proves it"
    )


def test_what_will_make_a_record_void_is_said_when_it_is_written() -> None:
    newest, older = (
        replace(
            make_record(name, HashRing.from_bindings([("a", "1")], release), [("a", "1")]),
            transient="queue t",
        )
        for name, release in (("x", NEWEST), ("y", Release("3.10.5")))
    )
    assert list(ring_records.limits_of([replace(newest, transient="")], HERE)) == []
    assert list(ring_records.limits_of([newest, older], replace(HERE, policies="policy p (expires)"))) == [
        "a restart of the broker makes the record of x void: it deletes queue t, which may be a member of the ring",
        f"policy p (expires) takes messages of the queue {MARK} away, which makes the record of x void",
        f"policy p (expires) takes messages of the queue {MARK} away, which makes the record of y void",
    ]
