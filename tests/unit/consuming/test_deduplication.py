"""What a deduplicator does: an effect once for each id that is known, and an id only after its effect."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock, Mock

import pytest

from rabbit_chx.consuming import Deduplicator, deduplication
from rabbit_chx.consuming.deduplication import DeduplicationReport
from rabbit_chx.errors import DeduplicationError, InputError


@pytest.fixture
def seen() -> Deduplicator:
    return Deduplicator(max_ids=100)


def test_a_repeat_has_no_effect(seen: Deduplicator) -> None:
    effects: list[str] = []
    assert [seen.run_if_new(name, effects.append, name) for name in "abab"] == [True, True, False, False]
    assert effects == ["a", "b"]
    report = seen.report
    assert (report.effects, report.repeats, report.ids, report.forgotten) == (2, 2, 2, 0)
    assert report.reaches_back_s is not None
    assert 0 <= report.reaches_back_s < 60


@pytest.mark.parametrize("end", [OSError, KeyboardInterrupt, SystemExit, asyncio.CancelledError])
def test_an_effect_that_fails_or_ends_the_program_marks_no_id(
    seen: Deduplicator, end: type[BaseException]
) -> None:
    with pytest.raises(end):
        seen.run_if_new("a", Mock(side_effect=end))
    with pytest.raises(end):
        asyncio.run(seen.run_if_new_async("a", AsyncMock(side_effect=end)))
    assert seen.run_if_new("a", lambda: None)
    assert (seen.report.failures, seen.report.effects) == (2, 1)


@pytest.mark.parametrize("fails", [False, True])
def test_a_copy_in_another_thread_waits_for_the_first(seen: Deduplicator, fails: bool) -> None:  # noqa: FBT001
    """It is a repeat only if the first has succeeded."""
    begun, go = threading.Event(), threading.Event()

    def slow() -> None:
        begun.set()
        assert go.wait(30)
        if fails:
            raise OSError

    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(seen.run_if_new, "a", slow)
        assert begun.wait(30)
        second = pool.submit(seen.run_if_new, "a", lambda: None)
        assert not wait([first, second], 0.05).done
        go.set()
        assert second.result(30) is fails
        assert (type(first.exception(30)) is OSError) is fails


async def test_copies_in_many_tasks_have_one_effect(seen: Deduplicator) -> None:
    effects: list[str] = []

    async def effect(name: str) -> None:
        await asyncio.sleep(0.001)
        effects.append(name)

    copies = [seen.run_if_new_async(name, effect, name) for name in "abc" * 10]
    assert sum(await asyncio.gather(*copies)) == 3
    assert sorted(effects) == ["a", "b", "c"]
    assert not await seen.run_if_new_async("a", effect, "a")
    assert await seen.run_if_new_async("d", effects.append, "d")
    assert effects[3:] == ["d"]


async def test_who_waits_and_is_cancelled_does_not_end_the_wait_of_others(seen: Deduplicator) -> None:
    go, begun = asyncio.Event(), asyncio.Event()

    async def slow() -> None:
        begun.set()
        await go.wait()

    tasks = [asyncio.create_task(seen.run_if_new_async("a", slow)) for _ in range(3)]
    await begun.wait()
    await asyncio.sleep(0)
    tasks[1].cancel()
    await asyncio.wait([tasks[1]])
    go.set()
    first, second, third = await asyncio.gather(*tasks, return_exceptions=True)
    assert (first, third) == (True, False)
    assert isinstance(second, asyncio.CancelledError)


def test_a_handler_that_hangs_is_not_waited_for_without_end() -> None:
    seen = Deduplicator(max_ids=10, timeout_s=0.05)
    says = "message 'a': another handler of this process has worked on it for more than 0.05 s"

    with pytest.raises(DeduplicationError, match=says):
        seen.run_if_new("a", lambda: seen.run_if_new("a", print))
    with pytest.raises(DeduplicationError, match=says):
        asyncio.run(seen.run_if_new_async("a", seen.run_if_new_async, "a", print))
    assert seen.run_if_new("a", lambda: None)


def test_the_oldest_ids_are_forgotten() -> None:
    seen = Deduplicator(max_ids=3)
    for name in "abcd":
        seen.run_if_new(name, lambda: None)
    assert (seen.report.ids, seen.report.forgotten) == (3, 1)
    assert [seen.run_if_new(name, lambda: None) for name in "dcb"] == [False] * 3
    assert seen.run_if_new("a", lambda: None)


def test_old_ids_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock is scripted."""
    now = 1_000.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    seen = Deduplicator(max_ids=10, max_age_s=60)
    seen.run_if_new("a", lambda: None)
    now += 59
    assert not seen.run_if_new("a", lambda: None)
    assert seen.report.reaches_back_s == 59
    seen.run_if_new("b", lambda: None)
    now += 2
    assert seen.report.ids == 1
    assert seen.run_if_new("a", lambda: None)
    assert not seen.run_if_new("b", lambda: None)
    assert seen.report.forgotten == 1


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        *((missing, "no message_id: publish it with one, or pass another text") for missing in (None, "")),
        (5, "the message id 5 is of type int: pass text"),
    ],
)
def test_a_message_without_an_id_of_text_is_an_error(seen: Deduplicator, wrong: Any, says: str) -> None:
    with pytest.raises(InputError, match=says):
        seen.run_if_new(wrong, lambda: None)
    with pytest.raises(InputError, match=says):
        asyncio.run(seen.run_if_new_async(wrong, lambda: None))


