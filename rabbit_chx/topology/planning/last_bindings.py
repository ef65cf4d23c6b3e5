"""Exchanges with auto_delete that a plan takes the last binding from: the broker deletes them then, in the middle of the plan."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from rabbit_chx.topology.objects import BindingDefinition
from rabbit_chx.topology.planning.plan_refusals import deleted_by_itself

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rabbit_chx.topology.model import Topology
    from rabbit_chx.topology.planning.plan_refusals import PlanRefusal
    from rabbit_chx.topology.planning.planned_change import PlannedChange

__all__ = ["last_binding_refusals"]


def last_binding_refusals(live: Topology, changes: tuple[PlannedChange, ...]) -> Iterator[PlanRefusal]:
    """Yield a refusal for each exchange that goes by a step of the plan, and that the plan neither deletes nor replaces.

    Args:
        live: what is there.
        changes: the changes, in order.
    """
    going = {one.name for one in changes if one.kind == "exchange" and one.action in ("delete", "replace")}
    left = {
        one.name: len(one.ring or ())
        for one in live.exchanges
        if one.auto_delete and one.name not in going | live.sources_left_out
    }
    bound = Counter(one.source for one in live.bindings)
    for name in left:
        left[name] += bound[name]
    for change in changes:
        binding = change.subject
        if isinstance(binding, BindingDefinition) and binding.source in left:
            left[binding.source] += 1 if change.action == "bind" else -1
            if left[binding.source] == 0:
                yield deleted_by_itself(binding.source)
