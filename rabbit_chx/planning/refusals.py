"""The reasons to refuse a plan, each with a remedy and the argument that permits it, if one does."""

from __future__ import annotations

import math
import shlex
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, chain, zip_longest
from typing import TypeAlias

from rabbit_chx.amqp.exchange_types import exchange_type_remedy, why_not_routed
from rabbit_chx.analysis.findings import Finding
from rabbit_chx.errors import InputError
from rabbit_chx.planning.diff import Comparison, Difference
from rabbit_chx.planning.ring_plan import KeyMapPlan
from rabbit_chx.records.live_rings import WaysToLearn, evidence_of
from rabbit_chx.routing import Destination, ExchangeRef, Release
from rabbit_chx.routing.key_map import KeyMap, unknown_order
from rabbit_chx.routing.message import HASH_ARGUMENTS
from rabbit_chx.text import command_text, exchange_argument, first_command, listed, percent, plural
from rabbit_chx.topology import objects
from rabbit_chx.topology.argument_table import unsendable
from rabbit_chx.topology.arguments import (
    FEDERATION_SETTINGS,
    fields_for,
    limit_faults,
    policy_in_the_way,
)
from rabbit_chx.topology.model import LiveTopology, Topology
from rabbit_chx.topology.plugin_objects import federation_links, is_of
from rabbit_chx.topology.schema import (
    FieldChange,
    NamedObject,
    PlannedChange,
    TopologyObject,
)

#: The options that permit what is refused otherwise.
_DELETE = "--allow delete"
_LOSS = "--allow loss"
_UNLINK = "--allow unlink"
_VHOST = "--allow vhost"
_NO_RECORD = "--no-record"
#: Each with the argument in Python that is the same.
_ALLOW_DELETE = f"`{_DELETE}` (`allow_delete=True`)"
ALLOW_LOSS = f"`{_LOSS}` (`allow_loss=True`)"
_ALLOW_UNLINK = f"`{_UNLINK}` (`allow_unlink=True`)"
_ALLOW_VHOST = f"`{_VHOST}` (`allow_vhost=True`)"
#: A share in an argument is rounded up to a multiple of one part.
_PARTS = 10_000

#: How to read rings.
READ_RINGS = "`--ring-via PREFIX` (`ring_source=PREFIX`)"
_BY_POD = "`--ring-via 'kubectl exec POD --'` (`ring_source='kubectl exec POD --'`)"
_UNSORTED = "update to RabbitMQ 4.3, which sorts its queues by name, or use an x-consistent-hash exchange"
#: How the order of the partitions of a super stream becomes known.
NUMBER_PARTITIONS = (
    "bind each partition once with a number of its own as x-stream-partition-order, by which clients order them; the streams of the super stream "
    "show the queues of real keys"
)
#: How long a trace is that a message names, in seconds.
_TRACED_S = 10
#: How to go on without an order that is certain.
REMAKE_RINGS = (
    f"pass {READ_RINGS}, or stop the publishers and make the order of a topology file, by which all keys may move: "
    f"{command_text('apply', 'FILE', '--allow', 'moved=1')} (`Broker.apply(plan, allow_moved=1)`)"
)
_ASK_OWNER = "it is external: ask its owner, or correct the topology"
#: Which key of a policy sets the same as an argument.
_POLICY_KEYS = {
    name: name.removeprefix("x-")
    for name in (
        "x-message-ttl", "x-expires", "x-max-length", "x-max-length-bytes", "x-overflow", "x-dead-letter-exchange",
        "x-dead-letter-routing-key", "x-dead-letter-strategy", "x-delivery-limit", "x-max-age",
        "x-stream-max-segment-size-bytes", "x-queue-leader-locator", "x-queue-mode", "x-consumer-timeout",
        objects.ALTERNATE_EXCHANGE,
    )
}  # fmt: skip


def know_rings(rings: Mapping[str, KeyMap], ways_to_learn: WaysToLearn) -> str:
    """Return how to learn an order of rings that is not known, by what each ring permits, and the means of the user.

    Only queues are seen by consumers, so observed keys do not show the buckets of a slot or of another exchange.
    """
    underlying = {name: ring.underlying for name, ring in rings.items() if ring.hashing.has_order}
    if not underlying:
        is_super_stream = any(ring.kind == "super-stream" for ring in rings.values())
        return NUMBER_PARTITIONS if is_super_stream else _UNSORTED
    seen = [name for name, ring in underlying.items() if _is_seen(ring)]
    if not seen or ways_to_learn.voids:  # no record would last
        return REMAKE_RINGS
    name = seen[0] if len(rings) == 1 else "EXCHANGE"
    ways = [f"pass {_BY_POD}"]
    if ways_to_learn.can_trace:
        ways.append(f"watch live traffic: {_by_trace('record', name, _TRACED_S)}")
    observed = command_text("record", exchange_argument(name), "--observed", "FILE")
    ways.append(f"consumers' logs: {observed} (`HashRing.from_observations(bindings, pairs)`)")
    numbered = "; ".join(f"({number}) {way}" for number, way in enumerate(ways, 1))
    return f"learn it in one of {'two' if len(ways) == 2 else 'three'} ways: {numbered}"


