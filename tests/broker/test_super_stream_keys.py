"""Super streams whose binding keys are names: AMQP clients route by them, others by a hash."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
from pika.adapters.blocking_connection import BlockingChannel
from super_streams import declare_super_stream

from rabbit_chx import StreamPublisher, SuperStream
from rabbit_chx.errors import InputError
from rabbit_chx.testing import RunningBroker

pytestmark = pytest.mark.broker

KEYS = ["apple", "pear", "plum"]


@pytest.fixture
def fruit(vhost: RunningBroker, bare_channel: BlockingChannel) -> dict[str, str]:
    """A super stream with a row of an AMQP client in each partition; the partition of each key."""
    names = {key: f"basket.{number}" for number, key in enumerate(KEYS)}
    declare_super_stream(vhost.url, "fruit", names)
    bare_channel.confirm_delivery()
    for key in KEYS:
        bare_channel.basic_publish("fruit", key, b"by key")
    return names


def publish(vhost: RunningBroker, keys: list[str], **options: Any) -> dict[str, int]:
    with StreamPublisher(vhost.stream_url, super_stream="fruit", **options) as publisher:
        return dict(publisher.publish_many(keys, [b"x"] * len(keys)).streams)


def test_rows_are_published_by_binding_key(vhost: RunningBroker, fruit: dict[str, str]) -> None:
    """A publisher that hashes warns, unless it is asked to hash."""
    counts = publish(vhost, ["pear", "apple", "pear"], routing="key")
    assert {name: count for name, count in counts.items() if count} == {fruit["pear"]: 2, fruit["apple"]: 1}
    with pytest.raises(InputError, match="row 1: no partition is bound with the key b'banana'"):
        publish(vhost, ["plum", "banana", "pear"], routing="key")

    hashed = SuperStream(list(fruit.values()))
    with pytest.warns(UserWarning, match="binding keys of super stream 'fruit' are names"):
        publish(vhost, ["apple"])
    with warnings.catch_warnings(action="error"):
        counts = publish(vhost, ["banana"], routing="hash")
    assert {name for name, count in counts.items() if count} == {hashed.partition_for("banana")}


def test_a_command_routes_by_binding_key(
    vhost: RunningBroker, fruit: dict[str, str], answer: Callable[..., Any]
) -> None:
    at = ("--routing", "key", "--url", vhost.url, "--management-url", str(vhost.management_url))
    by_key = answer(
        "route", "super-stream:fruit", *KEYS, "banana", *at, code=1
    )  # a message with the last key is lost
    assert [each["destination"] for each in by_key["answers"]] == [*fruit.values(), None]


def test_a_key_of_two_partitions_is_refused(
    vhost: RunningBroker, bare_channel: BlockingChannel, fruit: dict[str, str]
) -> None:
    """The broker copies a message of an AMQP client to both; a client of streams would have to publish it twice."""
    bare_channel.queue_bind(fruit["plum"], "fruit", "pear", arguments={"x-stream-partition-order": 3})
    with pytest.raises(InputError, match=r"2 partitions .*are bound with the key b?'pear'"):
        publish(vhost, ["apple", "pear"], routing="key")
