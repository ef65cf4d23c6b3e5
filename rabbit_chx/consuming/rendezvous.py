"""Rendezvous hashing: how much a member is meant for a queue. Every member computes the same."""

from __future__ import annotations

import hashlib
import math

__all__ = ["priority_without_journal", "score"]

_STEPS = 1 << 20


def score(member: str, queue: str, weight: float = 1.0) -> float:
    """Return a number from 0 to 1; the member with the highest one is meant for the queue.

    A member of weight 2 has the highest number for twice as many queues as one of weight 1 (weighted rendezvous hashing).

    Args:
        member: the name of the member.
        queue: the name of the queue.
        weight: the weight of the member, more than 0.
    """
    # The length tells where the name of the member ends, so that no two pairs give the same bytes.
    digest = hashlib.sha256(f"{len(member)}:{member}{queue}".encode()).digest()
    uniform = (int.from_bytes(digest[:8], "big") + 1) / (2**64 + 1)
    return math.exp(math.log(uniform) / weight)


def priority_without_journal(member: str, queue: str, weight: float, *, settled: bool) -> int:
    """Return the ``x-priority`` of a member that knows of no other: the higher the score, the higher.

    Args:
        member: the name of the member.
        queue: the name of the queue.
        weight: the weight of the member.
        settled: whether it was healthy for some time. Those that were not come behind all others.
    """
    return int(score(member, queue, weight) * (_STEPS - 1)) - (_STEPS if settled else 2 * _STEPS)