def how_to_learn(rings: Mapping[str, KeyMap], ways_to_learn: WaysToLearn) -> str:
    """Return the sentence about rings whose order is not known: which, and how to learn it."""
    return f"the order of {listed([*rings])} is unknown: {know_rings(rings, ways_to_learn)}"


def learn_command(rings: Mapping[str, KeyMap], ways_to_learn: WaysToLearn) -> str | None:
    """Return the command that learns the order of rings which is not known, as JSON has it; None if no command does."""
    return first_command(know_rings(rings, ways_to_learn)) if rings else None


def _is_seen(ring: KeyMap) -> bool:
    """Return True if consumers see the buckets of a ring: those of queues, each bound once."""
    below = ring.underlying
    bound = [place for place, _ in below.bindings or ()] if below.hashing.has_order else []
    return len({*bound}) == len(bound) and not any(
        isinstance(place, ExchangeRef) for place in below.destinations
    )


def _by_trace(verb: str, exchange: str, seconds: float) -> str:
    """Return the command that does something by what the broker does with live messages; only a user who can trace may be told."""
    command = command_text(verb, exchange_argument(exchange), "--trace", f"{seconds:g}")
    return f"{command} (`Broker.trace({exchange!r}, {seconds:g})`)"


def verify_by_trace(exchange: str, seconds: float = _TRACED_S) -> str:
    """Return the command that compares a ring with what the broker does with live messages."""
    return _by_trace("verify", exchange, seconds)


def apply_fix(file: str | None, *, deletes: bool = False, external: bool = False) -> str:
    """Return the commands that apply the whole topology, with the file's name if it is known; `deletes`: with the permission to delete."""
    if external:
        return _ASK_OWNER
    name = "FILE" if file is None else file
    apply = command_text("apply", name)
    call = "Broker.apply(plan(wanted, live))"
    if deletes:
        apply = command_text("apply", name, *_DELETE.split())
        call = "Broker.apply(plan(wanted, live), allow_delete=True)"
    return f"run: {command_text('plan', name)}, and then: {apply} (`{call}`)"


def repair_fix(exchange: str, *, external: bool = False) -> str:
    """Return the command that repairs the ring of an exchange by itself; that of a file is made true by an apply."""
    if external:
        return _ASK_OWNER
    command = command_text("repair", exchange_argument(exchange))
    return f"run: {command} (`Broker.apply(plan(healed(live, {exchange!r}), live))`)"


def _moved(share: float) -> float:
    """Return a share of keys, 0 to 1, as it is permitted: rounded up."""
    return math.ceil(share * _PARTS) / _PARTS


def _allow_moved(share: float) -> tuple[str, str]:
    """Return the option that permits a share of keys, 0 to 1, to move; and the same with the argument in Python."""
    option = f"--allow moved={_moved(share):g}"
    return option, f"`{option}` (`allow_moved={_moved(share):g}`)"


def deletion_refusal(subject: TopologyObject, uses: Mapping[Destination, int], live: LiveTopology) -> Finding:
    """Return the refusal to delete an object or binding that the topology owns and does not contain.

    `uses` are the numbers of live bindings of queues and exchanges.
    """
    use = live.use_of(subject.name) if isinstance(subject, objects.QueueDefinition) else ""
    if use:
        unbound = "" if uses.get(subject.name) else ", and is bound to nothing (was its binding forgotten?)"
        message = f"queue {subject.name} has {use}{unbound}; it is not in the topology, which owns it: it is deleted"
    elif isinstance(subject, objects.BindingDefinition):
        message = f"the binding {subject.name} is not in the topology, which owns both ends: its messages are not routed any more"
    else:
        count = 0 if subject.ref is None else uses.get(subject.ref, 0)
        about = f", and {plural(count, 'binding')} with it" if count else ""
        message = f"{subject.kind} {subject.name} is not in the topology, which owns it: it is deleted{about}"
    fix = f"add it to the topology, change `owns`, or allow it with {_ALLOW_DELETE}"
    return Finding("deletion", message, fix, allow_with=_DELETE)


def used_first(compared: Comparison) -> list[NamedObject]:
    """Return the objects that a plan deletes, those queues first that have consumers or messages."""
    return sorted(compared.deleted, key=lambda one: one.kind != "queue" or not compared.live.use_of(one.name))


