"""Changes, field by field."""

from __future__ import annotations

import pytest

from rabbit_chx.topology import QueueDefinition
from rabbit_chx.topology.changes import fields_between


def test_only_what_differs_is_named() -> None:
    live = QueueDefinition("q", arguments={"a": 1, "b": 2})
    wanted = QueueDefinition("q", "quorum", arguments={"b": 2, "c": {"d": [1]}})

    fields = {field.field: (field.old, field.new) for field in fields_between(live, wanted)}

    assert fields == {
        "type": ("classic", "quorum"),
        "arguments.a": (1, None),
        "arguments.c": (None, {"d": (1,)}),
    }


@pytest.mark.parametrize(
    ("old", "new"), [(1, 1.0), (1, True), (0, False), ("1", 1), ([1], [1.0]), ({"k": 1}, {"k": True})]
)
def test_values_of_two_types_differ(old: object, new: object) -> None:
    live, wanted = (QueueDefinition("q", arguments={"k": value}) for value in (old, new))

    assert len(fields_between(live, wanted)) == 1


def test_the_owner_is_not_a_field_of_the_broker() -> None:
    assert fields_between(QueueDefinition("q"), QueueDefinition("q", owner="external")) == ()


def test_a_default_that_is_written_is_not_a_difference() -> None:
    assert (
        fields_between(QueueDefinition("q"), QueueDefinition("q", arguments={"x-queue-type": "classic"}))
        == ()
    )
