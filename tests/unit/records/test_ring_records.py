"""Records of rings as values: what a record proves of the ring, and how it is stored."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from itertools import permutations, starmap

import pytest
from stored_cases import stored_cases

from rabbit_chx import HashRing, Release
from rabbit_chx.errors import InputError, RabbitChxError
from rabbit_chx.records import ring_records
from rabbit_chx.records.live_rings import Evidence
from rabbit_chx.records.ring_records import (
    RecordedStart,
    RestartMark,
    RingRecord,
    make_record,
    ring_by_record,
)
from rabbit_chx.routing.bindings import UNORDERED
from rabbit_chx.topology import LiveTopology, RingMember, Topology, plan
from rabbit_chx.topology.model import BrokerFacts
from rabbit_chx.topology.objects import MARK, ExchangeDefinition, QueueDefinition

NEWEST = Release("4.3.6")
RELEASES = (NEWEST, Release("4.0.5", store="khepri"))
#: Members of rings, and what another program binds; the first destination may be bound twice.
MEMBERS = (("a", "1"), ("a", "2"), ("b", "1"), ("c", "2"))
OTHERS = (*MEMBERS, ("d", "1"), ("d", "2"), ("b", "2"))
NODES = dict.fromkeys(("a", "b", "c", "d", "e", MARK), frozenset({"rabbit@one"}))
HERE = RestartMark(
    RecordedStart("rabbit@one", "/", "m", "s", nodes=("one",)), 2, nodes=NODES, cluster=frozenset({"one"})
)
BOUND = "a=1 b=2 c=1"


@pytest.mark.parametrize("release", [*RELEASES, Release("3.10.5")], ids=str)
def test_whatever_others_bind_a_record_holds_for_its_own_bindings_and_what_is_left_of_them(
    release: Release,
) -> None:
    """All rings of three bindings and three changes. Nothing shows a binding of the record that was bound again.

    Where others have only removed members, that is the one ring which is left.
    """
    determined = others = 0
    for members in (each for count in range(4) for each in permutations(MEMBERS, count)):
        ring = HashRing.from_bindings(members, release)
        record = replace(
            make_record("x", ring, starmap(RingMember, members)), recorded_start=HERE.recorded_start
        )
        reached, left = {ring}, {ring}
        for _ in range(3):
            left |= {before.unbind(*binding) for before in left for binding in before.bindings or ()}
            reached |= {
                changed
                for before in reached
                for changed in (
                    *(before.unbind(*binding) for binding in before.bindings or ()),
                    *(before.bind(*other) for other in OTHERS if other not in members),
                )
            }
        for after in reached:
            bound = list(starmap(RingMember, after.bindings or ()))
            found = ring_by_record(record, replace(after, order=UNORDERED), bound, HERE)
            gone = {*members} - {*(after.bindings or ())}
            destinations = [destination for destination, _ in members]
            is_single = all(destinations.count(destination) == 1 for destination, _ in gone)
            is_left = is_single and {*(after.bindings or ())} <= {*members}
            assert found.order.is_certain is is_left
            assert after not in left or not is_left or found.buckets == after.buckets
            determined, others = determined + is_left, others + (not is_left)
    assert determined < others


STORED = stored_cases(__file__, "records.txt", r"^(?!#|->)(\S.*)\n-> (.*)")


@pytest.mark.parametrize(("given", "told"), STORED, ids=[given for given, _ in STORED])
def test_a_record_proves_a_ring_or_nothing(given: str, told: str) -> None:
    case = dict(part.partition(" ")[::2] for part in given.split("; "))
    record, mark = record_of(case), mark_of(case)
    bound = members_of(case.get("bound", case.get("record", BOUND)))
    now = release_of(case["now"]) if "now" in case else record.ring.release
    ring = ring_by_record(record, HashRing((), now, UNORDERED), bound, mark)
    buckets = " ".join("?" if place is None else str(place) for place in ring.buckets)
    found = ring.order.doubt.removeprefix("the record of T by W does not determine it: ") or buckets
    assert found == told


def record_of(case: Mapping[str, str]) -> RingRecord:
    members, release = members_of(case.get("record", BOUND)), release_of(case.get("release", "4.3.6 khepri"))
    ring = HashRing.from_bindings([*dict.fromkeys(member.binding for member in members)], release)
    if "buckets" in case:
        places = [None if place == "?" else place for place in case["buckets"].split()]
        ring = HashRing.from_buckets(places, release, next_bucket=len(places))
    names = {"cluster": "rabbit@one", "vhost": "/", "identity": "m", "start": "s", "node": "rabbit@one"}
    cluster, vhost, identity, start, node = (none_or(case.get(name, value)) for name, value in names.items())
    nodes = tuple(case.get("nodes-then", "rabbit@one").replace("-", "").split())
    recorded_start = RecordedStart(cluster, vhost, identity, start, node, nodes)
    return make_record("x", ring, members, written="T", writer="W", recorded_start=recorded_start)


def mark_of(case: Mapping[str, str]) -> RestartMark:
    recorded_start = RecordedStart(
        "rabbit@one", "/", none_or(case.get("mark", "m")), "s", case.get("home", "rabbit@one")
    )
    messages = none_or(case.get("messages", "2"))
    given = dict(entry.partition("=")[::2] for entry in case.get("nodes", "").split())
    nodes = {name: given.get(name, "rabbit@one") for name in NODES}
    return RestartMark(
        recorded_start,
        None if messages is None else int(messages),
        RabbitChxError(case["doubt"]) if "doubt" in case else None,
        case.get("policies", ""),
        {name: frozenset(filter(None, of.split(","))) for name, of in nodes.items() if of != "-"},
        int(case["persistent"]) if "persistent" in case else None,
        cluster=frozenset(case.get("nodes-listed", "rabbit@one").split()),
    )


def members_of(text: str) -> list[RingMember]:
    """Return the members of a text such as ``a=1 b=2*``, where the star stands for an argument."""
    pairs = (member.partition("=") for member in text.split())
    return [
        RingMember(name, key.rstrip("*"), {"by": "others"} if "*" in key else {}) for name, _, key in pairs
    ]


def release_of(text: str) -> Release:
    version, store = text.split()
    return Release(version) if store == "?" else Release(version, store)  # type: ignore[arg-type]


def none_or(text: str) -> str | None:
    return None if text == "-" else text


def test_a_large_record_is_compressed_and_read_again() -> None:
    members = [RingMember(f"orders.partition.{n:05}", "1", {"n": n}) for n in range(1_000)]
    members += [RingMember(f"orders.partition.{n:05}") for n in range(3_000)]
    ring = HashRing.from_bindings([*dict.fromkeys(member.binding for member in members)], NEWEST)
    record = make_record(
        "x" * 250, ring, members, written="now", writer="me", recorded_start=HERE.recorded_start
    )
    record = replace(record, number=7)
    arguments = ring_records.record_arguments(record)
    assert arguments is not None
    assert arguments["encoding"] == "zlib"
    assert len(arguments["content"]) < 60_000
    assert ring_records.read_record(arguments) == record
    assert ring_records.record_arguments(record, 8_192) is None
    assert len(ring_records.record_name("x" * 250)) <= 255


def test_a_record_whose_order_is_of_unknown_provenance_is_refused() -> None:
    record = make_record("x", HashRing.from_bindings([("a", "1")], NEWEST), [RingMember("a")])
    arguments = ring_records.record_arguments(replace(record, origin="guessed"))  # type: ignore[arg-type]
    with pytest.raises(InputError, match="the provenance 'guessed' of its order is unknown"):
        ring_records.read_record(arguments or {})


def test_a_record_of_an_earlier_format_or_without_a_mark_is_ignored() -> None:
    record = make_record("x", HashRing.from_bindings([("a", "1")], NEWEST), [RingMember("a")])
    arguments = ring_records.record_arguments(record) or {}
    for version in (1, 2, 3, 4):
        with pytest.raises(InputError, match="an earlier program: the command record makes a new one"):
            ring_records.read_record({**arguments, "format_version": version})
    with pytest.raises(InputError, match="the format version 6, and this program reads 5: update"):
        ring_records.read_record({**arguments, "format_version": 6})
    entry = {"name": "rabbit-chx.ring.x", "arguments": arguments}
    _, damaged = ring_records.records_in([entry])
    assert damaged == {"rabbit-chx.ring.x": f"it does not name the queue {MARK} that proves it"}


WRITTEN = "2026-11-30T10:00:00.000Z"
BEFORE, AFTER = (datetime.fromisoformat(f"2026-11-30T{hour}:00:00Z").timestamp() for hour in ("09", "11"))


@pytest.mark.parametrize(
    ("mark", "starts", "why"),
    [
        (HERE, {"one": BEFORE}, ""),
        (HERE, {"one": None, "two": BEFORE}, ""),
        (replace(HERE, messages=1), {"one": BEFORE}, "the broker has restarted since"),
        (HERE, {"one": BEFORE, "two": AFTER}, "two has restarted since"),
        (replace(HERE, cluster=frozenset({"two"})), {"two": BEFORE}, "one has left the cluster since"),
        (replace(HERE, cluster=frozenset()), {}, ""),
    ],
    ids=[
        "nothing",
        "a node that is down",
        "the mark",
        "another node",
        "a node that left",
        "nodes not listed",
    ],
)
def test_a_plan_warns_of_what_may_have_left_buckets(
    mark: RestartMark, starts: dict[str, float | None], why: str
) -> None:
    ring = HashRing.from_bindings([("b", "3"), ("a", "3")], NEWEST)
    members = (RingMember("b", "3"), RingMember("a", "3"))
    record = make_record("x", ring, members, written=WRITTEN, recorded_start=HERE.recorded_start)
    assert ring_records.why_suspect(record, mark, starts) == why
    exchange = ExchangeDefinition("x", "x-consistent-hash", ring=members)
    queues = tuple(QueueDefinition(name) for name in "abc")
    facts = BrokerFacts(evidence=Evidence({"x": record}, mark=mark), nodes=starts)
    live = LiveTopology((exchange,), queues, rings={"x": record.ring}, release=NEWEST, facts=facts)
    wanted = replace(exchange, ring=(*members, RingMember("c")))
    warnings = plan(Topology((wanted,), queues), live).warnings
    found = [warning for warning in warnings if "may have left buckets" in warning]
    assert len(found) == bool(why)
    for warning in found:
        assert warning.startswith(why)
        assert "verify x --trace" in warning
