"""Why a plan is refused: each reason with what to do about it, and with the flag that allows it if there is one."""

from __future__ import annotations

import math
import shlex

from rabbit_chx.analysis.findings import Finding
from rabbit_chx.routing import HASH_ARGUMENTS, Destination, HashRing
from rabbit_chx.topology.arguments import plain
from rabbit_chx.topology.changes import FieldChange, TopologyObject, fields_between, kind_of
from rabbit_chx.topology.objects import HASH_EXCHANGE, BindingDefinition, ExchangeDefinition, QueueDefinition

ALLOW_DELETE = "--allow-delete"
_ALLOW_LOSS = "--allow-loss"
#: A share in a flag is rounded up to a multiple of one part.
_PARTS = 10_000

#: Which key of a policy sets the same as an argument.
_POLICY_KEYS = {
    name: name.removeprefix("x-")
    for name in (
        "x-message-ttl", "x-expires", "x-max-length", "x-max-length-bytes", "x-overflow", "x-dead-letter-exchange",
        "x-dead-letter-routing-key", "x-dead-letter-strategy", "x-delivery-limit", "x-max-age",
        "x-stream-max-segment-size-bytes", "x-queue-leader-locator", "x-queue-mode", "x-consumer-timeout",
        "alternate-exchange",
    )
}  # fmt: skip


def is_allowed(refusal: Finding, allow_moved: float | None, *, allow_delete: bool) -> bool:
    """Return whether the caller's permissions cover a refusal.

    Args:
        refusal: the refusal.
        allow_moved: the share of keys that may move; None: what the topology says.
        allow_delete: whether objects may be deleted.
    """
    if refusal.share is not None:
        return allow_moved is not None and refusal.share <= allow_moved
    return allow_delete and refusal.allow_with == ALLOW_DELETE


def allow_moved(share: float) -> str:
    """Return the flag that allows a share of keys to move.

    Args:
        share: the share, 0 to 1.
    """
    return f"--allow-moved {math.ceil(share * _PARTS) / _PARTS:g}"


def other_cluster(wanted: str, live: str) -> Finding:
    """Return the refusal of another cluster than the one that the topology is for."""
    return Finding(
        "cluster",
        f"the topology is for the cluster {wanted}, and this is {live}",
        f"connect to {wanted}, or correct `cluster`",
    )


def unknown_cluster(wanted: str) -> Finding:
    """Return the refusal of a cluster whose name is not known."""
    return Finding(
        "cluster",
        f"the topology is for the cluster {wanted}, and the name of this one is not known",
        "give --management-url, or take `cluster` out of the topology",
    )


def deletion(subject: TopologyObject, name: str, about: str = "") -> Finding:
    """Return the refusal to delete an object, or to take a binding away, that the topology does not have.

    Args:
        subject: the object.
        name: its name.
        about: what else goes with it, in words.
    """
    if isinstance(subject, BindingDefinition):
        message = f"the binding {name} is not in the topology, which owns both ends: its messages are not routed any more"
    else:
        message = f"{kind_of(subject)} {name} is not in the topology, which owns it: it is deleted{about}"
    fix = f"add it to the topology, change `owns`, or allow it with {ALLOW_DELETE}"
    return Finding("deletion", message, fix, allow_with=ALLOW_DELETE)


def replacement(live: TopologyObject, wanted: TopologyObject) -> Finding:
    """Return the refusal to delete and declare again what cannot be changed."""
    fields = fields_between(live, wanted)
    name = getattr(wanted, "name", "")
    differing = ", ".join(_change_text(field) for field in fields)
    message = f"{kind_of(wanted)} {name} cannot be changed in place ({differing})"
    fix = f"{_instead(live, wanted, fields)}; {ALLOW_DELETE} deletes it and declares it again"
    return Finding("replacement", message, fix, allow_with=ALLOW_DELETE)


def _change_text(field: FieldChange) -> str:
    values = plain({"old": field.old, "new": field.new})
    old, new = (
        "nothing" if value is None else repr(value).lower() if isinstance(value, bool) else repr(value)
        for value in (values["old"], values["new"])
    )
    return f"{field.field} {old:.60} -> {new:.60}"


def _instead(live: TopologyObject, wanted: TopologyObject, fields: tuple[FieldChange, ...]) -> str:
    name = getattr(wanted, "name", "")
    arguments = {field.field.partition(".")[2]: field for field in fields}
    if _is_hash_exchange(live) and any(hashed in arguments for hashed in HASH_ARGUMENTS):
        return (
            "another header or property is hashed then, so that all keys move whatever the ring; declare an exchange of "
            "another name beside it, and let publishers change over"
        )
    policies = [
        _POLICY_KEYS[name] for name, field in arguments.items() if name in _POLICY_KEYS and field.old is None
    ]
    if len(policies) == len(fields):
        advice = "leave the arguments out" if len(policies) > 1 else "leave the argument out"
        return f"{advice} and set {' and '.join(policies)} by a policy, which changes it in place"
    if isinstance(wanted, QueueDefinition):
        return (
            f"keep what is there in the topology, or move its messages away first: bind a holding queue {name}.holding "
            f"beside it, unbind {name}, and shovel its messages there; afterwards shovel them back"
        )
    return (
        "keep what is there in the topology, or declare an exchange of another name beside it and switch to that by a "
        "binding of an exchange in front"
    )


