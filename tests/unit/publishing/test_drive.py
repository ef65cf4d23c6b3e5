"""The loop over the steps of a sequence: the blocking and the asyncio form do the same."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from typing import Any, TypeAlias

import pytest

from rabbit_chx.errors import ConnectionLostError
from rabbit_chx.publishing.delivery import drive, drive_async

Form: TypeAlias = Callable[[Generator[Any, Any, Any], Callable[[Any], Any]], Any]


def on_asyncio(sequence: Generator[Any, Any, Any], do: Callable[[Any], Any]) -> Any:
    """Run the asyncio form, as the blocking one is run."""

    async def do_later(step: Any) -> Any:
        await asyncio.sleep(0)
        return do(step)

    return asyncio.run(drive_async(sequence, do_later))


FORMS = pytest.mark.parametrize("form", [drive, on_asyncio])


def lose(_: object) -> None:
    raise ConnectionLostError("lost")


@FORMS
def test_an_error_of_ours_is_thrown_in_and_the_sequence_may_go_on(form: Form) -> None:
    answers = []

    def sequence() -> Generator[int, str, None]:
        with pytest.raises(ConnectionLostError):
            yield 1
        answers.append((yield 2))

    form(sequence(), lambda step: lose(step) if step == 1 else str(step))
    assert answers == ["2"]


@pytest.mark.parametrize("foreign", [KeyboardInterrupt, ZeroDivisionError])
@FORMS
def test_anything_else_closes_the_sequence_and_is_not_thrown_in(
    form: Form, foreign: type[BaseException]
) -> None:
    ends: list[type[BaseException]] = []

    def sequence() -> Generator[int, None, None]:
        try:
            yield 1
        except BaseException as end:
            ends.append(type(end))
            raise

    def interrupt(_: object) -> None:
        raise foreign

    with pytest.raises(foreign):
        form(sequence(), interrupt)
    assert ends == [GeneratorExit]
