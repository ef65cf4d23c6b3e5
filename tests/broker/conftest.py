"""Fixtures of the tests that need a real broker."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pika
import pytest
from changed_site import ChangedSite, changed_site
from checked_orders import ORDERS_FILE, declare_orders, shop_of
from few_seeds import few_seeds
from pika.adapters.blocking_connection import BlockingChannel
from quick_rings import quick_prefix
from shop import Shop, declare
from streamed import Streamed
from tcp_proxy import Proxy
from topology_commands import Topologies

from rabbit_chx.broker import Broker, pika_parameters
from rabbit_chx.cli import main
from rabbit_chx.streams.connection import StreamConnection
from rabbit_chx.streams.nodes import stream_settings
from rabbit_chx.testing import RunningBroker


@pytest.fixture
def proxy(vhost_url: str) -> Iterator[Proxy]:
    """A line to the AMQP port."""
    with closing(Proxy(vhost_url)) as made:
        yield made


@pytest.fixture
def stream(vhost: RunningBroker) -> Streamed:
    """An empty stream."""
    return Streamed(vhost, "s", {})


@pytest.fixture
def connection(vhost: RunningBroker) -> Iterator[StreamConnection]:
    """A connection to the stream port, and an empty stream `s` without an exchange."""
    with closing(StreamConnection(stream_settings(vhost.stream_url))) as opened:
        opened.create_stream("s")
        yield opened


@pytest.fixture
def line(vhost: RunningBroker) -> Iterator[Proxy]:
    """A line to the stream port."""
    with closing(Proxy(vhost.stream_url)) as made:
        yield made


@pytest.fixture
def bare_channel(vhost_url: str) -> Iterator[BlockingChannel]:
    """A channel of the test's vhost, in which nothing is declared."""
    # Nobody serves the connection while a test runs a program, which may take longer than two heartbeats.
    with pika.BlockingConnection(pika_parameters(f"{vhost_url}?heartbeat=0")) as connection:
        yield connection.channel()


@pytest.fixture
def shop(vhost: RunningBroker, bare_channel: BlockingChannel) -> Shop:
    """A vhost with the exchange `orders`, whose ring is known."""
    assert vhost.management_url is not None, "these tests need RABBIT_CHX_TEST_MANAGEMENT_URL"
    declare(bare_channel, "orders")
    return shop_of(vhost, bare_channel)


@pytest.fixture
def answer(capsys: pytest.CaptureFixture[str]) -> Callable[..., Any]:
    """Runs a command with ``--output json``, expects an exit code, returns the document."""

    def run(*arguments: str, code: int = 0) -> Any:
        assert main([*arguments, "--output", "json"]) == code, capsys.readouterr()
        return json.loads(capsys.readouterr().out)

    return run


@pytest.fixture
def live(vhost: RunningBroker) -> Iterator[Broker]:
    """A `Broker` on the test's vhost, which reads the true rings."""
    with Broker(vhost.url, ring_source=quick_prefix(vhost)) as live:
        yield live


@pytest.fixture
def managed(vhost: RunningBroker) -> Iterator[Broker]:
    """A `Broker` on the test's vhost, as somebody without rabbitmqctl knows it."""
    with Broker(vhost.url, vhost.management_url) as managed:
        yield managed


@pytest.fixture
def quick_plans() -> Iterator[None]:
    """Plans count few seeds, in a test that looks at no figure of them."""
    with few_seeds():
        yield


@pytest.fixture
def topologies(shop: Shop, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Topologies:
    """The commands, on the shop."""
    return Topologies(shop, tmp_path / "topology.toml", capsys)


@pytest.fixture
def site(broker: RunningBroker) -> Iterator[ChangedSite]:
    """A vhost whose topology a test changes, with plans that count few seeds."""
    with few_seeds(), changed_site(broker) as made:
        yield made


@pytest.fixture
def orders(vhost: RunningBroker, bare_channel: BlockingChannel) -> Shop:
    """A vhost with the exchange and the queues of ORDERS_FILE."""
    declare_orders(bare_channel)
    return shop_of(vhost, bare_channel)


@pytest.fixture
def orders_file(tmp_path: Path) -> str:
    """ORDERS_FILE, as a file."""
    path = tmp_path / "topology.toml"
    path.write_text(ORDERS_FILE)
    return str(path)
