"""The fields of changed objects. The stored plans show all else of a report."""

from __future__ import annotations

from rabbit_chx.planning.plan_report import changes_table
from rabbit_chx.topology import QueueDefinition
from rabbit_chx.topology.schema import PlannedChange


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
