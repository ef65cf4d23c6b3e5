"""The history of a ring in its records: what it says of a time is what the ring was, or nothing."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import starmap

import pytest

from rabbit_chx import ExchangeRef, HashRing, Release
from rabbit_chx.records.evidence import Evidence
from rabbit_chx.records.mark import BOTH_MESSAGES, Mark, Stamp
from rabbit_chx.records.pending_apply import PendingApply, PlannedSteps, pending_arguments, read_pending
from rabbit_chx.records.ring_history import MOST_RECORDS, DatedRing, RingHistory
from rabbit_chx.records.ring_records import (
    RingRecord,
    make_record,
    read_record,
    record_arguments,
    ring_by_record,
)
from rabbit_chx.routing import Binding
from rabbit_chx.routing.ground import UNORDERED, Ground
from rabbit_chx.times import time_text
from rabbit_chx.topology import RingMember
from rabbit_chx.topology.objects.own_names import MARK

KHEPRI, MNESIA = Release("4.3.6"), Release("4.0.5", store="mnesia")
START = datetime(2026, 11, 22, tzinfo=UTC)
HERE = frozenset({"rabbit@one"})


class Life:
    """A ring that this program, others and restarts change, one event a minute. No member comes back, so that each change shows.

    Attributes:
        truth: the ring during each minute; None while an apply runs.
    """

    def __init__(self, release: Release, random_: random.Random) -> None:
        self.ring = HashRing.from_bindings([("a", 1), ("b", 2), ("c", 1)], release)
        nodes = dict.fromkeys(("a", "b", "c", MARK, *(f"q{n}" for n in range(99))), HERE)
        self.mark = Mark(Stamp("rabbit@one", "/", "m", "0"), BOTH_MESSAGES, nodes=nodes)
        self.truth: list[HashRing | None] = [self.ring]
        self.record: RingRecord | None = None
        self.pending: PendingApply | None = None
        self._random = random_

    @property
    def bound(self) -> list[RingMember]:
        """The bindings as the broker lists them."""
        return [RingMember(*binding) for binding in sorted(self.ring.bindings or ())]

    def history(self) -> RingHistory:
        """Return what a program without a ring source reads."""
        live, evidence = replace(self.ring, ground=UNORDERED), self.evidence()
        if self.record is not None:
            live = ring_by_record(self.record, live, self.bound, self.mark)
        return evidence.history("x", live, self.bound)

    def evidence(self) -> Evidence:
        """Return what a broker keeps of the ring."""
        records = {} if self.record is None else {"x": self.record}
        return Evidence(records, pending=self.pending, mark=self.mark)

    def step(self) -> tuple[bool, Binding]:
        bound = self.ring.bindings or ()
        if len(bound) < 2 or self._random.random() < 0.5:
            return True, (f"q{len(self.truth)}", "1")
        return False, self._random.choice(bound)

    def change(self, is_bind: bool, binding: Binding) -> None:  # noqa: FBT001
        self.ring = self.ring.bind(*binding) if is_bind else self.ring.unbind(*binding)

    def _made(self, writer: str = "us") -> RingRecord:
        """Return a record of the ring, which was read."""
        time = time_text(START + timedelta(minutes=len(self.truth)))
        read = replace(self.ring, ground=Ground("read"))
        return make_record("x", read, self.bound, written=time, writer=writer, stamp=self.mark.stamp_now)

    def store(self) -> None:
        """Store a record of the ring; it is what its JSON says."""
        record = self.evidence().following(self._made(), self._made().ring)
        self._keep(record)

    def _keep(self, record: RingRecord) -> None:
        if not self.mark.holds:
            self.mark = replace(self.mark, stamp=self.mark.renewed(), messages=BOTH_MESSAGES)
        self.record = read_record(record_arguments(replace(record, stamp=self.mark.stamp_now)) or {})
        self.pending = None

    def begin(self, *steps: tuple[bool, Binding]) -> PendingApply:
        """Begin an apply, in the place of the record; it is what its JSON says."""
        made = self._made(writer="")
        before = self.evidence().following(made, made.ring)
        rings = {"x": PlannedSteps(before, steps, 0, "by-order")}
        pending = PendingApply("", "", made.written, "us", (), rings, {"x": (((0.5, 0.1),), "", 0.0)})
        self.pending, self.record = read_pending(pending_arguments(pending, 131_072) or {}), None
        assert self.pending == pending
        return pending

    def end(self, pending: PendingApply) -> None:
        """End an apply."""
        self._keep(pending.rings["x"].followed_by(self._made(), pending.written))

    def live(self, event: str) -> None:
        """Let something happen, and note the ring."""
        if event in ("apply", "killed apply"):
            step = self.step()
            pending = self.begin(step)
            if event == "apply" or self._random.random() < 0.5:
                self.change(*step)
            self.truth.append(None)
            if event == "apply":
                self.end(pending)
        elif event == "record":
            self.store()
        elif event == "other":
            self.change(*self.step())
        elif event == "restart":
            self.mark = replace(self.mark, messages=1)
            if self.ring.release == MNESIA:
                bound = [member.binding for member in self.bound]
                self.ring = HashRing.from_bindings(self._random.sample(bound, len(bound)), MNESIA)
        self.truth.append(self.ring)


EVENTS = ("apply", "apply", "apply", "record", "other", "restart", "killed apply", "nothing", "nothing")


@pytest.mark.parametrize("release", [KHEPRI, MNESIA], ids=str)
def test_the_ring_of_a_time_is_the_true_one_or_is_not_determined(release: Release) -> None:
    random_ = random.Random(68)  # noqa: S311
    seen: Counter[str] = Counter()
    for _ in range(60):
        life = Life(release, random_)
        for event in random_.choices(EVENTS, k=random_.randrange(1, 12)):
            life.live(event)
        history = life.history()
        assert len(history.rings) <= MOST_RECORDS
        for minute, true in enumerate(life.truth):
            found = history.at(START + timedelta(minutes=minute, seconds=30)).ring
            if found.ground.is_assumed:
                assert found.ground.doubt
                seen["not determined"] += 1
            else:
                assert true is not None
                assert (found.buckets, found.ground) == (true.buckets, Ground("recorded")), minute
                seen["recorded"] += 1
    assert min(seen["recorded"], seen["not determined"]) > 100, seen


def doubts(life: Life) -> list[str]:
    """Return why the ring of each minute is not determined."""
    history = life.history()
    return [
        history.at(START + timedelta(minutes=n, seconds=30)).ring.ground.doubt for n in range(len(life.truth))
    ]


def lived(*events: str, release: Release = KHEPRI) -> Life:
    life = Life(release, random.Random(1))  # noqa: S311
    for event in events:
        life.live(event)
    return life


def test_a_time_that_is_not_determined_has_its_reason() -> None:
    minute = {n: f"2026-11-22T00:0{n}:00.000Z" for n in range(9)}
    assert doubts(lived("nothing")) == ["no record of it is on the broker"] * 2
    assert doubts(lived("record", "apply", "nothing")) == [
        f"its records begin at {minute[1]}", "",
        f"an apply of us changed the ring from {minute[2]} to {minute[3]}", "", "",
    ]  # fmt: skip
    changed = "other software has bound q2=1 since"
    unknown = f"it was changed before {minute[3]}, and the time is not known"
    assert doubts(lived("record", "other", "apply", "nothing"))[1:5] == [
        unknown, unknown, f"an apply of us changed the ring from {minute[3]} to {minute[4]}", "",
    ]  # fmt: skip
    assert doubts(lived("record", "other"))[1:] == [changed] * 2
    known, *killed = doubts(lived("record", "killed apply"))[1:]
    assert not known
    assert all(doubt.endswith("by us has not ended") for doubt in killed)
    after = f"it was changed before {minute[4]}, and the time is not known"
    assert doubts(lived("record", "killed apply", "record"))[1:] == [after] * 3 + [""]
    assert doubts(lived("record", "restart", "record", release=MNESIA))[1:] == [unknown] * 2 + [""]
    assert doubts(lived("record", "restart", "record"))[1:] == ["", "", ""]


def test_a_clock_that_was_wrong_once_makes_the_times_beside_it_unknown() -> None:
    """The second writer's clock is an hour ahead, or behind. The order of the records is that in which they were stored."""
    for wrong in (-60, 60):
        minutes = [0, 10 + wrong, 20, 30, 40]
        rings = tuple(
            DatedRing(time_text(START + timedelta(minutes=minute)), "u", (f"q{n}",), KHEPRI, "-" if n else "")
            for n, minute in enumerate(minutes)
        )
        rings = tuple(replace(ring, began=ring.written) if ring.began else ring for ring in rings)
        history = RingHistory(rings, rings[-1].ring, "")
        for minute in range(-80, 100, 5):
            true = sum(minute >= stored for stored in (0, 10, 20, 30, 40)) - 1
            found = history.at(START + timedelta(minutes=minute)).ring
            assert found.ground.is_assumed or found.buckets == (f"q{true}",), (wrong, minute)
        assert history.at(START + timedelta(minutes=45 if wrong < 0 else 75)).ring.ground.is_certain is (
            wrong < 0
        )


