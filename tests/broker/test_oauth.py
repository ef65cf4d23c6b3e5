"""OAuth 2 tokens that expire after three seconds, against a broker that closes connections with expired tokens."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from canary import traces_of_canary
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
from rabbit_chx.cli import main
from rabbit_chx.consuming import FailurePolicy, GroupMessage
from rabbit_chx.errors import PublishError
from rabbit_chx.publishing import Retries
from rabbit_chx.streams import WriteLimits
from rabbit_chx.testing import RunningBroker
from rabbit_chx.topology import Topology, plan

pytestmark = [pytest.mark.broker, pytest.mark.docker, pytest.mark.extended]

LIFETIME_S = 3
SPARE_S = 9
RENEWALS = 10
NEVER = Retries(reconnect_timeout_s=0)
LOSES_NOTHING = FailurePolicy(reconnect_timeout_s=0)
TOPOLOGY = """
[[queues]]
name = "q"
type = "quorum"
arguments = { x-single-active-consumer = true }
[[queues]]
name = "s"
type = "stream"
"""


@pytest.fixture(scope="module")
def site() -> Iterator[tuple[RunningBroker, Issuer]]:
    with oauth_broker() as (broker, issuer):
        issuer.lifetime_s = LIFETIME_S
        yield broker, issuer


@contextmanager
def logged(file: Path) -> Iterator[None]:
    """Write the logs of every library at DEBUG into a file, for a block."""
    root, handler = logging.getLogger(), logging.FileHandler(file)
    handler.setFormatter(logging.Formatter("%(name)s: %(message)s"))
    level = root.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    try:
        yield
    finally:
        root.setLevel(level)
        root.removeHandler(handler)
        handler.close()


class Token:
    """Credentials of one client: each token is for one connection, and the number of calls is counted.

    A token is valid for `spare_s` longer than the client knows, so that a busy machine renews it in time.
    """

    def __init__(self, issuer: Issuer, spare_s: int = 0) -> None:
        self.issuer = replace(issuer, lifetime_s=issuer.lifetime_s + spare_s)
        self.spare_s = spare_s
        self.calls = 0

    def __call__(self) -> tuple[str, float]:
        self.calls += 1
        token, expiry = self.issuer.token()
        return token, expiry - self.spare_s


def without_login(url: str) -> str:
    return url.replace("guest:guest@", "robin@")


class Clients:
    """Clients that run until `is_over`, each with its own tokens; a method returns the number of its rows."""

    def __init__(self, broker: RunningBroker) -> None:
        self.url = without_login(broker.url)
        self.api = str(broker.management_url).replace("guest:guest@", "")
        self.streams = f"rabbitmq-stream://robin@127.0.0.1:{broker.stream_port}"
        self.is_declared, self.is_over = threading.Event(), threading.Event()

    def control(self, token: Token) -> int:
        wanted = Topology.from_toml(TOPOLOGY)
        with Broker(self.url, self.api, credentials=token) as live:
            live.apply(plan(wanted, live.topology()))
            self.is_declared.set()
            while not self.is_over.wait(0.5):
                assert "q" in {queue.name for queue in live.topology().queues}
            time.sleep(LIFETIME_S + 1)  # the token expires while the connection is idle
            live.apply(plan(Topology.from_toml(TOPOLOGY.replace('"s"', '"t"')), live.topology()))
            return 1

    def publish(self, token: Token) -> int:
        with Publisher(self.url, exchange="", credentials=token, retries=NEVER) as publisher:
            return self._repeat(publisher.publish_many)

    def publish_once(self, token: Token) -> int:
        with Publisher(self.url, exchange="", credentials=token, retries=NEVER) as publisher:
            assert self.is_over.wait(150)  # the thread of the connection renews the token
            return publisher.publish_many(["q"], [b"body"]).confirmed

    def publish_shared(self, token: Token) -> int:
        rows, retries = 0, Retries(reconnect_timeout_s=1)
        with SharedPublisher(self.url, exchange="", credentials=token, retries=retries) as publisher:
            while not self.is_over.wait(0.1):
                publisher.submit("q", b"body").result(30)
                rows += 1
            assert publisher.stats().reconnects == 0
        return rows

    def publish_async(self, token: Token) -> int:
        made = SharedPublisher(self.url, exchange="", credentials=token, retries=NEVER)
        with closing(made) as publisher:
            return self._repeat(lambda *columns: asyncio.run(publisher.publish_many(*columns)))

    def write_stream(self, token: Token) -> int:
        limits = WriteLimits(reconnect_timeout_s=0)
        with StreamPublisher(self.streams, stream="s", credentials=token, limits=limits) as publisher:
            return self._repeat(publisher.publish_many)

    def _repeat(self, publish: Callable[..., Any]) -> int:
        rows = 0
        while not self.is_over.wait(0.1):
            rows += publish(["q"] * 5, [b"body"] * 5).confirmed
        return rows

    def consume(self, token: Token) -> int:
        bodies = list[bytes]()

        async def handle(message: GroupMessage) -> None:
            bodies.append(message.body)

        how: Any = {"member": "one", "credentials": token, "failures": LOSES_NOTHING}
        asyncio.run(self._run(ConsumerGroup(self.url, ["q"], **how), handle))
        return len(bodies)

    def share_stream(self, token: Token) -> int:
        rows = list[int]()

        async def handle(_: str, batch: pa.RecordBatch) -> None:
            rows.append(batch.num_rows)

        how: Any = {"name": "g", "credentials": token, "failures": LOSES_NOTHING}
        asyncio.run(self._run(StreamGroup(self.streams, streams=["s"], **how), handle))
        return sum(rows)

    async def _run(self, group: Any, handle: Callable[..., Any]) -> None:
        async with group:
            running = asyncio.create_task(group.run(handle))
            await asyncio.to_thread(self.is_over.wait, 150)
            await asyncio.sleep(2)
            group.stop()
            await running
            assert group.reconnects == 0


@pytest.mark.slow
def test_all_clients_survive_ten_renewals(site: tuple[RunningBroker, Issuer], tmp_path: Path) -> None:
    broker, issuer = site
    clients = Clients(broker)
    publishing = (clients.publish, clients.publish_once, clients.publish_async, clients.publish_shared)
    work = (*publishing, clients.consume, clients.write_stream, clients.share_stream)
    # Ten renewals take 16 seconds or more, so the first token of each client expires meanwhile.
    tokens = {run.__name__: Token(issuer, SPARE_S) for run in work} | {"control": Token(issuer)}
    with logged(tmp_path / "log"), ThreadPoolExecutor(len(tokens)) as pool:
        running = {"control": pool.submit(clients.control, tokens["control"])}
        assert clients.is_declared.wait(60)
        running |= {run.__name__: pool.submit(run, tokens[run.__name__]) for run in work}
        end = time.monotonic() + 120
        while min(token.calls for token in tokens.values()) <= RENEWALS and time.monotonic() < end:
            if wait(running.values(), 0.2, FIRST_COMPLETED).done:
                break  # it failed
        clients.is_over.set()
    rows = {name: one.result() for name, one in running.items()}
    calls = {name: token.calls for name, token in tokens.items()}
    assert min(calls.values()) > RENEWALS, calls
    assert rows["consume"] == sum(rows[run.__name__] for run in publishing) > 0
    with (
        logged(tmp_path / "log"),
        StreamReader(clients.streams, "s", credentials=issuer.token) as reader,
    ):
        assert sum(batch.num_rows for batch in reader) == rows["write_stream"] == rows["share_stream"] > 0
    log = (tmp_path / "log").read_text()
    assert "aiormq.connection: Prepare to send" in log
    assert "pika" in log
    assert traces_of_canary(tmp_path) == []


def test_an_expired_token_ends_a_connection(site: tuple[RunningBroker, Issuer]) -> None:
    broker, issuer = site
    token, _ = issuer.token()
    given: Any = {"exchange": "", "on_unroutable": "report", "retries": NEVER}

    def publish_for_10_s() -> None:
        later = time.time() + 3600
        with Publisher(without_login(broker.url), credentials=lambda: (token, later), **given) as publisher:
            for _ in range(100):
                publisher.publish_many(["k"], [b"body"])
                time.sleep(0.1)

    with pytest.raises(PublishError, match="credential expired"):
        publish_for_10_s()


def test_the_command_line_runs_a_token_command(
    site: tuple[RunningBroker, Issuer],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    broker, issuer = site
    api = str(broker.management_url).replace("guest:guest@", "")
    addresses = ["--url", without_login(broker.url), "--management-url", api]
    line = ["export", *addresses]
    file, written = tmp_path / "topology.toml", tmp_path / "written"
    file.write_text(TOPOLOGY.replace('"q"', '"q2"'))
    written.mkdir()
    with issuer.written(tmp_path / "token") as command, logged(written / "log"):
        monkeypatch.setenv("RABBIT_CHX_TOKEN_COMMAND", command)
        assert main(line) == 0
        assert main(["plan", str(file), *addresses, "--output", "json"]) == 1
        assert main(["apply", str(file), *addresses, "--yes"]) == 0
    (written / "output").write_text("".join(capsys.readouterr()))
    assert "pika" in (written / "log").read_text()
    assert traces_of_canary(written) == []
    monkeypatch.setenv("RABBIT_CHX_TOKEN_COMMAND", "false")
    assert main(line) == 69
    assert "the token command 'false' ended with exit code 1" in capsys.readouterr().err
