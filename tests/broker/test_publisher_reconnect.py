"""The publisher goes on over a new connection: nothing is lost, and what is repeated is bounded and counted."""

from __future__ import annotations

import itertools
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from exchange_types import CHX
from pika.adapters.blocking_connection import BlockingChannel
from publishing_support import Consumed, bodies_with, through

from rabbit_chx.connection.blocking_connection import Connection
from rabbit_chx.errors import AccessRefusedError, ConnectionLostError, NotFoundError, PublishError
from rabbit_chx.publishing import Publisher, PublishReport

pytestmark = pytest.mark.broker

ROWS = 12_000
WINDOW = 1_000


def check_all_there(found: list[Any], report: PublishReport) -> None:
    """Every row is there; what is there twice was republished."""
    times = Counter(int(m.body) for m in found)
    assert set(times) == set(range(report.rows))
    assert report.confirmed == report.rows
    repeated = len(found) - report.rows
    assert 0 <= repeated <= report.republished <= WINDOW * report.reconnects


def test_a_broker_that_falls_silent_is_left(
    consumed: Consumed, vhost_url: str, proxy: Callable[[], Any]
) -> None:
    silent, other = proxy(), proxy()
    urls = [through(vhost_url, way.port) + "?heartbeat=1" for way in (silent, other)]
    with Publisher(urls, "x", backoff_s=0.05) as publisher:
        report = publisher.publish_many(
            [str(i) for i in range(ROWS)], bodies_with({3_000: silent.freeze}, ROWS)
        )
    check_all_there(consumed(), report)
    assert report.reconnects == 1


def test_confirms_that_stall_once_and_for_good(
    consumed: Consumed, vhost_url: str, proxy: Callable[[], Any]
) -> None:
    silent, other, last = proxy(), proxy(), proxy()
    urls = [through(vhost_url, way.port) + "?heartbeat=0" for way in (silent, other)]
    with Publisher(urls, "x", backoff_s=0.05, confirm_timeout_s=1) as publisher:
        report = publisher.publish_many(
            [str(i) for i in range(ROWS)], bodies_with({3_000: silent.freeze}, ROWS)
        )
        check_all_there(consumed(), report)
    deaf = through(vhost_url, last.port) + "?heartbeat=0&connection_timeout=1000"
    with Publisher(deaf, "x", backoff_s=0.05, confirm_timeout_s=1, max_reconnects=3) as publisher:
        last.freeze()
        with pytest.raises(PublishError, match="gave up after 3 attempts to connect") as caught:
            publisher.publish_many(["k"] * 10, ["b"] * 10)
    assert caught.value.report.unknown == 10


def test_the_first_url_is_dead(consumed: Consumed, vhost_url: str) -> None:
    with Publisher([through(vhost_url, 1), vhost_url], "x") as publisher:
        report = publisher.publish_many(["k"], ["b"])
    assert (report.confirmed, report.reconnects) == (1, 0)
    assert len(consumed()) == 1
    with pytest.raises(ConnectionError, match=r"nobody answers there.*; .*nobody answers there"):
        Publisher([through(vhost_url, 1), through(vhost_url, 2)], "x")


def test_it_gives_up_after_some_attempts(
    consumed: Consumed, vhost_url: str, proxy: Callable[[], Any]
) -> None:
    way = proxy()
    started = time.monotonic()
    with Publisher(through(vhost_url, way.port), "x", backoff_s=0.05, max_reconnects=2) as publisher:
        lost = pytest.raises(
            PublishError, match=r"connection was lost.*gave up after 2 attempts to connect.*nobody answers"
        )
        with lost as caught:
            publisher.publish_many(itertools.repeat("k", ROWS), bodies_with({4_000: way.close}, ROWS))
        with pytest.raises(PublishError, match="gave up after 2 attempts"):
            publisher.publish_many(["k"], ["b"])
    assert time.monotonic() - started < 30
    report = caught.value.report
    assert isinstance(caught.value.__cause__, ConnectionLostError)
    assert report.confirmed + report.unknown == report.rows
    assert report.confirmed <= len(consumed()) <= report.rows


def test_a_return_whose_ack_is_lost_is_no_confirm(
    channel: BlockingChannel, vhost_url: str, proxy: Callable[[], Any]
) -> None:
    way = proxy()
    channel.exchange_declare("unbound", CHX)
    with Publisher(
        through(vhost_url, way.port), "unbound", backoff_s=0.05, on_unroutable="report"
    ) as publisher:
        cuts = dict.fromkeys(range(1_000, ROWS, 2_000), way.cut)
        report = publisher.publish_many(itertools.repeat("k", ROWS), bodies_with(cuts, ROWS))
    assert (report.rows, report.confirmed, report.returned) == (ROWS, 0, ROWS)
    assert report.reconnects > 0


@pytest.mark.parametrize(
    ("exchange", "change", "kind"),
    [("nope", "guest:guest@", NotFoundError), ("x", "guest:wrong@", AccessRefusedError)],
)
@pytest.mark.usefixtures("channel")
def test_what_no_new_connection_cures(
    vhost_url: str, proxy: Callable[[], Any], exchange: str, change: str, kind: type[Exception]
) -> None:
    way = proxy()
    first = through(vhost_url, way.port)
    second = first.replace("guest:guest@", change)
    with Publisher([first, second], exchange, backoff_s=0.05) as publisher:
        with pytest.raises(PublishError) as caught:
            publisher.publish_many(itertools.repeat("k", ROWS), bodies_with({2_000: way.cut}, ROWS))
        assert isinstance(caught.value.__cause__, kind)
    report = caught.value.report
    assert report.confirmed + report.unknown == report.rows


def test_close_during_a_reconnect_leaves_no_connection(
    consumed: Consumed, vhost_url: str, proxy: Callable[[], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a signal's handler would close it."""
    way = proxy()
    opened: list[Connection] = []

    def open_and_close(*args: Any) -> Connection:
        opened.append(Connection(*args))
        publisher.close()
        return opened[-1]

    with Publisher(through(vhost_url, way.port), "x", backoff_s=0) as publisher:
        publisher.publish_many(["k"], ["before"])
        monkeypatch.setattr("rabbit_chx.publishing.publisher.Connection", open_and_close)
        way.cut()
        with pytest.raises(PublishError, match="the connection is closed"):
            publisher.publish_many(["k"], ["after"])
    assert [connection._closed.is_set() for connection in opened] == [True]
    assert [m.body for m in consumed()] == [b"before"]
