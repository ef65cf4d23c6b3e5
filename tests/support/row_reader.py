"""Reads numbered rows out of queues, for the delivery checker: a row's number is the first word of its body."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pika
from pika.adapters.blocking_connection import BlockingChannel, BlockingConnection
from pika.exceptions import ChannelClosedByBroker

from rabbit_chx.broker import pika_parameters

_IDLE_S = 1.0
_STEP_S = 0.2
_AT_ONCE = 500
_UNACKNOWLEDGED = 2_000


class Reading:
    """Queues that are being read. What was read is acknowledged, and nothing else: pika drops what comes to a consumer without
    acknowledgements after it was cancelled.

    Attributes:
        found: the numbers of the rows of each queue, in the order in which they came.
        unread: the queues that still held something after `to_end`.
    """

    def __init__(
        self, connection: BlockingConnection, queues: Iterable[str], found: dict[str, list[int]]
    ) -> None:
        self._connection = connection
        self._channels: dict[str, BlockingChannel] = {}
        self._last_tags: dict[str, int] = {}
        self.found = found
        self.unread: tuple[str, ...] = ()
        for queue in queues:
            channel = self._connection.channel()
            rows = self.found.setdefault(queue, [])
            try:
                channel.queue_declare(queue, passive=True)
            except ChannelClosedByBroker:
                continue  # it does not exist
            channel.basic_qos(prefetch_count=_UNACKNOWLEDGED)
            channel.basic_consume(queue, partial(self._take, queue, rows))
            self._channels[queue] = channel

    def _take(self, queue: str, rows: list[int], channel: Any, method: Any, _: Any, body: bytes) -> None:
        rows.append(int(body.split(b" ", 1)[0]))
        if len(rows) % _AT_ONCE == 0:
            channel.basic_ack(method.delivery_tag, multiple=True)
            self._last_tags.pop(queue, None)
        else:
            self._last_tags[queue] = method.delivery_tag

    def read(self, seconds: float) -> None:
        """Read for so long."""
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            self._connection.process_data_events(min(left, _STEP_S))  # type: ignore[arg-type]  # its stub wants int
        self._acknowledge()

    def to_end(self, within_s: float) -> None:
        """Read until nothing comes for a second and the queues are empty, or until the time is over."""
        deadline = time.monotonic() + within_s
        while True:
            before = self.count
            self.read(_IDLE_S)
            self.unread = tuple(
                queue for queue, channel in self._channels.items() if _waiting(channel, queue)
            )
            if (self.count == before and not self.unread) or time.monotonic() > deadline:
                return

    def end(self) -> None:
        """Read no more. What is under way goes back."""
        self._acknowledge()
        for channel in self._channels.values():
            channel.close()

    def _acknowledge(self) -> None:
        for queue, tag in self._last_tags.items():
            self._channels[queue].basic_ack(tag, multiple=True)
        self._last_tags.clear()

    @property
    def count(self) -> int:
        """How many copies were read."""
        return sum(map(len, self.found.values()))


@contextmanager
def reading(url: str, queues: Iterable[str], found: dict[str, list[int]] | None = None) -> Iterator[Reading]:
    """Read queues during a block.

    Args:
        url: the broker.
        queues: their names.
        found: what was read before, to go on with.
    """
    with pika.BlockingConnection(pika_parameters(url)) as connection:
        reading_ = Reading(connection, queues, {} if found is None else found)
        yield reading_
        reading_.end()


def drained(url: str, queues: Iterable[str], within_s: float = 120.0) -> Reading:
    """Read queues to their end."""
    with reading(url, queues) as rows:
        rows.to_end(within_s)
    return rows


def rows_waiting(url: str, queues: Iterable[str]) -> int:
    """Return how many messages wait in queues that all exist."""
    with pika.BlockingConnection(pika_parameters(url)) as connection:
        channel = connection.channel()
        return sum(_waiting(channel, queue) for queue in queues)


def _waiting(channel: BlockingChannel, queue: str) -> int:
    return channel.queue_declare(queue, passive=True).method.message_count or 0
