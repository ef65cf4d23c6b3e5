"""Fixtures of the tests that need a real broker."""

from __future__ import annotations

import json
import ssl
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pika
import pytest
from changed_site import ChangedSite, changed_site
from checked_orders import ORDERS_FILE, declare_orders, shop_of
from few_seeds import few_seeds
from quick_rings import quick_prefix
from shop import Shop, declare
from streamed import Streamed
from tcp_proxy import Proxy
from topology_commands import Topologies

from rabbit_chx.amqp import ConnectionSettings
from rabbit_chx.broker import Broker, pika_parameters
from rabbit_chx.broker.management import Management
from rabbit_chx.cli import main
from rabbit_chx.streams.connection import StreamConnection
from rabbit_chx.streams.nodes import stream_settings
from rabbit_chx.testing import RunningBroker


@pytest.fixture
def proxy(vhost_url: str) -> Iterator[Callable[..., Proxy]]:
    """Makes proxies to the test's vhost.

    ``proxy(tls=context)`` makes one that speaks TLS, ``proxy(bytes_per_s=100_000)`` a line that is slow to the broker.
    """
    made: list[Proxy] = []

    def make(tls: ssl.SSLContext | None = None, bytes_per_s: int = 0) -> Proxy:
        made.append(Proxy(vhost_url, tls, bytes_per_s))
        return made[-1]

    yield make
    for proxy_ in made:
        proxy_.close()


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
    proxy = Proxy(vhost.stream_url)
    yield proxy
    proxy.close()


@pytest.fixture
def shop(vhost: RunningBroker) -> Iterator[Shop]:
    """A vhost with the exchange `orders`, whose ring is known."""
    assert vhost.management_url is not None, "these tests need RABBIT_CHX_TEST_MANAGEMENT_URL"
    with pika.BlockingConnection(pika_parameters(vhost.url)) as connection:
        channel = connection.channel()
        declare(channel, "orders")
        yield Shop(vhost, Management(vhost.management_url), ConnectionSettings.from_uri(vhost.url), channel)


@pytest.fixture
def answer(capsys: pytest.CaptureFixture[str]) -> Callable[..., Any]:
    """Runs a command with ``--output json``, expects an exit code, gives the document."""

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
def orders(vhost: RunningBroker) -> Iterator[Shop]:
    """A vhost with the exchange and the queues of ORDERS_FILE."""
    with pika.BlockingConnection(pika_parameters(f"{vhost.url}?heartbeat=0")) as connection:
        shop = shop_of(vhost, connection.channel())
        declare_orders(shop.channel)
        yield shop


@pytest.fixture
def orders_file(tmp_path: Path) -> str:
    """ORDERS_FILE, as a file."""
    path = tmp_path / "topology.toml"
    path.write_text(ORDERS_FILE)
    return str(path)
