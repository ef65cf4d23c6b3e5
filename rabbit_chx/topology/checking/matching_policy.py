"""Which policy applies to an exchange or a queue, and what it sets.

Mirrors rabbitmq-server ``deps/rabbit/src/rabbit_policy.erl``, ``match_best/2`` and ``get_arg/3``: of the policies whose pattern
matches, the one with the largest priority applies, and an argument goes before it. Operator policies are not known here.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from rabbit_chx.topology.objects import ExchangeDefinition

if TYPE_CHECKING:
    from rabbit_chx.topology.argument_table import ArgumentValue
    from rabbit_chx.topology.model import Topology
    from rabbit_chx.topology.objects import PolicyDefinition, QueueDefinition

__all__ = ["setting_of"]

_OF_QUEUES = {"classic": "classic_queues", "quorum": "quorum_queues", "stream": "streams"}


def setting_of(one: ExchangeDefinition | QueueDefinition, argument: str, topology: Topology) -> ArgumentValue:
    """Return what an argument, or else the policy that applies, sets; None if neither does.

    Args:
        one: the exchange or the queue.
        argument: the name of the argument. The key of a policy is the same without ``x-``.
        topology: the topology, whose policies are looked at.
    """
    found: ArgumentValue
    if argument in one.arguments:
        found = one.arguments[argument]
        return found
    matching = [policy for policy in topology.policies if _matches(policy, one)]
    if not matching:
        return None
    best = max(matching, key=lambda policy: policy.priority)
    found = best.definition.get(argument.removeprefix("x-"))
    return found


def _matches(policy: PolicyDefinition, one: ExchangeDefinition | QueueDefinition) -> bool:
    of_kind = ("exchanges",) if isinstance(one, ExchangeDefinition) else ("queues", _OF_QUEUES[one.type])
    try:
        return policy.apply_to in ("all", *of_kind) and re.search(policy.pattern, one.name) is not None
    except re.error:  # a pattern of PCRE that Python does not read
        return False
