"""The kinds of values: each other value has a fault, and a remedy that leads to a valid one.

More faults, as a file has them, are in `file/mistakes.txt`.
"""

from __future__ import annotations

from typing import Any

import pytest

from rabbit_chx.topology.kinds import KEY, NAME, choice, whole_number

COUNT = whole_number(1, 9, " (buckets)")


def test_a_valid_value_has_no_fault() -> None:
    for kind, value in ((choice("classic", "quorum"), "quorum"), (COUNT, 1), (COUNT, 9), (NAME, "é" * 127)):
        assert kind.fault(value) is None


@pytest.mark.parametrize(
    ("kind", "value", "fault", "remedy"),
    [
        (COUNT, "50", "an integer from 1 to 9 (buckets)", "write a number, such as 1"),
        (whole_number(2, 2), 3, "the value must be 2", "write 2 or less"),
        (NAME, "\ud800", "half of a surrogate pair", "write whole characters"),
        (NAME, "é" * 128, "256 bytes", "write a shorter name"),
        (NAME, "a\n", "removes line breaks", "write it on one line"),
        (KEY, "k" * 256, "256 bytes", "write a shorter key"),
    ],
)
def test_another_value_has_a_fault_and_a_remedy(kind: Any, value: object, fault: str, remedy: str) -> None:
    found, said = kind.fault(value)
    assert (fault in found, remedy in said) == (True, True), (found, said)
