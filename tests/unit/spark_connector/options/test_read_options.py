"""Options of reads of streams and of queues: every one is read, or refused: `refusals.txt`."""

from __future__ import annotations

import pickle
from datetime import UTC, datetime
from typing import Any

import pytest

from rabbit_chx import HashRing
from spark_connector.options.read_options import QueueOptions, ReadOptions

RING = HashRing.from_buckets(["s"]).to_json()
EXCHANGE = {"stream": "", "exchange": "x"}
SUPER_STREAM = {"stream": "", "superStream": "o"}
NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)


def parse(*, streaming: Any = False, **options: object) -> ReadOptions:
    texts = {"url": "rabbitmq-stream://ann@here/v", "stream": "s", **options}
    return ReadOptions.parse({name: str(text) for name, text in texts.items()}, streaming=streaming)


def test_what_is_not_given() -> None:
    given = parse()
    assert (given.streams, given.super_stream, given.exchange) == (("s",), None, None)
    assert (given.start, given.end, given.include) == (None, None, ())
    assert (given.fail_on_data_loss, given.min_partitions, given.timeout_s) == (True, None, 60.0)
    assert (given.push_filters, given.ring) == ("none", None)
    assert (given.filter_values, given.filter_match_unfiltered) == ((), False)
    assert parse(url="amqp://a:1111").brokers.addresses[0].port == 5552


@pytest.mark.parametrize(
    ("options", "attribute", "value"),
    [
        ({"stream": "a , b"}, "streams", ("a", "b")),
        ({"stream": "a,b"}, "source", "stream 'a', 'b'"),
        (SUPER_STREAM, "streams", ()),
        (SUPER_STREAM, "source", "super stream 'o'"),
        (EXCHANGE, "source", "exchange 'x'"),
        ({"pushFilters": "Exact"}, "push_filters", "exact"),
        ({**SUPER_STREAM, "pushFilters": "keys"}, "push_filters", "keys"),
        ({**EXCHANGE, "ring": RING, "pushFilters": "keys"}, "ring", HashRing.from_buckets(["s"])),
        ({"include": "headers, Message_Id"}, "include", ("message_id", "headers")),
        ({"include": "headers", "includeHeaders": True}, "include", ("headers",)),
        ({"includeHeaders": "true"}, "include", ("headers",)),
        ({"filterValues": "eu , us"}, "filter_values", ("eu", "us")),
        ({"filterValues": '["a,b", " c"]'}, "filter_values", ("a,b", " c")),
        ({"filterValues": "a", "filterMatchUnfiltered": "true"}, "filter_match_unfiltered", True),
        ({"startingOffsets": '{"s": 23, "t": -2}'}, "start", {"s": 23, "t": -2}),
        ({"endingOffsets": '{"s": -1}'}, "end", {"s": -1}),
        ({"startingOffsets": "Earliest"}, "start", "earliest"),
        ({"startingOffsets": "latest", "streaming": True}, "start", "latest"),
        ({"startingOffsets": '{"s": 23}', "endingOffsets": '{"s": 23}'}, "end", {"s": 23}),
        ({"startingTimestamp": "2026-01-31T12:00:00Z"}, "start", NOON),
        ({"startingTimestamp": "2026-01-31T13:00:00+01:00"}, "start", NOON),
        ({"endingTimestamp": "1769860800000"}, "end", NOON),
    ],
    ids=str,
)
def test_texts_become_values(options: dict[str, object], attribute: str, value: object) -> None:
    assert getattr(parse(**options), attribute) == value


# -- of queues


def of_queue(**texts: str) -> QueueOptions:
    return QueueOptions.parse({"url": "amqp://u:c4nary@h", **texts})


def test_texts_become_options_of_a_queue() -> None:
    options = of_queue(queue="a")
    assert (options.queues, options.include) == (("a",), ())
    assert (options.max_rows, options.max_bytes) == (10_000, 64 << 20)
    given = {"QUEUE": "a, b", "include": "headers,exchange", "maxRows": "7", "maxBytes": "1k"}
    options = of_queue(**given, includeHeaders="true")
    assert (options.queues, options.max_rows, options.max_bytes) == (("a", "b"), 7, 1024)
    assert options.include == ("exchange", "headers")


def test_no_password_is_shown() -> None:
    options = of_queue(exchange="x", managementUrl="http://me:c4nary-2@h:15672")
    assert "c4nary" not in repr(options)
    again = pickle.loads(pickle.dumps(options))  # noqa: S301
    assert again.brokers.resolve()[0].password.reveal() == "c4nary"
    assert "c4nary" not in repr(parse(**EXCHANGE, managementUrl="http://ann:c4nary@here:15672"))
