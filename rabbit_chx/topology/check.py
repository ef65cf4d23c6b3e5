"""A check of the live topology by itself and against a wanted topology. No I/O."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from rabbit_chx.analysis import Finding
from rabbit_chx.analysis.wording import listed, percent, plural
from rabbit_chx.errors import InputError, MismatchError, NotFoundError
from rabbit_chx.routing import HashRing, Release
from rabbit_chx.routing.message import HASH_ARGUMENTS
from rabbit_chx.routing.release import NEWEST
from rabbit_chx.routing.rules import MODULUS_UNORDERED
from rabbit_chx.topology.changes import FieldChange, NamedObject, fields_between, kind_of, name_of
from rabbit_chx.topology.check_rings import (
    CheckedExchange,
    apply_fix,
    differing_fields,
    live_ring_findings,
    misplaced_share,
    slot_findings,
    wanted_order_findings,
    wanted_ring_findings,
)
from rabbit_chx.topology.differences import (
    binding_identity,
    by_name,
    object_differences,
    owned_binding,
    queue_lists,
)
from rabbit_chx.topology.model import Topology
from rabbit_chx.topology.modulus import numbered
from rabbit_chx.topology.modulus_plan import largest_share, share_moved
from rabbit_chx.topology.objects import (
    BROKERS_EXCHANGES,
    HASH_EXCHANGE,
    MODULUS_EXCHANGE,
    BindingDefinition,
    ExchangeDefinition,
    QueueDefinition,
)
from rabbit_chx.topology.policies import QueueSetting, policy_in_the_way
from rabbit_chx.topology.reach import Reach, transient_destinations
from rabbit_chx.topology.shards import is_sharded, shard_binding
from rabbit_chx.topology.slots import expanded_by, numbered_slots, slot_layouts

#: All kinds of findings of a check, in the order in which reports list them.
CHECK_KINDS = (
    "ghost-bucket",  # buckets of a destination that is not bound
    "hole",  # buckets without a destination, or a ring without buckets
    "order",  # the order of the ring differs from the topology
    "second-binding",  # bound more than once
    "silent-binding",  # bound, without keys
    "transient-destination",  # it is deleted automatically, which moves keys
    "missing",
    "unexpected",
    "different",  # from the topology, or from the weights of the bindings
    "unroutable-share",  # keys that reach no queue
    "expiring-destination",  # a queue that has a TTL, or expires
    "dropping-destination",  # a queue with a limit that drops its oldest messages
    "order-breaking",  # a queue that returns or delivers messages out of order
    "odd-member",  # a queue whose type or arguments differ from the others
)
_BROKERS_OWN = "amq."
_TTL, _EXPIRES, _OVERFLOW = "x-message-ttl", "x-expires", "x-overflow"
_PRIORITIES, _DELAYED_RETRY, _CONSUMER_TIMEOUT = (
    "x-max-priority",
    "x-delayed-retry-type",
    "x-consumer-timeout",
)
#: The broker's default. A shorter timeout is a decision about the queue.
_DEFAULT_TIMEOUT_MS = 1_800_000
#: From this release on quorum queues delay returned messages, and a consumer timeout returns single messages. Before, it closes the channel.
_RETURNS_SINGLY_SINCE = (4, 3, 0)
_LIMITS = {"x-max-length": "message", "x-max-length-bytes": "byte"}
_DEAD_LETTERS = "x-dead-letter-exchange"
#: Quorum queues have a message TTL since this release; before it a policy with one changes nothing.
_QUORUM_TTL_SINCE = (3, 10, 0)
#: The overflow settings that reject new messages. Quorum queues treat the second one as drop-head
#: (rabbitmq-server v4.3.6, ``rabbit_quorum_queue.erl``, ``overflow/3``).
_REFUSES = {"classic": ("reject-publish", "reject-publish-dlx"), "quorum": ("reject-publish",)}
#: Arguments that determine the place of replicas and do not affect messages.
_OF_PLACEMENT = {
    "x-queue-leader-locator",
    "x-queue-master-locator",
    "x-initial-cluster-size",
    "x-quorum-initial-group-size",
    "x-quorum-target-group-size",
}
_MOST_NAMES = 3
_DECIDES_ON_KEYS = ("type", *(f"arguments.{name}" for name in HASH_ARGUMENTS))
_WITHOUT_IT = {
    "exchange": "a channel that publishes to it is closed",
    "queue": "no messages are stored for its consumers",
    "policy": "its settings do not apply",
}


@dataclass(frozen=True, slots=True, repr=False)
class TopologyCheck:
    """The result of a check. A value; `check` makes it.

    Attributes:
        findings: the faults, of the kinds of `CHECK_KINDS`.
        exchanges: the names of the hash exchanges whose rings were checked.
        unroutable: the exact share of keys that reach no queue, by exchange.
        misplaced: the exact share of keys whose destination differs from that of the topology, by exchange; only exchanges that the
            topology contains.
        parked: the number of messages in the parking queue, by exchange; only exchanges with a parking queue.
        without_ring: the existing ``x-modulus-hash`` exchanges. They have no ring: their bindings are checked, and compared with the
            topology, if there is one.
        present: by each hash exchange of the topology, also of type ``x-modulus-hash``: True if it exists.
    """

    findings: tuple[Finding, ...]
    exchanges: tuple[str, ...]
    unroutable: Mapping[str, float] = field(default_factory=dict)
    misplaced: Mapping[str, float] = field(default_factory=dict)
    parked: Mapping[str, int] = field(default_factory=dict)
    present: Mapping[str, bool] = field(default_factory=dict)
    without_ring: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"<TopologyCheck {len(self.findings)} findings, {len(self.exchanges)} exchanges>"

    @property
    def sound(self) -> bool:
        """True if there are no findings."""
        return not self.findings


def check(
    live: Topology,
    wanted: Topology | None = None,
    *,
    exchange: str | Sequence[str] | None = None,
    file: str | None = None,
) -> TopologyCheck:
    """Return the findings of a check of the live topology.

    Only rings that were read are checked, because an assumed ring proves nothing.

    Args:
        live: the live topology, with the rings that were read.
        wanted: the wanted topology: its hash exchanges and all its objects are checked. None: all hash exchanges of the live topology are
            checked by themselves.
        exchange: check only this hash exchange, or these; None for all.
        file: the name of the topology's file, for the commands in the fixes.

    Raises:
        InputError: the ring of an exchange was not read.
        NotFoundError: an exchange of that name does not exist.
        MismatchError: the exchange is of another type.
    """
    layouts = {} if wanted is None else slot_layouts(wanted, live)
    plain = None if wanted is None else expanded_by(wanted, layouts)
    reach, transient = Reach(live), transient_destinations(live)
    findings = [] if wanted is None else list(_cluster(wanted, live))
    if exchange is None:
        names = _hash_exchanges(live, wanted)
    else:
        exchanges = [exchange] if isinstance(exchange, str) else exchange
        names = [live_hash_exchange(live, name).name for name in dict.fromkeys(exchanges)]
    unroutable: dict[str, float] = {}
    misplaced: dict[str, float] = {}
    parked: dict[str, int] = {}
    for name in names:
        listed = None if plain is None else plain.exchange(name)
        checked = CheckedExchange(
            live_hash_exchange(live, name),
            _ring_read(live, name),
            live,
            reach,
            transient,
            layouts.get(name),
            external=listed is not None and listed.owner == "external",
            file=None if listed is None else file,
        )
        findings += [*live_ring_findings(checked), *slot_findings(checked), *queue_findings(checked)]
        unroutable[name] = checked.unroutable.share
        if checked.parked:
            parked[name] = sum(checked.parked.values())
        if listed is None:
            if numbered := numbered_slots(name, checked.bound):
                findings += wanted_order_findings(checked, numbered, "the numbers of its slots")
        elif listed.ring is not None:
            findings += wanted_ring_findings(checked, listed.ring)
            if (share := misplaced_share(checked, listed.ring)) is not None:
                misplaced[name] = share
        # The plugin makes the ring of a sharded exchange.
        elif listed.type == HASH_EXCHANGE and not is_sharded(checked.exchange, live):
            message = "the topology does not contain its ring, so its order is not checked"
            findings.append(
                checked.finding("different", message, "write its members as `ring` in the topology")
            )
    if plain is not None and exchange is None:
        # The objects of slots are checked with their hash exchange.
        parts = frozenset(name for layout in layouts.values() for name in layout.names.exchanges)
        misplaced |= _misplaced_by_modulus(plain, live)
        findings += _object_findings(_without(plain, parts), _without(live, parts), file, misplaced)
    moduli = tuple(
        listed.name for listed in live.exchanges if listed.type == MODULUS_EXCHANGE and exchange is None
    )
    findings += _modulus_findings(moduli, live)
    there = {exchange.name for exchange in live.exchanges}
    present = {
        listed.name: listed.name in there
        for listed in (() if wanted is None else wanted.exchanges)
        if listed.type in (HASH_EXCHANGE, MODULUS_EXCHANGE)
    }
    return TopologyCheck(
        tuple(dict.fromkeys(findings)),
        tuple(names),
        unroutable,
        misplaced,
        parked,
        present,
        moduli,
    )


def live_hash_exchange(live: Topology, name: str) -> ExchangeDefinition:
    """Return a live hash exchange.

    Raises:
        NotFoundError: it does not exist.
        MismatchError: it is of another type.
    """
    exchange = live.exchange(name)
    if exchange is not None and exchange.type == HASH_EXCHANGE:
        return exchange
    type_ = BROKERS_EXCHANGES.get(name) if exchange is None else exchange.type
    if type_ is None:
        raise NotFoundError(
            f"there is no exchange {name!r}: check its name and the vhost of the URL; if it was deleted, declare it again with "
            "`rabbit-chx topology apply FILE`",
            exchange=name,
        )
    raise MismatchError(
        f"exchange {name!r} is of type {type_}, not {HASH_EXCHANGE}: give another one", exchange=name
    )


def _hash_exchanges(live: Topology, wanted: Topology | None) -> list[str]:
    names = [exchange.name for exchange in live.exchanges if exchange.type == HASH_EXCHANGE]
    if wanted is None:
        return names
    hashing = {exchange.name for exchange in wanted.exchanges if exchange.type == HASH_EXCHANGE}
    return [name for name in names if name in hashing]


def _ring_read(live: Topology, name: str) -> HashRing:
    ring = live.rings.get(name)
    if ring is None or ring.provenance != "read":
        how = "is not known" if ring is None else f"was not read but is {ring.provenance}"
        raise InputError(
            f"the ring of {name!r} {how}, and a check of it would prove nothing: give --ring-via PREFIX, such as "
            "'docker exec NAME' or 'kubectl exec POD --', or ring_source= in Python",
            exchange=name,
        )
    return ring


def _cluster(wanted: Topology, live: Topology) -> Iterator[Finding]:
    if wanted.cluster is not None and wanted.cluster != live.cluster:
        cluster = "a cluster whose name is not known" if live.cluster is None else live.cluster
        message = f"the topology is for the cluster {wanted.cluster}, and this is {cluster}"
        yield Finding("different", message, f"connect to {wanted.cluster}, or correct `cluster`")


def _without(topology: Topology, names: frozenset[str]) -> Topology:
    return replace(
        topology,
        exchanges=tuple(exchange for exchange in topology.exchanges if exchange.name not in names),
        bindings=tuple(binding for binding in topology.bindings if binding.source not in names),
    )


def _misplaced_by_modulus(wanted: Topology, live: Topology) -> dict[str, float]:
    """Return the share of keys that each ``x-modulus-hash`` exchange with `queues` sends elsewhere than in the topology."""
    shares = {}
    for name in (exchange.name for exchange in wanted.exchanges if exchange.queues is not None):
        sides = [[binding for binding in side.bindings if binding.source == name] for side in (live, wanted)]
        release = live.release or NEWEST
        if live.exchange(name) is not None and name not in live.sources_left_out:
            moved = largest_share if release.follows(MODULUS_UNORDERED) else share_moved
            same = {*map(binding_identity, sides[0])} == {*map(binding_identity, sides[1])}
            shares[name] = 0.0 if same else moved(*(numbered(side, release) for side in sides))
    return shares


def _modulus_findings(names: Iterable[str], live: Topology) -> Iterator[Finding]:
    """Yield the faults of the bindings of ``x-modulus-hash`` exchanges by themselves."""
    for name in names:
        bound = [binding for binding in live.bindings if binding.source == name]
        yield from _modulus_binding_findings(name, bound, live.release or NEWEST)


def _modulus_binding_findings(
    name: str, bound: Sequence[BindingDefinition], release: Release
) -> Iterator[Finding]:
    counts = Counter(binding.destination for binding in bound)
    weights = "for weights use an x-consistent-hash exchange with a ring or slots"
    for place, count in counts.items():
        if count > 1:
            texts = " and ".join(
                repr(binding.routing_key) for binding in bound if binding.destination == place
            )
            share = count / len(bound)
            message = f"{place!s} is bound {count} times (keys {texts}), and each binding counts: it gets {percent(share)} of all keys"
            fix = f"unbind all but one by a plan, which shows what moves; {weights}"
            yield Finding("second-binding", message, fix, exchange=name, destination=place, share=share)
    keys = {binding.routing_key for binding in bound}
    if (
        len(keys) > 1
        and all(map(str.isdecimal, keys))
        and not _is_numbering(sorted(map(int, keys)), len(bound))
    ):
        message = f"the binding keys of {name} look like weights, and have no weight: each binding gets {percent(1 / len(bound))} of all keys"
        yield Finding("different", message, f"bind all with one key; {weights}", exchange=name)
    if len(counts) > 1 and release.follows(MODULUS_UNORDERED):
        message = (
            f"on RabbitMQ {release} {MODULUS_UNORDERED.says}: the queue of a key is not known, and may change"
        )
        fix = "update to 4.3, which sorts the destinations by name, or use an x-consistent-hash exchange"
        yield Finding("order", message, fix, exchange=name, share=1.0)


def _is_numbering(keys: Sequence[int], bindings: int) -> bool:
    """Return True if binding keys number the bindings, which orders them before 4.3."""
    return len(keys) == bindings and keys[-1] - keys[0] == bindings - 1


def _object_findings(
    wanted: Topology, live: Topology, file: str | None, misplaced: Mapping[str, float]
) -> Iterator[Finding]:
    """Yield a finding for each change that a plan would make, except those of rings."""
    live_objects = by_name(live)
    for key, wanted_object in by_name(wanted).items():
        live_object, what = live_objects.get(key), f"{key[0]} {wanted_object.name}"
        fix = apply_fix(file, external=wanted_object.owner == "external")
        if live_object is None:
            # No list shows the broker's own exchanges.
            if wanted_object.name and not wanted_object.name.startswith(_BROKERS_OWN):
                message = f"{what} does not exist: {_WITHOUT_IT[key[0]]}"
                yield _object_finding(
                    "missing", wanted_object, message, _past_policy(wanted_object, live, fix)
                )
        elif fields := fields_between(live_object, wanted_object):
            message, share = f"{what} differs: {differing_fields(fields)}", None
            if isinstance(wanted_object, ExchangeDefinition) and wanted_object.type == HASH_EXCHANGE:
                elsewhere = any(field.field in _DECIDES_ON_KEYS for field in fields)
                message, share = (
                    (f"{message}; keys are hashed otherwise", 1.0) if elsewhere else (message, 0.0)
                )
            yield _object_finding("different", wanted_object, message, fix, share)
    differences = object_differences(wanted, live)
    for deleted in differences.deleted:
        message = f"{kind_of(deleted)} {deleted.name} is owned and not in the topology"
        yield _object_finding("unexpected", deleted, message, _allow_delete(file))
    yield from _binding_findings(wanted, live, differences.shards, file, misplaced)


def _binding_findings(
    wanted: Topology, live: Topology, shards: frozenset[str], file: str | None, misplaced: Mapping[str, float]
) -> Iterator[Finding]:
    listing = queue_lists(wanted)
    listed = {binding_identity(binding) for binding in wanted.bindings}
    bound = {binding_identity(binding) for binding in live.bindings}
    hashing = {exchange.name for exchange in wanted.exchanges if exchange.type == HASH_EXCHANGE}
    for binding in wanted.bindings:
        if binding_identity(binding) not in bound:
            message = f"the binding {name_of(binding)} does not exist: its messages do not reach {binding.destination!s}"
            fix = apply_fix(file, external=binding.owner == "external")
            yield _binding_finding("missing", binding, message, fix, misplaced)
    for binding in live.bindings:
        if (
            binding_identity(binding) not in listed
            and binding.source not in hashing
            and not shard_binding(binding, shards)
            and (binding.source in listing or owned_binding(wanted, binding))
        ):
            owned = "" if binding.source in listing else "owned and "
            message = f"the binding {name_of(binding)} is {owned}not in the topology: {binding.destination!s} gets its messages"
            fix = apply_fix(file) if binding.source in listing else _allow_delete(file)
            yield _binding_finding("unexpected", binding, message, fix, misplaced)


def _allow_delete(file: str | None) -> str:
    return f"add it to the topology, or {apply_fix(file)} --allow-delete"


def _past_policy(wanted: NamedObject, live: Topology, fix: str) -> str:
    """Return the fix of a missing object. A policy that prevents its declaration must be deleted first."""
    if not isinstance(wanted, ExchangeDefinition) or wanted.owner == "external":
        return fix
    policy = policy_in_the_way(wanted, live.policies, live.release or NEWEST)
    if policy is None:
        return fix
    return (
        f"remove the policy {policy.name}, under which it cannot be declared (rabbitmqctl clear_policy {shlex.quote(policy.name)}); "
        f"{fix}; and set the policy again, if the topology does not have it"
    )


def _object_finding(
    kind: str, about: NamedObject, message: str, fix: str, share: float | None = None
) -> Finding:
    exchange = about.name if isinstance(about, ExchangeDefinition) else None
    queue = about.name if isinstance(about, QueueDefinition) else None
    return Finding(kind, message, fix, exchange=exchange, destination=queue, share=share)


def _binding_finding(
    kind: str, binding: BindingDefinition, message: str, fix: str, misplaced: Mapping[str, float]
) -> Finding:
    share = misplaced.get(binding.source)
    if share is not None:
        message = f"{message}; {percent(share)} of all keys are elsewhere"
    return Finding(kind, message, fix, exchange=binding.source, destination=binding.destination, share=share)


def queue_findings(checked: CheckedExchange) -> Iterator[Finding]:
    """Yield the findings of queues that lose messages or differ from the others.

    The queues are the members of the ring, and those that have its slots. Queues of other exchanges in the ring depend on the message.

    A stream loses no messages here: its limits determine the retention. A queue that rejects messages over its limit loses none either,
    because the publisher gets a nack.
    """
    queues = [queue for queue in checked.live.queues if queue.name in checked.queues]
    for queue in queues:
        if queue.type != "stream":
            yield from _short_lived(checked, queue)
            yield from _dropping(checked, queue)
            yield from _order_breaking(checked, queue)
    yield from _expiring(checked, queues)
    yield from _odd_members(checked, queues)


def _short_lived(checked: CheckedExchange, queue: QueueDefinition) -> Iterator[Finding]:
    ttl = checked.setting(queue, _TTL)
    if ttl is None or (queue.type == "quorum" and checked.ring.release.numbers < _QUORUM_TTL_SINCE):
        return
    message = f"{queue.name} has a message TTL of {ttl.value:,} ms{_set_by(ttl)}: a message that is not consumed in that time {_end_of_messages(checked, queue)}"
    yield _finding_of_queue(
        checked, "expiring-destination", queue, message, _fix_of_setting(queue, _TTL, ttl)
    )


def _expiring(checked: CheckedExchange, queues: Sequence[QueueDefinition]) -> Iterator[Finding]:
    settings = {
        queue.name: setting
        for queue in queues
        if queue.type != "stream" and (setting := checked.setting(queue, _EXPIRES))
    }
    moved = checked.moved_without(place for place in checked.ring.destinations if place in settings)
    for queue in (queue for queue in queues if queue.name in settings):
        expires = settings[queue.name]
        message = f"{queue.name} expires after {expires.value:,} ms without use{_set_by(expires)}, and its messages are deleted with it"
        if queue.name in moved:
            message = f"{message}: {percent(moved[queue.name])} of all keys move then"
        yield _finding_of_queue(
            checked, "expiring-destination", queue, message, _fix_of_setting(queue, _EXPIRES, expires)
        )


def _dropping(checked: CheckedExchange, queue: QueueDefinition) -> Iterator[Finding]:
    overflow = checked.setting(queue, _OVERFLOW)
    if overflow is not None and overflow.value in _REFUSES[queue.type]:
        return
    limits = {
        argument: limit for argument in _LIMITS if (limit := checked.setting(queue, argument)) is not None
    }
    if not limits:
        return
    most = " or ".join(
        f"{plural(limit.value, _LIMITS[argument])}{_set_by(limit)}" for argument, limit in limits.items()
    )
    message = f"{queue.name} holds at most {most}: beyond that the oldest one {_end_of_messages(checked, queue)}, though it was confirmed"
    policy = overflow.policy if overflow is not None else _named_policy(limits.values())
    if policy is not None:
        fix = f"set overflow to reject-publish in the {policy}: publishers then get a nack for what does not fit"
    elif overflow is not None:
        fix = f"let a queue with {_OVERFLOW} = reject-publish take the place of {queue.name}"
    else:
        fix = f"set overflow to reject-publish for {queue.name} by a policy: publishers then get a nack for what does not fit"
    yield _finding_of_queue(checked, "dropping-destination", queue, message, fix)


def _order_breaking(checked: CheckedExchange, queue: QueueDefinition) -> Iterator[Finding]:
    """Yield the settings under which a queue does not deliver in the order of its messages (tested on 4.3.6).

    Priorities of messages in quorum queues are not visible in any setting.
    """
    found: list[tuple[str, str]] = []
    if queue.type == "classic":
        found.append((_PRIORITIES, "delivers messages of a higher priority first"))
    elif checked.ring.release.numbers >= _RETURNS_SINGLY_SINCE:
        found.append((_DELAYED_RETRY, "delays messages that are returned, and later ones overtake them"))
        effect = (
            "returns a message whose handler takes longer before those that were delivered with it: a consumer that takes more than one "
            "message at a time gets them out of order"
        )
        found.append((_CONSUMER_TIMEOUT, effect))
    for argument, effect in found:
        setting = checked.setting(queue, argument)
        if setting is None or setting.value in (0, "disabled"):
            continue
        if argument == _CONSUMER_TIMEOUT and not (
            isinstance(setting.value, int) and setting.value < _DEFAULT_TIMEOUT_MS
        ):
            continue
        message = f"{queue.name} has {argument.removeprefix('x-')} = {setting.value}{_set_by(setting)}, and {effect}"
        fix = _fix_of_setting(queue, argument, setting)
        if argument == _CONSUMER_TIMEOUT:
            fix = f"{fix}, or ignore this if each message is handled within {setting.value / 1000:g} s"
        yield _finding_of_queue(checked, "order-breaking", queue, message, fix)


def _named_policy(limits: Iterable[QueueSetting]) -> str | None:
    """Return the policy that sets a limit. An operator policy has no overflow setting."""
    return next((limit.policy for limit in limits if (limit.policy or "").startswith("policy ")), None)


def _set_by(setting: QueueSetting) -> str:
    return "" if setting.policy is None else f" by the {setting.policy}"


def _end_of_messages(checked: CheckedExchange, queue: QueueDefinition) -> str:
    onwards = checked.setting(queue, _DEAD_LETTERS)
    if onwards is None:
        return "is lost"
    return (
        f"is published to the dead-letter exchange {onwards.value}"
        if onwards.value
        else "is published to the default exchange"
    )


def _fix_of_setting(queue: QueueDefinition, argument: str, setting: QueueSetting) -> str:
    if setting.policy is not None:
        return f"take {argument.removeprefix('x-')} out of the {setting.policy}"
    return f"let a queue without {argument} take the place of {queue.name}"


def _finding_of_queue(
    checked: CheckedExchange, kind: str, queue: QueueDefinition, message: str, fix: str
) -> Finding:
    share = checked.queues[queue.name]
    return checked.finding(kind, f"{message}; {percent(share)} of all keys go there", fix, queue.name, share)


def _odd_members(checked: CheckedExchange, queues: Sequence[QueueDefinition]) -> Iterator[Finding]:
    """Yield each queue that differs from the majority; without a majority, the differences."""
    unlike: dict[str, list[FieldChange]] = {}
    traits = {queue.name: _traits(queue) for queue in queues}
    for trait in sorted({trait for of_queue in traits.values() for trait in of_queue}):
        groups: dict[str, list[QueueDefinition]] = {}
        for queue in queues:
            groups.setdefault(_comparable_value(queue, trait, traits[queue.name].get(trait)), []).append(
                queue
            )
        usual, *others = sorted(groups.values(), key=len, reverse=True)
        if 2 * len(usual) <= len(queues):
            yield _differing_queues(checked, trait, [usual, *others], traits)
            continue
        for queue in (queue for group in others for queue in group):
            values = traits[queue.name].get(trait), traits[usual[0].name].get(trait)
            unlike.setdefault(queue.name, []).append(FieldChange(trait, *values))
    for name, fields in unlike.items():
        share = checked.queues[name]
        message = f"{name} is unlike most of the {len(queues):,} queues: {differing_fields(fields)}; {percent(share)} of all keys go there"
        fix = f"let a queue like the others take the place of {name}"
        yield checked.finding("odd-member", message, fix, name, share)


def _traits(queue: QueueDefinition) -> dict[str, Any]:
    arguments = {name: value for name, value in queue.arguments.items() if name not in _OF_PLACEMENT}
    return {"type": queue.type, **arguments}


def _comparable_value(queue: QueueDefinition, trait: str, value: object) -> str:
    """Return a value for comparison: arguments that differ only in the queue's name or in numbers are equal."""
    if isinstance(value, str) and trait != "type":
        return re.sub("[0-9]+", "{n}", value.replace(queue.name, "{name}"))
    return repr(value)


def _differing_queues(
    checked: CheckedExchange,
    trait: str,
    groups: Sequence[Sequence[QueueDefinition]],
    traits: dict[str, dict[str, Any]],
) -> Finding:
    parts = []
    for group in groups:
        value = traits[group[0].name].get(trait)
        shown = "nothing" if value is None else repr(value)
        parts.append(f"{shown} at {listed([queue.name for queue in group], _MOST_NAMES)}")
    share = sum(checked.queues[queue.name] for group in groups for queue in group)
    message = f"the queues have no {trait} in common: {'; '.join(parts)}"
    fix = "decide which of them is right, and let such queues take the places of the others"
    return checked.finding("odd-member", message, fix, share=share)
