"""The arguments of queues and exchanges, and the settings of policies, that each release accepts and compares.

A broker checks the arguments that it knows for some type of queue, and refuses them for other types. It accepts and ignores all others
(rabbitmq-server ``deps/rabbit/src/rabbit_amqqueue.erl``, ``check_declare_arguments/3``, ``declare_args/0``; ``rabbit_queue_type.erl``,
``arguments/2``; ``rabbit_policy.erl``, ``validate/5``). The tables were measured with 3.10.8, 4.0.5 and 4.3.6, and
``tests/parity/test_arguments.py`` compares them with each of these. What changed between two of them begins with the release that the
documentation names, or else with the newer one.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import cache
from typing import Any, NamedTuple, TypeAlias

from rabbit_chx.amqp.delivery_limit import ARGUMENT as DELIVERY_LIMIT
from rabbit_chx.amqp.delivery_limit import delivery_limit_fault
from rabbit_chx.amqp.exchange_types import exchange_type_remedy, first_release_of
from rabbit_chx.checks import is_number, similar
from rabbit_chx.grouping import grouped
from rabbit_chx.routing.message import HASH_PROPERTIES
from rabbit_chx.routing.release import NEWEST_COMPARED, OLDEST, Numbers, Release
from rabbit_chx.topology.objects.argument_table import NO_ARGUMENTS, ArgumentValue
from rabbit_chx.topology.objects.changes import FieldChange, TopologyObject, fields_between
from rabbit_chx.topology.objects.kinds import FLAG, STRING, Fault, Kind, choice, kind_of, whole_number
from rabbit_chx.topology.objects.objects import (
    ALTERNATE_EXCHANGE,
    HASH_EXCHANGE,
    MODULUS_EXCHANGE,
    QUEUE_TYPES,
    SUPER_STREAM,
    ExchangeDefinition,
    PolicyDefinition,
    QueueDefinition,
)
from rabbit_chx.topology.objects.schema import QUEUE
from rabbit_chx.topology.rules.policies import compile_pattern
from rabbit_chx.words import FEW, listed

_Declared: TypeAlias = ExchangeDefinition | QueueDefinition | PolicyDefinition

#: The releases that were measured. What all of them refuse is a mistake on any broker.
MEASURED = tuple(map(Release, ("3.10.8", "4.0.5", "4.3.6")))
DEAD_LETTER_KEY = "x-dead-letter-routing-key"
#: From this release on ``24h`` and ``1D`` are the same retention (``rabbit_amqqueue.erl``, ``normalize_max_age/1``).
_AGES_BY_VALUE_SINCE: Numbers = (4, 3, 6)
_UNIT_S = {"Y": 365 * 86_400, "M": 30 * 86_400, "D": 86_400, "h": 3_600, "m": 60, "s": 1}
#: What follows a line break is ignored: the broker's expression ends there.
_MAX_AGE = re.compile(r"(0*[1-9][0-9]*)([YMDhms])(?:\n.*)?", re.DOTALL)
_MAX_TTL_MS = 315_360_000_000
_MAX_SEGMENT_BYTES = 3_000_000_000
_MS = " (milliseconds)"


_DENIED = (
    "RabbitMQ denies the deprecated feature queue_master_locator by default",
    "use x-queue-leader-locator",
)
_ANY = Kind("", lambda _: None)
_FROM_0, _FROM_1 = whole_number(0), whole_number(1)
_MAX_AGES = kind_of(
    "",
    lambda value: isinstance(value, str) and _MAX_AGE.fullmatch(value) is not None,
    "a number with a unit: Y, M, D, h, m or s",
    'write it as "7D"',
)
_LEADERS = choice("client-local", "balanced", "least-leaders", "random")
_ALL_LEADERS = choice("client-local", "balanced", "least-leaders", "random", "min-masters")
_MASTERS = choice("client-local", "min-masters", "random")
_OVERFLOWS = choice("drop-head", "reject-publish", "reject-publish-dlx")
_STRATEGIES = choice("at-most-once", "at-least-once")
_MODES = choice("default", "lazy")
_SHARDS = kind_of(
    "",
    lambda value: is_number(value) and value >= 0,
    "a number from 0",
    "write the number of shards on each node, such as 4",
)
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
    _Rule("x-message-ttl", OLDEST, _CQ, whole_number(0, _MAX_TTL_MS, _MS)),
    _Rule("x-expires", OLDEST, _CQ, whole_number(1, _MAX_TTL_MS, _MS)),
    _Rule("x-max-length", OLDEST, _CQ, _FROM_0),
    _Rule("x-max-length-bytes", OLDEST, _CQS, _FROM_0),
    _Rule("x-max-in-memory-length", OLDEST, ("quorum",), _FROM_0),
    _Rule("x-max-in-memory-bytes", OLDEST, ("quorum",), _FROM_0),
    _Rule("x-max-priority", OLDEST, ("classic",), whole_number(0, 255)),
    _Rule("x-overflow", OLDEST, _CQ, _OVERFLOWS),
    _Rule("x-dead-letter-exchange", OLDEST, _CQ, STRING),
    _Rule(DEAD_LETTER_KEY, OLDEST, _CQ, STRING),
    _Rule("x-dead-letter-strategy", OLDEST, ("quorum",), _STRATEGIES),
    _Rule("x-single-active-consumer", OLDEST, _CQ, FLAG),
    _Rule("x-delivery-limit", OLDEST, ("quorum",), _ANY),
    _Rule("x-consumer-timeout", (4, 3, 0), ("quorum",), whole_number(0, unit=_MS)),
    _Rule("x-consumer-disconnected-timeout", (4, 3, 0), ("quorum",), whole_number(0, unit=_MS)),
    _Rule("x-delayed-retry-type", (4, 3, 0), ("quorum",), _ANY),
    _Rule("x-delayed-retry-min", (4, 3, 0), ("quorum",), _ANY),
    _Rule("x-delayed-retry-max", (4, 3, 0), ("quorum",), _ANY),
    _Rule("x-queue-mode", OLDEST, ("classic",), _MODES),
    _Rule("x-queue-mode", (4, 3, 0), ("classic",), _ANY),
    _Rule("x-queue-version", OLDEST, ("classic",), whole_number(1, 2)),
    _Rule("x-queue-version", (4, 3, 0), ("classic",), whole_number(2, 2)),
    _Rule("x-queue-master-locator", OLDEST, ("classic",), _MASTERS),
    _Rule("x-queue-master-locator", (4, 0, 0), ("classic",), _ANY),
    _Rule("x-queue-master-locator", (4, 3, 0), ("classic",), Kind("", lambda _: _DENIED)),
    _Rule("x-queue-leader-locator", OLDEST, ("quorum", "stream"), _LEADERS),
    _Rule("x-queue-leader-locator", (4, 0, 0), _CQS, _ALL_LEADERS),
    _Rule("x-quorum-initial-group-size", OLDEST, ("quorum",), _FROM_1),
    _Rule("x-initial-cluster-size", OLDEST, ("stream",), _FROM_1),
    _Rule("x-max-age", OLDEST, ("stream",), _MAX_AGES),
    _Rule("x-stream-max-segment-size-bytes", OLDEST, ("stream",), _SEGMENTS),
    _Rule("x-stream-filter-size-bytes", (3, 13, 0), ("stream",), _FILTERS, is_listed=False),
    _Rule("x-stream-filter-size-bytes", (4, 3, 0), ("stream",), _FILTERS),
)
FEDERATION_SETTINGS = ("federation-upstream", "federation-upstream-pattern", "federation-upstream-set")
#: The settings of policies, likewise. A plugin that is not among RabbitMQ's own may add others.
_POLICY_RULES = (
    *(
        _Rule(name, OLDEST, _ALL, STRING)
        for name in (ALTERNATE_EXCHANGE, "dead-letter-exchange", "dead-letter-routing-key")
    ),
    *(_Rule(name, OLDEST, _ALL, STRING) for name in FEDERATION_SETTINGS),
    _Rule("shards-per-node", OLDEST, _ALL, _SHARDS),
    _Rule("routing-key", OLDEST, _ALL, STRING),
    *(
        _Rule(name, since, types, values)
        for name, values in (
            ("ha-mode", choice("all", "exactly", "nodes")),
            ("ha-params", _ANY),
            ("ha-sync-mode", choice("automatic", "manual")),
            ("ha-sync-batch-size", _FROM_1),
            ("ha-promote-on-shutdown", choice("always", "when-synced")),
            ("ha-promote-on-failure", choice("always", "when-synced")),
        )
        for since, types in ((OLDEST, _ALL), ((4, 0, 0), ()))
    ),
    *(
        _Rule(f"max-{name}", OLDEST, _ALL, _FROM_0)
        for name in ("length", "length-bytes", "in-memory-length", "in-memory-bytes")
    ),
    _Rule("message-ttl", OLDEST, _ALL, whole_number(0, unit=_MS)),
    _Rule("expires", OLDEST, _ALL, whole_number(1, unit=_MS)),
    _Rule("overflow", OLDEST, _ALL, _OVERFLOWS),
    _Rule("queue-mode", OLDEST, _ALL, _MODES),
    _Rule("queue-version", OLDEST, _ALL, whole_number(1, 2)),
    _Rule("queue-master-locator", OLDEST, _ALL, _MASTERS),
    _Rule("queue-master-locator", (4, 0, 0), _ALL, _ALL_LEADERS),
    _Rule("queue-master-locator", (4, 3, 0), _ALL, Kind("", lambda _: _DENIED)),
    _Rule("queue-leader-locator", OLDEST, _ALL, _LEADERS),
    _Rule("dead-letter-strategy", OLDEST, _ALL, _STRATEGIES),
    _Rule("delivery-limit", OLDEST, _ALL, _FROM_0),
    _Rule("delivery-limit", (4, 0, 0), _ALL, whole_number(-(1 << 63))),
    _Rule("initial-cluster-size", OLDEST, _ALL, _FROM_0),
    _Rule("max-age", OLDEST, _ALL, _MAX_AGES),
    _Rule("stream-max-segment-size-bytes", OLDEST, _ALL, _SEGMENTS),
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
_NEEDED = {
    "routing-key": "shards-per-node",
    "delayed-retry-type": "delayed-retry-min",
    **{name: "ha-mode" for name in POLICY_KEYS if name.startswith("ha-") and name != "ha-mode"},
}
#: What Python says about patterns that PCRE refuses, too.
_PATTERN_FAULTS = (
    "missing ), unterminated subpattern", "unterminated character set", "unbalanced parenthesis", "bad escape (end of pattern)",
    "missing ), unterminated comment", "min repeat greater than max repeat",
)  # fmt: skip
#: The arguments that have an effect although the broker does not check them.
_UNCHECKED = (
    _Rule(_TARGET_SIZE, (3, 13, 0), ("quorum",), _ANY),
    _Rule("x-consumer-timeout", (3, 12, 0), _CQ, _ANY),
    _Rule("x-queue-leader-locator", OLDEST, ("stream",), _ANY),
)
#: The arguments of other plugins, and of the broker's own queues and exchanges.
_PLUGIN_ARGUMENTS = ("x-message-deduplication", "x-internal-purpose")
_DELAYED, _DELAYED_TYPE = "x-delayed-message", "x-delayed-type"
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
_HASH_ARGUMENTS = {"hash-header": STRING, "hash-property": choice(*HASH_PROPERTIES)}


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
    newest = list(_faults(declared, NEWEST_COMPARED))
    # Releases may refuse it for different reasons.
    return [found for found in newest if all(found.field in each for each in fields)] or newest


def _faults(declared: _Declared, release: Release) -> Iterator[Found]:
    if isinstance(declared, QueueDefinition):
        return _queue_faults(declared, release)
    return (
        _policy_faults(declared, release)
        if isinstance(declared, PolicyDefinition)
        else _exchange_faults(declared, release)
    )


def _queue_faults(queue: QueueDefinition, release: Release) -> Iterator[Found]:
    if queue.type not in QUEUE_TYPES:
        return  # a plugin's
    if queue.type != "classic":
        for row in QUEUE.rows:
            if row.only_classic and getattr(queue, row.name) is (refused := not QUEUE.defaults[row.name]):
                fix = f'remove `{row.name}`, or write type = "classic"'
                yield Found(row.name, refused, f"a queue of type {queue.type} {row.only_classic}", fix)
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


def _exchange_faults(exchange: ExchangeDefinition, release: Release) -> Iterator[Found]:
    since = first_release_of(exchange.type)
    if since is not None and release.numbers < since:
        message = f"RabbitMQ {release.version} does not have exchanges of this type"
        yield Found("type", exchange.type, message, exchange_type_remedy(exchange.type))
    kinds = {ALTERNATE_EXCHANGE: STRING}
    if exchange.type == "x-recent-history":
        kinds |= {"x-recent-history-length": _FROM_1}
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
    yield from _combination_faults(policy.definition, known)
    if fault := pattern_fault(policy.pattern):
        yield Found("pattern", policy.pattern, *fault)


def _combination_faults(definition: Mapping[str, Any], known: Mapping[str, _Rule]) -> Iterator[Found]:
    """Yield the faults of settings that require or exclude each other."""
    for name, needed in _NEEDED.items():
        if definition.get(name, "disabled") != "disabled" and needed not in definition:
            yield Found(
                f"definition.{name}", definition[name], f"it requires {needed}", f"write {needed} too"
            )
    upstreams = [name for name in FEDERATION_SETTINGS if name in definition]
    for name in upstreams[1:]:
        message = f"it excludes {upstreams[0]}"
        yield Found(f"definition.{name}", definition[name], message, "write only one of them")
    if definition.get("ha-mode") is not None and "ha-mode" in known and known["ha-mode"].types:
        yield from _mirroring_faults(definition)
    least, most = (definition.get(f"delayed-retry-{bound}") for bound in ("min", "max"))
    if isinstance(least, int) and isinstance(most, int) and least > most:
        message, fix = f"it is smaller than delayed-retry-min = {least}", "write a larger one"
        yield Found("definition.delayed-retry-max", most, message, fix)


def _mirroring_faults(definition: Mapping[str, Any]) -> Iterator[Found]:
    """Yield the fault of ``ha-params``, whose form depends on ``ha-mode`` (v3.10.8, ``rabbit_mirror_queue_mode_*.erl``)."""
    mode, given = definition["ha-mode"], definition.get("ha-params")
    expected = {
        "all": ("ha-params" not in definition, "it has no parameters", "remove ha-params"),
        "exactly": (_FROM_1.fault(given) is None, "it requires a number of copies", "write ha-params = 2"),
        "nodes": (
            isinstance(given, tuple) and bool(given) and all(isinstance(node, str) for node in given),
            "it requires the names of nodes",
            'write ha-params = ["rabbit@a", "rabbit@b"]',
        ),
    }
    is_right, message, fix = expected.get(mode, (True, "", ""))
    if not is_right:
        yield Found("definition.ha-mode", mode, message, fix)


def pattern_fault(pattern: str) -> Fault | None:
    """Return the fault of a policy's pattern; None also where only Python, and not PCRE, may refuse it."""
    try:
        compile_pattern(pattern)
    except re.error as error:
        before = pattern[: error.pos]
        is_nothing = (
            error.msg == "nothing to repeat" and (not before or before[-1] in "(|") and "(*" not in pattern
        )
        if is_nothing or error.msg in _PATTERN_FAULTS:
            fix = 'write a regular expression, such as "^orders\\\\." for all names that begin with orders.'
            return f"the pattern is not a regular expression: {error.msg} at position {error.pos}", fix
    return None


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
    """Return the arguments of a queue that have an effect, or that the broker refuses; None if they are not known."""
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
