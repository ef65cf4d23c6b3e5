"""The operations of a plan, in an order that a live broker accepts and that leaves as few messages unroutable as possible.

1. Policies, so that they apply to what is created. Those that shard exchanges wait until after the next step.
2. Exchanges and queues that are new.
3. What is replaced: its bindings go, it is deleted and declared again.
4. Binds, and the steps of rings. An exchange is bound before those that are bound to it: a message that reaches an exchange
   goes on only if that exchange is bound already.
5. Bindings that go.
6. What is deleted, without bindings by then.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from rabbit_chx.routing import Destination, ExchangeRef
from rabbit_chx.topology.changes import NamedObject, PlannedChange
from rabbit_chx.topology.differences import BindingDifferences, ObjectDifferences
from rabbit_chx.topology.objects import ExchangeDefinition, PolicyDefinition, QueueDefinition
from rabbit_chx.topology.policies import SHARDS_PER_NODE
from rabbit_chx.topology.ring_plan import RingWork

_TAKES_NOTHING = {"x-max-length": 0, "x-overflow": "reject-publish"}


def ordered_changes(
    objects: ObjectDifferences,
    bindings: BindingDifferences,
    rings: Mapping[str, RingWork],
    known: Collection[Destination],
) -> tuple[PlannedChange, ...]:
    """Return the operations in order.

    Args:
        objects: what differs between exchanges, queues and policies.
        bindings: what differs between bindings of exchanges without a ring.
        rings: the plans of the rings, by exchange.
        known: the queues and exchanges that are there before the last step, or are created.
    """
    deleted = {named.name for named in objects.deleted if isinstance(named, ExchangeDefinition)}
    staying = {name: work for name, work in rings.items() if name not in deleted}
    policies = (
        *(_created(policy) for policy in objects.created if isinstance(policy, PolicyDefinition)),
        *(PlannedChange("update", live, wanted) for live, wanted in objects.updated),
    )
    return (
        *(change for change in policies if not _shards(change)),
        *(_created(named) for kind in (ExchangeDefinition, QueueDefinition) for named in objects.created if isinstance(named, kind)),
        *(change for change in policies if _shards(change)),
        *(step for work in rings.values() for step in work.plan.steps[: work.first]),
        *bindings.early,
        *(PlannedChange("replace", live, wanted) for live, wanted in objects.replaced),
        *_binds(bindings.bound, staying, known),
        *bindings.late,
        *(step for name, work in rings.items() if name in deleted for step in work.plan.steps[work.first :]),
        *(
            PlannedChange("delete", named, None)
            for kind in (QueueDefinition, ExchangeDefinition, PolicyDefinition)
            for named in objects.deleted
            if isinstance(named, kind)
        ),
    )  # fmt: skip


def _shards(change: PlannedChange) -> bool:
    """Return whether a policy shards exchanges. RabbitMQ 4.3.6 fails to declare an x-consistent-hash exchange under it."""
    return isinstance(change.wanted, PolicyDefinition) and SHARDS_PER_NODE in change.wanted.definition


def _created(named: NamedObject) -> PlannedChange:
    return PlannedChange("create", None, named)


def _binds(
    plain: Sequence[PlannedChange], rings: Mapping[str, RingWork], known: Collection[Destination]
) -> Iterator[PlannedChange]:
    by_source: dict[str, list[PlannedChange]] = {}
    unbound = {change.binding.source for change in plain if change.action == "unbind"}
    # What has no queue gets one first; then slots change hands.
    for change in sorted(plain, key=lambda change: change.binding.source in unbound):
        by_source.setdefault(change.binding.source, []).append(change)
    for name, work in rings.items():
        steps = _with_helpers(work.plan.steps[work.first :], work, known)
        by_source.setdefault(name, []).extend(steps)
    targets = {
        source: [
            destination.name
            for change in changes
            if change.kind == "binding" and isinstance(destination := change.binding.destination, ExchangeRef)
        ]
        for source, changes in by_source.items()
    }
    for source in downstream_first(by_source, targets):
        yield from by_source[source]


def _with_helpers(
    steps: Sequence[PlannedChange], work: RingWork, known: Collection[Destination]
) -> list[PlannedChange]:
    """Return the steps with what they need for ghosts, which are buckets of something that does not exist.

    Something of that name is declared, bound, unbound and deleted again. Its buckets get messages meanwhile. A queue with
    one of them could not be deleted, so it takes none: publishers get a nack.
    """
    remaining = work.plan.after.destinations
    ghosts: dict[Destination, NamedObject] = {}
    for place in (step.binding.destination for step in steps if step.action == "bind"):
        if place not in known and place not in remaining and place in work.plan.before.destinations:
            ghosts[place] = (
                ExchangeDefinition(place.name, "fanout")
                if isinstance(place, ExchangeRef)
                else QueueDefinition(place, arguments=_TAKES_NOTHING)
            )
    return [
        *(PlannedChange("create", None, ghost) for ghost in ghosts.values()),
        *steps,
        *(PlannedChange("delete", ghost, None) for ghost in ghosts.values()),
    ]


def downstream_first(exchanges: Iterable[str], targets: Mapping[str, Iterable[str]]) -> list[str]:
    """Return the exchanges so that each comes after those that it is bound to. A cycle is cut somewhere.

    Args:
        exchanges: the names of the exchanges.
        targets: the exchanges that each is bound to, by its name.
    """
    done: dict[str, None] = {}
    wanted = list(exchanges)
    for start in wanted:
        path = [(start, iter(targets.get(start, ())))]
        seen = {start}
        while path:
            name, following = path[-1]
            step = next((target for target in following if target not in done and target not in seen), None)
            if step is None:
                done[name] = None
                path.pop()
            else:
                seen.add(step)
                path.append((step, iter(targets.get(step, ()))))
    known = set(wanted)
    return [name for name in done if name in known]
