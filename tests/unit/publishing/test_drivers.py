"""The loop over the steps of an operation: the blocking and the asyncio form do the same."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeAlias

import pytest

from rabbit_chx.errors import ConnectionLostError
from rabbit_chx.publishing.drivers import Sleep, Step, Steps, run, run_async

Do: TypeAlias = "Callable[[Step], object]"


def on_asyncio(steps: Steps, do: Do) -> None:
    """Run the asyncio form, as the blocking one is run."""

    async def do_later(step: Step) -> object:
        await asyncio.sleep(0)
        return do(step)

    asyncio.run(run_async(steps, do_later))


FORMS = pytest.mark.parametrize("run_all", [run, on_asyncio])


@FORMS
def test_each_step_is_done_and_its_answer_comes_back(run_all: Callable[[Steps, Do], None]) -> None:
    answers = []

    def operation() -> Steps:
        answers.append((yield Sleep(1)))
        answers.append((yield Sleep(2)))

    run_all(operation(), lambda step: step)
    assert answers == [Sleep(1), Sleep(2)]


@FORMS
def test_an_error_of_ours_is_thrown_in_and_the_operation_may_go_on(
    run_all: Callable[[Steps, Do], None],
) -> None:
    done = []

    def operation() -> Steps:
        with pytest.raises(ConnectionLostError):
            yield Sleep(1)
        yield Sleep(2)

    def do(step: Step) -> None:
        done.append(step)
        if step == Sleep(1):
            raise ConnectionLostError("lost")

    run_all(operation(), do)
    assert done == [Sleep(1), Sleep(2)]


@FORMS
def test_an_error_that_the_operation_does_not_catch_comes_out(run_all: Callable[[Steps, Do], None]) -> None:
    def operation() -> Steps:
        yield Sleep(1)

    def fail(_: Step) -> None:
        raise ConnectionLostError("lost")

    with pytest.raises(ConnectionLostError, match="lost"):
        run_all(operation(), fail)


@FORMS
def test_anything_else_closes_the_operation(run_all: Callable[[Steps, Do], None]) -> None:
    closed = []

    def operation() -> Steps:
        try:
            yield Sleep(1)
        finally:
            closed.append(True)

    def interrupt(_: Step) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_all(operation(), interrupt)
    assert closed == [True]