def replacement_refusal(live: TopologyObject, wanted: TopologyObject, release: Release) -> Finding:
    """Return the refusal to delete and redeclare an object that cannot be changed in place."""
    fields = fields_for(live, wanted, release)
    name = wanted.name
    differing = ", ".join(_change_text(field) for field in fields)
    message = f"{wanted.kind} {name} cannot be changed in place ({differing})"
    fix = f"{_instead(live, wanted, fields)}; {_ALLOW_DELETE} deletes it and declares it again"
    return Finding("replacement", message, fix, allow_with=_DELETE)


def _change_text(field: FieldChange) -> str:
    return "{} {:.60} -> {:.60}".format(field.field, *field.texts)


def _instead(live: TopologyObject, wanted: TopologyObject, fields: tuple[FieldChange, ...]) -> str:
    name = wanted.name
    arguments = {field.field.partition(".")[2]: field for field in fields}
    is_hashing = isinstance(live, objects.ExchangeDefinition) and live.type == objects.HASH_EXCHANGE
    if is_hashing and any(hashed in arguments for hashed in HASH_ARGUMENTS):
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
    if isinstance(wanted, objects.QueueDefinition):
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


def loss_refusal(queue: str, messages: int, consumers: int, *, is_replaced: bool = False) -> Finding:
    """Return the refusal to delete or replace a queue that has messages or consumers."""
    counted = " and ".join(
        f"{count:,} {noun}{'' if count == 1 else 's'}"
        for count, noun in ((messages, "message"), (consumers, "consumer"))
        if count
    )
    message = f"queue {queue} is to be deleted, and has {counted}"
    fix = "let its consumers empty it and stop them"
    if is_replaced:
        message = f"queue {queue} is to be replaced, and has {counted}"
        if consumers:
            message += ": it is not drained, since new messages would be unroutable until it is bound again"
        else:
            message = f"{message} and no consumers, so nothing empties it"
            fix = "start a consumer"
    return Finding("loss", message, f"{fix}, or allow it with {ALLOW_LOSS}", allow_with=_LOSS)


def uncounted_loss_refusal(queue: str) -> Finding:
    """Return the refusal to delete a stream, whose messages and consumers AMQP does not count."""
    message = (
        f"queue {queue} is to be deleted, and is a stream: AMQP does not count its messages and consumers"
    )
    fix = f"check that it is not needed, and allow it with {ALLOW_LOSS}"
    return Finding("loss", message, fix, allow_with=_LOSS)


def _find_uncounted(change: PlannedChange, progress: _Progress) -> Iterator[Finding]:
    """Yield a refusal for a queue that is deleted or replaced while it is down."""
    live = progress.compared.live
    state = live.facts.queues.down.get(change.name)
    if state and change.name not in evidence_of(live).mark.absent:
        yield uncounted_refusal(change, f"the broker reports it as {state}")


def _find_absent(change: PlannedChange, progress: _Progress) -> Iterator[Finding]:
    """Yield a refusal for a queue that the broker does not change, as its node is down."""
    live = progress.compared.live
    subject = change.subject
    queue = subject.destination if isinstance(subject, objects.BindingDefinition) else subject.name
    if queue in evidence_of(live).mark.absent:
        message = f"queue {queue} is down: until its node runs, RabbitMQ {live.release} lists none of its bindings, and changes nothing of it"
        yield Finding("down", message, "wait until its node runs", destination=queue)


def uncounted_refusal(change: PlannedChange, why: str) -> Finding:
    """Return the refusal to delete or replace a queue whose messages nobody can count now."""
    message = f"queue {change.name} is to be {change.action}d, and {why}: nobody can count its messages"
    fix = f"wait until its node runs, or allow it with {ALLOW_LOSS}"
    return Finding("loss", message, fix, allow_with=_LOSS)


def movement_refusal(ring: KeyMapPlan, *, is_default: bool = False) -> Finding:
    """Return the refusal of a plan that moves more keys than its limit. `is_default`: the topology does not set the limit."""
    assert ring.limit is not None  # it is over the limit
    option, allowance = _allow_moved(ring.moved_at_worst)
    if ring.is_ring:
        moves = f"{_say_moved(ring)} in the end, {percent(ring.moved_at_worst, 1)} at the peak, and"
        better = _better_ring(ring)
    else:
        moves = f"{ring.exchange} is {ring.before.hashing.article}, and the plan moves {ring.moves};"
        better = _better_proposal(ring)
    limit = "the limit without max_share_moved" if is_default else "max_share_moved"
    fix = f"{better}raise max_share_moved, or allow it once with {allowance}"
    if is_default:
        written = "write a topology file, which has the order of the ring and max_share_moved"
        fix = f"allow it once with {allowance}, or {written}"
    message = f"{moves} {limit} is {ring.limit:g}"
    return Finding("moved", message, fix, share=ring.moved_at_worst, allow_with=option)


