"""The publisher and connections that cannot be opened, end, or stall."""

from __future__ import annotations

import itertools
import re
import time
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest
from exchange_types import CHX, FANOUT
from pika.adapters.blocking_connection import BlockingChannel
from publishing_support import Consumed, through

from rabbit_chx.broker.management import Management
from rabbit_chx.connection.ledger import Ledger
from rabbit_chx.connection.session import Session
from rabbit_chx.errors import (
    AccessRefusedError,
    BrokerTimeoutError,
    ConnectionLostError,
    NotFoundError,
    PublishError,
    UnreachableError,
)
from rabbit_chx.publishing import Publisher
from rabbit_chx.publishing.delivery import Delivery
from rabbit_chx.testing import RunningBroker

pytestmark = pytest.mark.broker


@pytest.mark.parametrize("method", ["receive", "send"])
def test_an_interruption_is_no_confirm(
    channel: BlockingChannel, vhost_url: str, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    """Ctrl-C at a given moment: scripted, since real signals hit where they like."""
    channel.exchange_declare("unbound", CHX)
    with Publisher(vhost_url, "unbound") as publisher:
        connection: Any = publisher._connection
        transport = connection._transport
        original = getattr(transport, method)
        calls = itertools.count()

        def interrupted(*args: Any, **options: Any) -> Any:
            result = original(*args, **options)
            if next(calls) == 2:
                raise KeyboardInterrupt
            return result

        monkeypatch.setattr(transport, method, interrupted)
        with pytest.raises(KeyboardInterrupt):
            publisher.publish_many([str(i) for i in range(20_000)], ["b"] * 20_000)
        with pytest.raises(PublishError, match="given up after an interruption") as caught:
            publisher.flush()
        report = caught.value.report
        assert report.confirmed == 0
        assert report.confirmed + report.returned + report.nacked + report.unknown == report.rows


@pytest.mark.parametrize(
    ("owner", "name"),
    [(Delivery, "_has_room"), (Session, "publish"), (Ledger, "enter")],
    ids=["not counted", "counted", "sending"],
)
def test_whatever_a_signal_handler_raises_is_no_confirm(
    channel: BlockingChannel, vhost_url: str, monkeypatch: pytest.MonkeyPatch, owner: type, name: str
) -> None:
    """A time limit at a given moment: scripted, since real signals hit where they like."""

    class TimeLimitError(Exception):
        pass

    channel.exchange_declare("fan", FANOUT)
    channel.queue_declare("q", exclusive=True)
    channel.queue_bind("q", "fan")
    original = getattr(owner, name)
    calls = itertools.count()

    def limited(*args: Any) -> Any:
        if next(calls) == 2:
            raise TimeLimitError
        return original(*args)

    monkeypatch.setattr(owner, name, limited)
    with Publisher(vhost_url, "fan") as publisher:
        with pytest.raises(TimeLimitError):
            publisher.publish_many(["k"] * 5_000, ["b"] * 5_000)
        with pytest.raises(
            PublishError, match=r"given up after an interruption \(TimeLimitError\)"
        ) as caught:
            publisher.publish_many(["k"], ["b"])  # what was sent before may be confirmed to the last row
    report = caught.value.report
    assert report.confirmed + report.unknown == report.rows


@pytest.mark.parametrize(
    ("change", "kind", "message"),
    [
        (("guest:guest@", "guest:wrong-secret@"), AccessRefusedError, "403 ACCESS_REFUSED.*check user name"),
        ((r"/rabbit_chx-\w+", "/nowhere"), NotFoundError, "vhost nowhere not found: check the vhost"),
        ((r":\d+/", ":1/"), UnreachableError, "nobody answers there.*check host and port"),
        ((r"@[^:]+:", "@no-such-host.invalid:"), UnreachableError, "host name cannot be resolved"),
    ],
)
def test_no_way_in(vhost_url: str, change: tuple[str, str], kind: type[Exception], message: str) -> None:
    started = time.monotonic()
    with pytest.raises(kind, match=message) as caught:
        Publisher(re.sub(*change, vhost_url), "x")
    assert time.monotonic() - started < 10
    assert "secret" not in str(caught.value)
    assert "guest@" not in str(caught.value)


def test_another_port_of_the_broker(broker: RunningBroker) -> None:
    assert broker.management_url is not None
    port = urlsplit(broker.management_url).port
    with pytest.raises(
        UnreachableError, match=r"is AMQP 0-9-1 spoken there\? Check the port; .* TLS needs amqps://"
    ):
        Publisher(f"amqp://guest:guest@127.0.0.1:{port}/?connection_timeout=20000", "x")


def test_a_listener_that_says_nothing(vhost_url: str, proxy: Callable[[], Any]) -> None:
    silent = proxy()
    silent.freeze()
    with pytest.raises(BrokerTimeoutError, match="did not finish the AMQP handshake within 1 s"):
        Publisher(through(vhost_url, silent.port) + "?connection_timeout=1000", "x")


def test_a_lost_connection_says_how_much_is_confirmed(
    consumed: Consumed, vhost_url: str, proxy: Callable[[], Any]
) -> None:
    way = proxy()

    def bodies() -> Iterator[str]:
        for i in itertools.count():
            if i == 20_000:
                way.cut()
            yield str(i)

    with Publisher(through(vhost_url, way.port), "x", max_reconnects=0) as publisher:
        with pytest.raises(PublishError, match="the connection was lost") as caught:
            publisher.publish_many(itertools.repeat("k"), bodies())
        with pytest.raises(PublishError, match="the connection was lost"):
            publisher.publish_many(["k"], ["b"])
    assert isinstance(caught.value.__cause__, ConnectionLostError)
    report = caught.value.report
    assert report.confirmed + report.unknown == report.rows
    assert report.unknown <= 1_000
    there = len(consumed())
    assert report.confirmed <= there <= report.rows


def test_a_connection_closed_by_an_operator(
    channel: BlockingChannel, broker: RunningBroker, vhost_url: str
) -> None:
    if broker.management_url is None:
        pytest.fail("this needs the management plugin")
    management = Management(broker.management_url)
    with Publisher(vhost_url, "x", connection_name="to be closed", max_reconnects=0) as publisher:
        publisher.publish_many(["k"], ["b"])
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:  # the list lags some seconds behind
            for connection in management.request("GET", "connections"):
                if connection.get("user_provided_name") == "to be closed":
                    management.request("DELETE", "connections", connection["name"])
                    deadline = 0
            time.sleep(0.2)
        with pytest.raises(PublishError, match="320 CONNECTION_FORCED"):
            publisher.publish_many(["k"] * 1_000_000, ["b"] * 1_000_000)
    assert channel.is_open


def test_heartbeats_go_on_while_the_input_stalls(consumed: Consumed, vhost_url: str) -> None:
    def bodies() -> Iterator[str]:
        yield "before"
        time.sleep(5)  # the broker gives up after three intervals without a sign of life
        yield "after"

    with Publisher(vhost_url + "?heartbeat=1", "x", max_in_flight=1) as publisher:
        assert publisher.publish_many(["k", "k"], bodies()).confirmed == 2
    assert len(consumed()) == 2


def test_a_broker_that_falls_silent_is_noticed(
    consumed: Consumed, vhost_url: str, proxy: Callable[[], Any]
) -> None:
    way = proxy()
    with Publisher(through(vhost_url, way.port) + "?heartbeat=1", "x", max_reconnects=0) as publisher:
        publisher.publish_many(["k"], ["b"])
        way.freeze()
        with pytest.raises(PublishError, match="not even a heartbeat"):
            publisher.publish_many(["k"], ["b"])
    assert len(consumed()) == 1


def test_confirms_that_do_not_come(consumed: Consumed, vhost_url: str, proxy: Callable[[], Any]) -> None:
    way = proxy()
    with Publisher(
        through(vhost_url, way.port) + "?heartbeat=0", "x", confirm_timeout_s=1, max_reconnects=0
    ) as publisher:
        way.freeze()
        with pytest.raises(
            PublishError, match="has answered nothing for 1 s, and 3 messages are unconfirmed"
        ) as caught:
            publisher.publish_many(["k"] * 3, ["b"] * 3)
    assert caught.value.report.unknown == 3
    assert not consumed()
