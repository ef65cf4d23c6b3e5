"""Viewers share a reading: few calls, bounded waits, and the last value with the error."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from rabbit_chx.errors import UnreachableError
from rabbit_chx.ui.state import SharedValue


def test_many_viewers_are_one_reading() -> None:
    calls: list[float] = []

    def read() -> int:
        calls.append(time.monotonic())
        time.sleep(0.05)
        return len(calls)

    shared = SharedValue(read, every_s=60)
    with ThreadPoolExecutor(8) as viewers:
        seen = list(viewers.map(lambda _: shared.look().value, range(40)))
    assert (set(seen), len(calls)) == ({1}, 1)


def test_a_value_is_read_again_when_somebody_looks_and_it_is_old() -> None:
    values = iter(range(10))
    shared = SharedValue(lambda: next(values), every_s=0.05)
    assert shared.look().value == 0
    assert shared.look().value == 0
    time.sleep(0.3)
    assert shared.look().value == 1, "nobody looked in between"


def test_an_error_keeps_the_last_value_and_its_age() -> None:
    answers: list[int | UnreachableError] = [7, UnreachableError("it does not answer")]

    def read() -> int:
        answer = answers.pop(0)
        if isinstance(answer, UnreachableError):
            raise answer
        return answer

    shared = SharedValue(read, every_s=0)
    assert (shared.look().value, shared.look().error) == (7, "it does not answer")
    assert shared.look().value == 7


def test_a_broker_that_never_answered_is_an_error_after_a_bounded_wait() -> None:
    gate = threading.Event()
    shared = SharedValue(gate.wait, every_s=0, first_s=0.1)
    began = time.monotonic()
    assert shared.look().error == "the broker has not answered for 0.1 s"
    assert time.monotonic() - began < 5
    gate.set()


def test_a_slow_reading_shows_the_last_value() -> None:
    gate, slow = threading.Event(), [False]

    def read() -> int:
        if slow[0]:
            gate.wait(10)
        return 1

    shared = SharedValue(read, every_s=0, next_s=0.05)
    assert shared.look().value == 1
    slow[0] = True
    began = time.monotonic()
    assert shared.look().value == 1
    assert time.monotonic() - began < 5
    gate.set()


def test_a_broker_that_stops_answering_is_an_error_before_its_reading_ends() -> None:
    gate, frozen = threading.Event(), [False]

    def read() -> int:
        if frozen[0]:
            gate.wait(20)
        return 1

    shared = SharedValue(read, every_s=0.05, first_s=0.2, next_s=0.05)
    assert shared.look().error == ""
    frozen[0] = True
    time.sleep(0.5)
    seen = shared.look()
    assert (seen.value, seen.error.startswith("the broker has not answered for ")) == (1, True)
    gate.set()


HIDDEN = "canary-password"


@pytest.mark.parametrize("debug", ["", "1"])
def test_a_fault_of_ours_is_named_without_values(
    debug: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def read() -> int:
        raise ValueError(HIDDEN) from OSError(5, HIDDEN)

    monkeypatch.setenv("RABBIT_CHX_DEBUG", debug)
    seen = SharedValue(read, every_s=0).look()
    assert seen.error.startswith("this is a bug in rabbit-chx, please report it: ValueError in rabbit_chx.ui")
    said = capsys.readouterr().err
    assert f"rabbit-chx: {seen.error}\n" in said
    assert ("ValueError: ***" in said) is bool(debug)
    assert HIDDEN not in said + seen.error
