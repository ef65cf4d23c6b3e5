"""Recognize repeated messages by their ids, in the memory of one process."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Lock
from typing import Any

from rabbit_chx.checks import check_seconds, check_whole
from rabbit_chx.consuming.settings import waiting
from rabbit_chx.errors import DeduplicationError, InputError

_FIRST = "the effect of its first copy: look what that waits for"


@dataclass(frozen=True, slots=True)
class DeduplicationReport:
    """The counts of a deduplicator at one moment.

    Attributes:
        effects: effects that succeeded.
        repeats: messages that were recognized as repeats and not handled.
        failures: messages whose effect raised an error. Their ids are not kept.
        forgotten: ids that were dropped to stay within the bounds. A later repeat of them is handled again.
        ids: ids that are kept.
        reaches_back_s: the age of the oldest id that is kept, in seconds; None if none is kept.
    """

    effects: int
    repeats: int
    failures: int
    forgotten: int
    ids: int
    reaches_back_s: float | None

    def __str__(self) -> str:
        back = "" if self.reaches_back_s is None else f", back to {self.reaches_back_s:,.0f} s ago"
        return (
            f"{self.effects:,} effects, {self.repeats:,} repeats, {self.failures:,} failures; "
            f"{self.ids:,} ids kept{back}, {self.forgotten:,} forgotten"
        )


class Deduplicator:
    """Runs the effect of each message whose id is new. It remembers the id once the effect has succeeded.

    The ids are in the memory of this process. A message that another process has handled, or this one before a restart, counts as new. If
    that is not sufficient, insert the id in the transaction of the effect: see docs/publish/deduplication.md. An object may be shared by any number
    of threads and tasks.

    Args:
        max_ids: the number of ids that are kept. A further id drops the oldest.
        max_age_s: the time in seconds for which an id is kept after its effect; None for no limit.
        timeout_s: the longest wait in seconds of a second copy of a message for the effect of the first.

    Raises:
        InputError: a bound is not a positive number.

    Example::

        seen = Deduplicator(max_ids=100_000)


        def on_message(channel, method, properties, body):  # pika
            seen.run_if_new(properties.message_id, book, body)
            channel.basic_ack(method.delivery_tag)


        async def handle(message):  # ConsumerGroup, aio-pika
            await seen.run_if_new_async(message.message_id, book, message.body)
    """

    def __init__(self, *, max_ids: int, max_age_s: float | None = None, timeout_s: float = 60.0) -> None:
        check_whole("max_ids", max_ids, 1)
        if max_age_s is not None:
            check_seconds("max_age_s", max_age_s, zero=False)
        check_seconds("timeout_s", timeout_s, zero=False)
        self._max_ids = max_ids
        self._timeout_s = timeout_s
        self._max_age_s = float("inf") if max_age_s is None else max_age_s
        self._lock = Lock()  # of all attributes below
        self._handled_at: dict[str, float] = {}  # the oldest first
        self._running: dict[str, Future[None]] = {}  # done when the effect has ended
        self._counts: Counter[str] = Counter()

    def run_if_new(self, message_id: str | None, effect: Callable[..., object], *args: Any) -> bool:
        """Run the effect unless a message with this id was handled before; then remember the id.

        If the effect raises, the id is not kept, and the next copy of the message is handled. A second copy that arrives while the effect
        runs waits for its end.

        Args:
            message_id: identical in every copy of the message, and in no other message: its `message_id`, or any text derived from its
                content.
            effect: a plain function.
            args: the arguments of the effect.

        Returns:
            Whether the effect was run. Ack the message in both cases.

        Raises:
            InputError: the id is missing or is not text; or the effect is an async function, which is not run.
            DeduplicationError: the effect of another copy does not end in time.
            Exception: errors of the effect.
        """
        id_ = _check_id(message_id)
        deadline = time.monotonic() + self._timeout_s
        while isinstance(claim := self._claim(id_), Future):
            try:
                with waiting(f"message {id_:.60}", _FIRST):
                    claim.result(max(0.0, deadline - time.monotonic()))
            except TimeoutError:
                raise self._timeout_error(id_) from None
        if claim:
            with self._handling(id_):
                _refuse_awaitable(effect(*args))
        return claim

    async def run_if_new_async(
        self,
        message_id: str | None,
        effect: Callable[..., object],
        *args: Any,
    ) -> bool:
        """Run the effect as `run_if_new` does, on asyncio, with the same result and errors. A cancelled effect counts as failed.

        Args:
            message_id: identical in every copy of the message, and in no other message.
            effect: a plain or an async function.
            args: the arguments of the effect.
        """
        id_ = _check_id(message_id)
        deadline = time.monotonic() + self._timeout_s
        while isinstance(claim := self._claim(id_), Future):
            # Without the shield, a time-out would cancel the future for all waiting tasks.
            ended = asyncio.shield(asyncio.wrap_future(claim))
            try:
                with waiting(f"message {id_:.60}", _FIRST):
                    await asyncio.wait_for(ended, max(0.0, deadline - time.monotonic()))
            except TimeoutError:
                raise self._timeout_error(id_) from None
        if claim:
            with self._handling(id_):
                result = effect(*args)
                if inspect.isawaitable(result):
                    await result
        return claim

    @property
    def report(self) -> DeduplicationReport:
        """The counts so far, and the age of the oldest id."""
        with self._lock:
            self._drop_old_ids()
            counts = self._counts
            oldest = next(iter(self._handled_at.values()), None)
            return DeduplicationReport(
                counts["effects"],
                counts["repeats"],
                counts["failures"],
                counts["forgotten"],
                len(self._handled_at),
                None if oldest is None else time.monotonic() - oldest,
            )

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self.report}>"

    def _claim(self, message_id: str) -> Future[None] | bool:
        """Return True if the id is new, False if it was handled; a future of its end while its effect runs. Mark a new id as running."""
        with self._lock:
            self._drop_old_ids()
            if message_id in self._handled_at:
                self._counts["repeats"] += 1
                return False
            if message_id in self._running:
                return self._running[message_id]
            self._running[message_id] = Future()
            return True

    @contextmanager
    def _handling(self, message_id: str) -> Iterator[None]:
        """Remember the id unless the block raises, and wake waiting copies."""
        outcome = "failures"
        try:
            yield
            outcome = "effects"
        finally:
            with self._lock:
                self._counts[outcome] += 1
                if outcome == "effects":
                    self._handled_at[message_id] = time.monotonic()
                    self._drop_old_ids()
                ended = self._running.pop(message_id)
            ended.set_result(None)

    def _drop_old_ids(self) -> None:
        """Drop the oldest ids beyond `max_ids` and `max_age_s`. The caller holds the lock."""
        earliest = time.monotonic() - self._max_age_s
        while self._handled_at:
            first = next(iter(self._handled_at))
            if len(self._handled_at) <= self._max_ids and self._handled_at[first] >= earliest:
                return
            del self._handled_at[first]
            self._counts["forgotten"] += 1

    def _timeout_error(self, message_id: str) -> DeduplicationError:
        return DeduplicationError(
            f"message {message_id!r}: another handler of this process has worked on it for more than {self._timeout_s:g} s: "
            "do not ack this copy; look for a handler that hangs, or raise timeout_s"
        )


def _check_id(message_id: object) -> str:
    if message_id is None or message_id == "":
        raise InputError(
            "the message has no message_id: publish it with one, or pass another text that no other message has, "
            "such as an order number of its body"
        )
    if not isinstance(message_id, str):
        raise InputError(
            f"the message id {message_id!r:.60} is of type {type(message_id).__name__}: pass text, such as str(order_number)"
        )
    return message_id


def _refuse_awaitable(result: object) -> None:
    if inspect.isawaitable(result):
        if inspect.iscoroutine(result):
            result.close()
        raise InputError("the effect is async, and was not run: pass a plain one, or await run_if_new_async")
