"""Options of writes: every one is read, refused in words, and shows no password."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest
from spark_messages import options_of

from rabbit_chx.errors import InputError
from rabbit_chx.options import options_of as declared_options
from rabbit_chx.publishing import Limits, Retries
from rabbit_chx.publishing.options import NACK_RETRIES, CommonOptions
from rabbit_chx.routing import HashRing
from spark_connector.options.common import ADDED_BY_SPARK, option_fields
from spark_connector.options.write_options import WriteOptions, to_texts

RING = HashRing.from_bindings([("q1", 1), ("q2", 2)])


def test_what_is_not_the_default_reaches_the_publisher() -> None:
    """So each field of `Limits` and `Retries` is an option, but that of the first connection, which is always retried."""
    assert options_of().limits == Limits()
    assert options_of().retries == Retries(retry_first_connection=True, nack_retries=NACK_RETRIES)
    limits = {"maxInFlight": "7", "maxInFlightBytes": "8", "confirmTimeout": "9", "blockedTimeout": "10"}
    assert options_of(**limits).limits == Limits(7, 8, 9, 10)
    retries = {"reconnectTimeout": "11", "maxReconnects": "12", "nackRetries": "13", "reconnectBackoff": "14"}
    assert options_of(**retries, ordering="per-key").retries == Retries(11, 12, True, 13, 14, True)


def test_an_option_that_means_the_same_has_the_words_of_the_publisher() -> None:
    declared = {**declared_options(CommonOptions), **declared_options(Limits), **declared_options(Retries)}
    fields = {name: option for name, option in option_fields(WriteOptions).items() if name in declared}
    own = {"exchange", "ring", "routing", "keep_order", "connection_name"}
    assert {name for name, option in fields.items() if option.meaning != declared[name].meaning} == own


def test_what_is_not_given_is_safe() -> None:
    given = options_of()
    assert (given.mandatory, given.persistent, given.preflight) == (True, True, True)
    assert (given.skip_bad_rows, given.skip_unroutable, given.keep_order) == (False, False, False)
    assert (given.allow_exchange_column, given.ignore_unknown_columns) == (False, False)
    assert (given.routing_key, given.headers, given.ring) == (None, {}, None)
    assert (given.message_id, given.max_message_bytes, given.on_speculation) == ("none", 16 << 20, "warn")
    assert given.connection_name == "spark:{app}:{stage}.{partition}.{attempt}"
    assert given.report_path is None


@pytest.mark.parametrize(
    ("name", "text", "attribute", "value"),
    [
        ("confirmTimeout", "90", "confirm_timeout_s", 90.0),
        ("confirmTimeout", "1.5 s", "confirm_timeout_s", 1.5),
        ("blockedTimeout", "5m", "blocked_timeout_s", 300.0),
        ("reconnectBackoff", "250ms", "backoff_s", 0.25),
        ("maxInFlightBytes", "64KiB", "max_in_flight_bytes", 65_536),
        ("maxMessageBytes", " 2m ", "max_message_bytes", 2 << 20),
        ("maxMessageBytes", "1000", "max_message_bytes", 1000),
        ("MAXinflight", "7", "max_in_flight", 7),
        ("mandatory", "FALSE", "mandatory", False),
        ("ordering", "per-key", "keep_order", True),
        ("badRows", "skip", "skip_bad_rows", True),
        ("onUnroutable", "Skip", "skip_unroutable", True),
        ("headersConst", '{"tenant": "a", "n": 1}', "headers", {"tenant": "a", "n": 1}),
        ("columnNames", '{"Key": "customer"}', "column_names", {"key": "customer"}),
        ("ring", RING.to_json(), "ring", RING),
        ("routingKey", " k ", "routing_key", " k "),
        ("maxReconnects", "0", "max_reconnects", 0),
        ("connectionName", "job {stage}/{partition}", "connection_name", "job {stage}/{partition}"),
    ],
)
def test_texts_become_values(name: str, text: str, attribute: str, value: object) -> None:
    assert getattr(options_of(**{name: text}), attribute) == value


def test_a_ring_may_be_in_a_file_and_a_report_path_may_be_a_uri(tmp_path: Path) -> None:
    (tmp_path / "ring.json").write_text(RING.to_json())
    assert options_of(ring=f"{tmp_path}/ring.json").ring == RING
    for text in (f"file:{tmp_path}/the%20report/", f"FILE://{tmp_path}/the%20report/"):
        assert options_of(reportPath=text).report_path == f"{tmp_path}/the report/"


@pytest.mark.parametrize("name", [*ADDED_BY_SPARK, "queryName", "checkpointLocation", "option.exchange"])
def test_names_that_spark_adds_are_not_options(name: str) -> None:
    assert options_of(**{name: "x"}) == options_of()


BRACES = "in braces must be one of {app}, {stage}"
REMOTE = "a report is not written to a remote file system"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"topic": "orders"}, r"unknown option 'topic': 'topic' of Kafka is 'exchange' here"),
        ({"exchnage": "y"}, r"unknown option 'exchnage': did you mean 'exchange'\?"),
        ({"zebra": "y"}, r"unknown option 'zebra': the nearest are \w+, \w+, \w+$"),
        ({"confirmTimeout": "0"}, "option 'confirmTimeout' is 0: pass more than 0 seconds"),
        ({"confirmTimeout": "1 day"}, "'confirmTimeout' is '1 day': pass seconds, as 60 or with a unit"),
        ({"maxInFlightBytes": "8MB"}, "option 'maxInFlightBytes' is '8MB': pass bytes, as 65536 or"),
        ({"maxInFlight": "0"}, "option 'maxInFlight' is '0': pass a whole number, 1 or more"),
        ({"mandatory": "yes"}, "option 'mandatory' is 'yes': pass true or false"),
        ({"badRows": "drop"}, "option 'badRows' is 'drop': pass 'fail' or 'skip'"),
        ({"columnNames": '{"key": 1}'}, "option 'columnNames': the column of 'key' is 1: pass its name"),
        ({"headersConst": "[1]"}, r"option 'headersConst' is '\[1\]': pass a JSON object"),
        ({"headersConst": '{"a": 1.5}'}, "the header 'a' is a float: pass a text"),
        ({"headersConst": '{"CC": "k"}'}, "the header 'CC' gives RabbitMQ further routing keys"),
        ({"headersConst": '{"a": 9223372036854775808}'}, "option 'headersConst': .* more than 64 bits"),
        ({"headersConst": '{"' + "n" * 256 + '": 1}'}, "option 'headersConst': .*255"),
        ({"headersConst": '{"a": "\\ud800"}'}, "option 'headersConst': "),
        ({"headersConst": '{"a": "' + "b" * 100_000 + '"}'}, "is 100,011 bytes long, and AMQP"),
        ({"headersConst": "[" * 100_000}, r"option 'headersConst' is '\[{60}'\.\.\.: pass a JSON object"),
        ({"heartbeat": "65536"}, "'heartbeat' is 65536 seconds: AMQP allows whole seconds only, up to 65535"),
        ({"connectTimeout": "0"}, "'connectTimeout' is 0 seconds: pass more than 0, and at most 86400"),
        ({"connectTimeout": "25h"}, "option 'connectTimeout' is 90000 seconds: pass more than 0"),
        ({"heartbeat": "9" * 400}, "option 'heartbeat' is '9{60}'...: pass seconds"),
        ({"heartbeat": "500ms"}, "option 'heartbeat' is 0.5 seconds: AMQP allows whole seconds only"),
        ({"ring": "/no.json"}, "'ring' is '/no.json': it is not a JSON object, and cannot be read"),
        ({"ring": "{}"}, "option 'ring': this JSON is not a ring"),
        ({"ring": RING.to_json(), "ringVia": "env"}, "options 'ring' and 'ringVia' are both given"),
        ({"exchange": "", "allowExchangeColumn": "true", "ringVia": "env"}, "requires the option 'exchange'"),
        ({"routing": "queue"}, "'routing' is 'queue': pass 'exchange' or 'client' or 'hash' or 'key'"),
        ({"routing": "client", "allowExchangeColumn": "true"}, "'allowExchangeColumn' contradict each other"),
        ({"ring": "amqp://a:c4nary@h"}, "'ring' is a text with an '@', which is not shown: it is not a JSON"),
        ({"connectionName": "{user}"}, BRACES),
        ({"connectionName": "{partition:99999999999}"}, BRACES),
        ({"connectionName": "{app!r}"}, BRACES),
        ({"connectionName": "{app"}, BRACES),
        ({"reportPath": "s3://bucket/r.json"}, f"option 'reportPath' is 's3://bucket/r.json': {REMOTE}"),
        ({"reportPath": "dbfs:/reports"}, "pass a path on the driver, which may be that of a mounted"),
        ({"reportPath": "file://elsewhere/r.json"}, REMOTE),
        ({"reportPath": "s3a://key:c4nary@bucket/r"}, f"is a text with an '@', which is not shown: {REMOTE}"),
        ({"reportPath": "file:/no/such/r.json"}, "its folder does not exist on the driver"),
        ({"ring": HashRing.from_buckets([]).to_json()}, "option 'ring' has no buckets"),
        ({"reportPath": "/no/such/r.json"}, "its folder does not exist on the driver"),
        ({"exchange": "é" * 128}, "option 'exchange' has 256 bytes: AMQP carries at most 255"),
        ({"writeName": "monday"}, "'writeName' is 'monday', but messageId is 'none': the name is"),
        ({"exchange": ""}, "option 'exchange' is missing: name the exchange to publish to"),
        ({"queue": "q"}, "options 'exchange' and 'queue' are both given"),
        (
            {"exchange": "", "queue": "q", "routingKey": "k"},
            "options 'queue' and 'routingKey' are both given",
        ),
        (
            {"exchange": "", "queue": "q", "ring": RING.to_json()},
            "an exchange that hashes, and all rows go to",
        ),
    ],
)
def test_a_bad_option_is_refused_with_its_name_and_remedy(options: dict[str, str], message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        options_of(**options)
    assert "c4nary" not in str(caught.value)


# -- of writes into streams


def to_streams(**options: Any) -> WriteOptions:
    return WriteOptions.parse({"url": "amqp://ann:c4nary@here/v", **options})


AT_LEAST_ONCE = {"superStream": "orders"}
ONCE = {**AT_LEAST_ONCE, "delivery": "exactly-once"}
STREAM_EXCHANGE = {"url": "rabbitmq-stream://h", "exchange": "x"}
AMQP = {"exchange": "x"}
NO_AMQP = "rows go to streams by the stream protocol, which has no"


def test_an_amqp_uri_means_the_stream_port_of_its_host() -> None:
    given = to_streams(**ONCE, appId="load", version="42", managementUrl="http://ann:c4nary@here:15672")
    assert (given.to_streams, given.exactly_once, given.target) == (True, True, "orders")
    assert (given.app_id, given.version, given.verify, given.window) == ("load", 42, "tail", 20_000)
    assert given.brokers.addresses[0].port == 5552
    assert "c4nary" not in repr(given)
    restored = pickle.loads(pickle.dumps(given))  # noqa: S301  # our own
    assert restored.management_url.password.reveal() == "c4nary"


@pytest.mark.parametrize(
    "options",
    [
        AT_LEAST_ONCE,
        {**STREAM_EXCHANGE, "ring": RING.to_json()},
        {**STREAM_EXCHANGE, "ringVia": "env"},
        {**AMQP, "ring": RING.to_json(), "delivery": "exactly-once"},
    ],
)
def test_rows_go_by_the_stream_protocol(options: dict[str, str]) -> None:
    assert to_streams(**options).to_streams


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({**ONCE, "mandatory": "true"}, f"option 'mandatory': {NO_AMQP}"),
        ({**ONCE, "routing": "client"}, f"option 'routing': {NO_AMQP}"),
        ({**AMQP, "routing": "key"}, "option 'routing' is 'key', which is for a super stream"),
        ({**ONCE, "headersConst": '{"a": 1}'}, f"option 'headersConst': {NO_AMQP}"),
        ({**ONCE, "exchange": "x"}, "'superStream' and 'exchange' are both given"),
        ({**ONCE, "ring": RING.to_json()}, "'superStream' needs no ring"),
        ({**ONCE, "version": "0"}, "option 'version' is '0': pass a whole number from 1 to 2147483647"),
        ({**ONCE, "version": "2147483648"}, "pass a whole number from 1 to 2147483647"),
        ({**ONCE, "appId": "a" * 201}, "option 'appId' is .*: pass at most 200 bytes"),
        ({**ONCE, "delivery": "twice"}, "'delivery' is 'twice': pass 'at-least-once' or 'exactly-once'"),
        ({**ONCE, "managementUrl": "here:15672"}, "management URL: "),
        ({**AMQP, "window": "5"}, "option 'window': rows go by AMQP"),
        ({**AMQP, "delivery": "exactly-once"}, "its ring must be known: pass ringVia.*only into streams"),
        (STREAM_EXCHANGE, "its ring must be known: pass ringVia"),
        ({**AT_LEAST_ONCE, "version": "1"}, "option 'version': delivery is at-least-once"),
        ({**AT_LEAST_ONCE, "managementUrl": "http://h"}, "option 'managementUrl': delivery is"),
        ({}, "'exchange' is missing: name the exchange to publish to, or a queue, or a superStream"),
        ({**AMQP, "filterValueColumn": "key"}, "option 'filterValueColumn': rows go by AMQP"),
        ({**AMQP, "subEntryRows": "10"}, "option 'subEntryRows': rows go by AMQP"),
        ({**AT_LEAST_ONCE, "subEntryRows": "65536"}, "pass a whole number from 1 to 65535"),
        ({**AT_LEAST_ONCE, "compression": "zstd"}, "needs the option 'subEntryRows'"),
        ({**AT_LEAST_ONCE, "compression": "brotli"}, "'compression' is 'brotli': pass 'none' or 'gzip'"),
        ({**ONCE, "subEntryRows": "10"}, "is for at-least-once: the rows of a sub-entry have one id"),
        ({**AT_LEAST_ONCE, "subEntryRows": "10", "filterValueColumn": "key"}, "are both given"),
    ],
)
def test_what_does_not_go_together_is_refused(options: dict[str, str], says: str) -> None:
    with pytest.raises(InputError, match=says):
        to_streams(**options)


# -- options as Python values


def test_values_become_the_texts_that_spark_has() -> None:
    given = to_texts({"maxInFlight": 5, "mandatory": False, "url": "amqp://h", "routingKey": None}, None)
    assert given == {"maxInFlight": "5", "mandatory": "false", "url": "amqp://h"}
    assert HashRing.from_json(to_texts({}, RING)["ring"]) == RING
    assert to_texts({}, RING.to_json()) == to_texts({}, RING)
    assert repr(to_texts({"url": "amqp://u:c4nary@h"}, None)) == "<options url>"


def test_an_unknown_option_is_refused_without_being_shown() -> None:
    with pytest.raises(InputError, match="option 'password' is a bytes: pass a text") as caught:
        to_texts({"password": b"c4nary"}, None)
    assert "c4nary" not in str(caught.value)
    with pytest.raises(InputError, match="the ring is given twice"):
        to_texts({"RING": RING.to_json()}, RING)
    with pytest.raises(InputError, match="the ring has no buckets"):
        to_texts({}, HashRing.from_buckets([]))
