"""Hash exchanges behind one another: a key ends at the exchange, which is named, and those that hash the same value are found."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from bounded import until
from pika.adapters.blocking_connection import BlockingChannel
from pika.spec import BasicProperties

from rabbit_chx import Broker, Topology
from rabbit_chx.testing import RunningBroker, assert_parity
from rabbit_chx.topology import check, plan

pytestmark = pytest.mark.broker

MESSAGES = 300
FILE = """
[[exchanges]]
name = "front"
type = "x-consistent-hash"
ring = [{{ exchange = "behind" }}, {{ queue = "other" }}]
[[exchanges]]
name = "behind"
type = "x-consistent-hash"
arguments = {{ {arguments} }}
ring = [{{ queue = "q.{{1..2}}" }}]
[[queues]]
name = "q.{{1..2}}"
[[queues]]
name = "other"
"""


@pytest.mark.parametrize("arguments", ["", 'hash-header = "h"'])
def test_queues_behind_the_same_hash_miss_their_shares_and_are_found(
    managed: Broker,
    vhost: RunningBroker,
    channel: BlockingChannel,
    answer: Callable[..., Any],
    arguments: str,
) -> None:
    managed.apply(plan(Topology.from_toml(FILE.format(arguments=arguments)), managed.topology()))
    for number in range(MESSAGES):
        properties = BasicProperties(headers={"h": f"h-{number}"})
        channel.basic_publish("front", f"key-{number}", b"", properties)

    def counts() -> dict[str, int]:
        return {
            queue: channel.queue_declare(queue, passive=True).method.message_count or 0
            for queue in ("q.1", "q.2", "other")
        }

    until(lambda: sum(counts().values()) == MESSAGES, "all messages are in queues")
    is_same = arguments == ""
    assert (counts()["q.2"] == 0) is is_same, "its keys have the first of two buckets on both"
    found = [one.exchange for one in check(managed.topology()).findings if one.kind == "polarized"]
    assert found == (["behind"] if is_same else [])

    at = ["--url", vhost.url, "--management-url", str(vhost.management_url)]
    at += ["--ring-via", " ".join(vhost.ring_via or ())]
    answers = answer("route", "front", *[f"key-{number}" for number in range(20)], *at)["answers"]
    assert {str(each["destination"]) for each in answers} == {"other", "{'exchange': 'behind'}"}


@pytest.mark.parametrize(
    "of_behind", ['{ queue = "q.{1..2}" }', '{ queue = "q.{1..2}" }, { exchange = "front" }']
)
@pytest.mark.parametrize("arguments", ["", 'hash-header = "h"'])
def test_messages_are_where_both_mirrors_predict_also_around_a_circle(
    broker: RunningBroker, arguments: str, of_behind: str
) -> None:
    text = FILE.format(arguments=arguments).replace('{ queue = "q.{1..2}" }', of_behind)
    assert_parity(Topology.from_toml(text), [f"key-{number}" for number in range(MESSAGES)], broker=broker)
