"""The loop over the steps of a sequence."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import pytest

from rabbit_chx.errors import ConnectionLostError
from rabbit_chx.publishing.steps import drive


def lose(_: object) -> None:
    raise ConnectionLostError("lost")


def test_an_error_of_ours_is_thrown_in_and_the_sequence_may_go_on() -> None:
    answers = []

    def sequence() -> Generator[Any, Any, None]:
        with pytest.raises(ConnectionLostError):
            yield 1
        answers.append((yield 2))

    def do(step: Any) -> Any:
        return lose(step) if step == 1 else str(step)

    drive(sequence(), do)
    assert answers == ["2"]


@pytest.mark.parametrize("foreign", [KeyboardInterrupt, ZeroDivisionError])
def test_anything_else_closes_the_sequence_and_is_not_thrown_in(foreign: type[BaseException]) -> None:
    ends: list[type[BaseException]] = []

    def sequence() -> Generator[Any, Any, None]:
        try:
            yield 1
        except BaseException as end:
            ends.append(type(end))
            raise

    def interrupt(_: object) -> None:
        raise foreign

    with pytest.raises(foreign):
        drive(sequence(), interrupt)
    assert ends == [GeneratorExit]
