"""Options of a read: every one is read, or refused in words."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from rabbit_chx import HashRing, Release
from rabbit_chx.errors import InputError
from spark_connector.options.read_options import READ_OPTIONS, ReadOptions

RING = HashRing.from_buckets(["s"]).to_json()
ASSUMED = HashRing.from_buckets(["s"]).with_release(Release("4.0")).to_json()
URL = {"url": "rabbitmq-stream://ann@here/v"}


def parse(**options: str) -> ReadOptions:
    return ReadOptions.parse({**URL, "stream": "s", **options})


def test_every_option_is_stated_once_with_a_default_that_a_user_could_write() -> None:
    names = [option.name.lower() for option in READ_OPTIONS]
    assert len(set(names)) == len(names)
    for option in READ_OPTIONS:
        assert option.meaning
        if option.default_text:
            assert option.value(option.default_text) == option.default


def test_what_is_not_given() -> None:
    given = parse()
    assert (given.streams, given.super_stream, given.exchange) == (("s",), None, None)
    assert (given.start, given.end, given.include) == (None, None, ())
    assert (given.fail_on_data_loss, given.min_partitions, given.timeout_s) == (True, None, 60.0)


def test_all_addresses_are_those_of_streams() -> None:
    brokers = ReadOptions.parse({"url": "amqp://a:1111, amqps://b", "stream": "s"}).brokers
    assert [(address.host, address.port) for address in brokers.addresses] == [("a", 5552), ("b", 5551)]
    assert ReadOptions.parse({"host": "h", "stream": "s"}).brokers.addresses[0].port == 5552


def test_what_is_read() -> None:
    assert parse(stream="a , b").streams == ("a", "b")
    assert parse(stream="a,b").source == "stream 'a', 'b'"
    given = parse(stream="", superStream="o")
    assert (given.streams, given.source) == ((), "super stream 'o'")
    given = parse(stream="", exchange="x", managementUrl="http://ann:c4nary@here:15672")
    assert given.source == "exchange 'x'"
    assert "c4nary" not in repr(given)


def test_filters_are_pushed_in_batch_reads_alone() -> None:
    assert (parse().push_filters, parse().ring) == ("none", None)
    assert parse(pushFilters="Exact").push_filters == "exact"
    assert parse(stream="", superStream="o", pushFilters="keys").push_filters == "keys"
    given = parse(stream="", exchange="x", ring=RING, pushFilters="keys")
    assert given.ring == HashRing.from_buckets(["s"])
    with pytest.raises(
        InputError, match="option 'pushFilters' is for batch reads, and this is a streaming query"
    ):
        ReadOptions.parse({**URL, "stream": "s", "pushFilters": "exact"}, streaming=True)


def test_columns_are_in_their_own_order_and_come_once() -> None:
    assert parse(include="headers, Message_Id").include == ("message_id", "headers")
    assert parse(include="headers", includeHeaders="true").include == ("headers",)
    assert parse(includeHeaders="true").include == ("headers",)


def test_filter_values_are_separated_by_commas_or_a_json_array() -> None:
    assert (parse().filter_values, parse().filter_match_unfiltered) == ((), False)
    assert parse(filterValues="eu , us").filter_values == ("eu", "us")
    given = parse(filterValues='["a,b", " c"]', filterMatchUnfiltered="true")
    assert (given.filter_values, given.filter_match_unfiltered) == (("a,b", " c"), True)


def test_where_it_begins_and_ends() -> None:
    given = parse(startingOffsets='{"s": 23, "t": -2}', endingOffsets='{"s": -1}')
    assert (given.start, given.end) == ({"s": 23, "t": -2}, {"s": -1})
    assert parse(startingOffsets="Earliest").start == "earliest"
    nothing = parse(startingOffsets='{"s": 23}', endingOffsets='{"s": 23}')
    assert nothing.start == nothing.end
    at_noon = datetime(2026, 1, 31, 12, tzinfo=UTC)
    for text in ("2026-01-31T12:00:00Z", "2026-01-31T13:00:00+01:00", "1769860800000"):
        assert parse(startingTimestamp=text, endingTimestamp=text).start == at_noon
    assert (
        ReadOptions.parse({**URL, "stream": "s", "startingOffsets": "latest"}, streaming=True).start
        == "latest"
    )


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
        ({"filterMatchUnfiltered": "true"}, "'filterMatchUnfiltered' needs the option 'filterValues'"),
        ({"stream": "a,,b"}, "option 'stream' is 'a,,b': pass the name of a stream"),
        ({"stream": "a,a"}, "option 'stream' names 'a' twice"),
        ({"include": "header"}, "option 'include' is 'header': pass some of exchange"),
        (
            {"startingOffsets": "first"},
            "option 'startingOffsets' is 'first': pass 'earliest', 'latest', or an",
        ),
        ({"startingOffsets": '{"s": -3}'}, "pass 'earliest', 'latest', or an offset for each stream"),
        ({"startingOffsets": '{"s": true}'}, "pass 'earliest', 'latest', or an offset for each stream"),
        ({"startingOffsets": "{}"}, "pass 'earliest', 'latest', or an offset for each stream"),
        ({"startingOffsets": "latest"}, "a batch begins there with nothing"),
        ({"endingOffsets": "earliest"}, "a batch ends there with nothing"),
        (
            {"startingOffsets": '{"s": -1}'},
            r"'startingOffsets' is -1 \(latest\) for 's', and a batch has nothing",
        ),
        (
            {"endingOffsets": '{"s": -2}'},
            r"'endingOffsets' is -2 \(earliest\) for 's', and a batch has nothing",
        ),
        (
            {"startingTimestamp": "2026-01-31T12:00:00"},
            "pass a time with its zone, as 2026-01-31T12:00:00Z, or milli",
        ),
        ({"startingTimestamp": "9" * 30}, "pass a time with its zone"),
        (
            {"startingOffsets": "earliest", "startingTimestamp": "1"},
            "options 'startingOffsets' and 'startingTimestamp' are both given",
        ),
        (
            {"endingOffsets": "latest", "endingTimestamp": "1"},
            "options 'endingOffsets' and 'endingTimestamp' are both given",
        ),
        ({"startingTimestamp": "2", "endingTimestamp": "1"}, "before startingTimestamp"),
        (
            {"startingOffsets": '{"s": 9}', "endingOffsets": '{"s": 3}'},
            "option 'endingOffsets' is 3 for 's', before startingOffsets, 9",
        ),
        ({"pushFilters": "all"}, "option 'pushFilters' is 'all': pass 'none' or 'exact' or 'keys'"),
        (
            {"pushFilters": "keys"},
            "a list of streams does not determine the stream of a key: pass superStream",
        ),
        ({"ring": RING}, "options 'exchange', 'ring' and 'pushFilters=keys' need each other"),
        (
            {"stream": "", "exchange": "x", "ring": RING, "pushFilters": "exact"},
            "options 'exchange', 'ring' and 'pushFilters=keys' need each other",
        ),
        (
            {"stream": "", "exchange": "x", "pushFilters": "keys"},
            "options 'exchange', 'ring' and 'pushFilters=keys' need each other",
        ),
        (
            {"stream": "", "superStream": "o", "ring": RING, "pushFilters": "keys"},
            "options 'exchange', 'ring' and 'pushFilters=keys' need each other",
        ),
        (
            {"stream": "", "exchange": "x", "ring": ASSUMED, "pushFilters": "keys"},
            "option 'ring' is assumed from the bindings, so keys may be in another stream",
        ),
        ({"maxOffsetsPerTrigger": "5"}, "option 'maxOffsetsPerTrigger' is for streaming queries"),
        ({"maxBytesPerTrigger": "5k"}, "option 'maxBytesPerTrigger' is for streaming queries"),
        ({"addresses": '{"a": "b:1"}'}, "option 'addresses': 'a' is not an address"),
        ({"addresses": '{"a:1": 5}'}, "option 'addresses': '5' is not an address"),
        ({"addresses": '{"[::1]:1": "[::2]"}'}, "option 'addresses': '.::2.' is not an address"),
        ({"tokenCommand": "echo 'abc"}, "option 'tokenCommand' cannot be split into words"),
        ({"readTimeout": "0"}, "option 'readTimeout' is 0"),
        ({"minPartition": "5"}, "unknown option 'minpartition': did you mean 'minPartitions'?"),
        ({"subscribe": "orders"}, "unknown option 'subscribe': 'subscribe' of Kafka is 'stream' here"),
        ({"kafka.bootstrap.servers": "h:1"}, "'kafka.bootstrap.servers' of Kafka is 'url' here"),
        ({"kafka.group.id": "g"}, "it is one of Kafka, and has no counterpart here: leave it out"),
        ({"managementUrl": "amqp://x"}, "management URL"),
    ],
    ids=str,
)
def test_what_cannot_be_read_is_refused(options: dict[str, str], says: str) -> None:
    with pytest.raises(InputError, match=says.replace("?", r"\?")):
        parse(**options)


@pytest.mark.parametrize("name", ["endingOffsets", "endingTimestamp"])
def test_a_streaming_query_has_no_end(name: str) -> None:
    text = "latest" if name == "endingOffsets" else "1"
    with pytest.raises(InputError, match=f"option '{name}' is for batch reads"):
        ReadOptions.parse({**URL, "stream": "s", name: text}, streaming=True)