def test_only_the_last_records_are_kept_and_one_that_changes_nothing_is_none() -> None:
    life = lived("record", "record", "record")
    assert [ring.written for ring in life.history().rings] == [
        time_text(START + timedelta(minutes=n)) for n in (1, 3)
    ]
    life = lived("record", *["apply"] * 15)
    assert len(life.history().rings) == MOST_RECORDS
    newest, moved = life.history().changes()[0]
    before = life.truth[-3]
    assert before is not None
    assert (newest.writer, moved) == ("us", before.share_moved(life.ring))


@pytest.mark.parametrize("members", [10, 1_000, 5_000])
def test_a_history_never_makes_a_record_too_large(members: int) -> None:
    """Each past ring has another order, of which nothing can be left out."""
    places = [ExchangeRef(f"orders.slot.{n:05}") if n % 2 else f"orders.queue.{n:05}" for n in range(members)]
    random_ = random.Random(1)  # noqa: S311
    past = tuple(
        DatedRing(f"2026-11-22T00:0{n}:00Z", "u", tuple(random_.sample(places, members)), KHEPRI)
        for n in range(9)
    )
    ring = HashRing.from_buckets(places, KHEPRI)
    alone = record_arguments(record := make_record("x", ring, map(RingMember, places)))
    record = replace(record, rings=(*past, *record.rings))
    arguments = record_arguments(record)
    assert (arguments is None) == (alone is None)
    if arguments is not None:
        kept = read_record(arguments).rings[:-1]
        assert kept == past[len(past) - len(kept) :]
        assert len(arguments["content"]) < 131_072


def test_what_a_change_keeps_is_stored_once() -> None:
    """Nine changes of one member of a thousand add little to the record."""
    ring = HashRing.from_bindings([(f"orders.{n}", 1) for n in range(1_000)], KHEPRI)
    past = []
    for n in range(9):
        past.append(DatedRing(f"2026-11-22T00:0{n}:00Z", "u", ring.buckets, KHEPRI))
        ring = ring.unbind(f"orders.{n * 100}")
    record = make_record("x", ring, starmap(RingMember, ring.bindings or ()))
    with_past = record_arguments(replace(record, rings=(*past, *record.rings)))
    alone = record_arguments(record)
    assert with_past is not None
    assert alone is not None
    assert len(with_past["content"]) - len(alone["content"]) < 2_500
    assert read_record(with_past).rings[:-1] == tuple(past)
