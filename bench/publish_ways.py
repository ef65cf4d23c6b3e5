"""Ways to publish the same messages over one connection with confirms: ours, and those of other clients."""

from __future__ import annotations

import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import pika
from raw_socket import RawSocket, ready_made

from rabbit_chx import Publisher
from rabbit_chx.amqp import ConnectionSettings
from rabbit_chx.broker import pika_parameters

WINDOW = 1000
#: pika is fastest with a larger window.
PIKA_WINDOW = 10_000


@dataclass(frozen=True, slots=True)
class Work:
    """The messages to publish.

    Attributes:
        url: the AMQP URI of the broker.
        exchange: the exchange to publish to.
        messages: the number of messages.
        body_bytes: the size of each body in bytes.
    """

    url: str
    exchange: str
    messages: int
    body_bytes: int

    @property
    def keys(self) -> list[str]:
        """Distinct routing keys, one for each message."""
        return [f"order-{i:08}" for i in range(self.messages)]

    @property
    def body(self) -> bytes:
        """The body of every message."""
        return b"x" * self.body_bytes


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of a run, from the first publish to the last confirm.

    Attributes:
        messages: the number of messages.
        seconds: seconds on the clock.
        cpu_seconds: CPU seconds of the client, user and system.
    """

    messages: int
    seconds: float
    cpu_seconds: float

    @property
    def rate(self) -> float:
        """Messages per second."""
        return self.messages / self.seconds

    @property
    def cpu_per_100k(self) -> float:
        """CPU seconds of the client for 100,000 messages."""
        return self.cpu_seconds / self.messages * 100_000


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _cost(work: Work, publish: Callable[[], object]) -> Cost:
    cpu, started = _cpu(), time.perf_counter()
    publish()
    return Cost(work.messages, time.perf_counter() - started, _cpu() - cpu)


def ours(work: Work) -> Cost:
    """Publish with `rabbit_chx.Publisher`, from lists."""
    keys, bodies = work.keys, [work.body] * work.messages
    with Publisher(work.url, work.exchange, max_in_flight=WINDOW) as publisher:
        return _cost(work, lambda: publisher.publish_many(keys, bodies))


def raw(work: Work) -> Cost:
    """Publish ready-made bytes: the limit."""
    chunks = ready_made(work.exchange, work.keys, work.body)
    connection = RawSocket(work.url)
    try:
        return _cost(work, lambda: connection.push(chunks, WINDOW))
    finally:
        connection.close()


def tutorial(work: Work) -> Cost:
    """Publish the tutorial way: BlockingConnection, each message confirmed before the next one."""
    keys, body = work.keys, work.body
    persistent = pika.BasicProperties(delivery_mode=2)
    with pika.BlockingConnection(pika_parameters(work.url)) as connection:
        channel = connection.channel()
        channel.confirm_delivery()

        def publish() -> None:
            for key in keys:
                channel.basic_publish(work.exchange, key, body, persistent, mandatory=True)

        return _cost(work, publish)


class _WindowedPika:
    """A pika SelectConnection that keeps the window full from its callbacks."""

    def __init__(self, work: Work) -> None:
        self._work = work
        self._keys = iter(work.keys)
        self._body = work.body
        self._persistent = pika.BasicProperties(delivery_mode=2)
        self._sent = self._low = 0
        self._ahead: set[int] = set()
        self._channel: Any = None  # pika's stubs lack its type
        self._started = self._cpu = 0.0
        self.cost: Cost | None = None
        self.connection = pika.SelectConnection(
            pika_parameters(work.url),
            on_open_callback=self._connected,
            on_close_callback=lambda connection, _: connection.ioloop.stop(),
        )

    def _connected(self, connection: Any) -> None:  # noqa: ANN401
        connection.channel(on_open_callback=self._opened)

    def _opened(self, channel: Any) -> None:  # noqa: ANN401
        self._channel = channel
        channel.confirm_delivery(self._answered)
        self._cpu, self._started = _cpu(), time.perf_counter()
        self._fill()

    def _fill(self) -> None:
        room = PIKA_WINDOW - self._open
        for key in islice(self._keys, room):
            self._channel.basic_publish(
                self._work.exchange, key, self._body, self._persistent, mandatory=True
            )
            self._sent += 1

    @property
    def _open(self) -> int:
        return self._sent - self._low - len(self._ahead)

    def _answered(self, frame: Any) -> None:  # noqa: ANN401
        if frame.method.NAME != "Basic.Ack":
            raise SystemExit(f"pika: the broker says {frame.method.NAME}")
        tag = frame.method.delivery_tag
        if frame.method.multiple:
            self._low = max(self._low, tag)
            self._ahead = {answered for answered in self._ahead if answered > tag}
        else:
            self._ahead.add(tag)
        while self._low + 1 in self._ahead:
            self._low += 1
            self._ahead.remove(self._low)
        if self._low == self._work.messages:
            self.cost = Cost(self._low, time.perf_counter() - self._started, _cpu() - self._cpu)
            self.connection.close()
        elif self._open <= PIKA_WINDOW // 2:
            self._fill()


def windowed_pika(work: Work) -> Cost:
    """Publish with SelectConnection, callbacks and a window: the way of pika that uses the least CPU."""
    publisher = _WindowedPika(work)
    publisher.connection.ioloop.start()
    if publisher.cost is None:
        raise SystemExit("pika: the connection ended before the last confirm")
    return publisher.cost


def build_peer() -> Path | None:
    """Compile `rabbitmq_c.c`. Return the program, or print why it cannot be compiled and return None."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        print("no C compiler: the table has no row for rabbitmq-c", file=sys.stderr)
        return None
    program = Path(tempfile.mkdtemp(prefix="rabbit-chx-bench-"), "rabbitmq_c")
    source = Path(__file__).with_name("rabbitmq_c.c")
    built = subprocess.run([compiler, "-O2", "-o", program, source, "-lrabbitmq"], check=False)
    if built.returncode:
        print("apt-get install librabbitmq-dev: the table has no row for rabbitmq-c", file=sys.stderr)
        return None
    return program


def compiled_peer(program: Path, work: Work) -> Cost:
    """Publish with rabbitmq-c."""
    to = ConnectionSettings.from_uri(work.url)
    arguments = (to.host, to.port, to.username, to.password.reveal(), to.vhost, work.exchange)
    numbers = (work.messages, work.body_bytes, WINDOW)
    done = subprocess.run(
        [program, *map(str, arguments), *map(str, numbers)], capture_output=True, text=True, check=True
    )
    seconds, cpu_seconds = map(float, done.stdout.split())
    return Cost(work.messages, seconds, cpu_seconds)
