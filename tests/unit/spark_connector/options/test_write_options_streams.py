"""The options of writes into streams: which of them go together, and what is refused."""

from __future__ import annotations

import pickle

import pytest

from rabbit_chx.errors import InputError
from rabbit_chx.routing import HashRing
from spark_connector.options.write_options import WriteOptions

ONCE = {"url": "amqp://ann:secret@here/v", "superStream": "orders", "delivery": "exactly-once"}
RING = HashRing.from_buckets(["s0", "s1"]).to_json()


def parse(**options: str) -> WriteOptions:
    return WriteOptions.parse(options)


def test_an_amqp_uri_means_the_stream_port_of_its_host() -> None:
    given = parse(**ONCE, appId="load", version="42")
    assert (given.to_streams, given.exactly_once, given.target) == (True, True, "orders")
    assert (given.app_id, given.version, given.verify, given.window) == ("load", 42, "tail", 20_000)
    assert given.brokers.addresses[0].port == 5552


@pytest.mark.parametrize(
    "options",
    [
        {"url": "amqp://h", "superStream": "orders"},
        {"url": "rabbitmq-stream://h", "exchange": "x", "ring": RING},
        {"url": "rabbitmq-stream://h", "exchange": "x", "ringVia": "env"},
        {"url": "amqp://h", "exchange": "x", "ring": RING, "delivery": "exactly-once"},
    ],
)
def test_what_goes_by_the_stream_protocol(options: dict[str, str]) -> None:
    assert parse(**options).to_streams


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({**ONCE, "mandatory": "true"}, "option 'mandatory': rows go to streams by the stream protocol, which has no"),
        ({**ONCE, "routing": "client"}, "option 'routing': rows go to streams"),
        ({"url": "amqp://h", "exchange": "x", "routing": "key"}, "option 'routing' is 'key', which is for a super stream"),
        ({**ONCE, "headersConst": '{"a": 1}'}, "option 'headersConst': rows go to streams"),
        ({**ONCE, "exchange": "x"}, "'superStream' and 'exchange' are both given"),
        ({**ONCE, "ring": RING}, "'superStream' needs no ring"),
        ({**ONCE, "version": "0"}, "option 'version' is '0': pass a whole number from 1 to 2147483647"),
        ({**ONCE, "version": "2147483648"}, "pass a whole number from 1 to 2147483647"),
        ({**ONCE, "appId": "a" * 201}, "option 'appId' is .*: pass at most 200 bytes"),
        ({**ONCE, "delivery": "twice"}, "option 'delivery' is 'twice': pass 'at-least-once' or 'exactly-once'"),
        ({**ONCE, "managementUrl": "here:15672"}, "management URL: "),
        ({"url": "amqp://h", "exchange": "x", "window": "5"}, "option 'window': rows go by AMQP"),
        ({"url": "amqp://h", "exchange": "x", "delivery": "exactly-once"}, "its ring must be known: pass ringVia.*only into streams"),
        ({"url": "rabbitmq-stream://h", "exchange": "x"}, "its ring must be known: pass ringVia"),
        ({"url": "amqp://h", "superStream": "s", "version": "1"}, "option 'version': delivery is at-least-once"),
        ({"url": "amqp://h", "superStream": "s", "managementUrl": "http://h"}, "option 'managementUrl': delivery is"),
        ({"url": "amqp://h"}, "option 'exchange' is missing: name the exchange to publish to, or a queue, or a superStream"),
        ({"url": "amqp://h", "exchange": "x", "filterValueColumn": "key"}, "option 'filterValueColumn': rows go by AMQP"),
        ({"url": "amqp://h", "exchange": "x", "subEntryRows": "10"}, "option 'subEntryRows': rows go by AMQP"),
        ({"url": "amqp://h", "superStream": "s", "subEntryRows": "65536"}, "pass a whole number from 1 to 65535"),
        ({"url": "amqp://h", "superStream": "s", "compression": "zstd"}, "needs the option 'subEntryRows'"),
        ({"url": "amqp://h", "superStream": "s", "compression": "brotli"}, "option 'compression' is 'brotli': pass 'none' or 'gzip'"),
        ({**ONCE, "subEntryRows": "10"}, "option 'subEntryRows' is for at-least-once: the rows of a sub-entry have one id"),
        (
            {"url": "amqp://h", "superStream": "s", "subEntryRows": "10", "filterValueColumn": "key"},
            "'subEntryRows' and 'filterValueColumn' are both given",
        ),
    ],
)  # fmt: skip
def test_what_does_not_go_together(options: dict[str, str], says: str) -> None:
    with pytest.raises(InputError, match=says):
        parse(**options)


def test_no_password_is_shown() -> None:
    given = parse(**ONCE, appId="load", managementUrl="http://ann:secret@here:15672")
    assert "secret" not in repr(given)
    restored = pickle.loads(pickle.dumps(given))  # noqa: S301  # our own
    assert restored.management_url.password.reveal() == "secret"
