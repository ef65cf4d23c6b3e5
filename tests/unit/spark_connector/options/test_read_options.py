"""Options of reads of streams and of queues: every one is read, or refused in words."""

from __future__ import annotations

import pickle
from datetime import UTC, datetime
from typing import Any

import pytest

from rabbit_chx import HashRing, Release
from rabbit_chx.errors import InputError
from spark_connector.options.read_options import QueueOptions, ReadOptions

RING = HashRing.from_buckets(["s"]).to_json()
ASSUMED = HashRing.from_buckets(["s"]).with_release(Release("4.0")).to_json()
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


OFFSETS = "pass 'earliest', 'latest', or an offset for each stream"
KEYS_OF_RING = "options 'exchange', 'ring' and 'pushFilters=keys' need each other"


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"stream": ""}, "option 'stream' is missing: name the stream to read, or pass superStream"),
        ({"superStream": "o"}, "options 'stream' and 'superStream' are both given"),
        ({"managementUrl": "http://here"}, "option 'managementUrl' needs the option 'exchange'"),
        ({"routing": "key"}, "option 'routing' needs the options 'superStream' and 'pushFilters=keys'"),
        ({"filterValues": "a,,b"}, "option 'filterValues' is 'a,,b': pass texts with commas between them"),
        ({"filterValues": "[1]"}, "option 'filterValues' is"),
        ({"filterValues": "[]"}, "option 'filterValues' is"),
        ({"filterMatchUnfiltered": True}, "'filterMatchUnfiltered' needs the option 'filterValues'"),
        ({"stream": "a,,b"}, "option 'stream' is 'a,,b': pass the name of a stream"),
        ({"stream": "a,a"}, "option 'stream' names 'a' twice"),
        ({"include": "header"}, "option 'include' is 'header': pass some of exchange"),
        ({"startingOffsets": "first"}, f"option 'startingOffsets' is 'first': {OFFSETS}"),
        ({"startingOffsets": '{"s": -3}'}, OFFSETS),
        ({"startingOffsets": '{"s": true}'}, OFFSETS),
        ({"startingOffsets": "{}"}, OFFSETS),
        ({"startingOffsets": "latest"}, "a batch begins there with nothing"),
        ({"endingOffsets": "earliest"}, "a batch ends there with nothing"),
        ({"startingOffsets": '{"s": -1}'}, r"'startingOffsets' is -1 \(latest\) for 's', and a batch has"),
        (
            {"endingOffsets": '{"s": -2}'},
            r"'endingOffsets' is -2 \(earliest\) for 's', and a batch has",
        ),
        ({"startingTimestamp": "2026-01-31T12:00:00"}, "with its zone, as 2026-01-31T12:00:00Z, or milli"),
        ({"startingTimestamp": "9" * 30}, "pass a time with its zone"),
        ({"startingOffsets": "earliest", "startingTimestamp": "1"}, "'startingTimestamp' are both given"),
        ({"endingOffsets": "latest", "endingTimestamp": "1"}, "'endingTimestamp' are both given"),
        ({"startingTimestamp": "2", "endingTimestamp": "1"}, "before startingTimestamp"),
        ({"startingOffsets": '{"s": 9}', "endingOffsets": '{"s": 3}'}, "is 3 for 's', before .*, 9"),
        ({"pushFilters": "all"}, "option 'pushFilters' is 'all': pass 'none' or 'exact' or 'keys'"),
        ({"pushFilters": "keys"}, "does not determine the stream of a key: pass superStream"),
        ({"ring": RING}, KEYS_OF_RING),
        ({**EXCHANGE, "ring": RING, "pushFilters": "exact"}, KEYS_OF_RING),
        ({**EXCHANGE, "pushFilters": "keys"}, KEYS_OF_RING),
        ({**SUPER_STREAM, "ring": RING, "pushFilters": "keys"}, KEYS_OF_RING),
        ({**EXCHANGE, "ring": ASSUMED, "pushFilters": "keys"}, "'ring' is assumed .*, so keys may be"),
        ({"maxOffsetsPerTrigger": "5"}, "option 'maxOffsetsPerTrigger' is for streaming queries"),
        ({"maxBytesPerTrigger": "5k"}, "option 'maxBytesPerTrigger' is for streaming queries"),
        ({"endingOffsets": "latest", "streaming": True}, "option 'endingOffsets' is for batch reads"),
        ({"endingTimestamp": "1", "streaming": True}, "option 'endingTimestamp' is for batch reads"),
        ({"pushFilters": "exact", "streaming": True}, "'pushFilters' is for batch reads, and this is"),
        ({"addresses": '{"a": "b:1"}'}, "option 'addresses': 'a' is not an address"),
        ({"addresses": '{"a:1": 5}'}, "option 'addresses': '5' is not an address"),
        ({"addresses": '{"[::1]:1": "[::2]"}'}, "option 'addresses': '.::2.' is not an address"),
        ({"tokenCommand": "echo 'abc"}, "option 'tokenCommand' cannot be split into words"),
        ({"readTimeout": "0"}, "option 'readTimeout' is 0"),
        ({"minPartition": "5"}, r"unknown option 'minpartition': did you mean 'minPartitions'\?"),
        ({"subscribe": "orders"}, "unknown option 'subscribe': 'subscribe' of Kafka is 'stream' here"),
        ({"kafka.bootstrap.servers": "h:1"}, "'kafka.bootstrap.servers' of Kafka is 'url' here"),
        ({"kafka.group.id": "g"}, "it is one of Kafka, and has no counterpart here: leave it out"),
        ({"managementUrl": "amqp://x"}, "management URL"),
    ],
    ids=str,
)
def test_what_cannot_be_read_is_refused(options: dict[str, object], says: str) -> None:
    with pytest.raises(InputError, match=says):
        parse(**options)


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


@pytest.mark.parametrize(
    ("texts", "words"),
    [
        ({}, "option 'queue' is missing: name the queue to drain, or pass exchange"),
        ({"queue": ""}, "option 'queue' is missing"),
        ({"queue": "a,,b"}, "'' names no queue"),
        ({"queue": "a,a"}, "option 'queue' names 'a' twice"),
        ({"queue": "a" * 256}, "256 bytes: AMQP carries at most 255"),
        ({"queue": "a", "exchange": "x"}, "options 'queue' and 'exchange' are both given"),
        ({"exchange": "x"}, "option 'exchange' needs the option 'managementUrl'"),
        ({"queue": "a", "managementUrl": "http://h"}, "option 'managementUrl' needs the option 'exchange'"),
        ({"queue": "a", "mode": "peek"}, "unknown option 'mode'"),
        ({"queue": "a", "maxRows": "0"}, "option 'maxRows' is '0'"),
        ({"queue": "a", "maxBytes": "2g"}, "option 'maxBytes' is 2,147,483,648: .* pass 1GiB at most"),
        ({"queue": "a", "include": "offset"}, "option 'include' is 'offset'"),
        ({"queue": "a", "startingOffsets": "earliest"}, "unknown option 'startingoffsets'"),
    ],
)
def test_what_cannot_be_drained_is_refused(texts: dict[str, str], words: str) -> None:
    with pytest.raises(InputError, match=words):
        of_queue(**texts)
