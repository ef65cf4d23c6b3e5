"""Whether the consumers of queues are members of a group, which can hand slots over in order."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rabbit_chx.topology.refusals import PlanRefusal
from rabbit_chx.topology.sequences.group_tag import member_of
from rabbit_chx.topology.sequences.steps import ApiRequest

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rabbit_chx.topology.sequences.steps import Access, ApiSequence

__all__ = ["order_refusals"]


def order_refusals(queues: Iterable[str], access: Access) -> ApiSequence[list[PlanRefusal]]:
    """Return a refusal for each queue that no group reads, or not a group alone.

    Args:
        queues: the queues that slots come from or go to.
        access: what the sequence may ask.

    Raises:
        RabbitChxError: the management API does not tell.
    """
    wanted = list(dict.fromkeys(queues))
    if not wanted:
        return []
    tags: dict[str, list[str]] = {queue: [] for queue in wanted}
    listed = yield ApiRequest("GET", ("consumers", access.vhost), listed=True, fields={"consumer_tag": str})
    for one in listed:
        queue = one.get("queue", {}).get("name")
        if queue in tags:
            tags[queue].append(one["consumer_tag"])
    refusals = []
    for queue in wanted:
        others = [tag for tag in tags[queue] if member_of(tag) is None]
        if others or not tags[queue]:
            who = f"a consumer {others[0]!r}, which is no member of a group" if others else "no consumer"
            refusals.append(
                PlanRefusal(
                    f"queue {queue} has {who}, and a hand-over in order needs a ConsumerGroup on both queues: let the group read "
                    f"it (declare a new queue first, without slots), or allow messages to be overtaken with --hand-over parked"
                )
            )
    return refusals
