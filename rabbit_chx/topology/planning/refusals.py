"""The reasons to refuse a plan, each with a remedy and the argument that permits it, if one does."""

from __future__ import annotations

import math
import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import zip_longest

from rabbit_chx.amqp.exchange_types import exchange_type_remedy, first_release_of
from rabbit_chx.analysis.findings import Finding
from rabbit_chx.errors import InputError
from rabbit_chx.fixes import Argument, CommandLine, Fix
from rabbit_chx.routing import Destination, ExchangeRef, HashRing, Release
from rabbit_chx.routing.message import HASH_ARGUMENTS
from rabbit_chx.routing.release import NEWEST_COMPARED
from rabbit_chx.topology.argument_table import plain, unsendable
from rabbit_chx.topology.arguments import FEDERATION_SETTINGS, declaration_faults, limit_faults
from rabbit_chx.topology.changes import (
    FieldChange,
    NamedObject,
    PlannedChange,
    TopologyObject,
    fields_between,
)
from rabbit_chx.topology.model import Topology
from rabbit_chx.topology.objects import (
    ALTERNATE_EXCHANGE,
    BROKERS_OWN,
    HASH_EXCHANGE,
    MODULUS_EXCHANGE,
    BindingDefinition,
    ExchangeDefinition,
    PolicyDefinition,
    QueueDefinition,
)
from rabbit_chx.topology.plugin_objects import ALLOW_UNLINK
from rabbit_chx.topology.policies import policy_in_the_way
from rabbit_chx.topology.toml_values import shown_value
from rabbit_chx.words import plural

ALLOW_DELETE = Argument("allow_delete")
_ALLOW_LOSS = Argument("allow_loss")
_ALLOW_VHOST = Argument("allow_vhost")
#: A share in an argument is rounded up to a multiple of one part.
_PARTS = 10_000

#: How to read rings.
READ_RINGS = Argument("ring_via", "PREFIX", call="ring_source=PREFIX")
#: How to make rings certain.
KNOW_RINGS = Fix(
    "give ",
    READ_RINGS,
    ", such as 'docker exec NAME' or 'kubectl exec POD --'; to keep the order on the broker: ",
    CommandLine("ring record", "Broker.record(live.rings)", options=(Argument("all"),)),
)
#: Which key of a policy sets the same as an argument.
_POLICY_KEYS = {
    name: name.removeprefix("x-")
    for name in (
        "x-message-ttl", "x-expires", "x-max-length", "x-max-length-bytes", "x-overflow", "x-dead-letter-exchange",
        "x-dead-letter-routing-key", "x-dead-letter-strategy", "x-delivery-limit", "x-max-age",
        "x-stream-max-segment-size-bytes", "x-queue-leader-locator", "x-queue-mode", "x-consumer-timeout",
        ALTERNATE_EXCHANGE,
    )
}  # fmt: skip


def is_allowed(
    refusal: Finding,
    allow_moved: float | None,
    *,
    allow_delete: bool,
    allow_vhost: bool = False,
    allow_unlink: bool = False,
) -> bool:
    """Return True if the caller's permissions cover a refusal.

    If `allow_moved`, the share of keys that may move, is None, the limit of the topology applies.
    """
    if refusal.share is not None:
        return allow_moved is not None and refusal.share <= allow_moved
    allowed = {ALLOW_DELETE: allow_delete, _ALLOW_VHOST: allow_vhost, ALLOW_UNLINK: allow_unlink}
    return refusal.override is not None and allowed.get(refusal.override, False)


def allow_moved(share: float) -> Argument:
    """Return the argument that allows a share of keys, 0 to 1, to move."""
    return Argument("allow_moved", math.ceil(share * _PARTS) / _PARTS)


def deletion(subject: TopologyObject, name: str, about: str = "") -> Finding:
    """Return the refusal to delete an object or binding that the topology owns and does not contain.

    `about` names the objects that are deleted with it, as a clause.
    """
    if isinstance(subject, BindingDefinition):
        message = f"the binding {name} is not in the topology, which owns both ends: its messages are not routed any more"
    else:
        message = f"{subject.kind} {name} is not in the topology, which owns it: it is deleted{about}"
    fix = Fix("add it to the topology, change `owns`, or allow it with ", ALLOW_DELETE)
    return Finding("deletion", message, fix, override=ALLOW_DELETE)


