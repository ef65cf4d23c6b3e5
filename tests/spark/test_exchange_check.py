"""What is looked at before the first message of a write, at a real broker."""

from __future__ import annotations

import pytest
from exchange_types import CHX, FANOUT
from pika.adapters.blocking_connection import BlockingChannel

from rabbit_chx import errors
from rabbit_chx.amqp import ConnectionSettings
from spark_connector.options.write_options import WriteOptions
from spark_connector.writing.preflight import check_broker, inspect_exchange

pytestmark = pytest.mark.broker


def test_an_exchange_is_inspected_without_a_change(channel: BlockingChannel, vhost_url: str) -> None:
    settings = ConnectionSettings.from_uri(vhost_url)
    channel.exchange_declare("hashing", CHX, arguments={"hash-header": "h"}, auto_delete=True)
    channel.exchange_declare("(ä)", CHX, durable=True, arguments={"alternate-exchange": "amq.fanout"})
    plain = "x-consistent-hash", False
    assert inspect_exchange(settings, "x") == inspect_exchange(settings, "hashing") == plain
    assert inspect_exchange(settings, "(ä)")[1]
    channel.exchange_declare("other", FANOUT, durable=True, arguments={"alternate-exchange": "amq.topic"})
    assert inspect_exchange(settings, "other") == ("fanout", True)
    assert inspect_exchange(settings, "amq.topic")[0] == "topic"
    for _ in range(2):  # the first look has not made it
        with pytest.raises(errors.NotFoundError, match="exchange 'nope' does not exist"):
            inspect_exchange(settings, "nope")


@pytest.mark.usefixtures("channel")
def test_an_exchange_of_another_type_is_refused_where_an_option_needs_a_hash_exchange(vhost_url: str) -> None:
    def check(url: str = vhost_url, exchange: str = "amq.topic", **more: str) -> tuple[str, ...]:
        return check_broker(WriteOptions.parse({"url": url, "exchange": exchange, **more}))

    assert (
        check() == check(exchange="x", ordering="per-key") == check(exchange="nope", preflight="false") == ()
    )
    for name, value in {"routing": "client", "ringVia": "docker exec x", "ordering": "per-key"}.items():
        words = f"'amq.topic' is of type topic, and option '{name}' needs x-consistent-hash"
        with pytest.raises(errors.MismatchError, match=words):
            check(**{name: value})
    dead = "amqp://127.0.0.1:1"
    assert check(f"{dead},{vhost_url}") == ()  # one address that answers is enough
    with pytest.raises(errors.UnreachableError, match="no server answers there"):
        check(dead)
