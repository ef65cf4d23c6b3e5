"""Messages that the broker refuses by closing the channel, and what each publisher reports."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest
from bounded import until
from pika.adapters.blocking_connection import BlockingChannel
from pika.exchange_type import ExchangeType
from taken import taken
from tcp_proxy import Proxy

from rabbit_chx.amqp import ConnectionSettings
from rabbit_chx.errors import (
    AccessRefusedError,
    ChannelClosedError,
    NotFoundError,
    PublishError,
    UnknownOutcomeError,
    UnroutableError,
)
from rabbit_chx.publishing import Limits, Publisher, Retries, SharedPublisher

pytestmark = pytest.mark.broker

WINDOW = Limits(max_in_flight=100)


def make_internal(channel: BlockingChannel) -> None:
    """Let nobody publish to the exchange."""
    channel.exchange_delete("rows")
    channel.exchange_declare("rows", ExchangeType("fanout"), internal=True)


def count(channel: BlockingChannel) -> int:
    """Return the messages in the queue."""
    return channel.queue_declare("rows", passive=True).method.message_count or 0


@pytest.mark.parametrize(
    ("fault", "code", "kind"),
    [
        ("missing exchange", 404, NotFoundError),
        ("internal exchange", 403, AccessRefusedError),
        ("too large", 406, ChannelClosedError),
        ("user id", 406, ChannelClosedError),
        ("decimal into a stream", 541, ChannelClosedError),
    ],
)
def test_a_row_that_closes_its_channel_is_named_and_all_others_are_stored(
    channel: BlockingChannel, vhost_url: str, fault: str, code: int, kind: type[Exception]
) -> None:
    rows, poison = 300, {0, 170, 299}
    channel.exchange_declare("internal", ExchangeType("fanout"), internal=True)
    channel.exchange_declare("rows", ExchangeType("fanout"))
    channel.queue_declare("rows", durable=True)
    channel.queue_bind("rows", "rows")
    bodies = [b"%d" % row for row in range(rows)]
    special: dict[str, Any] = {}
    if fault.endswith(" exchange"):
        special["exchange"] = fault.removesuffix(" exchange")
    elif fault == "too large":
        poison = {170}
        bodies[170] = bytes(140 << 20)  # the limit is 128 MiB before 4.0, and then 16 MiB
    elif fault == "user id":
        special["user_id"] = "nobody"
    else:
        channel.queue_declare("stream", durable=True, arguments={"x-queue-type": "stream"})
        channel.queue_bind("stream", "rows")
        special["headers"] = {"x": Decimal("1.25")}

    def copies() -> Counter[int]:
        return Counter(int(body) for _, _, body in taken(channel, "rows"))

    columns: Any = {
        name: [value if row in poison else None for row in range(rows)] for name, value in special.items()
    }
    exchanges = columns.pop("exchange", None)
    with (
        pytest.raises(PublishError, match=f"row {min(poison)} .*{code}") as caught,
        Publisher(vhost_url, "rows", retries=Retries(backoff_s=0.1), limits=WINDOW) as publisher,
    ):
        publisher.publish_many(["k"] * rows, bodies, properties=columns or None, exchanges=exchanges)
    report = caught.value.report
    assert isinstance(caught.value.__cause__, kind)
    assert caught.value.reply_code == code
    assert caught.value.exchange == special.get("exchange", "rows")
    assert "raise max_message_size" in str(caught.value) or fault != "too large"
    assert (report.rows, report.confirmed, report.nacked) == (rows, rows - len(poison), len(poison))
    found = copies()
    assert found.keys() | poison == set(range(rows))
    assert found.total() <= rows + report.republished
    assert max(found[row] for row in found.keys() - poison) <= 1 + len(poison)

    with SharedPublisher(vhost_url, "rows", limits=Limits(max_in_flight_bytes=1 << 30)) as shared:
        futures = [
            shared.submit("k", body, **(special if row in poison else {})) for row, body in enumerate(bodies)
        ]
        errors = {row: error for row, future in enumerate(futures) if (error := future.exception(60))}
        stats = shared.stats()
    assert errors.keys() == poison
    for error in errors.values():
        assert isinstance(error, kind)
        assert error.reply_code == code  # type: ignore[attr-defined]
    assert (stats.confirmed, stats.nacked) == (rows - len(poison), len(poison))
    assert copies().keys() >= set(range(rows)) - poison


CHANGES: dict[str, tuple[Callable[[BlockingChannel], object], type[Exception]]] = {
    "deleted": (lambda channel: channel.exchange_delete("rows"), NotFoundError),
    "unbound": (lambda channel: channel.queue_unbind("rows", "rows"), UnroutableError),
    "internal": (make_internal, AccessRefusedError),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_stored_message_whose_confirm_was_lost_is_in_doubt_whatever_becomes_of_its_next_copy(
    channel: BlockingChannel, vhost_url: str, proxy: Proxy, change: str
) -> None:
    rows = 50
    alter, refusal = CHANGES[change]
    target = replace(ConnectionSettings.from_uri(vhost_url), port=proxy.port)

    def lose_confirms(first: int) -> None:
        """Cut the line once the queue has all rows, and alter the exchange."""
        until(lambda: count(channel) == first + rows, "the broker has them")
        proxy.refuse()
        proxy.cut()
        alter(channel)
        proxy.to_client.held = False
        proxy.accept()

    def prepare() -> None:
        channel.exchange_delete("rows")
        channel.exchange_declare("rows", ExchangeType("fanout"))
        channel.queue_declare("rows", durable=True)
        channel.queue_purge("rows")
        channel.queue_bind("rows", "rows")

    prepare()
    with SharedPublisher(target, "rows", retries=Retries(backoff_s=0.1)) as shared:
        shared.submit("k", "warm").result(60)
        proxy.to_client.held = True
        futures = [shared.submit("k", str(row)) for row in range(rows)]
        lose_confirms(1)
        errors = [future.exception(60) for future in futures]
        stats = shared.stats()
    assert {type(error) for error in errors} == {UnknownOutcomeError}
    assert {type(error.__cause__) for error in errors if error} == {refusal}
    assert (stats.unknown, stats.returned, stats.nacked) == (rows, 0, 0)

    prepare()
    with Publisher(target, "rows", retries=Retries(backoff_s=0.1)) as publisher:
        proxy.to_client.held = True
        publisher.send(["k"] * rows, [str(row) for row in range(rows)])
        lose_confirms(0)
        with pytest.raises(PublishError) as caught:
            publisher.flush()
    report = caught.value.report
    assert (report.unknown, report.returned, report.nacked) == (rows, 0, 0)
    assert report.rows_failed == tuple(range(rows))
    assert "no queue has them" not in str(caught.value)
    if change == "unbound":
        assert isinstance(caught.value.__cause__, UnknownOutcomeError)
        assert isinstance(caught.value.__cause__.__cause__, UnroutableError)