def replacement(live: TopologyObject, wanted: TopologyObject, release: Release | None = None) -> Finding:
    """Return the refusal to delete and redeclare an object that cannot be changed in place."""
    fields = fields_between(live, wanted, release)
    name = wanted.name
    differing = ", ".join(_change_text(field) for field in fields)
    message = f"{wanted.kind} {name} cannot be changed in place ({differing})"
    fix = Fix(f"{_instead(live, wanted, fields)}; ", ALLOW_DELETE, " deletes it and declares it again")
    return Finding("replacement", message, fix, override=ALLOW_DELETE)


def _change_text(field: FieldChange) -> str:
    values = plain({"old": field.old, "new": field.new})
    old, new = (
        "nothing" if value is None else repr(value).lower() if isinstance(value, bool) else repr(value)
        for value in (values["old"], values["new"])
    )
    return f"{field.field} {old:.60} -> {new:.60}"


def _instead(live: TopologyObject, wanted: TopologyObject, fields: tuple[FieldChange, ...]) -> str:
    name = wanted.name
    arguments = {field.field.partition(".")[2]: field for field in fields}
    if _is_hash_exchange(live) and any(hashed in arguments for hashed in HASH_ARGUMENTS):
        return (
            "another header or property is hashed then, so that all keys move in any ring; declare an exchange with "
            "another name next to it, and switch the publishers to that"
        )
    policies = [_POLICY_KEYS[name] for name in arguments if name in _POLICY_KEYS]
    by_policy = f"set {' and '.join(policies)} by a policy, which changes it in place"
    if len(policies) == len(fields) and all(map(_is_lowered, fields)):
        several = len(policies) > 1
        kept = (
            "out" if all(field.old is None for field in fields) else "as they are" if several else "as it is"
        )
        return f"leave the argument{'s' if several else ''} {kept} and {by_policy}"
    if isinstance(wanted, QueueDefinition):
        once = f"; a queue without the argument needs no replacement: {by_policy}" if policies else ""
        return (
            f"keep the live values in the topology, or move its messages away first: bind a holding queue {name}.holding "
            f"next to it, unbind {name}, and shovel its messages there; afterwards shovel them back{once}"
        )
    return (
        "keep the live values in the topology, or declare an exchange with another name next to it and switch to that by a "
        "binding of an exchange in front"
    )


def _is_lowered(field: FieldChange) -> bool:
    """Return True if a policy can set the new value: it is new, or smaller, and of two numbers the smaller one applies."""
    return field.old is None or (
        isinstance(field.old, int) and isinstance(field.new, int) and field.new < field.old
    )


def _is_hash_exchange(subject: TopologyObject) -> bool:
    return isinstance(subject, ExchangeDefinition) and subject.type == HASH_EXCHANGE


def loss(queue: str, messages: int, consumers: int, *, is_replaced: bool = False) -> Finding:
    """Return the refusal to delete or replace a queue that has messages or consumers."""
    counted = " and ".join(
        f"{count:,} {noun}{'' if count == 1 else 's'}"
        for count, noun in ((messages, "message"), (consumers, "consumer"))
        if count
    )
    message, fix = (
        f"queue {queue} is to be deleted, and has {counted}",
        "let its consumers empty it and stop them",
    )
    if is_replaced:
        message = f"queue {queue} is to be replaced, and has {counted}"
        if consumers:
            message += ": it is not drained, since new messages would be unroutable until it is bound again"
        else:
            message, fix = f"{message} and no consumers, so nothing empties it", "start a consumer"
    return Finding("loss", message, Fix(fix, ", or allow it with ", _ALLOW_LOSS), override=_ALLOW_LOSS)


def uncounted_loss(queue: str) -> Finding:
    """Return the refusal to delete a stream, whose messages and consumers AMQP does not count."""
    message = (
        f"queue {queue} is to be deleted, and is a stream: AMQP does not count its messages and consumers"
    )
    fix = Fix("check that it is not needed, and allow it with ", _ALLOW_LOSS)
    return Finding("loss", message, fix, override=_ALLOW_LOSS)


def invalid_ring(exchange: str, error: InputError) -> Finding:
    """Return the refusal of a wanted ring that the release does not permit."""
    return Finding("ring", f"the ring of {exchange} cannot be planned: {error}")