def _better_ring(ring: KeyMapPlan) -> str:
    orders = [proposal for proposal in ring.proposals if proposal.strategy == "least-moving-order"]
    if not orders or orders[0].moved_at_worst >= ring.moved_at_worst:
        return ""
    (order,) = orders
    shares = f"{percent(order.moved, 1)} in the end, {percent(order.moved_at_worst, 1)} at the peak"
    return f"write the members in the order of the proposal {order.strategy} ({shares}), "


def _better_proposal(ring: KeyMapPlan) -> str:
    best = min(ring.proposals, key=lambda proposal: proposal.moved_at_worst, default=None)
    if best is None or best.moved_at_worst >= ring.moved_at_worst:
        return ""
    return f"follow the proposal {best.strategy} ({percent(best.moved_at_worst)} at the peak), "


def _say_moved(ring: KeyMapPlan) -> str:
    share = f"{percent(ring.moved, 1)} of the keys"
    if count := len(ring.handed_over):
        slots = "slot moves" if count == 1 else "slots move"
        return f"{count} {slots} in {ring.exchange}: {share} have another queue"
    return f"{share} of {ring.exchange} have another {'destination' if ring.slots is None else 'queue'}"


def hole_refusal(exchange: str) -> Finding:
    """Return the refusal of a ring with holes, which no unbind removes: its exchange must be replaced."""
    message = (
        f"the ring of {exchange} has buckets without a destination, which no bind or unbind removes: the exchange has to "
        "be deleted and declared again, and its messages are unroutable until its members are bound"
    )
    return Finding("ring", message, f"allow it with {_ALLOW_DELETE}", allow_with=_DELETE)


def unknown_order_refusal(ring: KeyMapPlan, ways_to_learn: WaysToLearn) -> Finding:
    """Return the refusal to change a ring by its order, which was neither read nor recorded."""
    return Finding("order", _say_unknown(ring), know_rings({ring.exchange: ring.before}, ways_to_learn))


def remake_refusal(ring: KeyMapPlan, ways_to_learn: WaysToLearn, *, is_redeclared: bool) -> Finding:
    """Return the refusal to give up an order that was neither read nor recorded; `is_redeclared`: its exchange is replaced because of that."""
    name = ring.exchange
    option, allowance = _allow_moved(1.0)
    done = "all members are unbound, and those of the topology bound in their order"
    if is_redeclared:
        done = "the exchange is deleted, since unbinds may leave buckets that no list shows, and made again in the order of the topology"
    asked = ""
    if ways_to_learn.can_trace and _is_seen(ring.before):
        asked = f"; ask the broker, while messages are published: {_by_trace('record', name, _TRACED_S)}"
    fix = f"pass {READ_RINGS} to read it{asked}; or stop the publishers and allow with {allowance} that {done}: all keys may move, once"
    return Finding("order", _say_unknown(ring), fix, share=1.0, allow_with=option)


def _say_unknown(ring: KeyMapPlan) -> str:
    doubt = f" ({ring.before.order.doubt})" if ring.before.order.doubt else ""
    return f"the order of {ring.exchange} is unknown{doubt}"


def unknown_partitions_refusal(change: KeyMapPlan) -> Finding:
    """Return the refusal to number the partitions of a super stream that have no order yet."""
    option, allowance = _allow_moved(1.0)
    message = f"the partitions of {change.exchange} do not have a number each, so their order is not known, and up to all keys move"
    fix = (
        f"compare the file with the order that clients see, stop the publishers, and allow with {allowance} that the partitions get the order "
        "of the file"
    )
    return Finding("order", message, fix, share=1.0, allow_with=option)


def external_refusal(difference: Difference) -> Finding:
    """Return the refusal of an external object that is missing or differs."""
    kind = difference.kind
    subject = difference.subject
    what = f"{subject.kind} {subject.name} is external, and it"
    if kind == "missing":
        fix = 'its owner has to declare it, or take owner = "external" out of the topology'
        return Finding(kind, f"{what} does not exist", fix)
    differing = ", ".join(map(_change_text, difference.fields))
    return Finding(kind, f"{what} differs ({differing})", "correct the topology, or ask its owner")


def _cluster_refusals(compared: Comparison, changes: Sequence[PlannedChange]) -> Iterator[Finding]:
    """Yield the refusal of a cluster other than that of the topology, or of changes to an unknown one."""
    wanted = compared.wanted
    live = compared.live
    if wanted.cluster is None or live.is_cluster(wanted.cluster):
        return
    intended = f"the topology is for the cluster {wanted.cluster}"
    if live.cluster is not None:
        fix = f"connect to {wanted.cluster}, or correct `cluster`"
        yield Finding("cluster", f"{intended}, and this is {live.cluster}", fix)
    elif changes:
        fix = "pass `--management-url URL` (`management_url=URL`), or take `cluster` out of the topology"
        yield Finding("cluster", f"{intended}, and the name of this one is not known", fix)


