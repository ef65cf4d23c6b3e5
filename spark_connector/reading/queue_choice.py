"""Which queues are behind an exchange, and which of them may be read as queues. Only the driver and the planner load it."""

from __future__ import annotations

import re
from collections import defaultdict
from functools import partial

from rabbit_chx.amqp.management_url import ManagementUrl
from rabbit_chx.broker.management import Management
from rabbit_chx.connection.queue_consumer import QueueFacts, look_at_queue
from rabbit_chx.errors import InputError, MismatchError
from spark_connector.options.queue_options import QueueOptions

#: From here on a quorum queue does not count as failed what is given back.
_COUNTS_FAILURES_ONLY = (4, 3)


def queues_of(options: QueueOptions) -> dict[str, int]:
    """Return how many messages are ready in each queue that is to be read.

    Raises:
        InputError: a queue is a stream, or no queue is bound to the exchange.
        MismatchError: a queue counts each look, and that is not allowed.
        NotFoundError: there is no such queue or exchange.
        UnreachableError: nobody answers.
    """
    ready = {}
    for queue in options.queues or _bound(options):
        facts = options.brokers.first_that_answers(partial(look_at_queue, queue=queue))
        _refuse_unfit(queue, facts, options)
        ready[queue] = facts.messages
    return ready


def bound_queues(management_url: ManagementUrl, vhost: str, exchange: str) -> dict[str, str]:
    """Return the types of the queues that are bound to an exchange, or to exchanges behind it.

    Args:
        management_url: the management API, with its login.
        vhost: the exchange's vhost.
        exchange: its name.

    Raises:
        NotFoundError: there is no such exchange.
        BrokerRefusedError: the user lacks a permission, or the tag management.
        UnreachableError: nothing answers at the URL.
    """
    management = Management(management_url)
    management.request("GET", "exchanges", vhost, exchange)  # raises where there is none
    targets = defaultdict(set)
    for binding in management.request("GET", "bindings", vhost):
        targets[binding["source"]].add((binding["destination_type"], binding["destination"]))
    queues, seen, left = set(), {exchange}, [exchange]
    while left:
        for kind, name in targets[left.pop()]:
            if kind == "queue":
                queues.add(name)
            elif name not in seen:
                seen.add(name)
                left.append(name)
    listed = management.request("GET", "queues", vhost, query={"columns": "name,type"})
    return {queue["name"]: queue["type"] for queue in listed if queue["name"] in queues}


def _bound(options: QueueOptions) -> list[str]:
    assert options.exchange is not None  # noqa: S101  # the options are checked
    assert options.management_url is not None  # noqa: S101
    login = options.brokers.resolve()[0]
    types = bound_queues(options.management_url.with_login_of(login), login.vhost, options.exchange)
    queues = sorted(queue for queue, kind in types.items() if kind != "stream")
    if not queues:
        raise InputError(
            f"no queue is bound to exchange {options.exchange!r} in vhost {login.vhost!r}, but {len(types)} streams: read them "
            "without the option mode",
            exchange=options.exchange,
        )
    return queues


def _refuse_unfit(queue: str, facts: QueueFacts, options: QueueOptions) -> None:
    if facts.kind == "stream":
        raise InputError(
            f"queue {queue!r} is a stream, which keeps its messages: read it with the option stream={queue!r} instead of queue",
            queue=queue,
        )
    counts = facts.kind in ("quorum", None) and _release(facts.version) < _COUNTS_FAILURES_ONLY
    if options.mode == "peek" and counts and not options.allow_delivery_count:
        what = (
            "is a quorum queue" if facts.kind else "may be a quorum queue, which this release does not tell"
        )
        raise MismatchError(
            f"queue {queue!r} {what}: RabbitMQ {facts.version} counts each look as a failed delivery, and drops or dead-letters "
            "messages at the delivery limit (20 unless set, from 4.0 on); use spark_connector.drain, or set allowDeliveryCount to true",
            queue=queue,
        )


def _release(version: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", version)[:2]))