def unremovable_holes(exchange: str) -> Finding:
    """Return the refusal of a ring with holes, which no unbind removes: its exchange must be replaced."""
    message = (
        f"the ring of {exchange} has buckets without a destination, which no bind or unbind removes: the exchange has to "
        "be deleted and declared again, and its messages are unroutable until its members are bound"
    )
    return Finding("ring", message, Fix("allow it with ", ALLOW_DELETE), override=ALLOW_DELETE)


def unknown_order(exchange: str, ring: HashRing) -> Finding:
    """Return the refusal to change a ring that was neither read nor recorded."""
    return Finding(
        "order",
        f"the ring of {exchange} was not read but is {ring.ground}, so its order is not certain",
        KNOW_RINGS,
    )


def absent_external(subject: TopologyObject, name: str) -> Finding:
    """Return the refusal of a missing external object."""
    return Finding(
        "missing",
        f"{subject.kind} {name} is external, and it does not exist",
        'its owner has to declare it, or take owner = "external" out of the topology',
    )


def different_external(wanted: TopologyObject, fields: tuple[FieldChange, ...]) -> Finding:
    """Return the refusal of an external object that differs."""
    differing = ", ".join(map(_change_text, fields))
    message = f"{wanted.kind} {wanted.name} is external, and it differs ({differing})"
    return Finding("different", message, "correct the topology, or ask its owner")


def cluster_refusals(
    wanted: Topology, live: Topology, changes: tuple[PlannedChange, ...]
) -> Iterator[Finding]:
    """Yield the refusal of a cluster other than that of the topology, or of changes to an unknown one."""
    if wanted.cluster is None or wanted.cluster == live.cluster:
        return
    intended = f"the topology is for the cluster {wanted.cluster}"
    if live.cluster is not None:
        fix = f"connect to {wanted.cluster}, or correct `cluster`"
        yield Finding("cluster", f"{intended}, and this is {live.cluster}", fix)
    elif changes:
        fix = Fix("give ", Argument("management_url", "URL"), ", or take `cluster` out of the topology")
        yield Finding("cluster", f"{intended}, and the name of this one is not known", fix)


def vhost_refusals(wanted: Topology, live: Topology) -> Iterator[Finding]:
    """Yield the refusal of a vhost other than that of the topology."""
    if None not in (wanted.vhost, live.vhost) and wanted.vhost != live.vhost:
        message = f"the topology is for the vhost {wanted.vhost}, and this is {live.vhost}"
        fix = Fix(f"give the vhost {wanted.vhost}, correct `vhost`, or allow it with ", _ALLOW_VHOST)
        yield Finding("vhost", message, fix, override=_ALLOW_VHOST)


def absent_destinations(
    changes: tuple[PlannedChange, ...], existing: frozenset[Destination], slots: Mapping[str, str]
) -> Iterator[Finding]:
    """Yield a refusal for each end of a binding that does not exist; for a queue of slots, one for their exchange.

    Args:
        changes: the changes, in order.
        existing: the queues and exchanges that exist before them.
        slots: the exchange of each slot.
    """
    present = set(existing)
    for change, following in zip_longest(changes, changes[1:]):
        # Ghost buckets are removed by a bind that is undone at once. Their queue may be deleted in the end.
        undone = following.binding if following is not None and following.action == "unbind" else None
        if change.action == "create" and not isinstance(change.subject, BindingDefinition):
            ref = change.subject.ref
            present.update(() if ref is None else (ref,))
        elif change.action == "bind" and change.binding != undone:
            binding, source = change.binding, ExchangeRef(change.binding.source)
            if source not in present and not _is_predeclared(source):
                yield _absent(source, "bindings of it are wanted")
            if binding.destination not in present and not _is_predeclared(binding.destination):
                exchange = slots.get(binding.source)
                reason = f"{binding.source} is to be bound to it"
                if exchange is not None:
                    reason = f"it is to have slots of {exchange}"
                yield _absent(binding.destination, reason)


def _absent(destination: Destination, reason: str) -> Finding:
    named = f"queue {destination}" if isinstance(destination, str) else str(destination)
    message = f"{named} is neither in the topology nor on the broker, and {reason}"
    return Finding("missing", message, "declare it, or correct the name", destination=destination)


def _is_predeclared(destination: Destination) -> bool:
    return isinstance(destination, ExchangeRef) and destination.name.startswith(BROKERS_OWN)


