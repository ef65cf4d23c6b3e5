"""Repeated messages are recognized by their ids: an effect is run once for each id, and an id is kept only after its effect."""

from __future__ import annotations

import asyncio
import inspect
import time
from abc import ABC, abstractmethod
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Lock
from typing import Any, ClassVar, Literal

from rabbit_chx.checks import check_seconds, check_whole
from rabbit_chx.errors import DeduplicationError, InputError


@dataclass(frozen=True, slots=True)
class DeduplicationReport:
    """The counts of a de-duplicator, as they are now.

    Attributes:
        effects: how many effects it has run to their end.
        repeats: how many messages it has recognized as repeats, and not handled.
        failures: how many messages ended in an error, mostly of their effect. Their ids are not kept.
        forgotten: how many ids it has dropped to stay in its bounds. A repeat that comes later is handled again.
        ids: how many ids it keeps.
        reaches_back_s: the age of the oldest id that it keeps, in seconds; None where it keeps none.
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


class _Claims:
    """The ids that handlers of this process are at work on, so that no two handle one id. Threads and tasks share them."""

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._lock = Lock()
        self._handlers: dict[str, Future[None]] = {}

    def take(self, message_id: str) -> None:
        """Claim the id; wait while another handler has it."""
        deadline = time.monotonic() + self._timeout_s
        while (other := self._other(message_id)) is not None:
            try:
                other.result(max(0.0, deadline - time.monotonic()))
            except TimeoutError:
                raise self._too_late(message_id) from None

    async def take_async(self, message_id: str) -> None:
        """Do as `take` does, on asyncio."""
        deadline = time.monotonic() + self._timeout_s
        while (other := self._other(message_id)) is not None:
            ended = asyncio.wrap_future(other)
            try:  # unshielded, it would be cancelled for all who wait
                await asyncio.wait_for(asyncio.shield(ended), max(0.0, deadline - time.monotonic()))
            except TimeoutError:
                raise self._too_late(message_id) from None

    def release(self, message_id: str) -> None:
        """Give the id back and wake whoever waits for it."""
        with self._lock:
            ended = self._handlers.pop(message_id)
        ended.set_result(None)

    def _other(self, message_id: str) -> Future[None] | None:
        """Return what ends with the handler that has the id; None where the id was free and is now ours."""
        with self._lock:
            other = self._handlers.get(message_id)
            if other is None:
                self._handlers[message_id] = Future()
            return other

    def _too_late(self, message_id: str) -> DeduplicationError:
        return DeduplicationError(
            f"message {message_id!r}: another handler of this process is at work on it since more than "
            f"{self._timeout_s:g} s: do not ack this copy, and look for a handler that hangs, or raise timeout_s"
        )


class DeduplicatorBase(ABC):
    """Runs the effects of new messages. A subclass keeps the ids."""

    _on_disk: ClassVar[bool] = False

    def __init__(self, max_ids: int | None, max_age_s: float | None, timeout_s: float) -> None:
        if max_ids is not None:
            check_whole("max_ids", max_ids, 1)
        if max_age_s is not None:
            check_seconds("max_age_s", max_age_s, zero=False)
        check_seconds("timeout_s", timeout_s, zero=False)
        self._claims = _Claims(timeout_s)
        self._counts: Counter[str] = Counter()
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
        with self._failing(checked):
            if self._knows(checked):
                return self._ended(checked, "repeats")
            refuse_awaitable(effect(*args))
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
        with self._failing(checked):
            knows = await asyncio.to_thread(self._knows, checked) if self._on_disk else self._knows(checked)
            if knows:
                return self._ended(checked, "repeats")
            result = effect(*args)
            if inspect.isawaitable(result):
                await result
        return await self._finish_in_a_thread(checked) if self._on_disk else self._finish(checked)

    @property
    def report(self) -> DeduplicationReport:
        """What it has done so far, and how far back it knows."""
        ids, reaches_back_s = self._kept()
        counts = self._counts
        return DeduplicationReport(
            counts["effects"], counts["repeats"], counts["failures"], counts["forgotten"], ids, reaches_back_s
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
        with self._failing(message_id):
            self._keep(message_id)
        return self._ended(message_id, "effects")

    async def _finish_in_a_thread(self, message_id: str) -> bool:
        # The effect is done: whoever cancels us now must not keep the id from the file.
        storing = asyncio.create_task(asyncio.to_thread(self._finish, message_id))
        self._storing.add(storing)
        storing.add_done_callback(self._storing.discard)
        return await asyncio.shield(storing)

    @contextmanager
    def _failing(self, message_id: str) -> Iterator[None]:
        """Count a failure where the block raises, whatever it is, and give the id back."""
        try:
            yield
        except BaseException:
            self._ended(message_id, "failures")
            raise

    def _ended(self, message_id: str, how: Literal["effects", "repeats", "failures"]) -> bool:
        """Give the id back, count how its message ended, and return whether it had an effect."""
        self._claims.release(message_id)
        self._count(how)
        return how == "effects"

    def _count(self, what: str, number: int = 1) -> None:
        with self._counts_lock:
            self._counts[what] += number


class Deduplicator(DeduplicatorBase):
    """Runs the effect of each message whose id it does not know, and keeps the id once the effect has ended.

    The ids are in the memory of this process. What another process has handled, or this process before it was started again, is
    new to it: `SqliteDeduplicator` knows that, too. One object serves any number of threads and tasks.

    Args:
        max_ids: how many ids are kept. When one more comes, the oldest is forgotten.
        max_age_s: for how many seconds after its effect an id is kept; None for no such bound.
        timeout_s: how long a second copy of a message waits for the handler of the first, in seconds.

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
        super().__init__(max_ids, max_age_s, timeout_s)
        self._max_ids = max_ids
        self._max_age_s = max_age_s
        self._ids_lock = Lock()
        self._handled_at: OrderedDict[str, float] = OrderedDict()

    def _knows(self, message_id: str) -> bool:
        with self._ids_lock:
            self._forget()
            return message_id in self._handled_at

    def _keep(self, message_id: str) -> None:
        with self._ids_lock:
            self._handled_at[message_id] = time.monotonic()
            self._forget()

    def _forget(self) -> None:
        handled_at = self._handled_at
        oldest = -float("inf") if self._max_age_s is None else time.monotonic() - self._max_age_s
        while handled_at and (len(handled_at) > self._max_ids or next(iter(handled_at.values())) < oldest):
            handled_at.popitem(last=False)
            self._count("forgotten")

    def _kept(self) -> tuple[int, float | None]:
        with self._ids_lock:
            self._forget()
            first = next(iter(self._handled_at.values()), None)
            return len(self._handled_at), None if first is None else time.monotonic() - first


def checked_id(message_id: object) -> str:
    """Return the id of a message, which is text that is not empty."""
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
    """Refuse what an async function returns."""
    if inspect.isawaitable(result):
        if inspect.iscoroutine(result):
            result.close()
        raise InputError(
            "the effect is an async function, and was not run: give a plain function, or await run_if_new_async"
        )
