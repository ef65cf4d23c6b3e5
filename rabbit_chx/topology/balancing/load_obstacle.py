"""Why a target cannot be reached."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from rabbit_chx.analysis.wording import percent

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rabbit_chx.analysis import KeyLoad
    from rabbit_chx.routing import ExchangeRef
    from rabbit_chx.topology.balancing.fewest_moves import FoundMoves
    from rabbit_chx.topology.balancing.load_target import LoadTarget
    from rabbit_chx.topology.balancing.move_problem import MoveProblem

__all__ = ["LoadObstacle", "ObstacleKind", "obstacles"]

ObstacleKind: TypeAlias = Literal["hot-key", "hot-slot", "own-keys", "target", "no-way", "not-found"]


@dataclass(frozen=True, slots=True)
class LoadObstacle:
    """A reason why a target cannot be reached, or was not.

    Attributes:
        kind: ``hot-key``: a key has more messages than any queue may have. ``hot-slot``: a slot has. ``own-keys``: a queue
            that is itself a destination of the ring has. ``target``: all queues together may have less than the load.
            ``no-way``: each way was tried. ``not-found``: none was found in as many steps as were allowed.
        says: the reason in words, with the remedy.
        slot: the slot; None where the reason is no slot.
        key: the key; None where the reason is no key.
        queue: the queue; None where the reason is no queue.
    """

    kind: ObstacleKind
    says: str
    slot: ExchangeRef | None = None
    key: Any = None
    queue: str | None = None


def obstacles(
    problem: MoveProblem,
    found: FoundMoves,
    *,
    slots: Sequence[ExchangeRef],
    keys: Sequence[KeyLoad],
    queues: Sequence[str | None],
    reachable: LoadTarget | None,
) -> Iterator[LoadObstacle]:
    """Say why no moves were found: what is too hot for any queue, else that all is too much, else that the search ended.

    Args:
        problem: the slots and the queues, by number.
        found: the outcome of the search.
        slots: the slots.
        keys: the heaviest keys.
        queues: the queues; None for nobody.
        reachable: a higher target that can be reached, if one is known.
    """
    total = sum(problem.loads) + sum(problem.fixed[queue] for queue in problem.takers)
    rooms = [limit - problem.fixed[queue] for queue, limit in enumerate(problem.limits) if limit is not None]
    room = max(rooms)
    remedy = "raise the target" if reachable is None else f"--target {reachable} can be reached"
    named = False
    for slot, load in zip(slots, problem.loads, strict=True):
        if load > room:
            named = True
            kind, says, key = _hot(slot, load, room, total, [one for one in keys if one.place == slot])
            yield LoadObstacle(kind, f"{says}, or {remedy}", slot, key)
    for queue, limit in enumerate(problem.limits):
        if limit is not None and problem.fixed[queue] > limit:
            named = True
            yield LoadObstacle(
                "own-keys",
                f"queue {queues[queue]} has {percent(problem.fixed[queue] / total)} of the load by buckets of its own in the "
                f"ring, and may have {percent(limit / total)}: bind it to slots instead, or {remedy}",
                queue=queues[queue],
            )
    if named:
        return
    allowed = sum(limit for limit in problem.limits if limit is not None)
    if allowed < total:
        yield LoadObstacle(
            "target",
            f"all queues together may have {percent(allowed / total)} of the load: {remedy}, or add queues",
        )
    elif found.impossible:
        yield LoadObstacle(
            "no-way", f"no way to share out the slots reaches the target: {remedy}, or make more slots"
        )
    else:
        yield LoadObstacle(
            "not-found",
            f"no way to share out the slots was found that reaches the target, and none is ruled out: {remedy}",
        )


def _hot(
    slot: ExchangeRef, load: float, room: float, total: float, keys: Sequence[KeyLoad]
) -> tuple[ObstacleKind, str, Any]:
    """Say what makes a slot too hot for any queue: the kind of obstacle, the reason in words, and the key."""
    limit = f"no queue may have more than {percent(room / total)}"
    key = keys[0] if keys else None
    if key is not None and key.least > room:
        return (
            "hot-key",
            (
                f"key {key.key!r:.80} alone has {percent(key.least / total)} of the load or more, and {limit}: nothing can split a "
                "key over queues, so publish it under several keys"
            ),
            key.key,
        )
    share = f"slot {slot.name} has {percent(load / total)} of the load"
    if key is not None and load - key.least <= room:
        return (
            "hot-slot",
            (
                f"{share}, {percent(key.least / total)} or more by key {key.key!r:.80} alone, and {limit}: without that key it would "
                "fit, so publish it under several keys"
            ),
            key.key,
        )
    return "hot-slot", f"{share}, by many keys, and {limit}: make more slots", None