def deletions(deleted: Iterable[NamedObject], uses: Mapping[Destination, int]) -> Iterator[Finding]:
    """Yield the refusal to delete each object. `uses` are the numbers of live bindings of queues and exchanges."""
    for named in deleted:
        count = 0 if named.ref is None else uses.get(named.ref, 0)
        about = f", and {plural(count, 'binding')} with it" if count else ""
        yield deletion(named, named.name, about)


def last_binding_refusals(live: Topology, changes: tuple[PlannedChange, ...]) -> Iterator[Finding]:
    """Yield a refusal for each auto-delete exchange whose last binding a step removes, unless the plan deletes or replaces it."""
    deleted = {
        change.name
        for change in changes
        if change.kind == "exchange" and change.action in ("delete", "replace")
    }
    counts = {
        exchange.name: len(exchange.ring or ())
        for exchange in live.exchanges
        if exchange.auto_delete and exchange.name not in deleted | live.sources_left_out
    }
    bound = Counter(binding.source for binding in live.bindings)
    for name in counts:
        counts[name] += bound[name]
    for change in changes:
        if change.kind == "binding" and (source := change.binding.source) in counts:
            counts[source] += 1 if change.action == "bind" else -1
            if counts[source] == 0:
                yield Finding(
                    "auto-delete",
                    f"exchange {source} is deleted by the broker with its last binding, and a step of the plan takes the last",
                    "bind a queue that stays first, or declare it without auto_delete",
                )


def sharded_declarations(live: Topology, changes: Sequence[PlannedChange]) -> Iterator[Finding]:
    """Yield a refusal for each exchange that the broker cannot declare because a policy shards it at that moment.

    With Khepri, rabbitmq_sharding binds the first shard before the exchange has a ring. The broker then closes the connection with 541, and
    leaves an exchange whose ring is empty (``rabbit_exchange_type_consistent_hash.erl`` add_binding/3; tested on 4.0.5 with Khepri and on
    4.3.6; with Mnesia 3.8.9, 3.10.8 and 4.0.5 accept it). A policy that follows the exchange is safe.
    """
    policies = {policy.name: policy for policy in live.policies}
    for change in changes:
        subject = change.subject
        if isinstance(subject, PolicyDefinition):
            if change.wanted is None:
                policies.pop(subject.name, None)
            else:
                policies[subject.name] = subject
        elif isinstance(subject, ExchangeDefinition) and change.action in ("create", "replace"):
            policy = policy_in_the_way(subject, policies.values(), live.release or NEWEST_COMPARED)
            if policy is not None:
                yield Finding(
                    "sharded",
                    f"exchange {subject.name} cannot be declared while the policy {policy.name} shards it: the broker would close the "
                    "connection (541) and leave an exchange that routes nothing",
                    f"remove the policy (rabbitmqctl clear_policy {shlex.quote(policy.name)}), declare the exchange, and then set the "
                    "policy again; apply does that in this order if the topology has the policy, too",
                )


def unsendable_arguments(changes: Sequence[PlannedChange]) -> Iterator[Finding]:
    """Yield a refusal for each object that has an argument that cannot be sent, so that no change is made before it fails."""
    for change in changes:
        if change.wanted is not None and not isinstance(change.wanted, PolicyDefinition):
            for fault in filter(
                None, (unsendable(name, value) for name, value in change.wanted.arguments.items())
            ):
                yield Finding("argument", f"{change.kind} {change.name}: {fault[0]}", fault[1])


def refused_declarations(live: Topology, changes: Sequence[PlannedChange]) -> Iterator[Finding]:
    """Yield a refusal for each declaration that the broker's release refuses, or that loses messages; if it is not known, the newest one."""
    release = live.release or NEWEST_COMPARED
    for change in changes:
        if isinstance(change.wanted, BindingDefinition | None) or change.action not in (
            "create",
            "update",
            "replace",
        ):
            continue
        for found in declaration_faults(change.wanted, release):
            if live.release is not None and found.field.endswith("queue-master-locator"):
                continue  # `denied_features` knows whether this broker permits it
            where = f"{change.kind} {change.name}: {found.field} = {shown_value(found.value)}"
            by = f"RabbitMQ {release.version}"
            message = (
                f"{where}: {found.message}" if by in found.message else f"{where}: {found.message} ({by})"
            )
            yield Finding("declaration", message, found.fix)
        if isinstance(wanted := change.wanted, QueueDefinition) and wanted.type == "quorum":
            for found in limit_faults(wanted, release):
                message = f"queue {wanted.name}: {found.message}"
                yield Finding("delivery-limit", message, found.fix, destination=wanted.name)


