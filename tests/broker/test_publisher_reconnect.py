"""The publisher goes on over a new connection: nothing is lost, and what is repeated is bounded and counted."""

from __future__ import annotations

import contextlib
import itertools
import socket
import sys
from collections.abc import Callable
from typing import Any

import pytest
from publishing_support import Consumed, bodies_with, through

from rabbit_chx.errors import AccessRefusedError, NotFoundError, PublishError
from rabbit_chx.publishing import Publisher, Retries

pytestmark = pytest.mark.broker

ROWS = 12_000


def test_the_first_url_is_dead(consumed: Consumed, vhost_url: str) -> None:
    with Publisher([through(vhost_url, 1), vhost_url], "x") as publisher:
        report = publisher.publish_many(["k"], ["b"])
    assert (report.confirmed, report.reconnects) == (1, 0)
    assert len(consumed()) == 1
    with pytest.raises(ConnectionError, match=r"no server answers there.*; .*no server answers there"):
        Publisher([through(vhost_url, 1), through(vhost_url, 2)], "x")


@pytest.mark.parametrize(
    ("exchange", "change", "kind"),
    [("nope", "guest:guest@", NotFoundError), ("x", "guest:wrong@", AccessRefusedError)],
)
@pytest.mark.usefixtures("channel")
def test_a_fault_that_no_connection_cures_ends_the_publishing(
    vhost_url: str, proxy: Callable[[], Any], exchange: str, change: str, kind: type[Exception]
) -> None:
    way = proxy()
    first = through(vhost_url, way.port)
    second = first.replace("guest:guest@", change)
    with Publisher([first, second], exchange, retries=Retries(backoff_s=0.05)) as publisher:
        with pytest.raises(PublishError) as caught:
            publisher.publish_many(itertools.repeat("k", ROWS), bodies_with({2_000: way.cut}, ROWS))
        assert isinstance(caught.value.__cause__, kind)
    report = caught.value.report
    assert report.confirmed + report.unknown == report.rows


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere, only 127.0.0.1 is this machine")
def test_an_address_that_swallows_packets_leaves_time_for_the_next(
    consumed: Consumed, vhost_url: str, proxy: Callable[[], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    port = proxy().port
    resolve = socket.getaddrinfo

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
