"""The publish rates of an exchange and of the queues of its vhost, by the statistics of the management API.

A message counts for the exchange that it was published to, and for the queues that it reached. The exchanges in between, such as slots, have
no rates (rabbitmq-server v4.3.6, rabbit_channel.erl, ``deliver_to_queues/3`` counts the exchange of the message; tested on 3.10.8, 4.0.5 and
4.3.6).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from rabbit_chx.broker.live_broker import ManagementApi, Shape, shape_fault
from rabbit_chx.checks import is_whole

_COLUMNS = "name,state,message_stats.publish_details.rate"
_LAST_MINUTE = {"msg_rates_age": "60", "msg_rates_incr": "5"}
_EXCHANGE_RATES = "name,message_stats.publish_in_details.avg_rate"
_BACKLOG = ("messages_ready", "messages_unacknowledged", "consumers")
_QUEUE_RATES = f"name,state,{','.join(_BACKLOG)},message_stats.publish_details.avg_rate"
_NAMED: Mapping[str, Shape] = {"name": str}
_STATED: Mapping[str, Shape] = {"name": str, "state?": str}
#: The states of a queue that works.
_RUNNING = ("running", "idle")


@dataclass(frozen=True, slots=True)
class PublishRates:
    """Messages per second, as the broker counted them in the last seconds.

    Attributes:
        exchange: those that were published to the exchange itself; None if the broker has no rate, as before the first message.
        queues: those that reached each queue of the vhost that has a rate, by whatever exchange.
        states: the state of each queue of the vhost that does not run, such as ``down``.
        backlogs: the ready and the unacknowledged messages and the consumers of each queue; then the rates are those of the last minute.
    """

    exchange: float | None
    queues: Mapping[str, float] = field(hash=False)
    states: Mapping[str, str] = field(default_factory=dict, hash=False)
    backlogs: Mapping[str, tuple[int | None, ...]] = field(default_factory=dict, hash=False)

    def traffic(self, queues: Collection[str]) -> dict[str, float]:
        """Return the share of the messages that each of these queues got; empty without messages."""
        rates = {queue: rate for queue in queues if (rate := self.queues.get(queue, 0.0))}
        total = sum(rates.values())
        return {queue: rates.get(queue, 0.0) / total for queue in queues} if total else {}


def read_rates_of(api: ManagementApi, vhost: str, exchange: Mapping[str, Any]) -> PublishRates:
    """Return the rates of an exchange, an entry of the management API, and of the queues of its vhost."""
    queues = api.get_list("queues", vhost, query={"columns": _COLUMNS}, fields=_STATED)
    return _rates_of(_rate(exchange, "publish_in_details"), queues)


def read_rates(api: ManagementApi, vhost: str, names: Collection[str]) -> dict[str, PublishRates]:
    """Return the rates of the last minute of exchanges of a vhost, with the messages and consumers of its queues, in two requests."""
    exchanges = api.get_list(
        "exchanges", vhost, query=_LAST_MINUTE | {"columns": _EXCHANGE_RATES}, fields=_NAMED
    )
    queues = api.get_list("queues", vhost, query=_LAST_MINUTE | {"columns": _QUEUE_RATES}, fields=_STATED)
    rates = {
        entry["name"]: _rate(entry, "publish_in_details", "avg_rate")
        for entry in exchanges
        if entry["name"] in names
    }
    of_queues = _rates_of(None, queues, "avg_rate")
    return {name: replace(of_queues, exchange=rates.get(name)) for name in names}


def _rates_of(
    exchange: float | None, queues: Iterable[Mapping[str, Any]], figure: str = "rate"
) -> PublishRates:
    """Return the rate of an exchange and of listed queues, and what else is listed of them."""
    listed = list(queues)
    rates = {queue["name"]: _rate(queue, "publish_details", figure) for queue in listed}
    return PublishRates(
        exchange,
        {name: rate for name, rate in rates.items() if rate is not None},
        {entry["name"]: entry["state"] for entry in listed if entry.get("state", "running") not in _RUNNING},
        {
            entry["name"]: tuple(entry[name] if is_whole(entry.get(name), 0) else None for name in _BACKLOG)
            for entry in listed
            if any(name in entry for name in _BACKLOG)
        },
    )


def _rate(entry: Mapping[str, Any], name: str, figure: str = "rate") -> float | None:
    statistics = entry.get("message_stats")
    details = statistics.get(name) if isinstance(statistics, Mapping) else None
    rate = details.get(figure) if isinstance(details, Mapping) else None
    return None if rate is None or shape_fault(rate, float) else float(rate)