#: The settings of policies that only a broker with a plugin accepts: the type of exchange that shows it, the first release in which the type
#: does not show it any more, and the plugin. From that release on nothing in the management API shows it at once.
_PLUGIN_SETTINGS = (
    (("shards-per-node", "routing-key"), MODULUS_EXCHANGE, (4, 3, 0), "rabbitmq_sharding"),
    (FEDERATION_SETTINGS, "x-federation-upstream", (4, 1, 0), "rabbitmq_federation"),
)


def missing_plugins(live: Topology, changes: Sequence[PlannedChange]) -> Iterator[Finding]:
    """Yield a refusal for each exchange whose type the broker does not have, and for each policy with settings of a missing plugin."""
    if not live.exchange_types:
        return
    release = live.release or NEWEST_COMPARED
    missing = {
        name: plugin
        for names, type_, until, plugin in _PLUGIN_SETTINGS
        for name in names
        if type_ not in live.exchange_types and release.numbers < until
    }
    for wanted in (change.wanted for change in changes):
        if isinstance(wanted, ExchangeDefinition) and first_release_of(wanted.type) is not None:
            continue  # `declaration_faults` names the release
        if isinstance(wanted, ExchangeDefinition) and wanted.type not in live.exchange_types:
            message = f"exchange {wanted.name} is of type {wanted.type}, and the broker has no exchanges of this type"
            yield Finding("exchange-type", message, exchange_type_remedy(wanted.type), exchange=wanted.name)
        elif isinstance(wanted, PolicyDefinition):
            for name in (name for name in wanted.definition if name in missing):
                message = f"policy {wanted.name} sets {name}, and the broker does not have the plugin {missing[name]}"
                yield Finding("plugin", message, f"run rabbitmq-plugins enable {missing[name]} on every node")


#: The deprecated features that a plan can use.
DEPRECATED_FEATURES = ("queue_master_locator", "transient_nonexcl_queues", "classic_queue_mirroring")


def denied_features(live: Topology, changes: Sequence[PlannedChange]) -> Iterator[Finding]:
    """Yield a refusal for each object that uses a deprecated feature that the broker denies.

    For a queue, the broker would close the connection with 541; a policy it would refuse (``rabbit_deprecated_features.erl`` is_permitted/1,
    tested on 4.3.6).
    """
    for change in changes:
        use = None if change.wanted is None else _deprecated_use(change.wanted)
        if use is not None and use[0] in live.denied_features:
            feature, usage, fix = use
            yield Finding(
                "denied-feature",
                f"{change.kind} {change.name} {usage}, and the broker denies the deprecated feature {feature}",
                fix,
            )


def possibly_denied_features(live: Topology, changes: Sequence[PlannedChange]) -> Iterator[str]:
    """Yield a warning for each object that uses a deprecated feature of which it is not known whether the broker denies it."""
    for change in changes:
        use = None if change.wanted is None else _deprecated_use(change.wanted)
        if use is not None and use[0] in live.unclear_features:
            feature, usage, fix = use
            yield (
                f"{change.kind} {change.name} {usage}, and whether the broker denies the deprecated feature {feature} is not known: if it "
                f"does, the plan fails there; {fix}, or see rabbitmqctl list_deprecated_features"
            )


def _deprecated_use(subject: TopologyObject) -> tuple[str, str, str] | None:
    """Return the deprecated feature that an object uses, how it uses it, and the remedy."""
    if isinstance(subject, QueueDefinition):
        if "x-queue-master-locator" in subject.arguments:
            return "queue_master_locator", "has x-queue-master-locator", "use x-queue-leader-locator"
        if not subject.durable and not subject.exclusive:
            return "transient_nonexcl_queues", "is not durable", "declare it as durable"
    if isinstance(subject, PolicyDefinition):
        if "queue-master-locator" in subject.definition:
            return "queue_master_locator", "sets queue-master-locator", "use queue-leader-locator"
        if "ha-mode" in subject.definition:
            return "classic_queue_mirroring", "sets ha-mode", "use quorum queues"
    return None
