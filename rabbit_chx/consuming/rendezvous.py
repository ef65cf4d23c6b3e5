"""Rendezvous hashing: how much a member is meant for a queue. Every member computes the same."""

from __future__ import annotations

import hashlib
import math

__all__ = ["queue_priority", "score", "unsettled_priority"]

_STEPS = 1 << 20
_RANKS = 1 << 10


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


def unsettled_priority(member: str, queue: str, weight: float = 1.0) -> int:
    """Return the ``x-priority`` of a member that has no share yet: less than 0, and higher for a higher score.

    Args:
        member: the name of the member.
        queue: the name of the queue.
        weight: the weight of the member.
    """
    return int(score(member, queue, weight) * (_STEPS - 1)) - _STEPS


def queue_priority(term: int, member: str, queue: str, weight: float, *, owns: bool) -> int:
    """Return the ``x-priority`` of a member that takes its share: that of the owner is the highest of a term.

    Every later term is higher than all earlier ones. So nobody has to step back, and a consumer that RabbitMQ 4.3.6 keeps
    although its member has died comes last.

    Args:
        term: the number of the term.
        member: the name of the member.
        queue: the name of the queue.
        weight: the weight of the member.
        owns: whether the member is to have the queue.
    """
    return (term + 1) * _RANKS + (_RANKS - 1 if owns else int(score(member, queue, weight) * (_RANKS - 1)))
