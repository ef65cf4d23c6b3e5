"""The report of a plan: its changes, the keys that move in each ring, and the refusals."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from operator import itemgetter
from types import MappingProxyType

from rabbit_chx.analysis.findings import Finding, place_text
from rabbit_chx.analysis.reports import matrix_table, ring_text, texts
from rabbit_chx.planning.plan_value import DRAIN_S, NOT_ONE_QUEUE, Plan, PlanFields, count_kind, plan_facts
from rabbit_chx.planning.ring_plan import KeyMapPlan, RingProposal, SlotHandOver
from rabbit_chx.rendering.document import (
    Block,
    Document,
    Facts,
    Line,
    Lines,
    Section,
    Table,
    TableColumn,
)
from rabbit_chx.result_fields import shown
from rabbit_chx.routing.release import Release
from rabbit_chx.text import grouped, listed, percent, plural
from rabbit_chx.topology.argument_table import ArgumentValue, plain, toml_value
from rabbit_chx.topology.objects import BindingDefinition, QueueDefinition, RingMember
from rabbit_chx.topology.ranges import expand, fold, fold_names
from rabbit_chx.topology.schema import SCHEMA, FieldChange, PlannedChange

_SHOW_ALL = "--all shows them"
_FOLDED_ROWS = 20
_MOST_NAMES = 30
_MOST_MOVES = 20
_MOST_REFUSALS = 20
_FIRST_ROWS = 30
_LAST_ROWS = 10
#: The option that permits a refusal that none permits.
NOT_PERMITTED = "no option permits it"
#: The fields that the name of a binding contains.
_NAMED = ("source", "destination", "routing_key")


def plan_parts(
    plan: Plan,
    about: Sequence[tuple[str, str]] = (),
    refusals: Sequence[Finding] | None = None,
    *,
    whole: bool = False,
    ending: Sequence[str] = (),
    override: str = "",
    drain_s: float | None = DRAIN_S,
    heaviest: Mapping[str, Sequence[tuple[str, str]]] = MappingProxyType({}),
) -> Iterator[Block]:
    """Yield what people see of a plan: the changes, each ring, the unmanaged objects, and the refusals.

    Args:
        plan: the plan.
        about: names and values in its heading, such as the file and the broker.
        refusals: the reasons to refuse it; None: those of the plan.
        whole: True: long lists are not shortened.
        ending: lines at the end, such as the command that applies it.
        override: how to apply a plan that is refused; only a form that folds shows it.
        drain_s: the time in seconds in which consumers empty the queues that are deleted; None: they are deleted with their messages.
        heaviest: whether the heaviest keys of a sample move, in words, by the exchange.
    """
    refusals = plan.refusals if refusals is None else refusals
    new = {change.name for change in plan.changes if (change.action, change.kind) == ("create", "exchange")}
    if refusals:
        yield Line(f"REFUSED: {_headline(refusals)}", is_alarm=True)
        yield Facts(_refusal_facts(refusals, whole=whole))
    yield Facts([*about, *plan_facts(plan), ("checksum", plan.checksum)])
    if plan.changes:
        table = changes_table(plan.changes, whole=whole)
        is_long = len(table.rows) > _FOLDED_ROWS
        title = plural(len(plan.changes), "change") if is_long else "Changes"
        notes = [*_temporary_objects(plan), *_queues_to_drain(plan, drain_s)]
        yield Section(title, [table, *notes], folded=is_long)
    for change in (change for change in plan.rings.values() if change.is_moving):
        if change.is_ring:
            heavy = heaviest.get(change.exchange, ())
            blocks = _ring_blocks(change, heavy, is_new=change.exchange in new, whole=whole)
            yield Section(f"Ring of {change.exchange}", list(blocks))
        elif change.before.buckets:
            facts = [*_modulus_facts(change), *heaviest.get(change.exchange, ())]
            shown = [Facts(facts), *_proposal_blocks(change)]
            yield Section(f"Keys of {change.exchange} ({change.before.kind})", shown)
    if unmanaged := _list_unmanaged(plan):
        counts = Line(f"{', '.join(counted for counted, _ in unmanaged)}; `--all` lists them")
        yield Section(
            "Not in the file, unchanged",
            [Facts(unmanaged) if whole else counts],
            folded=True,
        )
    if ending:
        yield Lines(ending)
    if refusals and override:
        yield Section("Apply it all the same", [Lines([override])], folded=True, needs_folding=True)


def _headline(refusals: Sequence[Finding]) -> str:
    """Return the first reason of a refusal, and the number of the others."""
    others = len(refusals) - 1
    more = f" (and {plural(others, 'more reason', 'more reasons')})" if others else ""
    return refusals[0].message + more


@dataclass(frozen=True, slots=True)
class PlannedBroker:
    """The broker of a plan."""

    cluster: str | None
    release: Release | None
    vhost: str


@dataclass(frozen=True, slots=True)
class PlanResult:
    """A plan of a file and a broker."""

    plan: PlanFields = field(metadata=shown(group=PlanFields))
    file: str | None = field(metadata=shown(optional=True))
    broker: PlannedBroker | None = field(metadata=shown(optional=True))


def plan_report(
    plan: Plan, parts: Iterable[Block], file: str | None = None, broker: PlannedBroker | None = None
) -> Document:
    """Return the document of `Plan.to_json`, with `parts` for people, and for programs the file and the broker."""

    def result() -> PlanResult:  # the movement between many destinations takes time
        return PlanResult(PlanFields.of(plan), file, broker)

    return Document("plan", list(parts), result)


def shown_plan(plan: Plan) -> Document:
    """Return the report of a plan, for a notebook."""
    return plan_report(plan, plan_parts(plan))


def _modulus_facts(modulus: KeyMapPlan) -> Iterator[tuple[str, str]]:
    yield "now", plural(len(modulus.before.destinations), "binding")
    yield "then", plural(len(modulus.after.destinations), "binding")
    yield "moves", modulus.moves
    if modulus.lost_at_worst:
        yield "unroutable", f"{percent(modulus.lost_at_worst)} of the keys at the peak"


def _temporary_objects(plan: Plan) -> Iterator[Line]:
    created, deleted = (
        {(change.kind, change.name): None for change in plan.changes if change.action == action}
        for action in ("create", "delete")
    )
    if names := [name for kind, name in created if (kind, name) in deleted]:
        yield Line(
            f"{_list_names(names)}: it does not exist, but the ring has a bucket for it. To remove the bucket, it is declared, bound, "
            "unbound and deleted."
        )


def _queues_to_drain(plan: Plan, drain_s: float | None) -> Iterator[Line]:
    # Streams are never drained; stand-ins and parking queues have no consumers.
    others = {change.name for change in plan.changes if change.action == "create"} | {
        *plan.parking_queues.values()
    }
    actions = {
        change.action
        for change in plan.changes
        if isinstance(change.live, QueueDefinition)
        and change.live.type != "stream"
        and change.name not in others
        and (change.action != "replace" or plan.reaches_others(change.name))
    }
    ends = [word for action, word in (("delete", "deleted"), ("replace", "replaced")) if action in actions]
    if drain_s is not None and ends:
        yield Line(
            f"A queue is unbound before it is {' or '.join(ends)}, and its consumers have {drain_s:g} s to empty it: `--drain` of apply "
            "(`drain_s`) sets that time."
        )


def _ring_blocks(
    ring: KeyMapPlan, heavy: Sequence[tuple[str, str]], *, is_new: bool, whole: bool
) -> Iterator[Block]:
    after = f"{plural(len(ring.after.buckets), ring.after.hashing.part)}, {plural(len(ring.after.destinations), 'destination')}"
    if not ring.before.buckets:
        now = "the exchange is new" if is_new else "no buckets: every message is unroutable"
        yield Facts([("now", now), ("then", after)])
        return
    matrix = ring.matrix()
    figures = ring.moves
    if matrix is not None and ring.moved:
        # In another order the shares of the members differ a little, so fewer keys may have to move.
        least = min(matrix.least, *(proposal.moved for proposal in ring.proposals), ring.moved)
        figures = f"{figures}; at least {percent(least)} in any order"
    facts = [("now", ring_text(ring.before)), ("then", after), ("moves", figures), *heavy]
    over = ring.handed_over
    if over:
        slots = f"{plural(len(over), 'slot')} of {len(ring.before.destinations)} with another queue"
        facts.insert(2, ("slots", slots))
    if ring.lost_at_worst:
        facts.append(("unroutable", f"{percent(ring.lost_at_worst)} of the keys at the peak"))
    if ring.moved_at_worst:
        facts.append(("order", _order_text(ring)))
    yield Facts(facts)
    if matrix is not None and ring.moved:
        yield matrix_table(matrix, percent, most_moves=_MOST_MOVES)
    if over:
        yield _slots_table(over, whole=whole)
    yield from _proposal_blocks(ring)


def _order_text(ring: KeyMapPlan) -> str:
    """Return whether the messages of each key stay in order while they are published, and by what."""
    if ring.obstacles:
        return "not kept for the keys that move, as things are: see the warning"
    append = ring.append
    if append is not None:
        names = _list_names([place_text(place) for place in append.new])
        return (
            f"kept for each key, if {names} gets its consumers only when each of the other queues has been empty once since the bind: "
            "`--wait-drained` of apply (`Broker.wait_drained()`) waits for that"
        )
    if ring.handed_over and not ring.steps:
        return "kept for each key with `--hand-over in-order` of apply (`hand_over='in-order'`), and a ConsumerGroup"
    return "not kept for keys that move during traffic: stop publishers, and empty the queues first"


def _proposal_blocks(ring: KeyMapPlan) -> Iterator[Block]:
    if len(ring.proposals) > 1:
        if ring.moved_at_worst:
            yield Table.of(RingProposal, ring.proposals)
        yield Facts([(proposal.strategy, _proposal_text(proposal)) for proposal in ring.proposals])


def _slots_table(over: Sequence[SlotHandOver], *, whole: bool) -> Table:
    """Return the slots that change hands; consecutive slots share a row."""
    entries = [
        {"slot": hand.slot, "old": hand.old or NOT_ONE_QUEUE, "new": hand.new or NOT_ONE_QUEUE}
        for hand in over
    ]
    rows = [(entry["slot"], entry["old"], entry["new"]) for entry in fold(entries, ["slot"])]
    if (hidden := len(rows) - _MOST_MOVES) > 1 and not whole:
        rows[_MOST_MOVES:] = [(f"{hidden:,} more rows", "", _SHOW_ALL)]
    return Table([TableColumn(name, numeric=False, code=True) for name in ("slot", "from", "to")], rows)


def _proposal_text(proposal: RingProposal) -> str:
    if proposal.strategy != "least-moving-order":
        return proposal.description
    return f"{proposal.description}: {_list_names(_members(proposal.ring))}"


def _members(ring: Sequence[RingMember]) -> list[str]:
    entries = fold([{"name": place_text(member.destination), "key": member.key} for member in ring], ["name"])
    return [entry["name"] if entry["key"] == "1" else f"{entry['name']} x{entry['key']}" for entry in entries]


def _list_names(names: Sequence[str], *, whole: bool = False) -> str:
    return listed(names, len(names) if whole else _MOST_NAMES)


def _list_unmanaged(plan: Plan) -> list[tuple[str, str]]:
    by_kind = grouped((left.kind, left.name) for left in plan.unmanaged)
    return [
        (count_kind(len(names), kind), _list_names(fold_names(names), whole=True))
        for kind, names in by_kind.items()
    ]


def _refusal_facts(refusals: Sequence[Finding], *, whole: bool) -> list[tuple[str, str]]:
    if len(refusals) == 1:  # its message is in the headline
        return [("instead", refusals[0].fix)] if refusals[0].fix else []
    entries = fold(
        [{"text": refusal.text, "flag": refusal.allow_with or NOT_PERMITTED} for refusal in refusals],
        ["text"],
    )
    pairs = [(entry["flag"], entry["text"]) for entry in entries]
    if len(pairs) > _MOST_REFUSALS and not whole:
        return [*pairs[:_MOST_REFUSALS], ("...", f"{len(pairs) - _MOST_REFUSALS:,} more; `--all` shows them")]
    return pairs


def changes_table(changes: Sequence[PlannedChange], *, whole: bool) -> Table:
    """Return the changes in order, field by field."""
    rows: list[tuple[str, str, str, str]] = []
    step = 1
    for change, name, fields, count in _runs(changes):
        steps = f"{step}" if count == 1 else f"{step}-{step + count - 1}"
        step += count
        first, *others = fields or ("",)
        rows += [(steps, change, name, first), *(("", "", "", field) for field in others)]
    hidden = len(rows) - _FIRST_ROWS - _LAST_ROWS
    if hidden > 1 and not whole:
        rows[_FIRST_ROWS:-_LAST_ROWS] = [("...", f"{hidden:,} more rows", "", _SHOW_ALL)]
    columns = [*texts("step", "change"), TableColumn("name", numeric=False, code=True)]
    if any(field for *_, field in rows):
        return Table([*columns, TableColumn("fields", numeric=False, code=True)], rows)
    return Table(columns, [row[:-1] for row in rows])


def _runs(changes: Sequence[PlannedChange]) -> Iterator[tuple[str, str, tuple[str, ...], int]]:
    """Yield each run of equal changes whose names count up, or down: the change, the names, the fields, and their number."""
    for change, run in groupby(changes, key=lambda one: f"{one.action} {one.kind}".removesuffix(" binding")):
        entries = [(like.name, tuple(_fields(like))) for like in run]
        up = _fold_changes(entries)
        down = _fold_changes(entries[::-1])
        if len(down) < len(up):
            for name, fields, count in down[::-1]:
                yield change, f"{name}, last first" if count > 1 else name, fields, count
        else:
            for name, fields, count in up:
                yield change, name, fields, count


def _fold_changes(entries: Sequence[tuple[str, tuple[str, ...]]]) -> list[tuple[str, tuple[str, ...], int]]:
    return [
        (entry["name"], fields, len(expand(entry, ["name"])))
        for fields, like in groupby(entries, key=itemgetter(1))
        for entry in fold([{"name": name} for name, _ in like], ["name"])
    ]


def _fields(change: PlannedChange) -> Iterator[str]:
    """Yield the differences; for a created object its type and the non-default values; for a deleted object nothing."""
    defaults = {**SCHEMA[change.kind].defaults, "type": None}
    for changed in change.fields:
        if change.action in ("update", "replace"):
            yield f"{changed.field}: {_value(changed, changed.old)} -> {_value(changed, changed.new)}"
        elif changed.field in _NAMED and isinstance(change.subject, BindingDefinition):
            continue
        elif change.action in ("create", "bind") and defaults.get(changed.field, ...) != changed.new:
            yield f"{changed.field}: {_value(changed, changed.new)}"


def _value(field: FieldChange, side: ArgumentValue) -> str:
    value = plain({"value": side})["value"]
    if value is None:
        return "none"
    return value if isinstance(value, str) and "." not in field.field else toml_value(value)
