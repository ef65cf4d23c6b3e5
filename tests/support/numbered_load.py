"""Numbered messages, published by a process while something else happens, and where each of them is afterwards.

It is a process of its own, so that what the test does meanwhile does not slow it down. A program: it publishes until its input ends.
"""

from __future__ import annotations

import json
import select
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import pika

from rabbit_chx.broker import pika_parameters

_AT_ONCE = 20
_KEYS = 500
#: A header that a client reads and writes with another type: bytes that are no text.
_HEADERS = {"raw": b"\xff\xfe"}
_TIMEOUT_S = 60
_END = b"end"


class NumberedLoad:
    """What was published. Each key's messages are numbered from 0. All is known when the block has ended.

    Attributes:
        count: how many messages there are.
        returned: how many messages the broker returned.
        seconds: how long it took to publish them.
    """

    def __init__(self) -> None:
        self.count = 0
        self.returned = 0
        self.seconds = 0.0

    @property
    def sent(self) -> dict[str, int]:
        """How many messages each key has."""
        rounds, rest = divmod(self.count, _KEYS)
        counts = {f"k{key}": rounds + (key < rest) for key in range(_KEYS)}
        return {key: count for key, count in counts.items() if count}

    @property
    def per_s(self) -> float:
        """How many messages per second there were."""
        return self.count / self.seconds

    def found(self, url: str, queues: Iterable[str]) -> Counter[str]:
        """Take all messages out of queues; return how often each is there. Exchange, key and headers are as they were.

        A queue is read up to a message that is sent behind the others. Its count would not do: the answer overtakes messages that the queue
        has received and not stored yet.
        """
        found: Counter[str] = Counter()
        with pika.BlockingConnection(pika_parameters(url)) as connection:
            channel = connection.channel()
            for queue in queues:
                channel.basic_publish("", queue, _END)
                coming: Any = channel.consume(queue, auto_ack=True, inactivity_timeout=_TIMEOUT_S)
                for method, properties, body in coming:
                    assert method is not None, f"{queue} does not give what it holds"
                    if body == _END:
                        break
                    assert (method.exchange, method.routing_key) == ("events", body.decode().split()[0])
                    assert properties.headers == _HEADERS
                    found[body.decode()] += 1
                channel.cancel()
        return found


@contextmanager
def numbered_load(url: str, exchange: str = "events", per_s: float = 2000) -> Iterator[NumberedLoad]:
    """Publish until the block ends.

    Args:
        url: the broker.
        exchange: where to.
        per_s: messages per second.
    """
    load = NumberedLoad()
    command = [sys.executable, __file__, url, exchange, str(per_s)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "begun\n"
            yield load
            said, _ = process.communicate(timeout=_TIMEOUT_S)
        finally:
            process.kill()
    load.count, load.returned, load.seconds = json.loads(said)


def _publish(url: str, exchange: str, per_s: float) -> None:
    returned: list[object] = []
    properties = pika.BasicProperties(headers=_HEADERS, delivery_mode=2)
    with pika.BlockingConnection(pika_parameters(url)) as connection:
        channel = connection.channel()
        channel.add_on_return_callback(lambda *message: returned.append(message))
        began = time.monotonic()
        count = 0
        print("begun", flush=True)  # noqa: T201  # for the test that started it
        ended = select.poll()
        ended.register(sys.stdin, select.POLLHUP)
        while not ended.poll(0):
            for _ in range(_AT_ONCE):
                key, number = count % _KEYS, count // _KEYS
                channel.basic_publish(
                    exchange, f"k{key}", f"k{key} {number}".encode(), properties, mandatory=True
                )
                count += 1
            connection.sleep(max(0.0, count / per_s - (time.monotonic() - began)))
        seconds = time.monotonic() - began
        channel.queue_declare("", exclusive=True)  # returns come before its answer
        connection.process_data_events(0)
    print(json.dumps([count, len(returned), seconds]), flush=True)  # noqa: T201


if __name__ == "__main__":
    _publish(sys.argv[1], sys.argv[2], float(sys.argv[3]))
