"""The kinds of values: each other value has a fault, and a remedy that leads to a valid one."""

from __future__ import annotations

from typing import Any

import pytest

from rabbit_chx.topology.kinds import FLAG, KEY, NAME, STRING, choice, whole_number

TYPE = choice("classic", "quorum", "stream")
COUNT = whole_number(1, 9, " (buckets)")


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (TYPE, "quorum"),
        (COUNT, 1),
        (COUNT, 9),
        (whole_number(0), (1 << 63) - 1),
        (NAME, "é" * 127),
        (KEY, ""),
        (STRING, "a\nb"),
        (FLAG, False),
    ],
)
def test_a_valid_value_has_no_fault(kind: Any, value: object) -> None:
    assert kind.fault(value) is None


@pytest.mark.parametrize(
    ("kind", "value", "fault", "remedy"),
    [
        (TYPE, "quorom", "must be classic, quorum or stream", 'write "quorum"'),
        (TYPE, 1, "must be classic, quorum or stream", "write one of them in quotes"),
        (COUNT, 0, "an integer from 1 to 9 (buckets)", "write 1 or more"),
        (COUNT, 10, "an integer from 1 to 9 (buckets)", "write 9 or less"),
        (COUNT, "5", "an integer from 1 to 9", "write it without quotes"),
        (COUNT, "50", "an integer from 1 to 9", "write a number, such as 1"),
        (COUNT, True, "an integer from 1 to 9", "write a number, such as 1"),
        (whole_number(2, 2), 3, "the value must be 2", "write 2 or less"),
        (NAME, ["a"], "must be one name", "write an entry for each"),
        (NAME, "", "must be a non-empty string", "write a name"),
        (NAME, 5, "must be a non-empty string", "write the name in quotes"),
        (NAME, "\ud800", "half of a surrogate pair", "write whole characters"),
        (NAME, "é" * 128, "256 bytes", "write a shorter name"),
        (NAME, "a\n", "removes line breaks", "write it on one line"),
        (KEY, 5, "must be a string", "write it in quotes"),
        (KEY, "k" * 256, "256 bytes", "write a shorter key"),
        (FLAG, "true", "must be true or false", "write it without quotes"),
        (FLAG, 1, "must be true or false", "write one of them"),
    ],
)
def test_another_value_has_a_fault_and_a_remedy(kind: Any, value: object, fault: str, remedy: str) -> None:
    found, said = kind.fault(value)
    assert (fault in found, remedy in said) == (True, True), (found, said)
