"""Plots show the numbers of what they are given, on any Axes."""

from __future__ import annotations

import io
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from few_seeds import few_seeds
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from plan_scenarios import SCENARIOS

from rabbit_chx import ExchangeRef, HashRing, ModulusHashExchange, SlotTable, Topology, plot
from rabbit_chx.analysis import movement
from rabbit_chx.errors import InputError
from rabbit_chx.installation import missing_extra
from rabbit_chx.publishing import PublishReport
from rabbit_chx.routing import jump
from rabbit_chx.streams import StreamReport
from rabbit_chx.topology import LiveTopology, plan
from spark_connector.dry_runs import DryRun, PartitionRows
from spark_connector.reports import StreamCounts, TaskReport, WriteReport

RING = HashRing.from_bindings([("q1", 1), ("q2", 2), ("q3", 3)])
SLOTS = [ExchangeRef(f"e.slot.{n}") for n in range(6)]
TABLE = SlotTable(HashRing.from_buckets(SLOTS), {slot: f"e.{n % 2}" for n, slot in enumerate(SLOTS[:5])})
MODULUS = ModulusHashExchange("m", (("a", "1"), ("b", "2"), ("a", "3")))
STREAMS = WriteReport("x", (TaskReport(0, 0, "w", streams=StreamCounts({"s1": 7})),))
PREDICTED = WriteReport("x", (TaskReport(0, 0, "w", predicted={"q2": 5, "q1": 3}),), "read")
NOTHING: Any = None
OUTCOMES = ("confirmed", "returned", "nacked", "unknown")
DRY = DryRun(
    "x", "amqp://h", {}, (PartitionRows(0, 30, {"q1": 10, "q2": 20}),), "read", {"q1": 0.25, "q2": 0.75}
)


@pytest.fixture(autouse=True)
def _few_seeds() -> Iterator[None]:
    with few_seeds():
        yield
    jump.opened.clear()


def names(ax: Axes) -> list[str]:
    return [label.get_text() for label in ax.get_yticklabels()]


def bars(ax: Any, label: str | None = None) -> list[float]:
    """The lengths of the bars, of one colour if it has a name in the legend."""
    return [
        bar.get_width()
        for container in ax.containers
        if label is None or container.get_label() == label
        for bar in container.patches
    ]


def ticks(ax: Any) -> list[float]:
    return [path.vertices[0][0] for lines in ax.collections for path in lines.get_paths()]


def texts(ax: Axes) -> list[str]:
    return [text.get_text() for text in ax.texts]


def legend(ax: Axes) -> list[str]:
    found = ax.get_legend()
    return [] if found is None else [text.get_text() for text in found.get_texts()]


def drawn(ax: Any) -> Axes:
    """The Axes, when their figure could be drawn: warnings are errors."""
    ax.figure.savefig(io.BytesIO(), format="svg")
    drawn_on: Axes = ax
    return drawn_on


@pytest.mark.parametrize("ring", [RING, TABLE, MODULUS])
def test_shares_are_exact(ring: Any) -> None:
    ax = drawn(plot.shares(ring))
    assert bars(ax) == list(ring.shares().values())
    assert names(ax) == ["(nowhere)" if place is None else str(place) for place in ring.shares()]
    assert texts(ax) == [f"{share:.1%}" for share in ring.shares().values()]


def test_the_tick_of_a_share_is_that_of_the_buckets() -> None:
    ax = plot.shares(HashRing.from_buckets(["q1", None, "q2", "q2"]))
    assert ticks(ax) == [pytest.approx(1 / 3), pytest.approx(2 / 3)]  # a hole should have nothing
    assert legend(ax) == ["share of the buckets"]


def test_movement_adds_up_for_each_destination() -> None:
    after = RING.unbind("q2").bind("q4")
    ax = drawn(plot.movement(RING, after))
    matrix = movement(RING, after)
    assert names(ax) == ["q1", "q2", "q3", "q4"]
    arrives, stays, leaves = (bars(ax, label) for label in ("arrives", "stays", "leaves"))
    assert stays == [matrix.get((name, name), 0) for name in names(ax)]
    before, now = matrix.before_totals(), matrix.after_totals()
    for name, arriving, staying, leaving in zip(names(ax), arrives, stays, leaves, strict=True):
        assert staying + leaving == pytest.approx(before.get(name, 0))
        assert staying - arriving == pytest.approx(now.get(name, 0))
    assert sum(leaves) == pytest.approx(RING.share_moved(after))
    assert ax.get_title() == f"{matrix.moved:.1%} of all keys move"
    assert legend(ax) == ["arrives", "stays", "leaves"]


def test_each_way_of_a_plan_is_compared_with_the_limit() -> None:
    made = plan(*next(SCENARIOS[name] for name in SCENARIOS if name.startswith("07")))
    (ring,) = made.rings.values()
    ax = drawn(plot.movement(made))
    assert ax.get_title() == f"Share of the keys of {ring.exchange} that moves"
    assert len(ring.proposals) > 1
    assert names(ax) == [way.strategy for way in ring.proposals]
    assert bars(ax, "in the end") == [way.moved for way in ring.proposals]
    assert bars(ax, "at worst") == [way.moved_at_worst for way in ring.proposals]
    shares = [[f"{share * 100:.1f}%" for share in (way.moved, way.moved_at_worst)] for way in ring.proposals]
    assert any(moved != worst for moved, worst in shares)
    written = [
        f"{moved} in the end, {worst} at worst" if moved != worst else moved for moved, worst in shares
    ]
    assert [text for text in texts(ax) if "%" in text] == written


