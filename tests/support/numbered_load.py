"""Numbered messages, published by a thread while something else happens, and where each of them is afterwards."""

from __future__ import annotations

import threading
import time
from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pika

from rabbit_chx.broker import pika_parameters

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = ["NumberedLoad", "numbered_load"]

_AT_ONCE = 20
_KEYS = 500
#: A header that a client reads and writes with another type: bytes that are no text.
_HEADERS = {"raw": b"\xff\xfe"}


class NumberedLoad:
    """What was published. Each key's messages are numbered from 0.

    Attributes:
        sent: how many messages each key has.
        returned: how many messages the broker returned.
    """

    def __init__(self) -> None:
        self.sent: Counter[str] = Counter()
        self.returned = 0

    @property
    def count(self) -> int:
        """How many messages there are."""
        return sum(self.sent.values())

    def _publish(self, url: str, exchange: str, per_s: float, stop: threading.Event) -> None:
        with pika.BlockingConnection(pika_parameters(url)) as connection:
            channel = connection.channel()
            channel.add_on_return_callback(lambda *_: self._count_return())
            began = time.monotonic()
            while not stop.is_set():
                for _ in range(_AT_ONCE):
                    key = f"k{self.count % _KEYS}"
                    body = f"{key} {self.sent[key]}".encode()
                    channel.basic_publish(
                        exchange,
                        key,
                        body,
                        pika.BasicProperties(headers=_HEADERS, delivery_mode=2),
                        mandatory=True,
                    )
                    self.sent[key] += 1
                connection.sleep(max(0.0, self.count / per_s - (time.monotonic() - began)))
            channel.queue_declare("", exclusive=True)  # returns come before its answer
            connection.process_data_events(0)

    def _count_return(self) -> None:
        self.returned += 1

    def found(self, url: str, queues: Iterable[str]) -> Counter[str]:
        """Take all messages out of queues; return how often each is there. Exchange, key and headers are as they were."""
        found: Counter[str] = Counter()
        with pika.BlockingConnection(pika_parameters(url)) as connection:
            channel = connection.channel()
            for queue in queues:
                left = channel.queue_declare(queue, passive=True).method.message_count or 0
                for method, properties, body in channel.consume(queue, auto_ack=True) if left else ():
                    self._check(method, properties, body)
                    found[body.decode()] += 1
                    left -= 1
                    if not left:
                        break
                channel.cancel()
        return found

    @staticmethod
    def _check(method: Any, properties: Any, body: bytes) -> None:
        assert (method.exchange, method.routing_key) == ("events", body.decode().split()[0])
        assert properties.headers == _HEADERS


@contextmanager
def numbered_load(url: str, exchange: str = "events", per_s: float = 2000) -> Iterator[NumberedLoad]:
    """Publish until the block ends.

    Args:
        url: the broker.
        exchange: where to.
        per_s: messages per second.
    """
    load, stop = NumberedLoad(), threading.Event()
    thread = threading.Thread(target=load._publish, args=(url, exchange, per_s, stop))
    thread.start()
    try:
        yield load
    finally:
        stop.set()
        thread.join(60)
    assert not thread.is_alive()
