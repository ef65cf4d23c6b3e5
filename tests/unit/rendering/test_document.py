"""A document: its fields in JSON, what people see of its parts, and the texts of both."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import pytest

from rabbit_chx.rendering.document import (
    Batch,
    Block,
    Document,
    Facts,
    Line,
    Lines,
    Section,
    Table,
    Verbatim,
    gauges_of,
)
from rabbit_chx.result_fields import ABSENT, Absent, Metric, shown


@dataclass(frozen=True, slots=True)
class Both:
    """A group."""

    low: int = field(metadata=shown("low", number=True))
    high: int


@dataclass(frozen=True, slots=True)
class Row:
    """A result."""

    name: str = field(metadata=shown("queue", metric=Metric("a_length", "Letters.", len)))
    ready: int | None = field(metadata=shown("ready", number=True, summed=True))
    note: str | None = field(default=None, metadata=shown("note", sparse=True, optional=True))
    both: Both | None = field(default=Both(0, 1), metadata=shown(group=Both))


@dataclass(frozen=True, slots=True)
class Rows:
    """A result with rows."""

    queues: Iterable[Row]
    learn: str | Absent | None = ABSENT
    shares: Mapping[str, float] | None = field(default=None, metadata=shown(group=dict))
    determined: bool = True


def cells(table: Table) -> list[list[object]]:
    return [[column.heading for column in table.columns], *map(list, table.rows), list(table.total)]


def test_a_table_of_results_has_their_columns_and_those_of_their_groups() -> None:
    rows = [Row("q1", 2), Row("q2", None)]
    known = Table.of(Row, [*rows[:1], Row("q3", 3)], total=True, most=1)
    assert cells(known) == [["queue", "ready", "low"], ["q1", 2, 0], ["all", 5, ""]]
    # A sum of what is known is too small.
    assert cells(Table.of(Row, rows, total=True, most=1))[-1] == ["all", "-", ""]
    skipped = Table.of(Row, [Row("q1", None, "n")], skip=1, headings={"note": "remark"})
    assert cells(skipped) == [["ready", "remark", "low"], ["-", "n", 0], []]
    assert [(gauge.name, gauge.samples) for gauge in gauges_of(Row, [({}, rows[0])])] == [
        ("a_length", [({}, 2)])
    ]


def test_json_has_all_fields_but_those_that_are_left_out() -> None:
    head = {"format": "rabbit-chx/d", "format_version": 1}
    first = {"name": "q1", "ready": 2, "low": 0, "high": 1}
    made = Document("d", [], Rows(iter([Row("q1", 2), Row("q2", None, both=None)])))
    second = {"name": "q2", "ready": None}
    assert made.as_json() == {**head, "queues": [first, second], "determined": True}
    learned = Document("d", [], Rows((), None, {"a": 1.0}, determined=False))
    assert learned.as_json() == {**head, "queues": [], "learn": None, "a": 1.0, "determined": False}
    assert (made.is_determined, learned.is_determined) == (True, False)
    (record,) = Batch("d", Table((), ()), [Row("q1", 2)]).as_json()
    assert record == head | first


@pytest.mark.parametrize("is_late", [False, True])
def test_people_and_programs_read_the_same_changed_texts(*, is_late: bool) -> None:
    result = {"late": ("a", 1, None), "inner": {"say": "a"}}
    inner: list[Block] = [Lines(["a", "b"]), Line("a")]
    parts: list[Block] = [Facts([("a", "a")]), Section("a", inner), Section("", [Line("a")]), Verbatim("a")]
    made = Document("d", parts, (lambda: result) if is_late else result)
    assert made.with_texts(str.upper).as_json() == {
        "format": "rabbit-chx/d",
        "format_version": 1,
        "late": ["A", 1, None],
        "inner": {"say": "A"},
    }
    twice = made.with_texts(str.upper).with_texts(lambda text: text * 2)
    assert twice.as_json()["inner"] == {"say": "AA"}
    facts, section, line, verbatim = made.with_texts(str.upper).blocks()
    assert (facts, line, verbatim) == (Facts([("a", "A")]), Line("A"), Verbatim("a"))
    assert isinstance(section, Section)
    lines, last = section.parts
    assert isinstance(lines, Lines)
    assert (section.title, list(lines.texts), last) == ("a", ["A", "B"], Line("A"))


def test_a_document_without_a_name_does_not_tell_its_format() -> None:
    assert Document("", [], {"a": (1,)}).as_json() == {"a": [1]}
