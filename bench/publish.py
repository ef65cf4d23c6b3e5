"""Compare `Publisher` and `SharedPublisher` with other ways to publish many messages: messages per second and client CPU.

All ways publish the same persistent, mandatory messages with distinct keys. They publish in turns to the same
x-consistent-hash exchange with four classic queues on one broker. Each run has a separate process, so that
no way uses the heap of another one. A run counts only if every message is in the queues.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import re
import resource
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import pika
from pamqp import commands, frame, header
from pamqp.base import Frame as Method
from pika.adapters.blocking_connection import BlockingChannel

from rabbit_chx import Limits, Publisher, SharedPublisher
from rabbit_chx.amqp import ConnectionSettings
from rabbit_chx.broker import pika_parameters
from rabbit_chx.publishing.encoder import Encoder, Rows
from rabbit_chx.rendering.document import TableColumn, render_table
from rabbit_chx.testing import find_broker, temporary_vhost

EXCHANGE = "bench"
QUEUES = ("q1", "q2", "q3", "q4")
CHX: Any = "x-consistent-hash"  # pika's stubs list only the exchange types of the specification
OURS = "rabbit_chx.Publisher"
WINDOW = 1000
#: pika is fastest with a larger window.
PIKA_WINDOW = 10_000
_FRAME_MAX = 131_072
#: basic.ack on channel 1: the delivery tag, and whether it also acks all tags before it.
_ACK = re.compile(rb"\x01\x00\x01\x00\x00\x00\x0d\x00\x3c\x00\x50(.{8})(.)\xce", re.DOTALL)


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
    with Publisher(work.url, work.exchange, limits=Limits(max_in_flight=WINDOW)) as publisher:
        return _cost(work, lambda: publisher.publish_many(keys, bodies))


def shared(work: Work) -> Cost:
    """Publish with `rabbit_chx.SharedPublisher.publish_many`, from lists."""
    keys, bodies = work.keys, [work.body] * work.messages

    async def publish() -> Cost:
        async with SharedPublisher(work.url, work.exchange, limits=Limits(max_in_flight=WINDOW)) as publisher:
            await publisher.publish_many([], [])  # connects, as the constructor of `Publisher` does
            cpu, started = _cpu(), time.perf_counter()
            await publisher.publish_many(keys, bodies)
            return Cost(work.messages, time.perf_counter() - started, _cpu() - cpu)

    return asyncio.run(publish())


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

    def _connected(self, connection: Any) -> None:
        connection.channel(on_open_callback=self._opened)

    def _opened(self, channel: Any) -> None:
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

    def _answered(self, frame: Any) -> None:
        if frame.method.NAME != "Basic.Ack":
            raise SystemExit(f"pika: the broker sent {frame.method.NAME} instead of Basic.Ack")
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


def ready_made(exchange: str, keys: Sequence[str], body: bytes, chunk: int = 500) -> list[tuple[bytes, int]]:
    """Return one encoded message for each key, in chunks, with the number of messages of each chunk."""
    persistent = commands.Basic.Properties(delivery_mode=2).marshal()
    encoder = Encoder(exchange.encode(), persistent, mandatory=True, frame_max=_FRAME_MAX)
    parts = [[key.encode() for key in keys[i : i + chunk]] for i in range(0, len(keys), chunk)]
    return [(encoder.encode(Rows(part, [body] * len(part))), len(part)) for part in parts]


class RawSocket:
    """An AMQP connection with a channel in confirm mode that encodes, checks and keeps nothing: the limit of any client.

    What remains is the cost of the broker, of the kernel, and of reading the confirms.
    """

    def __init__(self, url: str) -> None:
        settings = ConnectionSettings.from_uri(url)
        self._socket = socket.create_connection((settings.host, settings.port), timeout=60)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._rest = b""
        self._socket.sendall(header.ProtocolHeader().marshal())
        self._expect("Connection.Start")
        password = settings.password.reveal()
        self._send(0, commands.Connection.StartOk({}, "PLAIN", f"\0{settings.username}\0{password}"))
        self._expect("Connection.Tune")
        self._send(0, commands.Connection.TuneOk(2047, _FRAME_MAX, 0))
        self._send(0, commands.Connection.Open(settings.vhost))
        self._expect("Connection.OpenOk")
        self._send(1, commands.Channel.Open())
        self._expect("Channel.OpenOk")
        self._send(1, commands.Confirm.Select())
        self._expect("Confirm.SelectOk")

    def push(self, chunks: Iterable[tuple[bytes, int]], window: int) -> int:
        """Send the chunks with at most `window` unconfirmed messages, and wait for the last confirm."""
        sent = low = 0
        ahead: set[int] = set()
        for wire, messages in chunks:
            while sent + messages - low - len(ahead) > window:
                low = self._read_acks(low, ahead)
            self._socket.sendall(wire)
            sent += messages
        while low < sent:
            low = self._read_acks(low, ahead)
        return sent

    def follow(self, wire: bytes, messages: int, window: int) -> None:
        """Send one message many times, the next ones as soon as the window has room, and wait for the last confirm."""
        sent = low = 0
        ahead: set[int] = set()
        while low < messages:
            if room := min(window + low + len(ahead), messages) - sent:
                self._socket.sendall(wire * room)
                sent += room
            low = self._read_acks(low, ahead)

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()

    def _read_acks(self, low: int, ahead: set[int]) -> int:
        data = self._socket.recv(1 << 18)
        if not data:
            raise SystemExit("the broker has closed the raw connection")
        data = self._rest + data
        end = 0
        for ack in _ACK.finditer(data):
            end = ack.end()
            tag = int.from_bytes(ack[1])
            if ack[2] == b"\x01":
                low = max(low, tag)
                if ahead:
                    ahead.difference_update([t for t in ahead if t <= low])
            else:
                ahead.add(tag)
            while low + 1 in ahead:
                low += 1
                ahead.remove(low)
        self._rest = data[end:]
        return low

    def _send(self, channel: int, method: Method) -> None:
        self._socket.sendall(frame.marshal(method, channel))

    def _expect(self, name: str) -> None:
        while True:
            if self._rest:
                try:
                    size, _, got = frame.unmarshal(self._rest)
                except Exception as incomplete:  # noqa: BLE001, F841  # pamqp has no error type for incomplete frames
                    size = 0
                if size:
                    self._rest = self._rest[size:]
                    if got.name != name:
                        raise SystemExit(f"the broker sent {got.name} instead of {name}")
                    return
            data = self._socket.recv(1 << 16)
            if not data:
                raise SystemExit("the broker has closed the raw connection")
            self._rest += data


def measured(way: Callable[[Work], Cost], work: Work, channel: BlockingChannel) -> Cost:
    """Return the cost of one run into empty queues."""
    for queue in QUEUES:
        channel.queue_purge(queue)
    time.sleep(1)  # the broker is still busy with the run before
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as process:
        cost = process.submit(way, work).result()
    arrived = sum(channel.queue_declare(queue, passive=True).method.message_count or 0 for queue in QUEUES)
    if arrived != work.messages:
        raise SystemExit(f"{arrived} messages are in the queues instead of {work.messages}")
    return cost


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer messages and rounds, for a look")
    parser.add_argument("--body-bytes", type=int, default=100)
    arguments = parser.parse_args()
    scale, rounds = (10, 1) if arguments.quick else (1, 5)
    in_c = build_peer()
    ways: dict[str, tuple[Callable[[Work], Cost], int]] = {
        "ready-made bytes (the limit)": (raw, 200_000),
        OURS: (ours, 200_000),
        "rabbit_chx.SharedPublisher.publish_many": (shared, 200_000),
        **({"rabbitmq-c, windowed": (partial(compiled_peer, in_c), 200_000)} if in_c else {}),
        "pika SelectConnection, windowed": (windowed_pika, 50_000),
        "pika BlockingConnection, one by one": (tutorial, 10_000),
    }
    with find_broker() as broker, temporary_vhost(broker) as place:
        with pika.BlockingConnection(pika_parameters(f"{place.url}?heartbeat=0")) as connection:
            channel = connection.channel()
            channel.exchange_declare(EXCHANGE, CHX, durable=True)
            for queue in QUEUES:
                channel.queue_declare(queue, durable=True)
                channel.queue_bind(queue, EXCHANGE, "1")
            costs: dict[str, list[Cost]] = {name: [] for name in ways}
            for _ in range(rounds):
                for name, (way, messages) in ways.items():
                    work = Work(place.url, EXCHANGE, messages // scale, arguments.body_bytes)
                    costs[name].append(measured(way, work, channel))
        print(f"\n{place.origin}; {arguments.body_bytes}-byte bodies, {len(QUEUES)} queues, {rounds} rounds")
    rates = {name: statistics.median(cost.rate for cost in of_way) for name, of_way in costs.items()}
    cpu = {name: statistics.median(cost.cpu_per_100k for cost in of_way) for name, of_way in costs.items()}
    print(
        render_table(
            (
                TableColumn("way", numeric=False),
                TableColumn("messages/s"),
                TableColumn("min"),
                TableColumn("max"),
                TableColumn("ours is times as fast"),
                TableColumn("client CPU s/100k"),
                TableColumn("ours takes of it"),
            ),
            [
                (
                    name,
                    round(rates[name]),
                    round(min(cost.rate for cost in costs[name])),
                    round(max(cost.rate for cost in costs[name])),
                    f"{rates[OURS] / rates[name]:.2f}",
                    f"{cpu[name]:.3f}",
                    f"{cpu[OURS] / cpu[name]:.3f}",
                )
                for name in ways
            ],
        )
    )


if __name__ == "__main__":
    main()
