"""Figures of a plan and of a check: each way to a ring, what it moves beside what may move, and the rings with their findings."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from rabbit_chx.analysis import Finding, MovementMatrix, movement_matrix
from rabbit_chx.analysis.pictures import matrix_table, movement_figure, owner_of, ring_strip
from rabbit_chx.analysis.wording import percent, plural
from rabbit_chx.rendering.blocks import Block, Figure, Line, Section, Table, Verbatim, Ways
from rabbit_chx.rendering.figures import Bar, Bars, Segment, Strip, StripRow, owners_strip
from rabbit_chx.rendering.html import html_piece
from rabbit_chx.rendering.table import TableColumn
from rabbit_chx.routing import HashRing
from rabbit_chx.topology.model import Topology
from rabbit_chx.topology.objects import SlotNames
from rabbit_chx.topology.proposals import RingProposal
from rabbit_chx.topology.ring_plan import RingPlan
from rabbit_chx.topology.rings import ring_of
from rabbit_chx.topology.slot_owners import owners_of_slots

_MOST_MOVES = 20
_MOST_RINGS = 24


def ring_figures(ring: RingPlan, matrix: MovementMatrix) -> Iterator[Block]:
    """Yield what a plan moves in a ring: the ways to it, and of each the ring, before and after, and from where to where.

    Args:
        ring: the plan of the ring.
        matrix: its `matrix`.
    """
    before, after = _rings(ring)
    if not ring.moved or not ring.is_counted_by(matrix):
        yield ring_strip(("before", before), ("after", after))
    elif len(ring.proposals) < 2:
        yield ring_strip(("before", before), ("after", after))
        yield movement_figure(matrix, percent, most_moves=_MOST_MOVES)
    else:
        words = "Choose a way, and see its ring and what it moves."
        table = matrix_table(matrix, percent, most_moves=_MOST_MOVES)
        ways = ((f"{way.strategy}: {percent(way.moved)}", _way(ring, way)) for way in ring.proposals)
        yield Ways("The ways to these members", words, ways, table)


def moved_figure(ring: RingPlan, limit: float | None) -> Figure:
    """Return what each way of a plan moves, beside what may move.

    Args:
        ring: the plan of the ring.
        limit: its `max_share_moved`; None for none.
    """
    ways = [(way.strategy, way.moved, way.moved_at_worst) for way in ring.proposals]
    ways = ways or [("as-written", ring.moved, ring.moved_at_worst)]
    bars = [
        Bar(f"{name}, {when}", share, percent(share))
        for name, moved, at_worst in ways
        for when, share in (("in the end", moved), ("at worst", at_worst))
    ]
    drawn = Bars(bars, limit=None if limit is None else (limit, f"max_share_moved {limit:.4g}"))
    columns = [TableColumn("way", numeric=False), TableColumn("in the end"), TableColumn("at worst")]
    rows = [(name, percent(moved), percent(at_worst)) for name, moved, at_worst in ways]
    words = "The share of all keys that has another destination, in the end and at the worst moment between two steps."
    if limit is None:
        words = f"{words} The file sets no max_share_moved."
    return Figure("What moves", words, drawn, Table(columns, rows), page_only=len(ways) < 2)


def share_allowed(wanted: Topology, exchange: str) -> float | None:
    """Return the share of keys that may move in the ring of an exchange; None for any.

    Args:
        wanted: the topology that is wanted.
        exchange: the name of the exchange.
    """
    definition = wanted.exchange(exchange)
    own = None if definition is None else definition.max_share_moved
    return wanted.max_share_moved if own is None else own


def way_rings(ring: RingPlan, way: RingProposal) -> tuple[HashRing, HashRing]:
    """Return the ring before and after a plan, the way of a proposal, with queues in the place of slots.

    Args:
        ring: the plan of the ring.
        way: one of its proposals.
    """
    before, after = _rings(ring)
    if way.slots is not None:
        names = SlotNames(ring.exchange, way.slots)
        owners = owners_of_slots(names, way.ring, ring.before, {})
        return before, HashRing.from_buckets([owners[slot] for slot in names.slots], ring.before.release)
    if way.strategy in ("least-moving-order", "fewest-steps"):
        return before, ring_of(way.ring, ring.before.release)
    return before, after


def checked_rings(rings: Mapping[str, HashRing], findings: Iterable[Finding], where: str = "") -> Figure:
    """Return the rings of a check, with what the findings are about marked.

    Args:
        rings: the rings, by exchange.
        findings: what was found.
        where: whose rings they are, for the title.
    """
    findings_of: dict[str | None, list[Finding]] = {}
    for finding in findings:
        findings_of.setdefault(finding.exchange, []).append(finding)
    names = sorted(rings, key=lambda name: name not in findings_of)
    rows = [_checked(name, rings[name], findings_of.get(name, ())) for name in names[:_MOST_RINGS]]
    words = "The buckets of each ring in their order. A line below a bucket is a finding about its owner."
    if rest := names[_MOST_RINGS:]:
        words = f"{words} {plural(len(rest), 'more ring')} not drawn."
    columns = [
        TableColumn("exchange", numeric=False, code=True),
        *map(TableColumn, ("buckets", "destinations", "findings")),
    ]
    numbers = [
        (name, len(rings[name].buckets), len(rings[name].destinations), len(findings_of.get(name, ())))
        for name in names
    ]
    drawn = Strip(rows, None, "there is a finding about it")
    return Figure(f"The rings{where}", words, drawn, Table(columns, numbers), page_only=True)


def plan_piece(says: str, rings: Iterable[RingPlan], wanted: Topology) -> str:
    """Return a plan for a notebook.

    Args:
        says: the plan as text.
        rings: its rings.
        wanted: the topology that is wanted.
    """
    blocks: list[Block] = [Verbatim(says)]
    for ring in rings:
        if ring.moved_at_worst and ring.before.bucket_count:
            figures = [
                moved_figure(ring, share_allowed(wanted, ring.exchange)),
                *ring_figures(ring, ring.matrix()),
            ]
            blocks.append(Section(f"Ring of {ring.exchange}", figures))
    return html_piece(blocks)


def check_piece(rings: Mapping[str, HashRing], findings: Sequence[Finding]) -> str:
    """Return a check for a notebook.

    Args:
        rings: the rings that were checked, by exchange.
        findings: what was found.
    """
    columns = [TableColumn(name, numeric=False) for name in ("finding", "exchange", "says", "cure")]
    rows = [(finding.kind, finding.exchange or "", finding.says, finding.cure) for finding in findings]
    blocks: list[Block] = [checked_rings(rings, findings)] if rings else []
    return html_piece([*blocks, Table(columns, rows) if rows else Line("Nothing was found: it is sound.")])


def _rings(ring: RingPlan) -> tuple[HashRing, HashRing]:
    if ring.hands is None:
        return ring.before, ring.after
    return ring.hands.ring_before(ring.before), ring.hands.ring_after(ring.after)


def _way(ring: RingPlan, way: RingProposal) -> Iterator[Block]:
    yield Line(f"{way.says[0].upper()}{way.says[1:]}.")
    before, after = way_rings(ring, way)
    yield ring_strip(("before", before), ("after", after))
    yield movement_figure(movement_matrix(before, after), percent, most_moves=_MOST_MOVES)


def _checked(name: str, ring: HashRing, findings: Sequence[Finding]) -> StripRow:
    about = {owner_of(finding.destination) for finding in findings if finding.destination is not None}
    (row,) = owners_strip((name, [owner_of(place) for place in ring.buckets])).rows
    total = len(ring.buckets) or 1
    segments = [
        Segment(piece.name, piece.amount / total, piece.says, piece.name is None or piece.name in about)
        for piece in row.segments
    ]
    note = plural(len(findings), "finding") if findings else "sound"
    return StripRow(name, segments, f"{row.note}; {note}", loud=bool(findings))
