"""Sequences are carried out step by step, by a blocking and an asyncio client."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from typing import Any

import pytest

from rabbit_chx.errors import InputError, NotFoundError
from rabbit_chx.topology.operations import QueueCounts, QueueDeclare, Refusal
from rabbit_chx.topology.steps import ApiRequest, asked, carried_out, carried_out_async

WHERE = "amqp://guest:***@host:5672/%2F"


def blocking(sequence: Generator[Any, Any, Any], do: Callable[[Any], Any]) -> Any:
    return carried_out(sequence, do)


def on_asyncio(sequence: Generator[Any, Any, Any], do: Callable[[Any], Any]) -> Any:
    async def answer(step: Any) -> Any:
        await asyncio.sleep(0)
        return do(step)

    return asyncio.run(carried_out_async(sequence, answer))


BOTH = pytest.mark.parametrize("run", [blocking, on_asyncio])


def two_requests() -> Generator[ApiRequest, Any, list[Any]]:
    found = []
    for name in ("queues", "policies"):
        try:
            found.append((yield ApiRequest("GET", (name,))))
        except NotFoundError as error:
            found.append(str(error))
    return found


@BOTH
def test_a_sequence_gets_answers_and_errors(run: Callable[..., Any]) -> None:
    def do(step: ApiRequest) -> Any:
        if step.path == ("policies",):
            raise NotFoundError("none")
        return step.path

    assert run(two_requests(), do) == [("queues",), "none"]


@BOTH
def test_what_a_sequence_does_not_catch_ends_it(run: Callable[..., Any]) -> None:
    def refuse(_: object) -> None:
        raise InputError("no management URL")

    with pytest.raises(InputError, match="no management URL"):
        run(two_requests(), refuse)


@BOTH
def test_a_foreign_error_is_not_given_to_the_sequence(run: Callable[..., Any]) -> None:
    def fail(_: object) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run(two_requests(), fail)


@BOTH
def test_an_operation_answers_or_is_refused(run: Callable[..., Any]) -> None:
    operation = QueueDeclare("q", passive=True)

    assert run(asked(WHERE, operation), lambda _: QueueCounts(3, 1)) == QueueCounts(3, 1)
    assert run(asked(WHERE, operation), lambda _: None) is None
    with pytest.raises(NotFoundError, match="no queue 'q'") as caught:
        run(asked(WHERE, operation), lambda _: Refusal(404, "NOT_FOUND - no queue 'q' in vhost '/'"))
    assert (caught.value.queue, caught.value.reply_code) == ("q", 404)
