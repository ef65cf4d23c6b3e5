"""The order checker: held against its definitions, and on histories with planted faults."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rabbit_chx.errors import InputError
from rabbit_chx.testing import OrderChecker, OrderReport


def checked(numbers: list[int], sent: int | None = None) -> OrderReport:
    """The report of a history of one key."""
    checker = OrderChecker()
    for number in numbers:
        checker.handled("k", number)
    return checker.report(None if sent is None else {"k": sent})


def counts(report: OrderReport) -> dict[str, int]:
    names = ("out_of_order", "stale", "lost", "repeated", "unexpected")
    return {name: getattr(report, name) for name in names}


def by_definition(numbers: list[int], sent: int | None) -> dict[str, int]:
    """The counts of one key's history, without any cleverness."""
    end = max(numbers, default=-1) + 1 if sent is None else sent
    out_of_order = stale = repeated = 0
    for at, number in enumerate(numbers):
        before = set(numbers[:at])
        if number not in before:
            out_of_order += any(other > number for other in before)
            continue
        repeated += 1
        following = numbers[at + 1] if at + 1 < len(numbers) else max(numbers) + 1
        stale += any(number < other < following for other in before)
    return {
        "out_of_order": out_of_order,
        "stale": stale,
        "lost": len(set(range(end)) - set(numbers)),
        "repeated": repeated,
        "unexpected": len({number for number in numbers if number >= end}),
    }


@given(
    st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 6)), max_size=20),
    st.none() | st.fixed_dictionaries({"a": st.integers(0, 8), "b": st.integers(0, 8)}),
)
def test_the_counts_are_those_of_the_definitions_for_each_key(
    handled: list[tuple[str, int]], sent: dict[str, int] | None
) -> None:
    checker = OrderChecker()
    for key, number in handled:
        checker.handled(key, number)
    report = checker.report(sent)
    assert report == checker.report(sent), "a report changes nothing"
    expected: Counter[str] = Counter()
    for key in "ab":
        numbers = [number for one, number in handled if one == key]
        expected.update(by_definition(numbers, None if sent is None else sent[key]))
    assert counts(report) == expected
    assert report.ok is not any(count for name, count in expected.items() if name != "repeated")


@pytest.mark.parametrize(
    ("numbers", "says"),
    [
        ([0, 1, 2, 3], ""),
        ([0, 2, 1, 3], "out of order: key 'k', message 1: 2 was handled before it"),
        ([0, 1, 2, 1, 2, 3], ""),  # a killed consumer held 1 and 2
        ([0, 1, 2, 1, 1, 2, 3], ""),  # killed twice
        ([0, 1, 2, 3, 1, 4], "stale: key 'k', message 1: it was handled again, and the 2 after it did not"),
        ([0, 1, 2, 3, 2], "stale: key 'k', message 2: it was handled again, and the one after it did not"),
        ([0, 1, 3], "lost: key 'k', message 2: it was never handled"),
        ([0, 1, 3, 1, 3], "lost: key 'k', message 2: it was never handled"),
        ([-1, 0, 1], "unexpected: key 'k', message -1: numbers begin at 0"),
    ],
)
def test_what_a_history_is(numbers: list[int], says: str) -> None:
    report = checked(numbers)
    assert "\n".join(map(str, report.faults)) == says
    assert report.ok is not bool(says)


def test_a_report_shows_the_counts_and_the_first_faults() -> None:
    checker = OrderChecker(first=1)
    for number in range(1, 40, 3):
        checker.handled("a", number)
    checker.handled("a", 37, redelivered=True)
    report = checker.report(sent={"a": 37, "b": 2})
    assert str(report).splitlines() == [
        "14 messages of 1 keys: 0 out of order, 0 stale, 26 lost, 0 unexpected; 1 repeated, of which 1 redelivered",
        *(f"  lost: key 'a', message {number}: it was never handled" for number in (2, 3, 5, 6, 8)),
    ]
    assert checker.report(sent={}).unexpected == 13


def test_a_huge_gap_costs_nothing() -> None:
    assert checked([0, 10**15]).lost == 10**15 - 1


ANYTHING: Any = None
REFUSED: list[tuple[Callable[[OrderChecker], object], str]] = [
    (lambda checker: checker.handled("a", cast("int", "5")), "the number of a message of key 'a' is '5': pass an int"),
    (lambda checker: checker.handled(ANYTHING, 1), "the key None is of type NoneType: pass text"),
    (lambda checker: checker.report(cast("Any", 5)), "sent is 5: pass a mapping of keys"),
    (lambda checker: checker.report({"a": -1}), "sent has -1 for key 'a': pass a whole number from 0"),
    (lambda checker: checker.report({"a": True}), "sent has True for key 'a'"),
    (lambda checker: checker.report({"a": cast("int", 1.5)}), "sent has 1.5 for key 'a'"),
]  # fmt: skip


@pytest.mark.parametrize(("use", "says"), REFUSED)
def test_what_is_no_key_number_or_count_is_refused(use: Callable[[OrderChecker], object], says: str) -> None:
    with pytest.raises(InputError, match=says):
        use(OrderChecker())
