"""The arguments of queues and exchanges that have an effect in each release, and those that it compares.

A broker checks the arguments that it knows for some type of queue, and refuses them for other types. It accepts and ignores all others
(rabbitmq-server ``deps/rabbit/src/rabbit_amqqueue.erl``, ``check_declare_arguments/3``, ``declare_args/0``; ``rabbit_queue_type.erl``,
``arguments/2``). What it refuses is not predicted: a plan declares before it changes a ring. The tables were measured with 3.10.8, 4.0.5 and 4.3.6, and
``tests/parity/test_arguments.py`` compares them with each of these. What changed between two of them begins with the release that the
documentation names, or else with the newer one.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

from rabbit_chx.amqp.exchange_types import ARGUMENT as DELIVERY_LIMIT
from rabbit_chx.amqp.exchange_types import delivery_limit_fault
from rabbit_chx.checks import similar
from rabbit_chx.errors import InputError
from rabbit_chx.routing import Destination, ExchangeRef
from rabbit_chx.routing.bindings import weight_of
from rabbit_chx.routing.release import NEWEST_COMPARED, OLDEST, Numbers, Release
from rabbit_chx.text import FEW, grouped, listed
from rabbit_chx.topology.argument_table import NO_ARGUMENTS, ArgumentValue
from rabbit_chx.topology.objects import (
    ALTERNATE_EXCHANGE,
    HASH_EXCHANGE,
    MARK,
    MODULUS_EXCHANGE,
    QUEUE_TYPES,
    SUPER_STREAM,
    ExchangeDefinition,
    PolicyDefinition,
    QueueDefinition,
)
from rabbit_chx.topology.schema import FieldChange, TopologyObject, fields_between

#: The releases that were measured. What all of them ignore has no effect on any broker.
MEASURED = tuple(map(Release, ("3.10.8", "4.0.5", "4.3.6")))
#: From this release on ``24h`` and ``1D`` are the same retention (``rabbit_amqqueue.erl``, ``normalize_max_age/1``).
_AGES_BY_VALUE_SINCE: Numbers = (4, 3, 6)
_UNIT_S = {"Y": 365 * 86_400, "M": 30 * 86_400, "D": 86_400, "h": 3_600, "m": 60, "s": 1}
#: What follows a line break is ignored: the broker's expression ends there.
_MAX_AGE = re.compile(r"(0*[1-9][0-9]*)([YMDhms])(?:\n.*)?", re.DOTALL)
_CQ = ("classic", "quorum")
_CQS = ("classic", "quorum", "stream")


class Found(NamedTuple):
    """An argument with which a queue loses messages.

    Attributes:
        field: the field or its path, such as ``arguments.x-expires``.
    """

    field: str
    value: Any
    message: str
    fix: str


class _Rule(NamedTuple):
    """What a broker knows of an argument from a release on, until the next rule of the same name.

    Attributes:
        types: the types of queues that have it.
        is_listed: False: the broker neither compares it nor refuses it for other types.
    """

    name: str
    types: tuple[str, ...]
    since: Numbers = OLDEST
    is_listed: bool = True


#: The rules of each argument, the oldest first.
_QUEUE_RULES = (
    _Rule("x-message-ttl", _CQ),
    _Rule("x-expires", _CQ),
    _Rule("x-max-length", _CQ),
    _Rule("x-max-length-bytes", _CQS),
    _Rule("x-max-in-memory-length", ("quorum",)),
    _Rule("x-max-in-memory-bytes", ("quorum",)),
    _Rule("x-max-priority", ("classic",)),
    _Rule("x-overflow", _CQ),
    _Rule("x-dead-letter-exchange", _CQ),
    _Rule("x-dead-letter-routing-key", _CQ),
    _Rule("x-dead-letter-strategy", ("quorum",)),
    _Rule("x-single-active-consumer", _CQ),
    _Rule("x-delivery-limit", ("quorum",)),
    _Rule("x-consumer-timeout", ("quorum",), (4, 3, 0)),
    _Rule("x-consumer-disconnected-timeout", ("quorum",), (4, 3, 0)),
    _Rule("x-delayed-retry-type", ("quorum",), (4, 3, 0)),
    _Rule("x-delayed-retry-min", ("quorum",), (4, 3, 0)),
    _Rule("x-delayed-retry-max", ("quorum",), (4, 3, 0)),
    _Rule("x-queue-mode", ("classic",)),
    _Rule("x-queue-version", ("classic",)),
    _Rule("x-queue-master-locator", ("classic",)),
    _Rule("x-queue-leader-locator", ("quorum", "stream")),
    _Rule("x-queue-leader-locator", _CQS, (4, 0, 0)),
    _Rule("x-quorum-initial-group-size", ("quorum",)),
    _Rule("x-initial-cluster-size", ("stream",)),
    _Rule("x-max-age", ("stream",)),
    _Rule("x-stream-max-segment-size-bytes", ("stream",)),
    _Rule("x-stream-filter-size-bytes", ("stream",), (3, 13, 0), is_listed=False),
    _Rule("x-stream-filter-size-bytes", ("stream",), (4, 3, 0)),
)
FEDERATION_SETTINGS = ("federation-upstream", "federation-upstream-pattern", "federation-upstream-set")
#: The number of members that a quorum queue grows to. The broker does not compare it, although it has an effect.
_TARGET_SIZE = "x-quorum-target-group-size"
QUEUE_ARGUMENTS = (*dict.fromkeys(rule.name for rule in _QUEUE_RULES), _TARGET_SIZE)
#: The arguments that have an effect although the broker does not check them.
_UNCHECKED = (
    _Rule(_TARGET_SIZE, ("quorum",), (3, 13, 0)),
    _Rule("x-consumer-timeout", _CQ, (3, 12, 0)),
)
#: The arguments of other plugins, and of the broker's own queues and exchanges.
_PLUGIN_ARGUMENTS = ("x-message-deduplication", "x-internal-purpose")
_DELAYED = "x-delayed-message"
_DELAYED_TYPE = "x-delayed-type"
#: The arguments of each type of exchange, in addition to ``alternate-exchange``, on all releases. Other types are not known well enough.
_EXCHANGE_ARGUMENTS: Mapping[str, tuple[str, ...]] = {
    "direct": (SUPER_STREAM,),
    "fanout": (),
    "topic": (),
    "headers": (),
    HASH_EXCHANGE: ("hash-header", "hash-property"),
    MODULUS_EXCHANGE: (),
    "x-random": (),
    "x-local-random": (),
    "x-recent-history": ("x-recent-history-length",),
    _DELAYED: (_DELAYED_TYPE,),
    "x-message-deduplication": ("x-cache-size", "x-cache-ttl", "x-cache-persistence"),
}
#: How similar the name of an argument must be to the one that is probably meant.
_CLOSE = 0.85


@cache
def _rules_of(rules: tuple[_Rule, ...], numbers: Numbers) -> Mapping[str, _Rule]:
    """Return the rule of each name in a release."""
    return {rule.name: rule for rule in rules if rule.since <= numbers}


def limit_faults(queue: QueueDefinition, release: Release) -> Iterator[Found]:
    """Yield the delivery limit with which a queue loses messages, although the broker accepts it."""
    fault = delivery_limit_fault(queue.arguments, release.numbers) if queue.type == "quorum" else None
    if fault is not None:
        yield Found(f"arguments.{DELIVERY_LIMIT}", queue.arguments[DELIVERY_LIMIT], *fault)


def find_ignored_arguments(
    declared: ExchangeDefinition | QueueDefinition, release: Release | None
) -> list[tuple[str, str, str | None]]:
    """Return the arguments that a broker of this release accepts, and that change nothing; if `release` is None, those of every release.

    Each has the clause that says why, empty if RabbitMQ does not know it, and the argument with the most similar name that has an effect
    there, if one is similar.

    Exchanges and queues of plugins' types are left out if their arguments are not in the tables.
    """
    if release is None:
        of_each = [find_ignored_arguments(declared, each) for each in MEASURED]
        in_all = set.intersection(*({name for name, _, _ in each} for each in of_each))
        return [found for found in of_each[-1] if found[0] in in_all]
    known = (
        _effective_of_exchange(declared)
        if isinstance(declared, ExchangeDefinition)
        else _effective_of_queue(declared, release)
    )
    if known is None:
        return []
    return [
        (name, _reason(name, declared, release), _meant(name, known))
        for name in declared.arguments
        if name not in known and name not in _PLUGIN_ARGUMENTS
    ]


def find_ignored(
    objects: Iterable[ExchangeDefinition | QueueDefinition], release: Release | None
) -> Iterator[tuple[list[str], str, str]]:
    """Yield the names of the objects that have an ignored argument in common, a sentence about it, and the remedy.

    What a release newer than `NEWEST_COMPARED` does with an argument that is not in the tables is not known.
    """
    alike = grouped(
        ((declared.kind, found), declared.name)
        for declared in objects
        if declared.arguments is not NO_ARGUMENTS
        for found in find_ignored_arguments(declared, release)
    )
    for (kind, (argument, reason, meant)), names in alike.items():
        if len(names) == 1:
            subject = f"{kind} {names[0]} has"
        else:
            subject = f"{len(names):,} {kind}s ({listed(names, FEW)}) have"
        what, fix = _ignored_in_words(reason, release)
        if meant:
            fix = f"did you mean {meant}?"
        yield names, f"{subject} the argument {argument}, {what}", fix


def _ignored_in_words(reason: str, release: Release | None) -> tuple[str, str]:
    """Return what a release, or each one, does with an argument that is not in the tables, and the remedy."""
    newest = NEWEST_COMPARED.version
    if release is not None and release.numbers > NEWEST_COMPARED.numbers:
        what = f"which RabbitMQ {release.version} is not known to use ({newest} is the newest release that was compared, and ignores it)"
        return what, "see the documentation of that release"
    broker = f"RabbitMQ up to {newest}" if release is None else f"RabbitMQ {release.version}"
    why = f" ({reason})" if reason else ""
    return f"which {broker} ignores{why}", "set what it is meant for in another way, or remove it"


def _meant(name: str, known: Collection[str]) -> str | None:
    return similar(name, known, _CLOSE) or similar(f"x-{name}", known, _CLOSE)


def _reason(name: str, declared: ExchangeDefinition | QueueDefinition, release: Release) -> str:
    """Return why an argument has no effect."""
    if isinstance(declared, ExchangeDefinition):
        types = [type_ for type_, names in _EXCHANGE_ARGUMENTS.items() if name in names]
    else:
        types = [type_ for type_, names in _effects_at(release.numbers).items() if name in names]
        later = [rule.since for rule in (*_QUEUE_RULES, *_UNCHECKED) if rule.name == name and rule.types]
        if not types and later and min(later) > release.numbers:
            return f"RabbitMQ has it from {'.'.join(map(str, min(later)[:2]))} on"
    if types:
        return f"only {declared.kind}s of type {' or '.join(types)} have it"
    return ""


def _effective_of_exchange(exchange: ExchangeDefinition) -> tuple[str, ...] | None:
    """Return the arguments of an exchange that have an effect; None if they are not known."""
    own = _EXCHANGE_ARGUMENTS.get(exchange.type)
    if own is None:
        return None
    if exchange.type == _DELAYED:
        behind = exchange.arguments.get(_DELAYED_TYPE)
        further = _EXCHANGE_ARGUMENTS.get(behind) if isinstance(behind, str) else ()
        if further is None:
            return None
        own += further
    return (ALTERNATE_EXCHANGE, *own)


def _effective_of_queue(queue: QueueDefinition, release: Release) -> Collection[str] | None:
    """Return the arguments of a queue that have an effect, or that the broker refuses for its type; None if they are not known."""
    if queue.type not in QUEUE_TYPES:
        return None
    refused = {
        rule.name
        for rule in _rules_of(_QUEUE_RULES, release.numbers).values()
        if rule.is_listed and queue.type not in rule.types
    }
    return _effects_at(release.numbers)[queue.type] | refused


@cache
def _effects_at(numbers: Numbers) -> Mapping[str, frozenset[str]]:
    """Return the arguments with an effect of each type of queue in a release."""
    rules = [*_rules_of(_QUEUE_RULES, numbers).values()]
    rules += [rule for rule in _UNCHECKED if rule.since <= numbers]
    return {type_: frozenset(rule.name for rule in rules if type_ in rule.types) for type_ in QUEUE_TYPES}


def fields_for(live: TopologyObject, wanted: TopologyObject, release: Release) -> tuple[FieldChange, ...]:
    """Return the fields that differ for a broker of this release, as `fields_between` does.

    Arguments of queues differ only if it refuses to declare the queue with the other value.
    """
    fields = fields_between(live, wanted)
    if not isinstance(live, QueueDefinition) or not isinstance(wanted, QueueDefinition):
        return fields
    return tuple(
        field
        for field in fields
        if not field.field.startswith("arguments.")
        or not _same_argument(live.type, field.field.partition(".")[2], field.old, field.new, release)
    )


def _same_argument(
    queue_type: str, name: str, old: ArgumentValue, new: ArgumentValue, release: Release
) -> bool:
    """Return True if two values of a queue's argument, which differ as text, are equal for the broker. None is a missing argument.

    The broker compares the arguments that it knows for the type. Any other has no effect.
    """
    rule = _rules_of(_QUEUE_RULES, release.numbers).get(name)
    if rule is None or not rule.is_listed or queue_type not in rule.types:
        return name != _TARGET_SIZE and queue_type in QUEUE_TYPES
    if name == "x-max-age" and release.numbers >= _AGES_BY_VALUE_SINCE:
        ages = [_MAX_AGE.fullmatch(value) if isinstance(value, str) else None for value in (old, new)]
        seconds = {int(age[1]) * _UNIT_S[age[2]] if age else None for age in ages}
        return len(seconds) == 1 and None not in seconds
    return False


# -- The policies that match an exchange or a queue, and the settings of the one that applies
# Mirrors rabbitmq-server ``deps/rabbit/src/rabbit_policy.erl``, ``match_best/2`` and ``get_arg/3``: of the policies whose pattern matches,
# the one with the largest priority applies, and an argument precedes it. Operator policies count for queues (`queue_setting`).


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
        if applied is None:
            continue
        value = applied.definition.get(argument.removeprefix("x-"))
        if value is not None:
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
    found = []
    for kind, of_kind in (("policy", policies), ("operator policy", operator_policies)):
        for policy in of_kind:
            if policy_matches(policy, MARK, "classic") is False:
                continue
            found += [f"{kind} {policy.name} ({key})" for key in _OF_MARK if key in policy.definition]
    return " and ".join(found)
