"""Parking queues, drained: each message is published once more to its exchange, which now has a queue for it.

The exchange hashes it as it did before, so it comes to the queue that has its slot, with its own exchange, routing key and
properties. If the slot has no queue still, the message is parked again, at the end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rabbit_chx.errors import BrokerRefusedError
from rabbit_chx.topology.sequences.carrier_steps import MessageTransfer, Pause
from rabbit_chx.topology.sequences.operations import QueueDeclare
from rabbit_chx.topology.sequences.steps import asked

if TYPE_CHECKING:
    from rabbit_chx.topology.sequences.steps import Sequence

__all__ = ["SETTLE_S", "park_drained", "park_passed"]

#: What the broker was routing when a binding changed is in its queue after so many seconds.
SETTLE_S = 0.25
_PASSES = 50


def park_passed(where: str, exchange: str, queue: str) -> Sequence[int]:
    """Publish once more what is in a parking queue now, and return how many messages that were.

    Args:
        where: the broker's address without password, for errors.
        exchange: the hash exchange.
        queue: its parking queue.

    Raises:
        RabbitChxError: the broker refuses a message. It is still in the parking queue.
    """
    counts = yield from asked(where, QueueDeclare(queue, passive=True))
    if counts is None or not counts.messages:
        return 0
    moved: int = yield MessageTransfer(queue, exchange, counts.messages)
    return moved


def park_drained(where: str, exchange: str, queue: str) -> Sequence[int]:
    """Publish once more what is in a parking queue, until it is empty; return how many messages that were.

    Args:
        where: the broker's address without password, for errors.
        exchange: the hash exchange.
        queue: its parking queue.

    Raises:
        BrokerRefusedError: messages come as fast as they are moved.
        RabbitChxError: the broker refuses a message. It is still in the parking queue.
    """
    total = 0
    for _ in range(_PASSES):
        moved = yield from park_passed(where, exchange, queue)
        total += moved
        if not moved:
            yield Pause(SETTLE_S)
            late = yield from park_passed(where, exchange, queue)
            if not late:
                return total
            total += late
    raise BrokerRefusedError(
        f"{where}: the parking queue {queue} was emptied {_PASSES} times, and there are messages in it again: a slot of {exchange} "
        "has no queue, or somebody else publishes to it; look at its bindings, then apply again",
        exchange=exchange,
        queue=queue,
    )
