"""The traffic and the consumers of a vhost, by the statistics of the management API.

A message counts for the exchange that it was published to, and for the queues that it reached. The exchanges in between, such as slots, have
no rates (rabbitmq-server v4.3.6, rabbit_channel.erl, ``deliver_to_queues/3`` counts the exchange of the message; tested on 3.10.8, 4.0.5 and
4.3.6).
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from rabbit_chx.broker.live_broker import ManagementApi, Shape, shape_fault
from rabbit_chx.checks import is_whole
from rabbit_chx.errors import BrokerRefusedError
from rabbit_chx.topology.model import RUNNING, Consumer, LiveTopology, PublishRates, QueueUsage, Usage

_COLUMNS = "name,state,message_stats.publish_details.rate"
_LAST_MINUTE = {"msg_rates_age": "60", "msg_rates_incr": "5"}
_EXCHANGE_RATES = "name,message_stats.publish_in_details.avg_rate"
_QUEUE_USAGE = "name,state,messages_ready,messages_unacknowledged,consumers,messages_by_priority,message_stats.publish_details.avg_rate"
_STATED: Mapping[str, Shape] = {"name": str, "state?": str}
# The names of objects that only a definitions file can make may be no texts.
_ANY_NAME: Mapping[str, Shape] = {}
_CONSUMER_COLUMNS = "queue,consumer_tag,active,arguments,channel_details"
_CONSUMER: Mapping[str, Shape] = {"consumer_tag": str, "queue?": {"name?": str}}
#: The answer of a broker that collects no statistics.
_BAD_REQUEST = 400
#: The tags of a user who sees the consumers of all users.
_SEEING = {"administrator", "monitoring"}
#: The statistics are up to 5 s old.
_STALE_S = 6.0
_POLL_S = 1.0
_COUNTED: Mapping[str, Shape] = {"state?": str, "messages_by_priority?": dict}


def read_rates_of(api: ManagementApi, vhost: str, exchange: Mapping[str, Any]) -> PublishRates:
    """Return the rates of the last seconds of an exchange, an entry of the management API, and of the queues of its vhost."""
    queues = api.get_list("queues", vhost, query={"columns": _COLUMNS}, fields=_STATED)
    rates = {queue["name"]: _rate(queue, "publish_details") for queue in queues}
    return PublishRates(
        _rate(exchange, "publish_in_details"),
        {name: rate for name, rate in rates.items() if rate is not None},
        {entry["name"]: entry["state"] for entry in queues if entry.get("state", "running") not in RUNNING},
    )


def read_usage(api: ManagementApi, vhost: str) -> Usage:
    """Return the traffic of the last minute, and the messages and consumers of each queue of a vhost.

    A broker that collects no statistics has none of these.

    Args:
        api: the management API.
        vhost: the vhost.
    """
    exchanges = api.get_list(
        "exchanges", vhost, query=_LAST_MINUTE | {"columns": _EXCHANGE_RATES}, fields=_ANY_NAME
    )
    queues = api.get_list("queues", vhost, query=_LAST_MINUTE | {"columns": _QUEUE_USAGE}, fields=_COUNTED)
    published = {
        exchange["name"]: rate
        for exchange in exchanges
        if (rate := _rate(exchange, "publish_in_details", "avg_rate")) is not None
    }
    counted = {queue["name"]: _usage_of(queue) for queue in queues if isinstance(queue.get("name"), str)}
    consumers = _read_consumers(api, vhost)
    usage = Usage(published, counted, consumers)
    is_complete = consumers is None or all(
        len(consumers.get(name, ())) >= (queue.consumers or 0) for name, queue in counted.items()
    )
    return usage if is_complete or _sees_others(api) else replace(usage, sees_all=False)


def with_settled_consumers(live: LiveTopology, api: ManagementApi) -> LiveTopology:
    """Return a broker whose usage is read again for some seconds, as long as a queue seems to have consumers and none of them is active.

    The statistics are up to 5 s old.
    """
    deadline = time.monotonic() + _STALE_S
    while (usage := live.facts.usage) and usage.is_unsettled and time.monotonic() < deadline:
        time.sleep(_POLL_S)
        live = replace(live, facts=replace(live.facts, usage=read_usage(api, live.vhost or "/")))
    return live


def _read_consumers(api: ManagementApi, vhost: str) -> dict[str, list[Consumer]] | None:
    """Return the consumers of each queue that the broker lists; None if it collects no statistics."""
    try:
        listed = api.get_list("consumers", vhost, query={"columns": _CONSUMER_COLUMNS}, fields=_CONSUMER)
    except BrokerRefusedError as refusal:
        if refusal.reply_code != _BAD_REQUEST:
            raise
        return None
    consumers: dict[str, list[Consumer]] = {}
    for entry in listed:
        if queue := (entry.get("queue") or {}).get("name"):
            consumers.setdefault(queue, []).append(_consumer(entry))
    return consumers


def _consumer(entry: Mapping[str, Any]) -> Consumer:
    arguments = entry.get("arguments") or {}  # an empty list if there are none
    priority = arguments.get("x-priority", 0)
    details = entry.get("channel_details") or {}
    return Consumer(
        entry["consumer_tag"],
        bool(entry.get("active", True)),
        priority if isinstance(priority, int) else 0,
        str(details.get("connection_name", "")),
    )


def _sees_others(api: ManagementApi) -> bool:
    """Return True for a user to whom the broker lists the consumers of other users' connections, too."""
    tags = api.get("whoami", fields={}).get("tags") or ()
    return not _SEEING.isdisjoint(tags.split(",") if isinstance(tags, str) else tags)


def _usage_of(queue: Mapping[str, Any]) -> QueueUsage:
    return QueueUsage(
        ready=_count_of(queue, "messages_ready"),
        unacked=_count_of(queue, "messages_unacknowledged"),
        consumers=_count_of(queue, "consumers"),
        rate=_rate(queue, "publish_details", "avg_rate"),
        state=queue.get("state"),
        priorities=_priorities(queue.get("messages_by_priority") or {}),
    )


def _priorities(counts: Mapping[str, object]) -> tuple[int, ...]:
    """Return the priorities of which messages wait. The statistics of an emptied queue keep them with the count 0."""
    return tuple(sorted(int(name) for name, count in counts.items() if name.isdecimal() and count))


def _count_of(entry: Mapping[str, Any], name: str) -> int | None:
    return entry[name] if is_whole(entry.get(name), 0) else None


def _rate(entry: Mapping[str, Any], name: str, figure: str = "rate") -> float | None:
    statistics = entry.get("message_stats")
    details = statistics.get(name) if isinstance(statistics, Mapping) else None
    rate = details.get(figure) if isinstance(details, Mapping) else None
    return None if rate is None or shape_fault(rate, float) else float(rate)