def vhost_refusals(wanted: Topology, live: LiveTopology) -> Iterator[Finding]:
    """Yield the refusal of a vhost other than that of the topology."""
    if None not in (wanted.vhost, live.vhost) and wanted.vhost != live.vhost:
        message = f"the topology is for the vhost {wanted.vhost}, and this is {live.vhost}"
        fix = f"pass the vhost {wanted.vhost}, correct `vhost`, or allow it with {_ALLOW_VHOST}"
        yield Finding("vhost", message, fix, allow_with=_VHOST)


def _find_absent_ends(change: PlannedChange, progress: _Progress) -> Iterator[Finding]:
    """Yield a refusal for each end of a binding that does not exist; for a queue of slots, one for their exchange."""
    binding = change.binding
    source = ExchangeRef(change.binding.source)
    if binding == progress.undone:
        return
    if source not in progress.present and not _is_predeclared(source):
        yield _absent_refusal(source, "bindings of it are wanted")
    if binding.destination not in progress.present and not _is_predeclared(binding.destination):
        exchange = progress.slots.get(binding.source)
        reason = f"{binding.source} is to be bound to it"
        if exchange is not None:
            reason = f"it is to have slots of {exchange}"
        yield _absent_refusal(binding.destination, reason)


def _absent_refusal(destination: Destination, reason: str) -> Finding:
    named = f"queue {destination}" if isinstance(destination, str) else str(destination)
    message = f"{named} is neither in the topology nor on the broker, and {reason}"
    return Finding("missing", message, "declare it, or correct the name", destination=destination)


def _is_predeclared(destination: Destination) -> bool:
    return isinstance(destination, ExchangeRef) and destination.name.startswith(objects.BROKERS_OWN)


def _find_cut_link(change: PlannedChange, progress: _Progress) -> Iterator[Finding]:
    """Yield a refusal for a binding, exchange or queue of a federation link that is removed, even if the plan makes it again."""
    subject = change.subject
    if isinstance(subject, objects.BindingDefinition):
        if not is_of(subject, progress.links):
            return
        what = f"unbinds {subject.destination!s} from {subject.source}"
    elif subject.ref in progress.links:
        what = f"{change.action}s {change.kind} {subject.name}"
    else:
        return
    message = f"the plan cuts a federation link, as it {what}: the downstream gets no messages until the link is complete again"
    fix = (
        f"change the federation policy or upstream of the downstream first; or allow it with {_ALLOW_UNLINK}, and restart the link afterwards "
        "(rabbitmqctl restart_federation_link)"
    )
    yield Finding("unlink", message, fix, allow_with=_UNLINK)


def _find_last_binding(change: PlannedChange, progress: _Progress) -> Iterator[Finding]:
    """Yield a refusal for an auto-delete exchange whose last binding is removed, unless the plan deletes or replaces it."""
    source = change.binding.source
    if progress.expiring.get(source) == 1:
        yield Finding(
            "auto-delete",
            f"exchange {source} is deleted by the broker with its last binding, and a step of the plan takes the last",
            "bind a queue that stays first, or declare it without auto_delete",
        )


def _refuse_under_sharding(change: PlannedChange, progress: _Progress) -> Iterator[Finding]:
    """Yield a refusal for an exchange that the broker cannot declare because a policy shards it at that progress.

    With Khepri, rabbitmq_sharding binds the first shard before the exchange has a ring. The broker then closes the connection with 541, and
    leaves an exchange whose ring is empty (``rabbit_exchange_type_consistent_hash.erl`` add_binding/3; tested on 4.0.5 with Khepri and on
    4.3.6; with Mnesia 3.10.8 and 4.0.5 accept it). A policy that follows the exchange is safe.
    """
    subject = change.subject
    assert isinstance(subject, objects.ExchangeDefinition)  # the rule is one of exchanges
    policy = policy_in_the_way(subject, progress.policies.values(), progress.compared.release)
    if policy is not None:
        yield Finding(
            "sharded",
            f"exchange {subject.name} cannot be declared while the policy {policy.name} shards it: the broker would close the "
            "connection (541) and leave an exchange that routes nothing",
            f"remove the policy (rabbitmqctl clear_policy {shlex.quote(policy.name)}), declare the exchange, and then set the "
            "policy again; apply does that in this order if the topology has the policy, too",
        )


def _find_unsendable(change: PlannedChange, _: _Progress) -> Iterator[Finding]:
    """Yield a refusal for each argument that cannot be sent, so that no change is made before it fails."""
    assert not isinstance(change.subject, objects.PolicyDefinition)  # the management API sends policies
    for name, value in change.subject.arguments.items():
        if fault := unsendable(name, value):
            yield Finding("argument", f"{change.kind} {change.name}: {fault[0]}", fault[1])


