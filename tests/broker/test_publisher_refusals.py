"""Messages that the broker refuses (basic.nack), and how far a publisher tells that it is."""

from __future__ import annotations

import itertools
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any

import pika
import pytest
from exchange_types import CHX
from pika.adapters.blocking_connection import BlockingChannel
from pika.exchange_type import ExchangeType
from publishing_support import Consumed

from rabbit_chx.broker import pika_parameters
from rabbit_chx.errors import ChannelClosedError, NotFoundError, PublishError
from rabbit_chx.publishing import Limits, Publisher, PublishReport, Retries
from rabbit_chx.publishing import options as publish_options
from rabbit_chx.testing import RunningBroker
from rabbit_chx.testing.broker_search import release_is_in

pytestmark = pytest.mark.broker

ROWS = 3_000
WINDOW = Limits(max_in_flight=100)


@pytest.fixture
def narrow(channel: BlockingChannel) -> Callable[[], int]:
    """Declares an exchange `narrow` whose only queue refuses more than 10 messages; counts what is in it."""
    channel.exchange_declare("narrow", CHX)
    channel.queue_declare("full", arguments={"x-max-length": 10, "x-overflow": "reject-publish"})
    channel.queue_bind("full", "narrow", "1")
    return lambda: channel.queue_declare("full", passive=True).method.message_count or 0


@pytest.fixture
def drained(vhost_url: str, narrow: object) -> Iterator[list[bytes]]:
    """What somebody takes out of that queue meanwhile."""
    del narrow
    taken: list[bytes] = []
    over = threading.Event()

    def drain() -> None:
        with pika.BlockingConnection(pika_parameters(vhost_url)) as connection:
            coming: Any = connection.channel().consume("full", auto_ack=True, inactivity_timeout=0.05)
            for method, _, body in coming:
                if method is not None:
                    taken.append(body)
                if over.is_set() and method is None:
                    return

    thread = threading.Thread(target=drain)
    thread.start()
    yield taken
    over.set()
    thread.join(30)


def publish(
    url: Any,
    exchange: str,
    bodies: Any,
    keys: Any = None,
    *,
    properties: Any = None,
    exchanges: Any = None,
    **options: Any,
) -> PublishReport:
    """What the publisher reports."""
    columns = {"properties": properties, "exchanges": exchanges}
    keys = keys or itertools.repeat("k", ROWS)
    with Publisher(url, exchange, **options) as publisher:
        return publisher.publish_many(keys, bodies, **columns)


def test_refused_messages_are_sent_again(drained: list[bytes], vhost_url: str) -> None:
    bodies = [str(i) for i in range(ROWS)]
    report = publish(
        vhost_url, "narrow", bodies, retries=Retries(nack_retries=1_000, backoff_s=0.02), limits=WINDOW
    )
    assert (report.confirmed, report.nacked, report.republished) == (ROWS, 0, 0)
    deadline = time.monotonic() + 60
    while len(drained) < ROWS and time.monotonic() < deadline:
        time.sleep(0.05)
    assert sorted(map(int, drained)) == list(range(ROWS))


@pytest.mark.parametrize("options", [{"nack_retries": 0}, {"keep_order": True}, {"nack_retries": 2}], ids=str)
def test_what_is_refused_for_good(
    narrow: Callable[[], int],
    vhost_url: str,
    options: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(publish_options, "_LONGEST_BACKOFF_S", 60.0)
    backoff_s = 0.5 if options == {"nack_retries": 2} else 60.0
    started = time.monotonic()
    refused = pytest.raises(PublishError, match=r"rejected messages \(basic.nack\): a queue is full")
    with refused as caught:
        publish(vhost_url, "narrow", ["b"] * ROWS, retries=Retries(backoff_s=backoff_s, **options))
    waited = time.monotonic() - started
    report = caught.value.report
    assert report.confirmed == narrow()
    assert report.confirmed + report.nacked == report.rows < ROWS, "it stops where nothing is taken any more"
    if options == {"nack_retries": 2}:
        assert waited > 0.75
    else:
        assert waited < backoff_s / 2, "it waits, although it does not try again"


@pytest.mark.parametrize(
    ("fault", "code", "kinds"),
    [
        ("missing exchange", 404, NotFoundError),
        ("too large", 406, ChannelClosedError),
        ("user id", 406, ChannelClosedError),
        pytest.param(
            "decimal into a stream", 541, ChannelClosedError, marks=pytest.mark.chx_broker(">=3.9", "streams")
        ),
    ],
)
def test_a_row_that_closes_its_connection_is_named_and_all_others_are_stored(
    channel: BlockingChannel, vhost: RunningBroker, fault: str, code: int, kinds: type[Exception]
) -> None:
    vhost_url = vhost.url
    rows, poison = 300, {0, 170, 299}
    channel.exchange_declare("rows", ExchangeType("fanout"))
    channel.queue_declare("rows")
    channel.queue_bind("rows", "rows")
    bodies = [b"%d" % row for row in range(rows)]
    options: dict[str, Any] = {}
    if fault == "missing exchange":
        options["exchanges"] = ["gone" if row in poison else None for row in range(rows)]
    elif fault == "too large":
        poison = {170}
        bodies[170] += b" " + bytes(17_000_000)
    elif fault == "user id":
        options["properties"] = {"user_id": ["nobody" if row in poison else None for row in range(rows)]}
    else:
        channel.queue_declare("stream", durable=True, arguments={"x-queue-type": "stream"})
        channel.queue_bind("stream", "rows")
        poisoned: list[Any] = [{"x": Decimal("1.25")} if row in poison else None for row in range(rows)]
        options["properties"] = {"headers": poisoned}
    keys = [f"k{row}" for row in range(rows)]
    if fault == "too large" and release_is_in(
        vhost.version, "<4.0"
    ):  # the limit is 128 MiB there, and 16 MiB from 4.0 on
        assert publish(vhost_url, "rows", bodies, keys, limits=WINDOW).confirmed == rows
        return
    with pytest.raises(PublishError, match=f"row {min(poison)} .*{code}") as caught:
        publish(vhost_url, "rows", bodies, keys, retries=Retries(backoff_s=0.1), limits=WINDOW, **options)
    report = caught.value.report
    assert isinstance(caught.value.__cause__, kinds)
    assert caught.value.reply_code == code
    assert caught.value.exchange == ("gone" if fault == "missing exchange" else "rows")
    assert (report.rows, report.confirmed, report.nacked) == (rows, rows - len(poison), len(poison))
    got = [
        channel.basic_get("rows", auto_ack=True)
        for _ in range(channel.queue_declare("rows", passive=True).method.message_count or 0)
    ]
    copies = Counter(int(body.split()[0]) for _, _, body in got if body is not None)
    assert copies.keys() | poison == set(range(rows))
    assert sum(copies.values()) <= rows + report.republished
    assert max(copies[row] for row in copies.keys() - poison) <= 1 + len(poison)


def test_what_progress_raises_ends_the_call(consumed: Consumed, vhost_url: str) -> None:
    class StopHereError(Exception):
        pass

    asked_to_stop = True

    def stop(report: PublishReport) -> None:
        if report.confirmed and asked_to_stop:
            raise StopHereError

    with Publisher(vhost_url, "x", progress=stop) as publisher:
        with pytest.raises(StopHereError):
            publisher.publish_many(["k"] * 1_000_000, ["b"] * 1_000_000)
        asked_to_stop = False
        report = publisher.flush()
    assert report.confirmed == report.rows == len(consumed()) < 1_000_000
