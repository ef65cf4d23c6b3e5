"""Which queues have messages and deliver none, and what is done about it: decided without I/O and without a clock."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["QueueWatch"]

#: After so many renewals of a consumer in vain, the log says what else it may be.
_RENEWALS = 2
_DEAD = (
    "consuming it anew did not help. The broker may deliver to a consumer that is dead, as RabbitMQ 4.3.6 may after a member was "
    "killed: restart the node that leads the queue (docs/consuming.md, 'What RabbitMQ does to order')"
)


@dataclass(slots=True)
class _Standstill:
    delivered: int
    looks: int = 0
    renewals: int = 0


class QueueWatch:
    """What one member saw when it looked at its queues (rabbitmq-server#14141)."""

    def __init__(self) -> None:
        self._still: dict[str, _Standstill] = {}

    def forget(self, queue: str) -> None:
        """Note that a queue has something to do, or nothing waits in it.

        Args:
            queue: the queue.
        """
        self._still.pop(queue, None)

    def look(self, queue: str, waiting: int, delivered: int) -> str | None:
        """Note what waits in a queue that has nothing to do. Return what to say if it is to be consumed anew, else None.

        Each renewal in vain doubles the number of looks until the next one.

        Args:
            queue: the queue.
            waiting: how many messages wait in it.
            delivered: how many it has delivered to this member so far.
        """
        if not waiting:
            self.forget(queue)
            return None
        still = self._still.setdefault(queue, _Standstill(delivered))
        if still.delivered != delivered:
            self._still[queue] = _Standstill(delivered)
            return None
        still.looks += 1
        if still.looks <= 1 << still.renewals:
            return None
        still.looks = 0
        still.renewals += 1
        says = _DEAD if still.renewals > _RENEWALS else "consuming it anew"
        return f"{queue}: {waiting:,} messages wait and none is delivered: {says}"
