"""Plots of rings, changes, slots and reports on matplotlib (extra `plot`).

Each function takes ``ax=``, the Axes to draw on, and returns the Axes. Without ``ax`` it makes a Figure of its own, apart from pyplot:
``plot.shares(ring).figure.savefig("shares.svg")``. Colours are ``C0`` to ``C3`` of the current matplotlib style, and grey for what stays.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import nlargest
from typing import TYPE_CHECKING, Any, TypeVar

from rabbit_chx.analysis import movement as movement_between
from rabbit_chx.analysis import simulate
from rabbit_chx.analysis.wording import place_text
from rabbit_chx.errors import InputError
from rabbit_chx.installation import missing_extra
from rabbit_chx.publishing import PublishReport
from rabbit_chx.rendering import printable
from rabbit_chx.routing import SlotTable
from rabbit_chx.routing.bindings import Place
from rabbit_chx.routing.key_map import KeyMap
from rabbit_chx.routing.slot_table import check_slot_table
from rabbit_chx.topology import Plan
from rabbit_chx.topology.planning.ring_plan import KeyMapPlan

if TYPE_CHECKING:
    from matplotlib.axes import Axes

try:
    from matplotlib.figure import Figure
    from matplotlib.ticker import FuncFormatter, MaxNLocator
except ModuleNotFoundError:
    raise missing_extra("a plot", "matplotlib", "plot") from None

_MOST_ROWS = 40
_LONGEST_NAME = 28
_WIDTH, _ROW, _FRAME = 6.0, 0.28, 1.3  # inches
_GREY = "0.6"
_T = TypeVar("_T")


def shares(ring: KeyMap, ax: Axes | None = None) -> Axes:
    """Draw the exact share of all keys that each destination has, and a tick at its share of the buckets.

    Args:
        ring: the ring, its slots, or an exchange without a ring.
        ax: the Axes to draw on; None for those of a new Figure.
    """
    parts, note = _most(simulate(ring).places, lambda part: part.share)
    ax = _rows_on(ax, [part.place for part in parts], "Share of all keys", note, "the ring has no buckets")
    for row, part in enumerate(parts):
        ax.barh(row, part.share, color="C3" if part.place is None else "C0")
        if part.place is not None:
            _tick(ax, row, part.ideal, "share of the buckets")
        _value(ax, row, max(part.share, part.ideal), f"{part.share:.1%}")
    return _finish(ax, _percent)


def movement(before: KeyMap | Plan, after: KeyMap | None = None, ax: Axes | None = None) -> Axes:
    """Draw what a change moves: the keys that arrive at, stay in and leave each destination. Of a plan: each way to its end.

    Args:
        before: the ring, its slots, or an exchange without a ring, before the change. Or a plan: then each of its ways is drawn with the
            share of keys that moves in the end and at the worst moment, and the share that may move.
        after: the same after the change; None with a plan.
        ax: the Axes to draw on; None for those of a new Figure.
    """
    if isinstance(before, Plan):
        if after is not None:
            raise InputError("a plan has its rings before and after: leave the second argument out")
        return _plan_on(ax, before)
    if after is None:
        raise InputError("movement needs two rings, or a plan: pass the ring after the change, too")
    matrix = movement_between(before, after)
    had, has = matrix.before_totals(), matrix.after_totals()
    stays = {place: matrix.get((place, place), 0.0) for place in (*had, *has)}
    leaves = {place: had.get(place, 0.0) - share for place, share in stays.items()}
    arrives = {place: has.get(place, 0.0) - share for place, share in stays.items()}
    places, note = _most(list(stays), lambda place: leaves[place] + arrives[place])
    ax = _rows_on(ax, places, f"{matrix.moved:.1%} of all keys move", note, "nothing is bound")
    for row, place in enumerate(places):
        ax.barh(row, -arrives[place], color="C0", label="arrives")
        ax.barh(row, stays[place], color=_GREY, label="stays")
        ax.barh(row, leaves[place], left=stays[place], color="C1", label="leaves")
    ax.axvline(0, color=_text_colour(ax), linewidth=1)
    return _finish(ax, _percent)


def slots(table: SlotTable, ax: Axes | None = None) -> Axes:
    """Draw which slots each queue has, in the order of the ring, and its exact share of all keys.

    Args:
        table: the slots.
        ax: the Axes to draw on; None for those of a new Figure.
    """
    check_slot_table(table)
    owners = [table.owners.get(slot) for slot in table.slots]
    queues, note = _most(
        sorted({*owners}, key=lambda queue: (queue is None, owners.index(queue))), owners.count
    )
    ax = _rows_on(ax, queues, "Slots of each queue, and its share of all keys", note, "the ring has no slots")
    for row, queue in enumerate(queues):
        held = [(number - 0.45, 0.9) for number, owner in enumerate(owners) if owner == queue]
        ax.broken_barh(held, (row - 0.4, 0.8), facecolor="C3" if queue is None else "C0")
        _value(ax, row, len(owners) - 0.5, f"{table.shares().get(queue, 0.0):.1%}")
    ax.set_xlabel("number of the slot in the ring")
    ax.set_xlim(-0.5, max(len(owners), 1) - 0.5)
    _finish(ax, _count)
    ax.set_xticks([number for number in ax.get_xticks() if 0 <= number < len(owners)])
    return ax


def rows(report: Any, ax: Axes | None = None) -> Axes:  # a report of Spark is above this module
    """Draw the rows of a report: by predicted queue, by stream, or by what became of them.

    Of a dry run a tick is at the share of all keys that the queue has.

    Args:
        report: the report of a publisher or of a write by Spark, or a dry run.
        ax: the Axes to draw on; None for those of a new Figure.
    """
    counts, title = _counts(report)
    names, note = _most(list(counts), counts.__getitem__)
    ax = _rows_on(ax, names, title, note, "no rows")
    expected = {name: share * sum(counts.values()) for name, share in getattr(report, "shares", {}).items()}
    for row, name in enumerate(names):
        ax.barh(row, counts[name], color="C0")
        if name in expected:
            _tick(ax, row, expected[name], "by its share of all keys")
        _value(ax, row, max(counts[name], expected.get(name, 0.0)), f"{counts[name]:,}")
    return _finish(ax, _count)


def _counts(report: Any) -> tuple[Mapping[str, int], str]:
    streams, predicted = getattr(report, "streams", None), getattr(report, "predicted", None)
    if streams is not None:
        by_stream = getattr(streams, "rows", streams)
        return dict(sorted(by_stream.items())), "Rows that each stream has confirmed"
    if predicted:
        return dict(sorted(predicted.items())), f"Rows by queue, predicted ({report.ring_provenance} ring)"
    published = getattr(report, "publish_report", report)
    if isinstance(published, PublishReport):
        outcomes = ("confirmed", "returned", "nacked", "unknown")
        return {name: getattr(published, name) for name in outcomes}, "What became of the rows"
    raise InputError(
        f"{report!r:.60} has no rows by queue: pass a report, or a dry run that was given a ring"
    )


@dataclass(frozen=True, slots=True)
class _Way:
    """One way to the end of a plan."""

    name: str
    moved: float
    at_worst: float
    limit: float | None


def _moving(plan: Plan) -> list[KeyMapPlan]:
    return [change for change in plan.rings.values() if change.moved_at_worst and change.before.bucket_count]


def _ways(plan: Plan) -> Iterator[_Way]:
    changes = _moving(plan)
    for change in changes:
        prefix = "" if len(changes) == 1 else f"{change.exchange}: "
        if not change.proposals:
            yield _Way(f"{prefix}as-written", change.moved, change.moved_at_worst, change.limit)
        for way in change.proposals:
            yield _Way(f"{prefix}{way.strategy}", way.moved, way.moved_at_worst, change.limit)


def _plan_on(ax: Axes | None, plan: Plan) -> Axes:
    ways, note = _most(list(_ways(plan)), lambda way: way.at_worst)
    changes = _moving(plan)
    keys = f"the keys of {changes[0].exchange:.60}" if len(changes) == 1 else "all keys"
    ax = _rows_on(ax, [way.name for way in ways], f"Share of {keys} that moves", note, "no key moves")
    for row, way in enumerate(ways):
        ax.barh(row, way.at_worst, color=_GREY, label="at worst")
        ax.barh(row, way.moved, height=0.4, color="C0", label="in the end")
        if way.limit is not None:
            _tick(ax, row, way.limit, "may move", "C3")
        moved, at_worst = (f"{share * 100:.1f}%" for share in (way.moved, way.at_worst))
        text = moved if moved == at_worst else f"{moved} in the end, {at_worst} at worst"
        _value(ax, row, max(way.at_worst, way.limit or 0.0), text)
    return _finish(ax, _percent)


def _most(values: Sequence[_T], weight: Callable[[_T], float]) -> tuple[Sequence[_T], str]:
    """Return as many values as fit, the heaviest ones in their order, and what to say of the others."""
    if len(values) <= _MOST_ROWS:
        return values, ""
    kept = sorted(nlargest(_MOST_ROWS, range(len(values)), key=lambda place: weight(values[place])))
    return [values[place] for place in kept], f"\n(the largest {_MOST_ROWS} of {len(values):,})"


def _rows_on(ax: Axes | None, names: Sequence[Place], title: str, note: str, empty: str) -> Axes:
    """Return Axes with a named row for each place, the first at the top."""
    if ax is None:
        size = _WIDTH, _FRAME + _ROW * max(len(names), 3)
        ax = Figure(size, layout="constrained").add_subplot()
    texts = [printable(place_text(name)) for name in names]
    short = [text if len(text) <= _LONGEST_NAME else f"{text[: _LONGEST_NAME - 1]}…" for text in texts]
    ax.set_yticks(range(len(short)), short, parse_math=False)
    ax.tick_params(axis="y", length=0)
    ax.spines[["top", "right", "left"]].set_visible(False)
    ax.set_title(printable(title) + note, parse_math=False)
    if names:
        ax.set_ylim(len(names) - 0.4, -0.6)
    else:
        ax.text(0.5, 0.5, empty, ha="center", transform=ax.transAxes)
    return ax


def _tick(ax: Axes, row: int, value: float, label: str, colour: str | None = None) -> None:
    ax.vlines(value, row - 0.45, row + 0.45, color=colour or _text_colour(ax), linewidth=2, label=label)


def _value(ax: Axes, row: int, end: float, text: str) -> None:
    ax.annotate(text, (end, row), xytext=(4, 0), textcoords="offset points", va="center")


def _text_colour(ax: Axes) -> Any:  # any colour of matplotlib
    return ax.xaxis.label.get_color()


def _percent(share: float, _: int | None = None) -> str:
    return f"{100 * abs(share):g}%"


def _count(count: float, _: int | None = None) -> str:
    return f"{count:,.0f}"


def _finish(ax: Axes, written: Callable[[float, int | None], str]) -> Axes:
    """Return the Axes with room for the values at the ends of bars, numbers below, and a legend."""
    low, high = ax.get_xlim()
    ax.set_xlim(low, high + 0.12 * (high - low))
    ax.xaxis.set_major_locator(MaxNLocator(nbins=5, steps=[1, 2, 5, 10], integer=written is _count))
    ax.xaxis.set_major_formatter(FuncFormatter(written))
    handles, labels = ax.get_legend_handles_labels()
    if labels:
        named = dict(zip(labels, handles, strict=True))
        ax.legend(
            list(named.values()),
            list(named),
            loc="upper center",
            bbox_to_anchor=(0.5, 0),
            borderaxespad=2.4,
            ncols=3,
            frameon=False,
        )
    return ax
