"""Fixtures of the tests that need a real broker."""

from __future__ import annotations

import contextlib
import json
import select
import socket
import ssl
import struct
import threading
import time
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pika
import pytest
from both_brokers import BOTH_BROKERS
from checked_orders import ORDERS_FILE, declare_orders, shop_of
from quick_rings import quick_prefix
from shop import Shop, declare
from topology_commands import Topologies

from rabbit_chx.amqp import ConnectionSettings
from rabbit_chx.broker import Broker, pika_parameters
from rabbit_chx.broker.management import Management
from rabbit_chx.cli import main

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from rabbit_chx.testing import RunningBroker

_CHUNK = 65_536
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)


class Proxy:
    """Forwards one address of 127.0.0.1 to a broker, connection by connection, over real sockets."""

    def __init__(self, url: str, tls: ssl.SSLContext | None, bytes_per_s: int) -> None:
        parts = urlsplit(url)
        self._target = (parts.hostname or "", parts.port or 5672)
        self._tls = tls
        self._pause_s = _CHUNK / bytes_per_s if bytes_per_s else 0.0
        self._listener = socket.create_server(("127.0.0.1", 0))
        if bytes_per_s:  # a slow line holds little
            self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _CHUNK)
        self._sockets: list[socket.socket] = []
        self._frozen = threading.Event()
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with contextlib.suppress(
            OSError, ValueError
        ):  # a socket that `cut` has closed has no number any more
            if self._tls:
                client = self._tls.wrap_socket(client, server_side=True)
            server = socket.create_connection(self._target)
            self._sockets += [client, server]
            with client, server:
                while self._forwarded(client, server):
                    pass

    def _forwarded(self, client: socket.socket, server: socket.socket) -> bool:
        """Pass on what has come; False once a side is closed. One thread, since TLS is not for two at a time."""
        decoded = isinstance(client, ssl.SSLSocket) and client.pending()
        readable = [client] if decoded else select.select([client, server], [], [])[0]
        for source in readable:
            data = source.recv(_CHUNK)
            if source is client:
                time.sleep(self._pause_s)
            if not self._frozen.is_set():
                sink = server if source is client else client
                sink.sendall(data)
            if not data:
                return False
        return True

    def cut(self) -> None:
        """Reset every connection, as a crash or a firewall does."""
        for one in self._sockets:
            with contextlib.suppress(OSError):
                one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def freeze(self) -> None:
        """Let nothing through any more, and say nothing of it."""
        self._frozen.set()

    def close(self) -> None:
        """Accept nobody any more, and cut who is there."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # or the accept that waits would still take one
        self._listener.close()
        self.cut()


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
    for one in made:
        one.close()


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


@pytest.fixture(params=BOTH_BROKERS)
def live(vhost: RunningBroker, request: pytest.FixtureRequest) -> Iterator[Broker]:
    """A `Broker`, then an `AsyncBroker`, on the test's vhost, which reads the true rings."""
    with request.param(vhost.url, ring_source=quick_prefix(vhost)) as live:
        yield live


@pytest.fixture
def topologies(shop: Shop, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Topologies:
    """The commands, on the shop."""
    return Topologies(shop, tmp_path / "topology.toml", capsys)


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
