"""Changes, field by field."""

from __future__ import annotations

from rabbit_chx.topology import QueueDefinition
from rabbit_chx.topology.schema import fields_between


def test_only_what_differs_is_named() -> None:
    live = QueueDefinition("q", arguments={"a": 1, "b": 2, "e": 1})
    wanted = QueueDefinition("q", "quorum", arguments={"b": 2, "c": {"d": [1]}, "e": True})

    fields = {field.field: (field.old, field.new) for field in fields_between(live, wanted)}

    assert fields == {
        "type": ("classic", "quorum"),
        "arguments.a": (1, None),
        "arguments.c": (None, {"d": (1,)}),
        "arguments.e": (1, True),
    }
