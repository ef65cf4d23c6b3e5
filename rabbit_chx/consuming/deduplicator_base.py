"""What both de-duplicators share: one handler for an id at a time, and an id is kept only after its effect."""

from __future__ import annotations

import asyncio
import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from threading import Lock
from typing import Any, ClassVar

from rabbit_chx.consuming.claims import Claims
from rabbit_chx.consuming.deduplication_report import DeduplicationReport
from rabbit_chx.errors import InputError

__all__ = ["DeduplicatorBase", "checked_count", "checked_id", "checked_seconds", "refuse_awaitable"]


@dataclass(slots=True)
class _Counts:
    effects: int = 0
    repeats: int = 0
    failures: int = 0
    forgotten: int = 0


class DeduplicatorBase(ABC):
    """Runs the effects of new messages. What keeps the ids is a subclass.

    Args:
        timeout_s: how long a second copy of a message waits for the handler of the first, in seconds.
    """

    _on_disk: ClassVar[bool] = False

    def __init__(self, timeout_s: float) -> None:
        self._claims = Claims(checked_seconds("timeout_s", timeout_s))
        self._counts = _Counts()
        self._counts_lock = Lock()
        self._storing: set[asyncio.Task[bool]] = set()

    def run_if_new(self, message_id: str | None, effect: Callable[..., object], *args: Any) -> bool:  # noqa: ANN401
        """Run the effect, unless a message with this id was handled before; then keep the id.

        If the effect raises, the id is not kept, and the next copy of the message is handled. If the process dies after
        the effect and before the id is kept, the next copy is handled again. A second copy that comes while the effect
        runs waits for its end.

        Args:
            message_id: what is the same in every copy of the message, and in no other message: its `message_id`, or
                any text that is made of its content.
            effect: what the message does, a plain function.
            args: what the effect is called with.

        Returns:
            Whether the effect was run. Ack the message in both cases.

        Raises:
            InputError: the id is missing, or is not text; or the effect is an async function, which is not run.
            DeduplicationError: the ids cannot be read or stored, or another handler of the id does not end in time.
            Exception: what the effect raises.
        """
        checked = checked_id(message_id)
        self._claims.take(checked)
        try:
            if self._knows(checked):
                return self._repeated(checked)
            refuse_awaitable(effect(*args))
        except BaseException:
            self._give_up(checked)
            raise
        return self._finish(checked)

    async def run_if_new_async(
        self,
        message_id: str | None,
        effect: Callable[..., object],
        *args: Any,  # noqa: ANN401
    ) -> bool:
        """Do as `run_if_new` does, on asyncio. A cancelled effect is one that failed.

        Args:
            message_id: what is the same in every copy of the message, and in no other message.
            effect: what the message does, a plain or an async function.
            args: what the effect is called with.

        Returns:
            Whether the effect was run. Ack the message in both cases.

        Raises:
            InputError: the id is missing, or is not text.
            DeduplicationError: the ids cannot be read or stored, or another handler of the id does not end in time.
            Exception: what the effect raises.
        """
        checked = checked_id(message_id)
        await self._claims.take_async(checked)
        try:
            knows = await asyncio.to_thread(self._knows, checked) if self._on_disk else self._knows(checked)
            if knows:
                return self._repeated(checked)
            result = effect(*args)
            if inspect.isawaitable(result):
                await result
        except BaseException:
            self._give_up(checked)
            raise
        return await self._finish_in_a_thread(checked) if self._on_disk else self._finish(checked)

    @property
    def report(self) -> DeduplicationReport:
        """What it has done so far, and how far back it knows."""
        ids, reaches_back_s = self._kept()
        counts = self._counts
        return DeduplicationReport(
            counts.effects, counts.repeats, counts.failures, counts.forgotten, ids, reaches_back_s
        )

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self.report}>"

    @abstractmethod
    def _knows(self, message_id: str) -> bool:
        """Return whether the id is kept."""

    @abstractmethod
    def _keep(self, message_id: str) -> None:
        """Keep the id, and forget what is beyond the bounds."""

    @abstractmethod
    def _kept(self) -> tuple[int, float | None]:
        """Return how many ids are kept, and the age of the oldest in seconds."""

    def _finish(self, message_id: str) -> bool:
        try:
            self._keep(message_id)
        except BaseException:
            self._give_up(message_id)
            raise
        return self._done(message_id)

    async def _finish_in_a_thread(self, message_id: str) -> bool:
        # The effect is done: whoever cancels us now must not keep the id from the file.
        storing = asyncio.create_task(asyncio.to_thread(self._finish, message_id))
        self._storing.add(storing)
        storing.add_done_callback(self._storing.discard)
        return await asyncio.shield(storing)

    def _done(self, message_id: str) -> bool:
        self._claims.release(message_id)
        self._count("effects")
        return True

    def _repeated(self, message_id: str) -> bool:
        self._claims.release(message_id)
        self._count("repeats")
        return False

    def _give_up(self, message_id: str) -> None:
        self._claims.release(message_id)
        self._count("failures")

    def _count(self, what: str, number: int = 1) -> None:
        with self._counts_lock:
            setattr(self._counts, what, getattr(self._counts, what) + number)


def checked_count(name: str, value: object) -> int:
    """Return a bound that counts.

    Args:
        name: its name, for the error.
        value: a whole number above 0.

    Raises:
        InputError: it is not a whole number above 0.
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise InputError(f"{name} is {value!r}: give a whole number above 0")
    return value


def checked_seconds(name: str, value: object) -> float:
    """Return a bound of time.

    Args:
        name: its name, for the error.
        value: seconds, more than 0.

    Raises:
        InputError: it is not a number above 0.
    """
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not value > 0:
        raise InputError(f"{name} is {value!r}: give seconds, more than 0")
    return value


def checked_id(message_id: object) -> str:
    """Return the id of a message.

    Args:
        message_id: text that is not empty.

    Raises:
        InputError: the id is missing, or is not text.
    """
    if message_id is None or message_id == "":
        raise InputError(
            "the message has no message_id: publish it with one, or give another text that tells it from all other messages, "
            "such as an order number of its body"
        )
    if not isinstance(message_id, str):
        raise InputError(
            f"the message id {message_id!r:.60} is of type {type(message_id).__name__}: give text, such as str(order_number)"
        )
    return message_id


def refuse_awaitable(result: object) -> None:
    """Refuse what an async function returns.

    Args:
        result: what an effect returned.

    Raises:
        InputError: it is awaitable.
    """
    if inspect.isawaitable(result):
        if inspect.iscoroutine(result):
            result.close()
        raise InputError(
            "the effect is an async function, and was not run: give a plain function, or await run_if_new_async"
        )
