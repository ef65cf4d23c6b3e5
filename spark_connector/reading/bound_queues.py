"""Which queues are behind an exchange. Only the driver and the planner load it."""

from __future__ import annotations

from collections import defaultdict

from rabbit_chx.amqp.settings import ManagementUrl
from rabbit_chx.broker.management import Management


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
