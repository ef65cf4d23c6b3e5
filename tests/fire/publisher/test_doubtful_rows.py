"""Messages that a queue has, and whose confirms are lost; their next copies are refused. Nobody is told that no queue has them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace

import pytest
from bounded import until
from delivery_checker import Attempt, History, Judge
from pika.adapters.blocking_connection import BlockingChannel
from pika.exchange_type import ExchangeType
from taken import taken
from tcp_proxy import Proxy

from rabbit_chx.amqp import ConnectionSettings
from rabbit_chx.errors import PublishError, UnknownOutcomeError
from rabbit_chx.publishing import Publisher, Retries, SharedPublisher

pytestmark = pytest.mark.broker

ROWS = 200
QUICKLY = Retries(backoff_s=0.1)


@pytest.fixture
def line(vhost_url: str) -> Iterator[Proxy]:
    """A line to the AMQP port."""
    with closing(Proxy(vhost_url)) as made:
        yield made


def make_internal(channel: BlockingChannel) -> None:
    """Let nobody publish to the exchange."""
    channel.exchange_delete("rows")
    channel.exchange_declare("rows", ExchangeType("fanout"), internal=True)


CHANGES: dict[str, Callable[[BlockingChannel], object]] = {
    "deleted": lambda channel: channel.exchange_delete("rows"),
    "unbound": lambda channel: channel.queue_unbind("rows", "rows"),
    "made internal": make_internal,
}


@pytest.mark.parametrize("kind", [Publisher, SharedPublisher])
@pytest.mark.parametrize("change", CHANGES)
def test_rows_whose_confirms_are_lost_are_in_doubt_whatever_becomes_of_their_next_copies(
    *,
    channel: BlockingChannel,
    vhost_url: str,
    line: Proxy,
    change: str,
    kind: type[Publisher | SharedPublisher],
    record: Judge,
) -> None:
    channel.exchange_declare("rows", ExchangeType("fanout"))
    channel.queue_declare("rows", durable=True)
    channel.queue_bind("rows", "rows")
    target = replace(ConnectionSettings.from_uri(vhost_url), port=line.port)

    def lose_confirms() -> None:
        until(
            lambda: channel.queue_declare("rows", passive=True).method.message_count == ROWS,
            "the broker has them",
        )
        line.refuse()
        line.cut()
        CHANGES[change](channel)
        line.to_client.held = False
        line.accept()

    keys, bodies = ["k"] * ROWS, [str(row) for row in range(ROWS)]
    if kind is SharedPublisher:
        with SharedPublisher(target, "rows", retries=QUICKLY) as shared:
            until(shared.healthy, "it has connected")
            line.to_client.held = True
            futures = [shared.submit(key, body) for key, body in zip(keys, bodies, strict=True)]
            lose_confirms()
            assert {type(future.exception(60)) for future in futures} == {UnknownOutcomeError}
            counts = shared.stats()
    else:
        with Publisher(target, "rows", retries=QUICKLY) as publisher:
            line.to_client.held = True
            publisher.send(keys, bodies)
            lose_confirms()
            with pytest.raises(PublishError) as caught:
                publisher.flush()
        counts = caught.value.report
    assert (counts.unknown, counts.returned, counts.nacked) == (ROWS, 0, 0)
    found = [int(body) for _, _, body in taken(channel, "rows")]
    record(
        History([Attempt(row, "k") for row in range(ROWS)], (), {"rows": found}),
        path="Publisher",
        fault=f"{kind.__name__}: confirms lost with the connection, and the exchange {change} before it is back",
        promise="UnknownOutcomeError, and the rows count as unknown: no row is said to be in no queue.",
        outcome="UnknownOutcomeError",
    )
