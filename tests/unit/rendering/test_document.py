"""A document: its fields in JSON, what people see of its parts, and the texts of both."""

from __future__ import annotations

from dataclasses import dataclass, field

from rabbit_chx.rendering.document import (
    Batch,
    Data,
    Document,
    Facts,
    Line,
    Lines,
    Part,
    Section,
    Table,
    Verbatim,
    gauges_of,
)
from rabbit_chx.result_fields import SPREAD, Metric, Shown, shown


@dataclass(frozen=True, slots=True)
class Row:
    """A result."""

    name: str = field(metadata=shown("queue", metric=Metric("a_length", "Letters.", len)))
    ready: int | None = field(metadata=shown("ready", number=True, summed=True))
    note: str | None = field(default=None, metadata=shown("note", sparse=True, optional=True))
    both: int = field(default=0, metadata=shown(json=SPREAD, as_json=lambda n: {"low": n, "high": n + 1}))


def cells(table: Table) -> list[list[object]]:
    return [[column.heading for column in table.columns], *map(list, table.rows), list(table.total)]


def test_a_table_of_results_has_their_columns_and_all_their_fields() -> None:
    rows = [Row("q1", 2), Row("q2", None)]
    known = Table.of(Row, [*rows[:1], Row("q3", 3)], key="queues", total=True, most=1)
    assert cells(known) == [["queue", "ready"], ["q1", 2], ["all", 5]]
    table = Table.of(Row, rows, key="queues", total=True, most=1)
    assert cells(table) == [
        ["queue", "ready"],
        ["q1", 2],
        ["all", "-"],
    ]  # a sum of what is known is too small
    assert Document("d", [table]).as_json()["queues"] == [
        {"name": "q1", "ready": 2, "low": 0, "high": 1},
        {"name": "q2", "ready": None, "low": 0, "high": 1},
    ]
    assert cells(Table.of(Row, [Row("q1", None, "n")], skip=1)) == [["ready", "note"], ["-", "n"], []]
    assert [(gauge.name, gauge.samples) for gauge in gauges_of(Row, [({}, rows[0])])] == [
        ("a_length", [({}, 2)])
    ]


def test_a_table_of_named_columns_needs_no_class() -> None:
    columns = {
        "key": Shown("key"),
        "share": Shown("of all", "{:.0%}".format, number=True, json=None),
        "n": Shown(),
    }
    table = Table.of(columns, [("a", 0.5, 7)], key="keys")
    assert cells(table) == [["key", "of all"], ["a", "50%"], []]
    (record,) = Batch("row", table, {"all": True}).as_json()
    assert record == {"format": "rabbit-chx/row", "format_version": 1, "key": "a", "n": 7, "all": True}
    hidden = Document("d", [table.for_people([]), Table.of({"n": Shown()}, [(1,)], key="n")])
    assert list(hidden.blocks()) == []
    assert (hidden.as_json()["keys"], hidden.as_json()["n"]) == ([{"key": "a", "n": 7}], [{"n": 1}])


def test_parts_are_for_people_or_for_programs_or_for_both_with_other_texts() -> None:
    inner: list[Part] = [Data({"say": "a"}), Lines(["a", "b"], key="lines"), Line("a")]
    made = Document(
        "d",
        [
            Data(lambda: {"late": ("a", 1, None)}),
            Facts([("a", "a")]),
            Section("a", inner, key="inner"),
            Section("", [Line("a"), Data({"flat": True})]),
            Verbatim("a"),
        ],
    )
    assert made.with_texts(str.upper).as_json() == {
        "format": "rabbit-chx/d",
        "format_version": 1,
        "late": ["A", 1, None],
        "inner": {"say": "A", "lines": ["A", "B"]},
        "flat": True,
    }
    facts, section, line, verbatim = made.with_texts(str.upper).blocks()
    assert (facts, line, verbatim) == (Facts([("a", "A")]), Line("A"), Verbatim("a"))
    assert isinstance(section, Section)
    lines, last = section.parts
    assert isinstance(lines, Lines)
    assert (section.title, list(lines.texts), last) == ("a", ["A", "B"], Line("A"))


def test_a_document_without_a_name_does_not_tell_its_format() -> None:
    assert Document("", [Data({"a": (1,)})]).as_json() == {"a": [1]}
