"""Repeated messages are recognized by their ids, which are kept in memory."""

from __future__ import annotations

import time
from collections import OrderedDict
from threading import Lock

from rabbit_chx.consuming.deduplicator_base import DeduplicatorBase, checked_count, checked_seconds

__all__ = ["Deduplicator"]


class Deduplicator(DeduplicatorBase):
    """Runs the effect of each message whose id it does not know, and keeps the id once the effect has ended.

    The ids are in the memory of this process. What another process has handled, or this one before it was started again, is
    new to it: `SqliteDeduplicator` knows that, too. One object serves any number of threads and tasks.

    Args:
        max_ids: how many ids are kept. An id is forgotten when so many others came after it.
        max_age_s: an id is forgotten so many seconds after its effect; None for no such bound.
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
        super().__init__(timeout_s)
        self._max_ids = checked_count("max_ids", max_ids)
        self._max_age_s = None if max_age_s is None else checked_seconds("max_age_s", max_age_s)
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
        kept = self._handled_at
        oldest = -float("inf") if self._max_age_s is None else time.monotonic() - self._max_age_s
        while kept and (len(kept) > self._max_ids or next(iter(kept.values())) < oldest):
            kept.popitem(last=False)
            self._count("forgotten")

    def _kept(self) -> tuple[int, float | None]:
        with self._ids_lock:
            self._forget()
            first = next(iter(self._handled_at.values()), None)
            return len(self._handled_at), None if first is None else time.monotonic() - first
