"""The changes of a plan as rows of a table: like changes in a row become one with a range of names."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter

from rabbit_chx.rendering import Table, TableColumn
from rabbit_chx.topology import BindingDefinition, FieldChange, PlannedChange
from rabbit_chx.topology.arguments import plain
from rabbit_chx.topology.ranges import expanded, folded
from rabbit_chx.topology.toml_file import toml_value

__all__ = ["changes_table", "ranged"]

_FIRST_ROWS, _LAST_ROWS = 30, 10
_COLUMNS = (
    TableColumn("step", numeric=False),
    TableColumn("change", numeric=False),
    TableColumn("name", numeric=False, code=True),
    TableColumn("fields", numeric=False, code=True),
)
#: What a created object has where its file does not say otherwise.
_DEFAULTS = {"durable": True, "auto_delete": False, "internal": False, "exclusive": False, "priority": 0, "apply_to": "all"}  # fmt: skip
#: What the name of a binding says already.
_NAMED = ("source", "destination", "routing_key")


@dataclass(frozen=True, slots=True)
class _Row:
    change: str
    name: str
    fields: tuple[str, ...]
    count: int


def changes_table(changes: Sequence[PlannedChange], *, whole: bool) -> Table:
    """Return the changes in order, field by field.

    Args:
        changes: the changes of a plan.
        whole: whether a long table is shown whole; else its middle is left out.
    """
    rows: list[tuple[str, str, str, str]] = []
    step = 1
    for row in _rows(changes):
        steps = f"{step}" if row.count == 1 else f"{step}-{step + row.count - 1}"
        step += row.count
        first, *others = row.fields or ("",)
        rows += [(steps, row.change, row.name, first), *(("", "", "", field) for field in others)]
    hidden = len(rows) - _FIRST_ROWS - _LAST_ROWS
    if hidden > 1 and not whole:
        rows[_FIRST_ROWS:-_LAST_ROWS] = [("...", f"{hidden:,} rows more", "", "--all shows them")]
    if any(fields for *_, fields in rows):
        return Table(_COLUMNS, rows)
    return Table(_COLUMNS[:-1], [row[:-1] for row in rows])


def ranged(names: Iterable[str]) -> list[str]:
    """Return the names with ranges in place of those that count up, such as ``orders.{1..40}``.

    Args:
        names: names, in order.
    """
    return [entry["name"] for entry in folded([{"name": name} for name in names], ["name"])]


def _rows(changes: Sequence[PlannedChange]) -> Iterator[_Row]:
    """Yield a row for each run of like changes whose names count up, or down."""
    for change, run in groupby(changes, key=lambda one: f"{one.action} {one.kind}".removesuffix(" binding")):
        entries = [(one.name, tuple(_fields(one))) for one in run]
        up, down = _folded(entries), _folded(entries[::-1])
        if len(down) < len(up):
            for name, fields, count in down[::-1]:
                yield _Row(change, f"{name}, last first" if count > 1 else name, fields, count)
        else:
            for name, fields, count in up:
                yield _Row(change, name, fields, count)


def _folded(entries: Sequence[tuple[str, tuple[str, ...]]]) -> list[tuple[str, tuple[str, ...], int]]:
    """Return names and fields with ranges, each with how many it stands for."""
    return [
        (entry["name"], fields, len(expanded(entry, ["name"])))
        for fields, like in groupby(entries, key=itemgetter(1))
        for entry in folded([{"name": name} for name, _ in like], ["name"])
    ]


def _fields(change: PlannedChange) -> Iterator[str]:
    """Yield what differs; of what is created, what is not a default; of what goes, nothing but its type."""
    for field in change.fields:
        if change.action in ("update", "replace"):
            yield f"{field.field}: {_value(field, 'old')} -> {_value(field, 'new')}"
        elif field.field in _NAMED and isinstance(change.subject, BindingDefinition):
            continue
        elif change.action in ("create", "bind") and _DEFAULTS.get(field.field, ...) != field.new:
            yield f"{field.field}: {_value(field, 'new')}"


def _value(field: FieldChange, which: str) -> str:
    value = plain({"value": getattr(field, which)})["value"]
    if value is None:
        return "nothing"
    return value if isinstance(value, str) and "." not in field.field else toml_value(value)
