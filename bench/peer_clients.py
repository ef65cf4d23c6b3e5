"""The clients that peers.py compares: how each is installed, and how it publishes rows and waits until all are confirmed."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from functools import partial
from importlib import import_module, metadata
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa
from publish import WINDOW, Cost, Work

from rabbit_chx import StreamPublisher

#: The rows of a batch and of a sub-entry. rstream copies a sub-entry for each of its rows, so it gets smaller ones.
BATCH, RSTREAM_SUB_ENTRY = 1_000, 100
_HERE = Path(__file__).resolve().parent
_CACHE = _HERE.parent / ".cache" / "peers"
_PYTHON = _CACHE / "python"
_JARS = ":".join(f"/usr/share/java/{name}.jar" for name in ("amqp-client", "slf4j-api", "slf4j-nop"))
IN_C = [str(_CACHE / "rabbitmq_c")]
IN_JAVA = ["java", "-cp", f"{_JARS}:{_CACHE}", "AmqpJava"]
IN_JS = ["node", str(_HERE / "stream_js.js")]
_TIMEOUT_S = 180


class MissingClient(Exception):
    """A client cannot be installed; the message has the reason."""


class Stopwatch:
    """Measures the clock and the CPU of this process from its construction on."""

    def __init__(self) -> None:
        self._cpu, self._started = time.process_time(), time.perf_counter()

    def cost(self, rows: int) -> Cost:
        """Return the cost so far."""
        return Cost(rows, time.perf_counter() - self._started, time.process_time() - self._cpu)


def bodies_of(work: Work) -> list[bytes]:
    """Return random hexadecimal digits, which can be compressed to a little more than the half."""
    return [os.urandom(work.body_bytes // 2).hex().encode() for _ in range(work.messages)]


def in_time(publishing: Awaitable[Cost]) -> Cost:
    """Run a coroutine with a bound."""

    async def bounded() -> Cost:
        async with asyncio.timeout(_TIMEOUT_S):
            return await publishing

    return asyncio.run(bounded())


def our_stream(work: Work, codec: str | None = None) -> Cost:
    """Publish with `StreamPublisher`, from Arrow columns, with routing keys."""
    keys: Any = pa.array(work.keys)
    bodies: Any = pa.array(bodies_of(work))
    form: dict[str, Any] = {} if codec is None else {"sub_entry_rows": BATCH, "compression": codec}
    with StreamPublisher(work.url, stream=work.exchange, **form) as publisher:
        watch = Stopwatch()
        return watch.cost(publisher.publish_many(keys, bodies).confirmed)


def rstream_rows(work: Work, *, encoded: bool = False, codec: str | None = None) -> Cost:
    """Publish with rstream: AMQP messages or their bytes, in batches or in sub-entries."""
    import rstream

    to, bodies = urlsplit(work.url), bodies_of(work)

    async def publish() -> Cost:
        size = BATCH if codec is None else RSTREAM_SUB_ENTRY
        unconfirmed, done = len(bodies) if codec is None else -(-len(bodies) // size), asyncio.Event()

        def answer(status: Any) -> None:
            nonlocal unconfirmed
            unconfirmed -= status.is_confirmed
            if not unconfirmed:
                done.set()

        # load_balancer_mode keeps it from following the name that the broker advertises
        async with rstream.Producer(
            to.hostname or "",
            to.port or 5552,
            username=to.username or "",
            password=to.password or "",
            load_balancer_mode=True,
        ) as producer:
            watch = Stopwatch()
            for begin in range(0, len(bodies), size):
                rows: Any = bodies[begin : begin + size]
                if encoded:
                    rows = [rstream.AMQPMessage(body=body) for body in rows]
                if codec is None:
                    await producer.send_batch(work.exchange, rows, on_publish_confirm=answer)
                else:
                    how = rstream.CompressionType[codec]
                    await producer.send_sub_entry(work.exchange, rows, how, on_publish_confirm=answer)
            await done.wait()
            return watch.cost(work.messages)

    return in_time(publish())


def rbfly_rows(work: Work) -> Cost:
    """Publish with the faster of rbfly's two batch publishers."""
    sys.path.append(str(_PYTHON))
    streams: Any = import_module("rbfly.streams")
    url, bodies = (
        work.url.rpartition("/")[0],
        bodies_of(work),
    )  # of the default vhost: rbfly does not decode %2F

    async def publish() -> Cost:
        client = streams.streams_client(url)
        async with client.publisher(work.exchange, cls=streams.PublisherBatchFast) as publisher:
            watch = Stopwatch()
            for begin in range(0, len(bodies), BATCH):
                for body in bodies[begin : begin + BATCH]:
                    publisher.batch(body)
                await publisher.flush()  # until the batch is confirmed
            cost = watch.cost(work.messages)
        await client.disconnect()
        return cost

    return in_time(publish())


