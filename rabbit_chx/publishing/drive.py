"""The loop that carries out a sequence: a generator without I/O, which yields what it wants done and gets the answer back.

So the order of all operations is written once, and a blocking and an asyncio client carry it out.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from contextlib import closing
from typing import Any, TypeVar

from rabbit_chx.errors import RabbitChxError

_T = TypeVar("_T")


def drive(sequence: Generator[Any, Any, _T], do: Callable[[Any], Any]) -> _T:
    """Carry a sequence out and return what it returns.

    Args:
        sequence: the sequence. It is closed where `do` raises anything but an error of ours.
        do: does one step and returns the answer. An error of ours that it raises is thrown into the sequence.

    Raises:
        RabbitChxError: what the sequence raises.
    """
    with closing(sequence):
        try:
            step = next(sequence)
            while True:
                try:
                    answer = do(step)
                except RabbitChxError as error:
                    step = sequence.throw(error)
                else:
                    step = sequence.send(answer)
        except StopIteration as end:
            result: _T = end.value
            return result


async def drive_async(sequence: Generator[Any, Any, _T], do: Callable[[Any], Awaitable[Any]]) -> _T:
    """Carry a sequence out as `drive` does, where doing a step is awaited."""
    with closing(sequence):
        try:
            step = next(sequence)
            while True:
                try:
                    answer = await do(step)
                except RabbitChxError as error:
                    step = sequence.throw(error)
                else:
                    step = sequence.send(answer)
        except StopIteration as end:
            result: _T = end.value
            return result
