"""The policies that match an exchange or a queue, and the settings of the one that applies.

Mirrors rabbitmq-server ``deps/rabbit/src/rabbit_policy.erl``, ``match_best/2`` and ``get_arg/3``: of the policies whose pattern matches,
the one with the largest priority applies, and an argument precedes it. Operator policies count for queues (`queue_setting`).
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any, NamedTuple

from rabbit_chx.errors import InputError
from rabbit_chx.routing import Destination, ExchangeRef, Release
from rabbit_chx.routing.bindings import weight_of
from rabbit_chx.topology.objects.objects import (
    ALTERNATE_EXCHANGE,
    HASH_EXCHANGE,
    ExchangeDefinition,
    PolicyDefinition,
    QueueDefinition,
)
from rabbit_chx.topology.objects.own_names import MARK

#: The key of a policy that shards an exchange.
SHARDS_PER_NODE = "shards-per-node"
_OF_EXCHANGES = ("all", "exchanges")
#: What takes the messages of the mark, or the queue, away.
_OF_MARK = ("message-ttl", "max-length", "max-length-bytes", "expires")
_OF_QUEUES = {"classic": "classic_queues", "quorum": "quorum_queues", "stream": "streams"}


def policy_matches(
    policy: PolicyDefinition, place: Destination, queue_type: str | None = None
) -> bool | None:
    """Return True if a policy matches an exchange or a queue; None if Python cannot compile its pattern.

    If `queue_type` is None, the type is not known, and a policy for queues of any type matches.
    """
    if isinstance(place, ExchangeRef):
        return _matches(policy, place.name, _OF_EXCHANGES)
    of_type = tuple(_OF_QUEUES.values()) if queue_type is None else _kinds_of(queue_type)
    return _matches(policy, place, ("all", "queues", *of_type))


def _kinds_of(queue_type: str) -> tuple[str, ...]:
    """Return the kinds of `apply_to` for a type of queue alone; a plugin's type has none."""
    return (_OF_QUEUES[queue_type],) if queue_type in _OF_QUEUES else ()


def _matches(policy: PolicyDefinition, name: str, kinds: Sequence[str]) -> bool | None:
    if policy.apply_to not in kinds:
        return False
    try:
        return compile_pattern(policy.pattern).search(name) is not None
    except re.error:  # a pattern of PCRE
        return None


@cache
def compile_pattern(pattern: str) -> re.Pattern[str]:
    """Return the compiled pattern of a policy.

    Raises:
        re.error: Python cannot compile it, or would read classes such as ``[[:alpha:]]`` otherwise than the broker.
    """
    if "[:" in pattern:
        raise re.error("Python does not have named classes")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # about sets such as [a||b]
        return re.compile(pattern)


def setting_of(
    definition: ExchangeDefinition | QueueDefinition, argument: str, policies: Iterable[PolicyDefinition]
) -> Any:
    """Return the value of an argument, or else that of the policy that applies; None if neither sets it.

    A policy whose pattern Python cannot compile does not count. The key of a policy is the name of the argument without ``x-``.
    """
    if argument in definition.arguments:
        return definition.arguments[argument]
    policy = find_applying_policy(definition, policies)
    return None if policy is None else policy.definition.get(argument.removeprefix("x-"))


def alternate_of(exchange: ExchangeDefinition, policies: Iterable[PolicyDefinition]) -> str | None:
    """Return the alternate exchange, by argument or policy; None if neither names one."""
    name = setting_of(exchange, ALTERNATE_EXCHANGE, policies)
    return name if isinstance(name, str) else None


def find_applying_policy(
    definition: ExchangeDefinition | QueueDefinition, policies: Iterable[PolicyDefinition]
) -> PolicyDefinition | None:
    """Return the policy that applies; None if no policy does. A policy whose pattern Python cannot compile does not count."""
    is_exchange = isinstance(definition, ExchangeDefinition)
    kinds = _OF_EXCHANGES if is_exchange else ("all", "queues", *_kinds_of(definition.type))
    # A name in a file may still be one that no ExchangeRef takes.
    matching = [policy for policy in policies if _matches(policy, definition.name, kinds)]
    return max(matching, key=lambda policy: policy.priority, default=None)


class QueueSetting(NamedTuple):
    """A setting of a queue.

    Attributes:
        policy: the policy that sets it, such as ``policy limits`` or ``operator policy caps``; None: an argument sets it.
    """

    value: Any
    policy: str | None


def queue_setting(
    queue: QueueDefinition,
    argument: str,
    policy: PolicyDefinition | None,
    operator_policy: PolicyDefinition | None,
) -> QueueSetting | None:
    """Return the setting of a queue by an argument or the policies that apply; None if it is not set.

    The smallest number applies. For other values an operator policy precedes a policy, the argument of a classic queue precedes both, and
    that of any other queue follows both (``rabbit_policies.erl``, ``merge_policy_value/3``; ``rabbit_amqqueue_process.erl``,
    ``process_args_policy/1``; ``rabbit_quorum_queue.erl``, ``gather_policy_config/2``; v4.3.6).
    """
    settings: list[QueueSetting] = []
    for kind, applied in (("operator policy", operator_policy), ("policy", policy)):
        if applied is not None and (value := applied.definition.get(argument.removeprefix("x-"))) is not None:
            settings.append(QueueSetting(value, f"{kind} {applied.name}"))
    if argument in queue.arguments:
        settings.insert(
            0 if queue.type == "classic" else len(settings), QueueSetting(queue.arguments[argument], None)
        )
    numbers = [setting for setting in settings if isinstance(setting.value, int)]
    return min(numbers, key=lambda setting: setting.value) if numbers else next(iter(settings), None)


def policy_in_the_way(
    exchange: ExchangeDefinition, policies: Iterable[PolicyDefinition], release: Release
) -> PolicyDefinition | None:
    """Return the sharding policy under which the broker cannot declare an exchange; None if it can."""
    if exchange.type != HASH_EXCHANGE or release.store != "khepri":
        return None
    policy = find_applying_policy(exchange, policies)
    if policy is None or not policy.definition.get(SHARDS_PER_NODE):
        return None
    try:
        weight_of("a shard", policy.definition.get("routing-key", ""), release)
    except InputError:  # the broker does not bind the shards
        return None
    return policy


def policies_of_mark(
    policies: Iterable[PolicyDefinition], operator_policies: Iterable[PolicyDefinition] = ()
) -> str:
    """Return the policies that delete messages of the mark or the queue itself, with what they set, in words; empty if none does."""
    found = [
        f"{kind} {policy.name} ({key})"
        for kind, listed in (("policy", policies), ("operator policy", operator_policies))
        for policy in listed
        if policy_matches(policy, MARK, "classic") is not False
        for key in _OF_MARK
        if key in policy.definition
    ]
    return " and ".join(found)
