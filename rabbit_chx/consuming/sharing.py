"""Which member is to have which queue, where the members are known: fair to one queue, and the same for whoever computes it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from rabbit_chx.consuming.rendezvous import score

__all__ = ["queue_owners"]


def queue_owners(queues: Iterable[str], weights: Mapping[str, float]) -> dict[str, str]:
    """Return the member that is to have each queue.

    Each member has its share by weight, rounded up or down. Of all pairs of a member and a queue, those with the highest
    scores come first. So a queue goes where rendezvous hashing puts it, unless that member has its share already, and few
    queues move when a member comes or goes.

    Args:
        queues: the queues.
        weights: the weight of each member, more than 0.

    Returns:
        The owner of each queue; nothing where there is no member.
    """
    names = sorted(set(queues))
    room = _shares(len(names), weights)
    pairs = sorted(
        (
            (score(member, queue, weight), member, queue)
            for member, weight in weights.items()
            for queue in names
        ),
        reverse=True,
    )
    owners: dict[str, str] = {}
    for _, member, queue in pairs:
        if queue not in owners and room[member]:
            owners[queue] = member
            room[member] -= 1
    return owners


def _shares(count: int, weights: Mapping[str, float]) -> dict[str, int]:
    """Return how many queues each member gets: the largest remainders are rounded up."""
    total = sum(weights.values())
    exact = {member: count * weight / total for member, weight in weights.items()}
    shares = {member: int(share) for member, share in exact.items()}
    left = count - sum(shares.values())
    by_remainder = sorted(
        exact, key=lambda member: (shares[member] - exact[member], -score(member, ""), member)
    )
    for member in by_remainder[:left]:
        shares[member] += 1
    return shares