def _find_lossy_limit(change: PlannedChange, progress: _Progress) -> Iterator[Finding]:
    """Yield a refusal for a quorum queue with a delivery limit that loses messages."""
    wanted = change.subject
    if isinstance(wanted, objects.QueueDefinition):
        for found in limit_faults(wanted, progress.compared.release):
            message = f"queue {wanted.name}: {found.message}"
            yield Finding("delivery-limit", message, found.fix, destination=wanted.name)


#: The settings of policies that only a broker with a plugin accepts: the type of exchange that shows it, the first release in which the type
#: does not show it any more, and the plugin. From that release on nothing in the management API shows it at once.
_PLUGIN_SETTINGS = (
    (("shards-per-node", "routing-key"), objects.MODULUS_EXCHANGE, (4, 3, 0), "rabbitmq_sharding"),
    (FEDERATION_SETTINGS, "x-federation-upstream", (4, 1, 0), "rabbitmq_federation"),
)


def _find_missing_plugin(change: PlannedChange, progress: _Progress) -> Iterator[Finding]:
    """Yield a refusal for an exchange whose type the broker does not have, and for a policy with settings of a missing plugin."""
    wanted = change.subject
    types = progress.compared.live.facts.limits.exchange_types
    release = progress.compared.release
    if not types:
        return
    if isinstance(wanted, objects.ExchangeDefinition):
        if wanted.type not in types:
            message = f"exchange {wanted.name} is of type {wanted.type}, and the broker has no exchanges of this type"
            yield Finding("exchange-type", message, exchange_type_remedy(wanted.type), exchange=wanted.name)
    elif isinstance(wanted, objects.PolicyDefinition):
        for name in wanted.definition:
            for names, type_, until, plugin in _PLUGIN_SETTINGS:
                if name in names and type_ not in types and release.numbers < until:
                    message = (
                        f"policy {wanted.name} sets {name}, and the broker does not have the plugin {plugin}"
                    )
                    yield Finding("plugin", message, f"run rabbitmq-plugins enable {plugin} on every node")


#: The deprecated features that a plan can use.
DEPRECATED_FEATURES = ("queue_master_locator", "transient_nonexcl_queues", "classic_queue_mirroring")


def _find_denied_feature(change: PlannedChange, progress: _Progress) -> Iterator[Finding]:
    """Yield a refusal for an object that uses a deprecated feature that the broker denies, or a feature flag that is disabled.

    For a queue, the broker would close the connection with 541; a policy it would refuse (``rabbit_deprecated_features.erl`` is_permitted/1;
    tested on 4.3.6, for a queue that is not durable also with its feature denied and permitted in ``rabbitmq.conf``: Debian's package permits it by a patch).
    """
    subject = change.subject
    denied = progress.compared.live.facts.limits.denied_features
    if isinstance(subject, objects.QueueDefinition) and denied.get(flag := f"{subject.type}_queue"):
        message = f"queue {change.name} is of type {subject.type}, and the feature flag {flag} of the broker is disabled"
        yield Finding("denied-feature", message, f"run rabbitmqctl enable_feature_flag {flag}")
    use = _find_deprecated_use(subject)
    if use is not None and denied.get(use[0]):
        feature, usage, fix = use
        message = (
            f"{change.kind} {change.name} {usage}, and the broker denies the deprecated feature {feature}"
        )
        yield Finding("denied-feature", message, fix)


def possibly_denied_features(live: LiveTopology, changes: Sequence[PlannedChange]) -> Iterator[str]:
    """Yield a warning for each object that uses a deprecated feature of which it is not known whether the broker denies it."""
    for change in changes:
        use = None if change.wanted is None else _find_deprecated_use(change.wanted)
        if use is not None and live.facts.limits.denied_features.get(use[0]) is False:
            feature, usage, fix = use
            yield (
                f"{change.kind} {change.name} {usage}, and whether the broker denies the deprecated feature {feature} is not known: if it "
                f"does, the plan fails there; {fix}, or see rabbitmqctl list_deprecated_features"
            )


def _find_deprecated_use(subject: TopologyObject) -> tuple[str, str, str] | None:
    """Return the deprecated feature that an object uses, how it uses it, and the remedy."""
    if isinstance(subject, objects.QueueDefinition):
        if "x-queue-master-locator" in subject.arguments:
            return "queue_master_locator", "has x-queue-master-locator", "use x-queue-leader-locator"
        if not subject.durable and not subject.exclusive:
            return "transient_nonexcl_queues", "is not durable", "declare it as durable"
    if isinstance(subject, objects.PolicyDefinition):
        if "queue-master-locator" in subject.definition:
            return "queue_master_locator", "sets queue-master-locator", "use queue-leader-locator"
        if "ha-mode" in subject.definition:
            return "classic_queue_mirroring", "sets ha-mode", "use quorum queues"
    return None