def _is_hash_exchange(subject: TopologyObject) -> bool:
    return isinstance(subject, ExchangeDefinition) and subject.type == HASH_EXCHANGE


def loss(queue: str, messages: int, consumers: int) -> Finding:
    """Return the refusal to delete a queue that is in use.

    Args:
        queue: the queue.
        messages: how many messages are in it.
        consumers: how many consumers it has.
    """
    counted = [
        f"{count:,} {what}{'' if count == 1 else 's'}"
        for count, what in ((messages, "message"), (consumers, "consumer"))
        if count
    ]
    message = f"queue {queue} is to be deleted, and has {' and '.join(counted)}"
    fix = f"let it run empty and stop what consumes it, or allow it with {_ALLOW_LOSS}"
    return Finding("loss", message, fix, allow_with=_ALLOW_LOSS)


def uncounted_loss(queue: str) -> Finding:
    """Return the refusal to delete a stream, of which AMQP tells neither messages nor consumers.

    Args:
        queue: the stream.
    """
    message = f"queue {queue} is to be deleted, and is a stream: the broker does not tell here whether it has messages or consumers"
    fix = f"see that nobody needs it, and allow it with {_ALLOW_LOSS}"
    return Finding("loss", message, fix, allow_with=_ALLOW_LOSS)


def impossible_ring(exchange: str, why: str | None) -> Finding:
    """Return the refusal of a ring that no bind or unbind makes.

    Args:
        exchange: the exchange.
        why: what the broker would refuse, or what cannot be known; None: the ring has holes that stay.
    """
    if why is not None:
        return Finding("ring", f"the ring of {exchange} cannot be planned: {why}")
    message = (
        f"the ring of {exchange} has buckets without a destination, which no bind or unbind takes away: the exchange has to "
        "be deleted and declared again, and its messages are unroutable until its members are bound"
    )
    return Finding("ring", message, f"allow it with {ALLOW_DELETE}", allow_with=ALLOW_DELETE)


def unknown_order(exchange: str, ring: HashRing) -> Finding:
    """Return the refusal to change a ring that was not read."""
    return Finding(
        "order",
        f"the ring of {exchange} was not read but is {ring.provenance}, so its order is not certain",
        "give --ring-via PREFIX, such as 'docker exec NAME' or 'kubectl exec POD --', or ring_source= in Python",
    )


def absent_external(subject: TopologyObject, name: str) -> Finding:
    """Return the refusal where something is not there that someone else declares."""
    return Finding(
        "missing",
        f"{kind_of(subject)} {name} is external, and it is not there",
        'its owner has to declare it, or take owner = "external" out of the topology',
    )


def different_external(live: TopologyObject, wanted: TopologyObject) -> Finding:
    """Return the refusal where something of someone else is not as it should be."""
    differing = ", ".join(_change_text(field) for field in fields_between(live, wanted))
    message = f"{kind_of(wanted)} {getattr(wanted, 'name', '')} is external, and it differs ({differing})"
    return Finding("different", message, "correct the topology, or ask its owner")


def different_external_ring(exchange: str) -> Finding:
    """Return the refusal where the ring of someone else's exchange is not as it should be."""
    message = f"exchange {exchange} is external, and its ring differs"
    return Finding("different", message, "correct the topology, or ask its owner")


def absent_destination(destination: Destination, wanted: str) -> Finding:
    """Return the refusal of a binding one end of which does not exist.

    Args:
        destination: what is not there: a queue's name or an ExchangeRef.
        wanted: what it is wanted for, as a clause.
    """
    what = f"queue {destination}" if isinstance(destination, str) else str(destination)
    message = f"{what} is neither in the topology nor on the broker, and {wanted}"
    return Finding("missing", message, "declare it, or correct the name")


def sharded_declaration(exchange: str, policy: str) -> Finding:
    """Return the refusal to declare a hash exchange that a policy shards from its first moment.

    Args:
        exchange: the exchange.
        policy: the policy.
    """
    return Finding(
        "sharded",
        f"exchange {exchange} cannot be declared while the policy {policy} shards it: the broker would close the connection (541) "
        "and leave an exchange that routes nothing",
        f"remove the policy (rabbitmqctl clear_policy {shlex.quote(policy)}), declare the exchange, and then set the policy again; "
        "apply does that in this order if the topology has the policy, too",
    )


def deleted_by_itself(exchange: str) -> Finding:
    """Return the refusal to take the last binding from an exchange that goes with it."""
    return Finding(
        "auto-delete",
        f"exchange {exchange} is deleted by the broker with its last binding, and a step of the plan takes the last",
        "bind a queue that stays first, or declare it without auto_delete",
    )
