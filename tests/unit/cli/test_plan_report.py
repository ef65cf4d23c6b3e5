"""Changes as rows: a long plan stays readable, and nothing is left out of the counts."""

from __future__ import annotations

import pytest

from rabbit_chx import Topology
from rabbit_chx.cli.plan_report import changes_table, fold_names
from rabbit_chx.topology import BindingDefinition, LiveTopology, QueueDefinition, plan
from rabbit_chx.topology.changes import PlannedChange
from rabbit_chx.topology.planning.plan_value import count_changes

FILE = """
[[exchanges]]
name = "orders"
type = "x-consistent-hash"
ring = [{ queue = "orders.{1..1000}" }]
[[queues]]
name = "orders.{1..1000}"
type = "quorum"
arguments = { x-delivery-limit = 5 }
"""


def unbound(*names: str) -> list[PlannedChange]:
    return [PlannedChange("unbind", BindingDefinition("x", name, "1"), None) for name in names]


def created(*names: str) -> list[PlannedChange]:
    return [PlannedChange("create", None, QueueDefinition(name)) for name in names]


def test_a_thousand_queues_are_four_rows() -> None:
    changes = plan(Topology.from_toml(FILE), LiveTopology()).changes
    assert count_changes(changes) == "1 exchange created, 1,000 queues created, 1,000 bindings made"
    assert changes_table(changes, whole=False).rows == [
        ("1", "create exchange", "orders", "type: x-consistent-hash"),
        ("2-1001", "create queue", "orders.{1..1000}", "type: quorum"),
        ("", "", "", "arguments.x-delivery-limit: 5"),
        ("1002-2001", "bind", "orders -> orders.{1..1000} (key 1)", ""),
    ]


def test_names_that_count_down_are_a_range_too() -> None:
    table = changes_table(unbound("q3", "q2", "q1", "q7"), whole=False)
    assert [column.heading for column in table.columns] == ["step", "change", "name"]
    assert table.rows == [
        ("1-3", "unbind", "x -> q{1..3} (key 1), last first"),
        ("4", "unbind", "x -> q7 (key 1)"),
    ]


def test_a_name_that_looks_like_a_range_is_none() -> None:
    assert changes_table(created("q{1..3}"), whole=False).rows == [
        ("1", "create queue", "q{{1..3}}", "type: classic")
    ]


@pytest.mark.parametrize(("whole", "rows"), [(False, 41), (True, 200)])
def test_a_long_table_reports_how_to_see_the_rest(*, whole: bool, rows: int) -> None:
    names = [f"{n:o}.a"[::-1] for n in range(8, 208)]
    table = changes_table(created(*names), whole=whole)
    assert len(table.rows) == rows
    assert (("...", "160 more rows", "", "--all shows them") in table.rows) is not whole
    assert table.rows[-1][0] == "200"


def test_of_created_objects_only_non_default_fields_are_shown() -> None:
    queue = QueueDefinition("q", durable=False, auto_delete=True, arguments={"x-max-length": 5, "site": "a"})
    other = QueueDefinition("q", arguments={"x-max-length": 6, "site": True})
    changes = [
        PlannedChange("create", None, queue),
        PlannedChange("replace", queue, other),
        PlannedChange("delete", other, None),
    ]
    assert [row[1:] for row in changes_table(changes, whole=False).rows] == [
        ("create queue", "q", "type: classic"),
        ("", "", "durable: false"),
        ("", "", "auto_delete: true"),
        ("", "", 'arguments.site: "a"'),
        ("", "", "arguments.x-max-length: 5"),
        ("replace queue", "q", "durable: false -> true"),
        ("", "", "auto_delete: true -> false"),
        ("", "", 'arguments.site: "a" -> true'),
        ("", "", "arguments.x-max-length: 5 -> 6"),
        ("delete queue", "q", ""),
    ]


def test_numbered_names_become_a_range() -> None:
    assert fold_names(["q1", "q2", "other", "q3"]) == ["q{1..2}", "other", "q3"]