def _limit_refusals(
    compared: Comparison, changes: Sequence[PlannedChange], rings: Iterable[KeyMapPlan]
) -> Iterator[Finding]:
    """Yield the refusal of more queues than the limit of the vhost permits, which the broker would refuse one by one (406)."""
    limits = compared.live.facts.limits
    if limits.queues_left is None:
        return
    steps = {"create": 1, "delete": -1}
    counts = accumulate(steps.get(change.action, 0) for change in changes if change.kind == "queue")
    added = max(counts, default=0)
    has_mark = evidence_of(compared.live).mark.recorded_start.identity is not None or not any(
        ring.is_ring for ring in rings
    )
    room = max(0, limits.queues_left - (not has_mark))
    if added > room:
        own = "the lock" if has_mark else "the lock and the mark"
        message = f"the plan adds {plural(added, 'queue')}, and the limit of the vhost (max-queues) leaves room for {room} beside {own} of an apply"
        fix = f"delete queues that nobody needs, or raise max-queues by {added - room}"
        is_for_mark = added <= limits.queues_left
        if is_for_mark:
            fix += f", or store no record of rings with `{_NO_RECORD}` of an apply (`records=False`)"
        yield Finding("limit", message, fix, allow_with=_NO_RECORD if is_for_mark else None)


# -- all refusals of a plan


class _Progress:
    """What is known before a change of a plan.

    Attributes:
        compared: the two sides.
        slots: the exchange of each wanted slot.
        present: the queues and exchanges that exist.
        policies: the policies that exist, by name.
        expiring: the number of bindings of each auto-delete exchange that the plan neither deletes nor replaces.
        links: the exchanges and queues of federation links.
        undone: the binding that the next change removes. Ghost buckets are removed by a bind that is undone at once, and their queue may be
            deleted in the end.
    """

    def __init__(self, compared: Comparison, changes: Sequence[PlannedChange]) -> None:
        live = compared.live
        self.compared = compared
        self.slots = {slot: name for name, layout in compared.layouts.items() for slot in layout.names.slots}
        self.present = set(compared.existing)
        self.policies = {policy.name: policy for policy in live.policies}
        removed = {
            change.name for change in changes if change.kind == "exchange" and change.action in _REMOVED
        }
        bound = Counter(binding.source for binding in live.bindings)
        self.expiring = {
            exchange.name: len(exchange.ring or ()) + bound[exchange.name]
            for exchange in live.exchanges
            if exchange.auto_delete and exchange.name not in removed | live.sources_left_out
        }
        self.links = federation_links(live)
        self.undone: objects.BindingDefinition | None = None

    def apply(self, change: PlannedChange) -> None:
        """Continue after a change."""
        subject = change.subject
        if isinstance(subject, objects.BindingDefinition):
            if subject.source in self.expiring:
                self.expiring[subject.source] += 1 if change.action == "bind" else -1
        elif isinstance(subject, objects.PolicyDefinition):
            if change.wanted is None:
                self.policies.pop(subject.name, None)
            else:
                self.policies[subject.name] = subject
        elif change.action == "create" and subject.ref is not None:
            self.present.add(subject.ref)


_DECLARED = ("create", "update", "replace")
_REMOVED = ("delete", "replace")
_FindRefusals: TypeAlias = Callable[[PlannedChange, _Progress], Iterable[Finding]]
#: The rules for single changes, in the order of their refusals: the actions and the kinds of objects that each concerns, and what it finds.
_RULES: Mapping[str, tuple[Collection[str], Collection[str], _FindRefusals]] = {
    "missing": (["bind"], ["binding"], _find_absent_ends),
    "loss": (_REMOVED, ["queue"], _find_uncounted),
    "down": ([*_DECLARED, *_REMOVED, "bind", "unbind"], ["queue", "binding"], _find_absent),
    "unlink": ([*_REMOVED, "unbind"], ["exchange", "queue", "binding"], _find_cut_link),
    "auto-delete": (["unbind"], ["binding"], _find_last_binding),
    "plugin": (_DECLARED, ["exchange", "policy"], _find_missing_plugin),
    "delivery-limit": (_DECLARED, ["queue"], _find_lossy_limit),
    "sharded": (_DECLARED, ["exchange"], _refuse_under_sharding),
    "denied-feature": (_DECLARED, ["queue", "policy"], _find_denied_feature),
    "argument": ([*_DECLARED, "bind"], ["exchange", "queue", "binding"], _find_unsendable),
}


