"""The publisher goes on over a new connection: nothing is lost, and what is repeated is bounded and counted."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
from publishing_support import Consumed, bodies_with, through

from rabbit_chx.errors import AccessRefusedError, NotFoundError, PublishError
from rabbit_chx.publishing import Publisher

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
