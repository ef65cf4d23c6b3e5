"""How much is published to an exchange and to the queues behind it, by the statistics of the management API.

A message counts for the exchange that it was published to, and for the queues that it came to. The exchanges between them,
such as slots, have no figures (rabbitmq-server v4.3.6, rabbit_channel.erl, ``deliver_to_queues/3`` counts the exchange of the
message; tried on 3.10.8, 4.0.5 and 4.3.6).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rabbit_chx.topology.sequences.exchange_reading import exchange_found
from rabbit_chx.topology.sequences.steps import ApiRequest

if TYPE_CHECKING:
    from rabbit_chx.topology.sequences.steps import ApiSequence

__all__ = ["PublishRates", "rates_read"]

_COLUMNS = "name,message_stats.publish_details.rate"


@dataclass(frozen=True, slots=True)
class PublishRates:
    """Messages a second, as the broker counted them in the last seconds.

    Attributes:
        exchange: those that were published to the exchange itself; None where the broker has no figure, as before the first
            message.
        queues: those that came to each queue of the vhost that has a figure, by whatever exchange.
    """

    exchange: float | None
    queues: Mapping[str, float] = field(hash=False)


def rates_read(vhost: str, exchange: str) -> ApiSequence[PublishRates]:
    """Read how much is published to an exchange, and to the queues of its vhost.

    Args:
        vhost: the exchange's vhost.
        exchange: the exchange's name.

    Raises:
        NotFoundError: there is no such exchange or vhost.
        UnreachableError: nothing answers at the address.
    """
    found = yield from exchange_found(vhost, exchange)
    queues = yield ApiRequest(
        "GET", ("queues", vhost), {"columns": _COLUMNS}, listed=True, fields={"name": str}
    )
    rates = {one["name"]: _rate(one, "publish_details") for one in queues}
    return PublishRates(
        _rate(found, "publish_in_details"), {name: rate for name, rate in rates.items() if rate is not None}
    )


def _rate(entry: Mapping[str, Any], name: str) -> float | None:
    statistics = entry.get("message_stats")
    details = statistics.get(name) if isinstance(statistics, Mapping) else None
    rate = details.get("rate") if isinstance(details, Mapping) else None
    return float(rate) if isinstance(rate, int | float) else None