def _find_refused_changes(compared: Comparison, changes: Sequence[PlannedChange]) -> dict[str, list[Finding]]:
    """Return what each rule finds, in one pass over the changes."""
    found: dict[str, list[Finding]] = {name: [] for name in _RULES}
    progress = _Progress(compared, changes)
    for change, following in zip_longest(changes, changes[1:]):
        is_undone = following is not None and following.action == "unbind"
        progress.undone = following.binding if is_undone else None
        for name, (actions, kinds, find) in _RULES.items():
            if change.action in actions and change.kind in kinds:
                found[name] += find(change, progress)
        progress.apply(change)
    return found


def _ring_refusals(ring: KeyMapPlan, compared: Comparison) -> Iterator[Finding]:
    name = ring.exchange
    fault = "" if ring.ring is None else ring.ring.fault
    if fault and compared.is_external(name):
        message = f"exchange {name} is external, and {fault}"
        yield Finding("different", message, "correct the topology, or ask its owner")
        return
    exchange = compared.live.exchange(name)
    if exchange is not None:
        message = why_not_routed(name, exchange.type, compared.live.facts.limits.exchange_types)
        if message:
            yield Finding("plugin-off", message, exchange_type_remedy(exchange.type), exchange=name)
    if fault:
        yield Finding("ring", f"the ring of {name} cannot be planned: {fault}")
    if ring.before.kind == "super-stream" and ring.movement.unknown and ring.moments:
        yield unknown_partitions_refusal(ring)
    ways_to_learn = evidence_of(compared.live).ways_to_learn
    if ring.gives_up_order:
        yield remake_refusal(ring, ways_to_learn, is_redeclared=name in compared.redeclared)
        return
    has_handed_over = ring.change == "keep" and bool(ring.handed_over)
    if (ring.change == "by-order" or has_handed_over) and not ring.before.order.is_certain:
        yield unknown_order_refusal(ring, ways_to_learn)
    if ring.movement.exceeds(ring.limit, ring.before):
        yield movement_refusal(ring, is_default=compared.limit(name) is None)


def refusals_of(
    compared: Comparison,
    changes: Sequence[PlannedChange],
    rings: Iterable[KeyMapPlan],
    unbound: Iterable[objects.BindingDefinition],
) -> tuple[Finding, ...]:
    """Return the reasons to refuse a plan.

    Args:
        compared: the two sides.
        changes: the changes, in order.
        rings: the plans of rings.
        unbound: the owned bindings that are removed although neither end is deleted.
    """
    rings = list(rings)
    found = _find_refused_changes(compared, changes)
    impossible = sorted(ring.exchange for ring in rings if ring.needs_new_exchange)
    remade = dict.fromkeys([*sorted(compared.redeclared), *impossible])
    given_up = {ring.exchange for ring in rings if ring.gives_up_order}
    replaced = [
        (live, new) for live, new in compared.replaced if new.kind != "exchange" or new.name not in remade
    ]
    external = [one for one in compared.objects if one.kind != "unexpected" and not one.is_ours]
    refusals = (
        *_cluster_refusals(compared, changes),
        *vhost_refusals(compared.wanted, compared.live),
        *_limit_refusals(compared, changes, rings),
        *(external_refusal(one) for one in external if one.subject.kind != "binding"),
        *chain.from_iterable(_ring_refusals(ring, compared) for ring in rings),
        *(hole_refusal(name) for name in remade if name not in given_up),
        *found.pop("missing"),
        *(replacement_refusal(live, new, compared.release) for live, new in replaced),
        *(deletion_refusal(deleted, compared.uses, compared.live) for deleted in used_first(compared)),
        *found.pop("unlink"),
        *(deletion_refusal(binding, compared.uses, compared.live) for binding in unbound),
        *(external_refusal(one) for one in external if one.subject.kind == "binding"),
        *chain.from_iterable(found.values()),
    )
    return tuple(dict.fromkeys(refusals))


def exclusive_refusals(changes: Iterable[PlannedChange]) -> Iterator[Finding]:
    """Yield a refusal of each exclusive queue that a plan declares: it ends with the connection of the command."""
    for change in changes:
        queue = change.wanted
        if isinstance(queue, objects.QueueDefinition) and queue.exclusive:
            yield Finding(
                "exclusive",
                f"queue {queue.name} is exclusive: the broker would delete it with the connection of this command",
                'leave it out of the file, or write owner = "external", as its client declares it',
            )


def check_certain(
    exchange: str, key_map: KeyMap, ways_to_learn: WaysToLearn, remedy: str | None = None
) -> None:
    """Raise an InputError for a map that is not that of a broker, or its subclass UnknownOrderError; `remedy`, or else the `ways_to_learn` of the user, say what the caller can do."""
    if key_map.order.is_certain:
        return
    remedy = remedy or know_rings({exchange: key_map}, ways_to_learn)
    if not key_map.order.is_known:
        raise unknown_order(key_map, exchange, remedy)
    about = f"the ring of {exchange!r} was not read but is {key_map.order}, so its order is not certain: "
    raise InputError(about + remedy, exchange=exchange)