@pytest.mark.parametrize("name", sorted(SCENARIOS))
def test_every_plan_can_be_drawn(name: str) -> None:
    made = plan(*SCENARIOS[name])
    ax = drawn(plot.movement(made))
    moving = [ring for ring in made.rings.values() if ring.moved_at_worst and ring.before.buckets]
    for ring in moving:
        assert any(row.startswith((f"{ring.exchange}: ", "as-written")) for row in names(ax))
    assert {*ticks(ax)} == {ring.limit for ring in moving if ring.limit is not None}
    assert ("may move" in legend(ax)) == bool(ticks(ax))


def test_slots_are_where_they_are_in_the_ring() -> None:
    ax = drawn(plot.slots(TABLE))
    assert names(ax) == ["e.0", "e.1", "(nowhere)"]
    held = [[path.get_extents().x0 + 0.45 for path in row.get_paths()] for row in ax.collections]
    assert held == [pytest.approx([0, 2, 4]), pytest.approx([1, 3]), pytest.approx([5])]
    assert texts(ax) == [f"{TABLE.shares()[queue]:.1%}" for queue in ("e.0", "e.1", None)]


@pytest.mark.parametrize(
    ("report", "counts", "title"),
    [
        (PREDICTED, {"q1": 3, "q2": 5}, "predicted (read ring)"),
        (STREAMS, {"s1": 7}, "stream"),
        (StreamReport(rows=3, confirmed=3, streams={"b": 1, "a": 2}), {"a": 2, "b": 1}, "stream"),
        (WriteReport("x", ()), dict(zip(OUTCOMES, (0, 0, 0, 0), strict=True)), "became"),
        (
            PublishReport(rows=9, confirmed=6, returned=2, unknown=1),
            dict(zip(OUTCOMES, (6, 2, 0, 1), strict=True)),
            "became",
        ),
        (DRY, {"q1": 10, "q2": 20}, "predicted (read ring)"),
    ],
)
def test_rows_of_a_report_are_drawn_by_their_outcome(report: Any, counts: dict[str, int], title: str) -> None:
    ax = drawn(plot.rows(report))
    assert dict(zip(names(ax), bars(ax), strict=True)) == counts
    assert texts(ax) == [f"{count:,}" for count in counts.values()]
    assert title in ax.get_title()
    assert ticks(ax) == ([7.5, 22.5] if report is DRY else [])  # the shares of the ring


def test_the_axes_may_be_the_callers() -> None:
    first, second, third, fourth = Figure().subplots(2, 2).flat
    assert plot.shares(RING, ax=first) is first
    assert plot.movement(TABLE, TABLE.reassigned({"e.0": 1}), ax=second) is second
    assert sum(bars(second, "leaves")) > 0
    assert plot.slots(TABLE, ax=third) is third
    assert plot.rows(DRY, ax=fourth) is fourth


def test_a_plot_without_data_has_a_note() -> None:
    nothing = HashRing.from_buckets([])
    assert texts(drawn(plot.shares(nothing))) == ["the ring has no buckets"]
    assert texts(drawn(plot.movement(plan(Topology(), LiveTopology())))) == ["no key moves"]
    assert texts(drawn(plot.slots(SlotTable(RING, {})))) == ["the ring has no slots"]
    assert texts(drawn(plot.rows(StreamReport()))) == ["no rows"]
    assert names(drawn(plot.movement(nothing, nothing))) == ["(nowhere)"]


def test_of_many_rows_the_largest_are_drawn() -> None:
    ring = HashRing.from_bindings([(f"q{n}", 2 if n == 57 else 1) for n in range(60)])
    ax = drawn(plot.shares(ring))
    assert len(names(ax)) == 40
    assert "q57" in names(ax)
    assert ax.get_title() == "Share of all keys\n(the largest 40 of 60)"
    assert sorted(bars(ax)) == sorted(ring.shares().values())[20:]


def test_a_name_is_shown_as_it_is() -> None:
    ax = drawn(plot.shares(HashRing.from_buckets(["$x_1$", "a\nb", "n" * 200])))
    assert names(ax) == ["$x_1$", "a\\nb", f"{'n' * 27}…"]


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: plot.shares(NOTHING), "None is not a ring"),
        (lambda: plot.movement(RING), "pass the ring after the change"),
        (lambda: plot.movement(NOTHING, RING), "None is not a ring"),
        (lambda: plot.movement(plan(Topology(), LiveTopology()), RING), "leave the second argument out"),
        (lambda: plot.slots(NOTHING), "None is not a slot table"),
        (lambda: plot.rows(NOTHING), "None has no rows by queue"),
        (lambda: plot.rows(DryRun("x", "amqp://h", {}, ())), "given a ring"),
    ],
)
def test_what_cannot_be_drawn(call: Callable[[], Axes], says: str) -> None:
    with pytest.raises(InputError, match=says):
        call()


def test_without_matplotlib_it_names_the_extra_and_pyplot_is_never_loaded() -> None:
    absent = "import sys; sys.modules['matplotlib'] = None; from rabbit_chx import plot"
    done = subprocess.run(
        [sys.executable, "-c", absent], capture_output=True, text=True, timeout=60, check=False
    )
    assert f"MissingExtraError: {missing_extra('a plot', 'matplotlib', 'plot')}" in done.stderr
    there = "import sys; from rabbit_chx import plot, HashRing; plot.shares(HashRing.from_buckets(['q'])); "
    code = f"{there}sys.exit('matplotlib.pyplot' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=60, check=False).returncode == 0
