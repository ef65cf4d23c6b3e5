"""Which exchanges, queues, policies and plain bindings of a topology are missing, different or unexpected on a broker."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from rabbit_chx.analysis import Finding
from rabbit_chx.routing import HASH_ARGUMENTS, NEWEST, Place
from rabbit_chx.topology.changes import FieldChange, PlannedChange, fields_between, kind_of
from rabbit_chx.topology.diff import NamedObject, binding_identity, by_name, object_differences, owned_binding
from rabbit_chx.topology.findings import Cures
from rabbit_chx.topology.objects import HASH_EXCHANGE, BindingDefinition, ExchangeDefinition, QueueDefinition
from rabbit_chx.topology.plan import policy_in_the_way
from rabbit_chx.topology.shards import shard_binding

if TYPE_CHECKING:
    from rabbit_chx.topology.model import Topology

__all__ = ["differing_fields", "object_findings"]

_BROKERS_OWN = "amq."
_HASHED = tuple(f"arguments.{name}" for name in HASH_ARGUMENTS)
_DOES = {
    "exchange": "a channel that publishes to it is closed",
    "queue": "nothing is kept for its consumers",
    "policy": "what it sets does not apply",
}


def object_findings(wanted: Topology, live: Topology, file: str | None) -> Iterator[Finding]:
    """Yield what differs between the objects of a topology and those that are there. Rings are checked elsewhere.

    Args:
        wanted: what should be there.
        live: what is there.
        file: the name of the topology's file, for the cures.
    """
    theirs = by_name(live)
    for key, one in by_name(wanted).items():
        there = theirs.get(key)
        cures = Cures(file, external=one.owner == "external")
        what = f"{key[0]} {one.name}"
        if there is None:
            if not one.name or one.name.startswith(_BROKERS_OWN):
                continue  # no list shows the broker's own exchanges
            yield _about(
                one, "missing", f"{what} is not there: {_DOES[key[0]]}", _cure_of_missing(one, live, cures)
            )
        elif fields := fields_between(there, one):
            says, share = f"{what} differs: {differing_fields(fields)}", None
            if isinstance(one, ExchangeDefinition) and one.type == HASH_EXCHANGE:
                other = any(field.field in (*_HASHED, "type") for field in fields)
                says, share = f"{says}{'; keys are hashed otherwise' if other else ''}", 1.0 if other else 0.0
            yield _about(one, "different", says, cures.applied(), share)
    objects = object_differences(wanted, live)
    for one in objects.deleted:
        cure = f"add it to the topology, or {Cures(file).applied()} --allow-delete"
        yield _about(one, "unexpected", f"{kind_of(one)} {one.name} is owned and not in the topology", cure)
    yield from _bindings(wanted, live, file, objects.shards)


def _cure_of_missing(one: NamedObject, live: Topology, cures: Cures) -> str:
    """Return the cure of an object that is not there. A policy that is in its way goes first."""
    if isinstance(one, ExchangeDefinition) and one.owner == "ours":
        policy = policy_in_the_way(one, live.policies, live.release or NEWEST)
        if policy is not None:
            name = policy.name
            return f"remove the policy {name}, under which it cannot be declared (rabbitmqctl clear_policy {shlex.quote(name)}); {cures.applied()}; and set the policy again, if the topology does not have it"
    return cures.applied()


def differing_fields(fields: Iterable[FieldChange]) -> str:
    """Return in words how an object differs from what it should be.

    Args:
        fields: its fields that differ.
    """
    return ", ".join(f"{field.field} is {_text(field.old)}, not {_text(field.new)}" for field in fields)


def _bindings(
    wanted: Topology, live: Topology, file: str | None, shards: frozenset[str]
) -> Iterator[Finding]:
    theirs = {binding_identity(one) for one in live.bindings}
    ours = {binding_identity(one) for one in wanted.bindings}
    hashing = {one.name for one in wanted.exchanges if one.type == HASH_EXCHANGE}
    for one in wanted.bindings:
        if binding_identity(one) not in theirs:
            cures = Cures(file, external=one.owner == "external")
            says = f"the binding {_name(one)} is not there: its messages do not come to {one.destination!s}"
            yield Finding("missing", says, cures.applied(), exchange=one.source, destination=one.destination)
    for one in live.bindings:
        expected = binding_identity(one) in ours or one.source in hashing or shard_binding(one, shards)
        if not expected and owned_binding(wanted, one):
            says = f"the binding {_name(one)} is owned and not in the topology: {one.destination!s} gets its messages"
            cure = f"add it to the topology, or {Cures(file).applied()} --allow-delete"
            yield Finding("unexpected", says, cure, exchange=one.source, destination=one.destination)


def _name(binding: BindingDefinition) -> str:
    return PlannedChange("bind", None, binding).name


def _about(one: NamedObject, kind: str, says: str, cure: str, share: float | None = None) -> Finding:
    exchange = one.name if isinstance(one, ExchangeDefinition) else None
    destination: Place = one.name if isinstance(one, QueueDefinition) else None
    return Finding(kind, says, cure, exchange=exchange, destination=destination, share=share)


def _text(value: object) -> str:
    return "nothing" if value is None else repr(value).lower() if isinstance(value, bool) else repr(value)
