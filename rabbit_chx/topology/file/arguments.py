"""The arguments of queues and exchanges, and the settings of policies, that each release accepts and compares.

A broker checks the arguments that it knows for some type of queue, and refuses them for other types. It accepts and ignores all others
(rabbitmq-server ``deps/rabbit/src/rabbit_amqqueue.erl``, ``check_declare_arguments/3``, ``declare_args/0``; ``rabbit_queue_type.erl``,
``arguments/2``; ``rabbit_policy.erl``, ``validate/5``). The tables were measured with 3.8.9, 3.10.8, 4.0.5 and 4.3.6, and
``tests/parity/test_arguments.py`` compares them with each of these. What changed between two of them begins with the release that the
documentation names, or else with the newer one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, NamedTuple, TypeAlias

from rabbit_chx.routing.message import HASH_PROPERTIES
from rabbit_chx.routing.release import NEWEST, Numbers, Release
from rabbit_chx.topology.file.fields import FLAG, STRING, Fault, Kind, choice, whole_number
from rabbit_chx.topology.objects import (
    ALTERNATE_EXCHANGE,
    HASH_EXCHANGE,
    QUEUE_TYPES,
    ArgumentValue,
    ExchangeDefinition,
    PolicyDefinition,
    QueueDefinition,
)
from rabbit_chx.topology.policies import compiled

_Declared: TypeAlias = ExchangeDefinition | QueueDefinition | PolicyDefinition

#: The releases that were measured. What all of them refuse is a mistake on any broker.
MEASURED = tuple(map(Release, ("3.8.9", "3.10.8", "4.0.5", "4.3.6")))
DEAD_LETTER_KEY = "x-dead-letter-routing-key"
_STREAMS_SINCE: Numbers = (3, 9, 0)
#: From this release on ``24h`` and ``1D`` are the same retention (``rabbit_amqqueue.erl``, ``normalize_max_age/1``).
_AGES_BY_VALUE_SINCE: Numbers = (4, 3, 6)
_UNIT_S = {"Y": 365 * 86_400, "M": 30 * 86_400, "D": 86_400, "h": 3_600, "m": 60, "s": 1}
#: What follows a line break is ignored: the broker's expression ends there.
_MAX_AGE = re.compile(r"(0*[1-9][0-9]*)([YMDhms])(?:\n.*)?", re.DOTALL)
_MAX_TTL_MS = 315_360_000_000
_MAX_SEGMENT_BYTES = 3_000_000_000
_MS = " (milliseconds)"


def _max_age_fault(value: object) -> Fault | None:
    if isinstance(value, str) and _MAX_AGE.fullmatch(value):
        return None
    return "the value must be a number with a unit: Y, M, D, h, m or s", 'write it as "7D"'


_DENIED = (
    "RabbitMQ denies the deprecated feature queue_master_locator by default",
    "use x-queue-leader-locator",
)
_ANY = Kind("", lambda _: None)
_FROM_0, _FROM_1, _MAX_AGES = whole_number(0), whole_number(1), Kind("", _max_age_fault)
_LEADERS = choice("client-local", "balanced", "least-leaders", "random")
_ALL_LEADERS = choice("client-local", "balanced", "least-leaders", "random", "min-masters")
_MASTERS = choice("client-local", "min-masters", "random")
_OVERFLOWS = choice("drop-head", "reject-publish", "reject-publish-dlx")
_STRATEGIES = choice("at-most-once", "at-least-once")
_MODES = choice("default", "lazy")
_SEGMENTS, _FILTERS = whole_number(0, _MAX_SEGMENT_BYTES), whole_number(16, 255)
_CQ, _CQS, _ALL = ("classic", "quorum"), ("classic", "quorum", "stream"), ("all",)


class Found(NamedTuple):
    """A fault of a declaration.

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
        types: the types of queues that have it; empty: the broker does not know it any more.
        is_listed: False: the broker checks its value, but neither compares it nor refuses it for other types.
    """

    name: str
    since: Numbers
    types: tuple[str, ...]
    values: Kind
    is_listed: bool = True


#: The rules of each argument, the oldest first.
_QUEUE_RULES = (
    _Rule("x-message-ttl", (3, 7, 0), ("classic",), whole_number(0, unit=_MS)),
    _Rule("x-message-ttl", (3, 10, 0), _CQ, whole_number(0, _MAX_TTL_MS, _MS)),
    _Rule("x-expires", (3, 7, 0), ("classic",), whole_number(1, unit=_MS)),
    _Rule("x-expires", (3, 10, 0), _CQ, whole_number(1, _MAX_TTL_MS, _MS)),
    _Rule("x-max-length", (3, 7, 0), _CQ, _FROM_0),
    _Rule("x-max-length-bytes", (3, 7, 0), _CQS, _FROM_0),
    _Rule("x-max-in-memory-length", (3, 7, 0), _CQ, _FROM_0),
    _Rule("x-max-in-memory-length", (3, 10, 0), ("quorum",), _FROM_0),
    _Rule("x-max-in-memory-bytes", (3, 7, 0), _CQ, _FROM_0),
    _Rule("x-max-in-memory-bytes", (3, 10, 0), ("quorum",), _FROM_0),
    _Rule("x-max-priority", (3, 7, 0), ("classic",), whole_number(0, 255)),
    _Rule("x-overflow", (3, 7, 0), ("classic",), _OVERFLOWS),
    _Rule("x-overflow", (3, 10, 0), _CQ, _OVERFLOWS),
    _Rule("x-dead-letter-exchange", (3, 7, 0), _CQ, STRING),
    _Rule(DEAD_LETTER_KEY, (3, 7, 0), _CQ, STRING),
    _Rule("x-dead-letter-strategy", (3, 10, 0), ("quorum",), _STRATEGIES),
    _Rule("x-single-active-consumer", (3, 7, 0), _CQ, FLAG),
    _Rule("x-delivery-limit", (3, 10, 0), ("quorum",), _ANY),
    _Rule("x-consumer-timeout", (4, 3, 0), ("quorum",), whole_number(0, unit=_MS)),
    _Rule("x-consumer-disconnected-timeout", (4, 3, 0), ("quorum",), whole_number(0, unit=_MS)),
    _Rule("x-delayed-retry-type", (4, 3, 0), ("quorum",), _ANY),
    _Rule("x-delayed-retry-min", (4, 3, 0), ("quorum",), _ANY),
    _Rule("x-delayed-retry-max", (4, 3, 0), ("quorum",), _ANY),
    _Rule("x-queue-mode", (3, 7, 0), ("classic",), _MODES),
    _Rule("x-queue-mode", (4, 3, 0), ("classic",), _ANY),
    _Rule("x-queue-version", (3, 10, 0), ("classic",), whole_number(1, 2)),
    _Rule("x-queue-version", (4, 3, 0), ("classic",), whole_number(2, 2)),
    _Rule("x-queue-master-locator", (3, 7, 0), ("classic",), _MASTERS, is_listed=False),
    _Rule("x-queue-master-locator", (3, 10, 0), ("classic",), _MASTERS),
    _Rule("x-queue-master-locator", (4, 0, 0), ("classic",), _ANY),
    _Rule("x-queue-master-locator", (4, 3, 0), ("classic",), Kind("", lambda _: _DENIED)),
    _Rule("x-queue-leader-locator", (3, 10, 0), ("quorum", "stream"), _LEADERS),
    _Rule("x-queue-leader-locator", (4, 0, 0), _CQS, _ALL_LEADERS),
    _Rule("x-quorum-initial-group-size", (3, 7, 0), _CQ, _FROM_1),
    _Rule("x-quorum-initial-group-size", (3, 10, 0), ("quorum",), _FROM_1),
    _Rule("x-initial-cluster-size", _STREAMS_SINCE, ("stream",), _FROM_1),
    _Rule("x-max-age", _STREAMS_SINCE, ("stream",), _MAX_AGES),
    _Rule("x-stream-max-segment-size-bytes", _STREAMS_SINCE, ("stream",), _SEGMENTS),
    _Rule("x-stream-filter-size-bytes", (3, 13, 0), ("stream",), _FILTERS, is_listed=False),
    _Rule("x-stream-filter-size-bytes", (4, 3, 0), ("stream",), _FILTERS),
)
#: The settings of policies, likewise. A plugin that is not among RabbitMQ's own may add others.
_POLICY_RULES = (
    *(
        _Rule(name, (3, 7, 0), _ALL, STRING)
        for name in (ALTERNATE_EXCHANGE, "dead-letter-exchange", "dead-letter-routing-key")
    ),
    *(
        _Rule(name, (3, 7, 0), _ALL, STRING)
        for name in ("federation-upstream", "federation-upstream-pattern", "federation-upstream-set")
    ),
    *(_Rule(name, (3, 7, 0), _ALL, _ANY) for name in ("shards-per-node", "routing-key")),
    *(
        _Rule(f"ha-{name}", since, types, _ANY)
        for name in (
            "mode",
            "params",
            "sync-mode",
            "sync-batch-size",
            "promote-on-shutdown",
            "promote-on-failure",
        )
        for since, types in (((3, 7, 0), _ALL), ((4, 0, 0), ()))
    ),
    *(
        _Rule(f"max-{name}", (3, 7, 0), _ALL, _FROM_0)
        for name in ("length", "length-bytes", "in-memory-length", "in-memory-bytes")
    ),
    _Rule("message-ttl", (3, 7, 0), _ALL, whole_number(0, unit=_MS)),
    _Rule("expires", (3, 7, 0), _ALL, whole_number(1, unit=_MS)),
    _Rule("overflow", (3, 7, 0), _ALL, _OVERFLOWS),
    _Rule("queue-mode", (3, 7, 0), _ALL, _MODES),
    _Rule("queue-version", (3, 10, 0), _ALL, whole_number(1, 2)),
    _Rule("queue-master-locator", (3, 7, 0), _ALL, _MASTERS),
    _Rule("queue-master-locator", (4, 0, 0), _ALL, _ALL_LEADERS),
    _Rule("queue-master-locator", (4, 3, 0), _ALL, Kind("", lambda _: _DENIED)),
    _Rule("queue-leader-locator", (3, 10, 0), _ALL, _LEADERS),
    _Rule("dead-letter-strategy", (3, 10, 0), _ALL, _STRATEGIES),
    _Rule("delivery-limit", (3, 7, 0), _ALL, _FROM_0),
    _Rule("delivery-limit", (4, 0, 0), _ALL, whole_number(-(1 << 63))),
    _Rule("initial-cluster-size", _STREAMS_SINCE, _ALL, _FROM_0),
    _Rule("max-age", _STREAMS_SINCE, _ALL, _MAX_AGES),
    _Rule("stream-max-segment-size-bytes", _STREAMS_SINCE, _ALL, _SEGMENTS),
    _Rule("stream-filter-size-bytes", (3, 13, 0), _ALL, _FILTERS),
    _Rule("target-group-size", (3, 13, 0), _ALL, _FROM_1),
    _Rule("consumer-timeout", (3, 12, 0), _ALL, whole_number(0, unit=_MS)),
    _Rule("consumer-disconnected-timeout", (4, 3, 0), _ALL, whole_number(0, unit=_MS)),
    _Rule("delayed-retry-type", (4, 3, 0), _ALL, choice("all", "failed", "returned", "disabled")),
    _Rule("delayed-retry-min", (4, 3, 0), _ALL, whole_number(1, unit=_MS)),
    _Rule("delayed-retry-max", (4, 3, 0), _ALL, whole_number(1, unit=_MS)),
)
#: The number of members that a quorum queue grows to. The broker does not compare it, although it has an effect.
_TARGET_SIZE = "x-quorum-target-group-size"
QUEUE_ARGUMENTS = (*dict.fromkeys(rule.name for rule in _QUEUE_RULES), _TARGET_SIZE)
POLICY_KEYS = tuple(dict.fromkeys(rule.name for rule in _POLICY_RULES))
#: The settings of policies that require another one.
_NEEDED = {"routing-key": "shards-per-node", "delayed-retry-type": "delayed-retry-min"}
#: What Python says about patterns that PCRE refuses, too.
_PATTERN_FAULTS = (
    "missing ), unterminated subpattern", "unterminated character set", "unbalanced parenthesis", "bad escape (end of pattern)",
    "missing ), unterminated comment", "min repeat greater than max repeat",
)  # fmt: skip
_HASH_ARGUMENTS = {"hash-header": STRING, "hash-property": choice(*HASH_PROPERTIES)}
#: The value of a flag that queues other than classic ones refuse, and the rule.
_REFUSED_FLAGS = (
    ("durable", False, "must be durable"),
    ("exclusive", True, "cannot be exclusive"),
    ("auto_delete", True, "cannot be deleted automatically"),
)


@cache
def _rules_of(rules: tuple[_Rule, ...], numbers: Numbers) -> Mapping[str, _Rule]:
    """Return the rule of each name in a release."""
    return {rule.name: rule for rule in rules if rule.since <= numbers}


def declaration_faults(declared: _Declared, release: Release | None) -> list[Found]:
    """Return what a broker of this release refuses in a declaration; if `release` is None, what every release refuses."""
    if release is not None:
        return list(_faults(declared, release))
    fields = [{found.field for found in _faults(declared, each)} for each in MEASURED]
    if not all(fields):
        return []
    newest = list(_faults(declared, NEWEST))
    # Releases may refuse it for different reasons: 3.8 does not have streams.
    return [found for found in newest if all(found.field in each for each in fields)] or newest


def _faults(declared: _Declared, release: Release) -> Iterator[Found]:
    if isinstance(declared, QueueDefinition):
        return _queue_faults(declared, release)
    return (
        _policy_faults(declared, release)
        if isinstance(declared, PolicyDefinition)
        else _exchange_faults(declared)
    )


def _queue_faults(queue: QueueDefinition, release: Release) -> Iterator[Found]:
    if queue.type not in QUEUE_TYPES:
        return  # a plugin's
    if queue.type == "stream" and release.numbers < _STREAMS_SINCE:
        yield Found(
            "type", queue.type, f"RabbitMQ {release.version} does not have streams", "update to 3.9 or later"
        )
    if queue.type != "classic":
        for field, refused, rule in _REFUSED_FLAGS:
            if getattr(queue, field) is refused:
                fix = f'remove `{field}`, or write type = "classic"'
                yield Found(field, refused, f"a queue of type {queue.type} {rule}", fix)
    known = _rules_of(_QUEUE_RULES, release.numbers)
    for name, value in queue.arguments.items():
        if name in known and (fault := _argument_fault(queue, known[name], value)):
            yield Found(f"arguments.{name}", value, *fault)


def _argument_fault(queue: QueueDefinition, rule: _Rule, value: ArgumentValue) -> Fault | None:
    if queue.type not in rule.types:
        message = f"a queue of type {queue.type} does not support {rule.name}"
        return (message, "remove it") if rule.is_listed else None
    fault = rule.values.fault(value)
    if fault is None and rule.name == DEAD_LETTER_KEY and "x-dead-letter-exchange" not in queue.arguments:
        message = "a routing key for dead letters requires an exchange for them"
        fault = (message, 'write x-dead-letter-exchange too; "" is the default exchange')
    return fault


def _exchange_faults(exchange: ExchangeDefinition) -> Iterator[Found]:
    kinds = {ALTERNATE_EXCHANGE: STRING}
    if exchange.type == HASH_EXCHANGE:
        kinds |= _HASH_ARGUMENTS
        if exchange.arguments.keys() >= _HASH_ARGUMENTS.keys():
            message = "hash-header and hash-property exclude each other"
            yield Found("arguments", exchange.arguments, message, "write only one of them")
    for name, kind in kinds.items():
        if name in exchange.arguments and (fault := kind.fault(exchange.arguments[name])):
            yield Found(f"arguments.{name}", exchange.arguments[name], *fault)


def _policy_faults(policy: PolicyDefinition, release: Release) -> Iterator[Found]:
    known = _rules_of(_POLICY_RULES, release.numbers)
    if not policy.definition:
        yield Found("definition", {}, "a policy must have a setting", "write one, or remove the policy")
    for name, value in policy.definition.items():
        rule = known.get(name)
        if rule is not None and rule.types:
            fault = rule.values.fault(value)
        else:
            message = f"policies of RabbitMQ {release.version} do not have this setting"
            fault = (message, "remove it") if name in POLICY_KEYS else None
        if fault:
            yield Found(f"definition.{name}", value, *fault)
    for name, needed in _NEEDED.items():
        if policy.definition.get(name, "disabled") != "disabled" and needed not in policy.definition:
            yield Found(
                f"definition.{name}", policy.definition[name], f"it requires {needed}", f"write {needed} too"
            )
    least, most = (policy.definition.get(f"delayed-retry-{bound}") for bound in ("min", "max"))
    if isinstance(least, int) and isinstance(most, int) and least > most:
        message, fix = f"it is smaller than delayed-retry-min = {least}", "write a larger one"
        yield Found("definition.delayed-retry-max", most, message, fix)
    if fault := pattern_fault(policy.pattern):
        yield Found("pattern", policy.pattern, *fault)


def pattern_fault(pattern: str) -> Fault | None:
    """Return the fault of a policy's pattern; None also where only Python, and not PCRE, may refuse it."""
    try:
        compiled(pattern)
    except re.error as error:
        before = pattern[: error.pos]
        is_nothing = (
            error.msg == "nothing to repeat" and (not before or before[-1] in "(|") and "(*" not in pattern
        )
        if is_nothing or error.msg in _PATTERN_FAULTS:
            fix = 'write a regular expression, such as "^orders\\\\." for all names that begin with orders.'
            return f"the pattern is not a regular expression: {error.msg} at position {error.pos}", fix
    return None


def same_argument(
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