def test_an_async_effect_is_not_lost(seen: Deduplicator) -> None:
    effect = AsyncMock()
    with pytest.raises(InputError, match="effect is async, and was not run"):
        seen.run_if_new("a", effect)
    assert asyncio.run(seen.run_if_new_async("a", effect))
    assert effect.await_count == 1


@pytest.mark.parametrize(
    ("name", "value"),
    [("max_ids", 0), ("max_ids", 1.5), ("max_ids", True), ("max_age_s", 0), ("max_age_s", float("nan")), ("timeout_s", -1)],
)  # fmt: skip
def test_a_bound_that_is_none_is_refused(name: str, value: Any) -> None:
    how: dict[str, Any] = {"max_ids": 5, name: value}
    with pytest.raises(InputError, match=rf"{name} is {value}: pass"):
        Deduplicator(**how)


def test_a_report_is_one_line() -> None:
    report = DeduplicationReport(
        effects=12_000, repeats=3, failures=1, forgotten=2_000, ids=10_000, reaches_back_s=3_601.2
    )
    assert str(report) == (
        "12,000 effects, 3 repeats, 1 failures; 10,000 ids kept, back to 3,601 s ago, 2,000 forgotten"
    )
    seen = Deduplicator(max_ids=1)
    assert repr(seen) == "<Deduplicator: 0 effects, 0 repeats, 0 failures; 0 ids kept, 0 forgotten>"


def test_a_copy_that_waits_for_several_handlers_waits_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first handler fails when the time is almost over, and another copy takes its place."""
    looks: Counter[int] = Counter()
    moved_s = 0.0

    def monotonic() -> float:
        looks[threading.get_ident()] += 1
        return moved_s

    monkeypatch.setattr(deduplication, "time", SimpleNamespace(monotonic=monotonic))
    seen = Deduplicator(max_ids=10, timeout_s=60.0)
    first, last = threading.Event(), threading.Event()

    def fails() -> None:
        first.wait(30)
        raise OSError("the shop is closed")

    with ThreadPoolExecutor(3) as pool:
        failing = pool.submit(seen.run_if_new, "a", fails)
        while not seen._running:
            last.wait(0.001)
        copies = [pool.submit(seen.run_if_new, "a", last.wait, 30) for _ in range(2)]
        while sorted(looks.values())[-2:] < [3, 3]:  # both wait
            last.wait(0.001)
        moved_s = 59.99
        first.set()
        done, _ = wait(copies, 10, FIRST_COMPLETED)
        last.set()
        assert isinstance(failing.exception(), OSError)
        assert [type(copy.exception()) for copy in done] == [DeduplicationError]
