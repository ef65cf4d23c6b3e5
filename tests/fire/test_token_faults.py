"""Faults of OAuth 2 tokens: each kind of client goes on, or ends in time with an error that names the credentials."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import pika
import pytest
from bounded import Beside, until
from cryptography.hazmat.primitives.asymmetric import rsa
from oauth_broker import oauth_broker
from token_issuer import Issuer

from rabbit_chx import (
    Broker,
    ConsumerGroup,
    Publisher,
    SharedPublisher,
    StreamGroup,
    StreamPublisher,
    StreamReader,
)
from rabbit_chx.broker import pika_parameters
from rabbit_chx.connection.tokens import Credentials, token_command
from rabbit_chx.consuming import FailurePolicy, GroupReading
from rabbit_chx.errors import RabbitChxError
from rabbit_chx.publishing import Retries
from rabbit_chx.streams import ReadLimits, WriteLimits
from rabbit_chx.testing import RunningBroker

pytestmark = [pytest.mark.broker, pytest.mark.docker, pytest.mark.timeout(180)]

LIFETIME_S = 3
BEHIND_S = 30
#: The bound of a client that cannot get a token: its reconnect timeout, an attempt to connect, and the time to leave.
END_S = 25
QUEUE = {"x-queue-type": "quorum", "x-single-active-consumer": True}


@pytest.fixture(scope="module")
def site() -> Iterator[tuple[RunningBroker, Issuer]]:
    with oauth_broker() as (broker, issuer):
        with pika.BlockingConnection(pika_parameters(broker.url)) as connection:
            channel = connection.channel()
            channel.queue_declare("q", durable=True, arguments=QUEUE)
            channel.queue_declare("s", durable=True, arguments={"x-queue-type": "stream"})
        issuer.lifetime_s = LIFETIME_S
        yield broker, issuer


class Client:
    """A client that works in steps until `is_over`; it tells each success by `steps`."""

    def __init__(self, broker: RunningBroker, credentials: Credentials) -> None:
        self.url = broker.url.replace("guest:guest@", "robin@")
        self.api = str(broker.management_url).replace("guest:guest@", "")
        self.streams = f"rabbitmq-stream://robin@127.0.0.1:{broker.stream_port}"
        self.options: dict[str, Any] = {"credentials": credentials}
        self.retries = Retries(reconnect_timeout_s=8)
        self.is_over = threading.Event()
        self.steps = 0

    def _repeat(self, do: Callable[..., object], *arguments: object) -> None:
        while not self.is_over.wait(0.1):
            do(*arguments)
            self.steps += 1

    def control(self) -> None:
        with Broker(self.url, self.api, **self.options) as live:
            self._repeat(live.topology)

    def publish(self) -> None:
        with Publisher(self.url, exchange="", retries=self.retries, **self.options) as publisher:
            self._repeat(publisher.publish_many, ["q"], [b"body"])

    def publish_async(self) -> None:
        async def run() -> None:
            async with SharedPublisher(
                self.url, exchange="", retries=self.retries, **self.options
            ) as publisher:
                while not self.is_over.is_set():
                    await publisher.publish_many(["q"], [b"body"])
                    self.steps += 1
                    await asyncio.sleep(0.1)

        asyncio.run(run())

    def write_stream(self) -> None:
        limits = WriteLimits(reconnect_timeout_s=8)
        with StreamPublisher(self.streams, stream="s", limits=limits, **self.options) as publisher:
            self._repeat(publisher.publish_many, ["k"], [b"body"])

    def follow_stream(self) -> None:
        how: dict[str, Any] = {"start": "next", "end": "never", "limits": ReadLimits(timeout_s=12)}
        with StreamReader(self.streams, "s", **how, **self.options) as reader:
            threading.Thread(target=self._stop_when_over, args=(reader,), daemon=True).start()
            for _ in reader:
                self.steps += 1

    def _stop_when_over(self, reader: StreamReader) -> None:
        self.is_over.wait()
        reader.stop()

    def consume(self) -> None:
        failures = FailurePolicy(reconnect_timeout_s=8)
        group = ConsumerGroup(self.url, ["q"], member="one", failures=failures, **self.options)
        asyncio.run(self._run(group))

    def share_stream(self) -> None:
        how: dict[str, Any] = {
            "reading": GroupReading(start="next"),
            "failures": FailurePolicy(reconnect_timeout_s=8),
        }
        asyncio.run(self._run(StreamGroup(self.streams, streams=["s"], name="g", **how, **self.options)))

    async def _run(self, group: Any) -> None:
        async def handle(*_: object) -> None:
            self.steps += 1

        async with group:
            running = asyncio.create_task(group.run(handle))
            over = asyncio.create_task(asyncio.to_thread(self.is_over.wait, 120))
            await asyncio.wait([running, over], return_when=asyncio.FIRST_COMPLETED)
            self.is_over.set()
            group.stop()
            await running


KINDS = ("control", "publish", "publish_async", "write_stream", "follow_stream", "consume", "share_stream")


@pytest.fixture
def feed(site: tuple[RunningBroker, Issuer]) -> Iterator[None]:
    """Publish to the queue and the stream, with a password."""
    broker, _ = site
    is_over = threading.Event()

    def publish() -> None:
        with Publisher(broker.url, exchange="") as publisher:
            while not is_over.wait(0.1):
                publisher.publish_many(["q", "s"], [b"body"] * 2)

    feeding = Beside(publish)
    feeding.start()
    yield
    is_over.set()
    feeding.finish(30)


def run_for(client: Client, kind: str, is_done: Callable[[], bool]) -> None:
    """Run a client until the condition holds and a step has come after it; its error ends the test."""
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(getattr(client, kind))
        try:
            until(lambda: is_done() or running.done(), f"{kind} gets its tokens")
            steps = client.steps
            until(lambda: client.steps > steps + 2 or running.done(), f"{kind} works after step {steps}")
        finally:
            client.is_over.set()
            running.result(60)


@pytest.mark.usefixtures("feed")
@pytest.mark.parametrize("kind", KINDS)
def test_a_clock_30_s_behind_renews_in_time(site: tuple[RunningBroker, Issuer], kind: str) -> None:
    """Such a client believes that a token is valid for 30 s longer than the broker does."""
    broker, issuer = site
    calls = list[float]()

    def token() -> tuple[str, float]:
        calls.append(time.monotonic())
        value, expiry = issuer.token()
        return value, expiry + BEHIND_S

    run_for(Client(broker, token), kind, lambda: len(calls) > 2)
    # Each token is asked for once, after the one before has expired.
    lives = [after - before for before, after in pairwise(calls)]
    assert min(lives) > LIFETIME_S - 1.5, lives


@pytest.mark.usefixtures("feed")
@pytest.mark.parametrize("kind", KINDS)
def test_one_badly_signed_renewal_is_tried_again(site: tuple[RunningBroker, Issuer], kind: str) -> None:
    broker, issuer = site
    calls, other_key = list[int](), rsa.generate_private_key(65537, 2048)

    def token() -> tuple[str, float]:
        calls.append(1)
        return issuer.token(other_key if len(calls) == 2 else None)

    run_for(Client(broker, token), kind, lambda: len(calls) > 2)


@pytest.mark.parametrize("kind", KINDS)
def test_only_bad_tokens_are_an_error(
    site: tuple[RunningBroker, Issuer], kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    broker, issuer = site
    calls, other_key = list[int](), rsa.generate_private_key(65537, 2048)

    def token() -> tuple[str, float]:
        calls.append(1)
        return issuer.token(other_key)

    client = Client(broker, token)
    with pytest.raises(RabbitChxError, match=r"a new token of credentials \(function 'token'\)") as caught:
        getattr(client, kind)()
    assert "password" not in str(caught.value)
    # On a busy machine: another connection. It asks for another token if the broker has refused the one before.
    late = caplog.text.count("did not finish the stream handshake")
    assert 2 <= len(calls) <= 2 + late
    assert not client.steps


@pytest.mark.usefixtures("feed")
@pytest.mark.parametrize("kind", KINDS)
def test_a_token_command_that_hangs_is_ended_in_time(
    site: tuple[RunningBroker, Issuer], kind: str, tmp_path: Any
) -> None:
    """The first token is valid, and the command does not end for the next ones."""
    broker, issuer = site
    file, script = tmp_path / "token", tmp_path / "command"
    file.write_text(issuer.token()[0])
    script.write_text(f"#!/bin/sh\nmv {file} {file}.used 2>/dev/null || exec sleep 600\ncat {file}.used\n")
    script.chmod(0o755)
    client = Client(broker, token_command(str(script)))
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(getattr(client, kind))
        with pytest.raises(RabbitChxError, match=f"credentials .command '{script}'.: no token"):
            running.result(LIFETIME_S + END_S)
    assert client.steps
