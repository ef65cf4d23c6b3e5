"""Hash exchanges that cannot be declared, because a policy shards them from their first moment.

Where the store is Khepri, rabbitmq_sharding binds the first shard before the exchange has a ring. The broker then closes the
connection with 541, and leaves an exchange whose ring is empty (``rabbit_exchange_type_consistent_hash.erl`` add_binding/3; tried
on 4.0.5 with Khepri and on 4.3.6. On Mnesia 3.8.9, 3.10.8 and 4.0.5 take it.) A policy that comes after the exchange is none
of that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rabbit_chx.errors import InputError
from rabbit_chx.routing import NEWEST
from rabbit_chx.routing.bindings import weight_of
from rabbit_chx.topology.matching_policy import SHARDS_PER_NODE, applying_policy
from rabbit_chx.topology.objects import HASH_EXCHANGE, ExchangeDefinition, PolicyDefinition

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from rabbit_chx.routing import Release
    from rabbit_chx.topology.model import Topology
    from rabbit_chx.topology.planning.planned_change import PlannedChange

__all__ = ["policies_in_the_way", "policy_in_the_way"]


def policy_in_the_way(
    exchange: ExchangeDefinition, policies: Iterable[PolicyDefinition], release: Release
) -> PolicyDefinition | None:
    """Return the policy under which the broker cannot declare an exchange; None if there is none.

    Args:
        exchange: the exchange.
        policies: the policies that are there.
        release: the broker's release.
    """
    if exchange.type != HASH_EXCHANGE or release.store != "khepri":
        return None
    policy = applying_policy(exchange, policies)
    if policy is None or not policy.definition.get(SHARDS_PER_NODE):
        return None
    try:
        weight_of("a shard", policy.definition.get("routing-key", ""), release)
    except InputError:  # the broker does not bind the shards
        return None
    return policy


def policies_in_the_way(
    changes: Sequence[PlannedChange], live: Topology
) -> Iterator[tuple[ExchangeDefinition, PolicyDefinition]]:
    """Yield the exchanges that the broker cannot declare when their turn comes, each with the policy that is then there.

    Args:
        changes: the changes, in order.
        live: what is there before them.
    """
    policies = {one.name: one for one in live.policies}
    for change in changes:
        subject = change.subject
        if isinstance(subject, PolicyDefinition):
            if change.wanted is None:
                policies.pop(subject.name, None)
            else:
                policies[subject.name] = subject
        elif isinstance(subject, ExchangeDefinition) and change.action in ("create", "replace"):
            policy = policy_in_the_way(subject, policies.values(), live.release or NEWEST)
            if policy is not None:
                yield subject, policy
