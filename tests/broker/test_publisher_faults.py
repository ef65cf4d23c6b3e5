"""The publisher and connections that cannot be opened, end, or stall."""

from __future__ import annotations

import itertools
import re
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from exchange_types import CHX
from pika.adapters.blocking_connection import BlockingChannel
from publishing_support import Consumed, through

from rabbit_chx.errors import (
    AccessRefusedError,
    ConnectionLostError,
    NotFoundError,
    PublishError,
    UnreachableError,
)
from rabbit_chx.publishing import Publisher, Retries

pytestmark = pytest.mark.broker


@pytest.mark.parametrize("method", ["receive", "send"])
def test_an_interruption_is_not_a_confirm(
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
    ("change", "kind", "message"),
    [
        (("guest:guest@", "guest:wrong-secret@"), AccessRefusedError, "403 ACCESS_REFUSED.*check user name"),
        ((r"/rabbit_chx-\w+", "/nowhere"), NotFoundError, "vhost nowhere not found: check the vhost"),
        ((r":\d+/", ":1/"), UnreachableError, "no server answers there.*check host and port"),
        ((r"@[^:]+:", "@no-such-host.invalid:"), UnreachableError, "host name cannot be resolved"),
    ],
)
def test_a_broker_that_cannot_be_reached_is_an_error_without_the_password(
    vhost_url: str, change: tuple[str, str], kind: type[Exception], message: str
) -> None:
    started = time.monotonic()
    with pytest.raises(kind, match=message) as caught:
        Publisher(re.sub(*change, vhost_url), "x")
    assert time.monotonic() - started < 10
    assert "secret" not in str(caught.value)
    assert "guest@" not in str(caught.value)


def test_a_lost_connection_reports_how_much_is_confirmed(
    consumed: Consumed, vhost_url: str, proxy: Callable[[], Any]
) -> None:
    way = proxy()

    def bodies() -> Iterator[str]:
        for i in itertools.count():
            if i == 20_000:
                way.cut()
            yield str(i)

    with Publisher(through(vhost_url, way.port), "x", retries=Retries(max_reconnects=0)) as publisher:
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
