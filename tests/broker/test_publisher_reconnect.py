"""An address of the publisher that does not answer: another one is tried. test_pika_connection.py has the errors."""

from __future__ import annotations

import contextlib
import socket
import sys
from typing import Any

import pytest
from publishing_support import Consumed, through
from tcp_proxy import Proxy

from rabbit_chx.publishing import Publisher

pytestmark = pytest.mark.broker


def test_the_first_url_is_dead(consumed: Consumed, vhost_url: str) -> None:
    with Publisher([through(vhost_url, 1), vhost_url], "x") as publisher:
        report = publisher.publish_many(["k"], ["b"])
    assert (report.confirmed, report.reconnects) == (1, 0)
    assert len(consumed()) == 1
    with pytest.raises(ConnectionError, match=r"no server answers there.*; .*no server answers there"):
        Publisher([through(vhost_url, 1), through(vhost_url, 2)], "x")


@pytest.mark.skipif(sys.platform != "linux", reason="on other systems only 127.0.0.1 is this machine")
def test_an_address_that_swallows_packets_leaves_time_for_the_next(
    consumed: Consumed, vhost_url: str, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    port, resolve = proxy.port, socket.getaddrinfo

    def two_addresses(host: str, *rest: Any, **options: Any) -> list[Any]:
        hosts = ("127.0.0.2", "127.0.0.1") if host == "two.test" else (host,)
        return [found for host in hosts for found in resolve(host, *rest, **options)]

    monkeypatch.setattr(socket, "getaddrinfo", two_addresses)
    url = f"{through(vhost_url, port).replace('127.0.0.1', 'two.test')}?connection_timeout=3000"
    with contextlib.ExitStack() as stack:
        stack.enter_context(socket.create_server(("127.0.0.2", port), backlog=0))
        for _ in range(4):  # its queue is full, so that it drops who comes next
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(("127.0.0.2", port))
        with Publisher(url, "x") as publisher:
            assert publisher.publish_many(["k"], ["b"]).confirmed == 1
    assert len(consumed()) == 1
