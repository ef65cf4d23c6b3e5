"""A result declares its fields once: the table, the facts, JSON and the metrics follow."""

from __future__ import annotations

from dataclasses import dataclass, field

from rabbit_chx.analysis.wording import to_json
from rabbit_chx.rendering import gauges_of, table_of
from rabbit_chx.result_fields import SPREAD, Metric, facts_of, json_fields, shown


@dataclass(frozen=True, slots=True)
class Row:
    """A result with each kind of field."""

    queue: str = field(metadata=shown("queue"))
    type: str = "classic"
    ready: int | None = field(
        default=None, metadata=shown("ready", number=True, summed=True, metric=Metric("ready", "Ready."))
    )
    load: float | None = field(
        default=None, metadata=shown("load", "{:.1%}".format, number=True, sparse=True)
    )
    names: tuple[str, ...] = field(
        default=(),
        metadata=shown("names", len, json="members", optional=True, metric=Metric("members", "Count.", len)),
    )
    key: bytes = field(default=b"k", metadata=shown(json=SPREAD, as_json=lambda key: {"text": key.decode()}))
    private: int = field(default=7, metadata=shown(json=None))


def test_a_table_has_the_labels_in_order_and_the_sums() -> None:
    table = table_of(Row, [Row("a", ready=2), Row("b")], total=True)
    assert [column.heading for column in table.columns] == ["queue", "ready", "names"]
    assert [column.numeric for column in table.columns] == [False, True, False]
    assert table.rows == [["a", 2, 0], ["b", "-", 0]]
    assert table.total == ["all", 2, ""]


def test_a_sparse_column_is_shown_with_a_value() -> None:
    table = table_of(Row, [Row("a", load=0.25)], skip=1)
    assert [column.heading for column in table.columns] == ["ready", "load", "names"]
    assert table.rows == [["-", "25.0%", 0]]
    assert [column.heading for column in table_of(Row, []).columns] == ["queue", "ready", "names"]


def test_json_has_every_field_unless_it_is_declared_otherwise() -> None:
    fields = {"queue": "a", "type": "classic", "ready": None, "load": None, "text": "k"}
    assert json_fields(Row("a")) == fields
    assert to_json([Row("a", names=("m",))])[0]["members"] == ["m"]


def test_facts_have_the_labels_and_the_forms() -> None:
    assert facts_of(Row("a", ready=3, names=("m",), load=0.5)) == [
        ("queue", "a"), ("ready", "3"), ("load", "50.0%"), ("names", "1"),
    ]  # fmt: skip


def test_metrics_are_those_with_values() -> None:
    rows = [({"queue": row.queue}, row) for row in (Row("a"), Row("b", names=("m", "n")))]
    (members,) = gauges_of(Row, rows)
    assert members.samples == [({"queue": "a"}, 0), ({"queue": "b"}, 2)]
    assert [gauge.name for gauge in gauges_of(Row, [])] == ["ready", "members"], "their help is known before"
