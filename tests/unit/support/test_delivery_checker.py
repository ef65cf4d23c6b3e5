"""The checker finds what was planted, and nothing else."""

from __future__ import annotations

from dataclasses import replace

import pytest
from delivery_checker import Attempt, History, check

ROWS = [Attempt(1, "a"), Attempt(2, "b"), Attempt(3, "a")]


@pytest.mark.parametrize(
    ("history", "says"),
    [
        (History(ROWS, {1, 2, 3}, {"q": [1, 2, 3]}), "3 attempted, 3 acked, 3 ok: passed"),
        (History(ROWS, {1}, {"q": [1, 2]}), "3 attempted, 1 acked, 2 ok, 1 recovered: passed"),
        (History(ROWS, {1, 2, 3}, {"q": [2]}), "3 attempted, 3 acked, 1 ok: 2 lost (1, 3)"),
        (History(ROWS, 3, {"q": [2]}), "3 attempted, 3 acked, 1 ok: 2 lost"),
        (History(ROWS, 4, {"q": [1, 2, 3]}), "3 attempted, 4 acked, 3 ok: 1 lost"),
        (History(ROWS, 3, {"q": [2]}, elsewhere={1, 3}), "3 attempted, 3 acked, 1 ok: passed"),
        (History(ROWS, 2, {"q": [2]}, unread={"q"}), "3 attempted, 2 acked, 1 ok: not read: q"),
        (History(ROWS, {1, 2}, {"q": [2]}, unread={"q"}), "3 attempted, 2 acked, 1 ok: not read: q"),
        (History(ROWS, {9}, {"q": [1]}), "3 attempted, 1 acked, 1 ok, 1 recovered: 1 lost (9)"),
        (
            History(ROWS, 3, {"q": [1, 2, 3, 1, 1]}, republished=1),
            "3 attempted, 3 acked, 3 ok, 2 duplicated: 1 uncounted (1, 1)",
        ),
        (
            History(ROWS, 3, {"q": [3, 2, 1]}, ordered=True),
            "3 attempted, 3 acked, 3 ok: 1 out of order (1)",
        ),
        (
            History(ROWS, 3, {"q": [1, 2, 3]}, queue_for={"a": "q", "b": None}.get),
            "3 attempted, 3 acked, 3 ok: 1 in the wrong queue (2)",
        ),
        (
            History([], 0, {"q": list(range(7))}),
            "0 attempted, 0 acked, 0 ok: 7 unexpected (0, 1, 2, 3, 4, ...)",
        ),
    ],
)
def test_a_verdict_reports_what_is_wrong(history: History, says: str) -> None:
    verdict = check(history)
    assert str(verdict) == says
    assert verdict.passed is says.endswith("passed")


def test_a_repeat_after_its_first_copy_is_in_order_and_in_another_queue_it_is_a_first_copy() -> None:
    history = History(ROWS, 3, {"q": [1, 2, 3, 1], "p": [3, 1]}, ordered=True)
    assert check(history).faults == {"out of order": 1}
    assert check(replace(history, found={"q": [1, 2, 3, 1], "p": [1, 3]})).passed


def test_the_first_copy_of_a_row_may_be_in_another_queue_if_its_key_moved_and_came_back() -> None:
    history = History(ROWS, 3, {"q": [2, 3, 1, 3], "p": [1]}, ordered=True)
    assert check(history).faults == {"out of order": 1}
    assert check(replace(history, rebound=True)).passed
    assert check(replace(history, rebound=True, found={"q": [2, 3, 1, 3]})).faults == {"out of order": 1}


def test_a_key_that_changed_its_queue_in_the_run_may_be_in_either() -> None:
    rows = [Attempt(number, "1") for number in range(3)]
    found = {"q0": [0], "q1": [1], "q2": [2]}
    history = History(attempted=rows, acked=3, found=found, queue_for=lambda _: {"q0", "q1"})
    assert check(history).faults == {"in the wrong queue": 1}