def aio_pika_messages(work: Work) -> Cost:
    """Publish with aio-pika, `WINDOW` calls at once."""
    import aio_pika

    keys, body, persistent = work.keys, work.body, aio_pika.DeliveryMode.PERSISTENT

    async def publish() -> Cost:
        async with await aio_pika.connect_robust(work.url) as connection:
            exchange = await (await connection.channel()).get_exchange(work.exchange)
            watch = Stopwatch()
            for begin in range(0, len(keys), WINDOW):
                await asyncio.gather(
                    *(
                        exchange.publish(
                            aio_pika.Message(body, delivery_mode=persistent), key, mandatory=True
                        )
                        for key in keys[begin : begin + WINDOW]
                    )
                )
            return watch.cost(work.messages)

    return in_time(publish())


def program(command: list[str], last: tuple[object, ...], work: Work) -> Cost:
    """Publish with a program in another language, which prints seconds and CPU seconds."""
    to = urlsplit(work.url)
    place = (to.hostname, to.port, to.username, to.password, "/", work.exchange)
    done = subprocess.run(
        [*command, *map(str, (*place, work.messages, work.body_bytes, *last))],
        env={**os.environ, "NODE_PATH": str(_CACHE / "node_modules")},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=_TIMEOUT_S,
    )
    return Cost(work.messages, *map(float, done.stdout.split()))


def install(*command: str | Path) -> None:
    """Announce an installation, and run it."""
    print("peers:", *command, file=sys.stderr)
    _CACHE.mkdir(parents=True, exist_ok=True)
    if shutil.which(command[0]) is None:
        raise MissingClient(f"{command[0]} is not on PATH")
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    if done.returncode:
        last = (done.stderr or done.stdout).strip().splitlines()[-1:]
        raise MissingClient(f"{command[0]} failed: {' '.join(last)}")


def debian_version(package: str) -> str:
    """Return the version of a Debian package, which is installed if it is missing."""
    query = ["dpkg-query", "-W", "-f", "${Version}", package]
    if shutil.which(query[0]) is None:
        raise MissingClient(f"the package {package} is Debian's")
    if subprocess.run(query, capture_output=True, check=False).returncode:
        if os.geteuid():
            raise MissingClient(f"apt-get install {package} needs root")
        install("apt-get", "update", "-q")
        install("apt-get", "install", "-y", "-q", package)
    return subprocess.run(query, capture_output=True, text=True, check=True).stdout.partition("-")[0]


def rabbitmq_c() -> str:
    """Install rabbitmq-c, compile the program, and return the version."""
    version = debian_version("librabbitmq-dev")
    install("cc", "-O2", "-o", IN_C[0], _HERE / "rabbitmq_c.c", "-lrabbitmq")
    return version


def java_client() -> str:
    """Install the Java client, compile the program, and return the version."""
    version = debian_version("librabbitmq-client-java")
    install("javac", "-cp", _JARS, "-d", _CACHE, _HERE / "AmqpJava.java")
    return version


def js_client() -> str:
    """Install the JavaScript client for streams, and return its version."""
    package = _CACHE / "node_modules" / "rabbitmq-stream-js-client"
    if not package.exists():
        install("npm", "install", "--no-audit", "--no-fund", "--prefix", _CACHE, package.name)
    return str(json.loads((package / "package.json").read_text())["version"])


def rbfly() -> str:
    """Install rbfly, and return its version."""
    if not (_PYTHON / "rbfly").exists():
        install(sys.executable, "-m", "pip", "install", "--quiet", "--target", _PYTHON, "rbfly")
    (found,) = metadata.distributions(name="rbfly", path=[str(_PYTHON)])
    return found.version


#: What installs each client and returns its version. Those of our development environment are installed.
CLIENTS: dict[str, Callable[[], str]] = {
    "rabbit_chx": partial(metadata.version, "rabbit-chx"),
    "rabbitmq-c": rabbitmq_c,
    "Java client": java_client,
    "pika": partial(metadata.version, "pika"),
    "aio-pika": partial(metadata.version, "aio-pika"),
    "rstream": partial(metadata.version, "rstream"),
    "rbfly": rbfly,
    "rabbitmq-stream-js-client": js_client,
}
