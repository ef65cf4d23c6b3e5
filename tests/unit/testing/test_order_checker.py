"""The order checker: held against its definitions, and on histories with planted faults."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rabbit_chx.errors import InputError
from rabbit_chx.testing import OrderChecker, OrderReport


def checked(numbers: list[int], sent: int | None = None, first: int = 0) -> OrderReport:
    """The report of a history of one key."""
    checker = OrderChecker(first=first)
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


@given(st.lists(st.integers(0, 6), max_size=14), st.none() | st.integers(0, 8))
def test_the_counts_are_those_of_the_definitions(numbers: list[int], sent: int | None) -> None:
    report = checked(numbers, sent)
    assert counts(report) == by_definition(numbers, sent)
    assert report.ok is not any(count for name, count in counts(report).items() if name != "repeated")


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


def at_least_once(rng: random.Random, length: int) -> list[tuple[int, bool]]:
    """A history of one key with a consumer that is killed now and then: what it held comes again, in order."""
    history: list[tuple[int, bool]] = []
    acked = done = 0  # messages 0 to acked - 1 are acked; done - 1 was the last to be handled
    highest = 0
    while acked < length:
        if done < length and rng.random() < 0.7:
            history.append((done, done < highest))
            done += 1
            highest = max(highest, done)
        elif rng.random() < 0.8:
            acked = rng.randint(acked, done)
        else:
            done = acked  # killed
    return history


def planted(rng: random.Random, history: list[tuple[int, bool]], length: int, kind: str) -> None:
    """Plant one fault of a kind."""
    once = [n for n in range(length) if sum(number == n for number, _ in history) == 1]
    if kind == "lost":
        gone = rng.randrange(length)
        history[:] = [event for event in history if event[0] != gone]
    elif kind == "unexpected":
        history.append((length + rng.randrange(3), False))
    elif kind == "out_of_order":
        number = rng.choice([n for n in once if n + 1 in once])
        at = history.index((number, False))
        history[at], history[at + 1] = history[at + 1], history[at]
    else:
        number = rng.choice([n for n in once if n >= 2])
        history.insert(history.index((number, False)) + 1, (rng.randrange(number - 1), False))


@pytest.mark.parametrize("kind", [None, "lost", "unexpected", "out_of_order", "stale"])
def test_planted_faults_are_found_and_nothing_else(kind: str | None) -> None:
    for seed in range(100):
        rng = random.Random(seed)  # noqa: S311
        length = 60
        histories = {f"k{i}": at_least_once(rng, length) for i in range(4)}
        repeats = {key: len(history) - length for key, history in histories.items()}
        if kind is not None:
            planted(rng, histories["k2"], length, kind)
            repeats["k2"] = len(histories["k2"]) - len({number for number, _ in histories["k2"]})
        checker = OrderChecker()
        marked = 0
        while histories:
            key = rng.choice(sorted(histories))
            number, again = histories[key].pop(0)
            checker.handled(key, number, redelivered=again)
            marked += again
            if not histories[key]:
                del histories[key]
        report = checker.report(sent=dict.fromkeys(("k0", "k1", "k2", "k3"), length))
        expected = dict.fromkeys(("out_of_order", "stale", "lost", "unexpected"), 0)
        if kind is not None:
            expected[kind] = 1
        found = {name: getattr(report, name) for name in expected}
        assert found == expected, f"seed {seed}\n{report}"
        assert report.repeated == sum(repeats.values()), f"seed {seed}"
        if kind is None:
            assert report.redelivered == marked == report.repeated


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


def test_a_report_changes_nothing() -> None:
    checker = OrderChecker()
    for number in (0, 2, 1):
        checker.handled("a", number)
    assert checker.report({"a": 5}) == checker.report({"a": 5})
    assert checker.report().lost == 0


def test_a_huge_gap_costs_nothing() -> None:
    assert checked([0, 10**15]).lost == 10**15 - 1


def test_a_number_is_an_int() -> None:
    with pytest.raises(InputError, match=r"the number of a message of key 'a' is '5': pass an int"):
        OrderChecker().handled("a", "5")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("sent", "says"),
    [
        (5, "sent is 5: pass a mapping of each key"),
        ({"a": -1}, "sent has -1 for key 'a': pass a whole number from 0"),
        ({"a": True}, "sent has True for key 'a'"),
        ({"a": 1.5}, "sent has 1.5 for key 'a'"),
    ],
)
def test_what_was_sent_is_counted_in_whole_numbers(sent: Any, says: str) -> None:
    with pytest.raises(InputError, match=says):
        OrderChecker().report(sent)


def test_a_key_is_text() -> None:
    """Keys of several types have no order, in which the report names them."""
    key: Any = None
    with pytest.raises(InputError, match="the key None is of type NoneType: pass text"):
        OrderChecker().handled(key, 1)
