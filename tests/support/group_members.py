"""Consumers that look to the broker like the members of a group, for what only shows them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import pika
from bounded import until

from rabbit_chx.broker import pika_parameters
from rabbit_chx.broker.management import Management

#: The arguments of a queue that a group may consume.
ORDERED = {"x-queue-type": "quorum", "x-single-active-consumer": True}


@contextmanager
def consuming(url: str, member: str, priorities: Mapping[str, int]) -> Iterator[pika.BlockingConnection]:
    """Consume queues with these priorities, one message at a time, which is never acked."""
    # Nobody serves the connection.
    with pika.BlockingConnection(pika_parameters(f"{url}?heartbeat=0")) as connection:
        channel = connection.channel()
        channel.basic_qos(prefetch_count=1)
        for queue, priority in priorities.items():
            channel.basic_consume(
                queue,
                lambda *_: None,
                consumer_tag=f"rabbit-chx.group.{member}.{queue[-1]}a5e",
                arguments={"x-priority": priority},
            )
        yield connection


def wait_for_figures(management: Management, vhost: str, *, active: int, messages: int) -> None:
    """Wait until the management API knows of so many active consumers, which hold one message each, and messages; it may be 5 s late.

    It has the numbers of messages twice: with and without statistics.
    """
    totals = {"disable_stats": "true", "enable_queue_totals": "true"}

    def is_told() -> bool:
        consumers = management.request("GET", "consumers", vhost)
        counts = [
            (
                sum(queue.get("messages_unacknowledged", 0) for queue in queues),
                sum(queue.get("messages", 0) for queue in queues),
            )
            for queues in (
                management.request("GET", "queues", vhost, query=query) for query in (totals, None)
            )
        ]
        known = {
            each["name"] for each in management.request("GET", "connections") if each.get("connected_at")
        }
        is_known = all(
            (consumer["channel_details"] or {}).get("connection_name") in known for consumer in consumers
        )
        are_active = sum(consumer["active"] for consumer in consumers) == active
        return are_active and counts == [(active, messages)] * 2 and is_known

    until(is_told, "the management API tells what is there", every_s=0.2)
