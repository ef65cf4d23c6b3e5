"""A simulated broker: it speaks AMQP 0-9-1 in bytes, and keeps what it confirms.

It answers as rabbitmq-server v4.3.0 does, rabbit_channel.erl, send_confirms_and_nacks/1 and coalesce_and_send/4: what became
safe by one tick is acked together, with `multiple` below the first message that is still open or is refused by the same tick.
A message that has come is in its queue; until it is safe, a kill may take it away again, and then all behind it in that queue
that are not safe. Its faults are scripted, for there is no way to have them from a real broker by the hundred thousand.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

from simulated_conversation import Conversation
from simulated_faults import UNROUTABLE, Fault, Scenario
from simulated_line import Line
from simulated_world import World

from rabbit_chx.routing import HashRing

#: The ring of the broker's exchange.
RING = HashRing.from_buckets(["q0", "q1", "q2", "q3"])


@cache
def queue_for(key: str) -> str | None:
    """Return the queue of a key, by the ring; None where no queue takes it."""
    return None if key.startswith(UNROUTABLE) else str(RING.destination_for(key))


@dataclass(eq=False, slots=True)
class Copy:
    """A message in a queue.

    Attributes:
        id: the row's.
        queue: the queue.
        safe: whether a kill leaves it.
    """

    id: int
    queue: str
    safe: bool = False


class Broker:
    """The broker of a run.

    Args:
        world: the clock.
        scenario: what goes wrong.

    Attributes:
        complaints: what clients did against the protocol.
        queues: what is in each queue.
        refused: basic.nacks that it decided on.
        returned: messages that it returned.
        hung_up: sound connections that it closed for missing heartbeats.
        conversations: its connections, oldest first.
    """

    def __init__(self, world: World, scenario: Scenario) -> None:
        self.world = world
        self.scenario = scenario
        self.complaints: list[str] = []
        self.queues: dict[str, list[Copy]] = {str(queue): [] for queue in RING.destinations}
        self.refused = self.returned = self.hung_up = 0
        self.conversations: list[Conversation] = []
        self._safe = dict.fromkeys(self.queues, 0)  # how many are safe; they are the first ones
        began = world.now
        self._periods: dict[str, list[tuple[float, float]]] = {}
        for fault in scenario.of_broker:
            self._periods.setdefault(fault.kind, []).append((began + fault.at, began + fault.until))
        for start, _ in self._periods.get("killed", ()):
            world.at(start, self._kill)
        for start, end in self._periods.get("alarm", ()):
            world.at(start, self._tell_alarm)
            if end < math.inf:
                world.at(end, self._tell_alarm)

    def end_of(self, kind: str) -> float | None:
        """Return the time at which what is going on now is over; None where it is not going on."""
        periods = self._periods.get(kind)
        if periods is None:
            return None
        now = self.world.now
        return max((end for start, end in periods if start <= now < end), default=None)

    @property
    def is_down(self) -> bool:
        """Whether nobody listens."""
        return self.end_of("killed") is not None

    @property
    def alarm(self) -> bool:
        """Whether publishers are to wait."""
        return self.end_of("alarm") is not None

    def when_awake(self, happens: Callable[[], None]) -> None:
        """Do something now, or once the broker is no longer frozen."""
        end = self.end_of("frozen")
        if end is None:
            happens()
        elif end < math.inf:
            self.world.at(end, lambda: self.when_awake(happens))

    def accept(self, line: Line, faults: list[Fault], frame_max: int) -> None:
        """Talk to the client of this line."""
        conversation = Conversation(self, line, faults, frame_max)
        line.server = conversation
        self.conversations.append(conversation)

    # -- messages

    def route(self, exchange: str, key: str) -> str | None:
        """Return the queue of a message now; the default exchange takes it to the queue that is named by its key."""
        if self.end_of("unbound") is not None:
            return None
        return queue_for(key) if exchange else key if key in self.queues else None

    def store(self, id_: int, queue: str) -> Copy:
        """Put a message into its queue."""
        copy = Copy(id_, queue)
        self.queues[queue].append(copy)
        return copy

    def secure(self, copy: Copy) -> None:
        """Make a message safe, and all before it in its queue, as a log does."""
        queue = self.queues[copy.queue]
        while not copy.safe:
            queue[self._safe[copy.queue]].safe = True
            self._safe[copy.queue] += 1

    @property
    def found(self) -> dict[str, list[int]]:
        """The ids in each queue."""
        return {queue: [copy.id for copy in copies] for queue, copies in self.queues.items()}

    # -- what happens to it

    def _kill(self) -> None:
        for conversation in self.conversations:
            conversation.die()
        for name, copies in self.queues.items():
            del copies[self.world.chance.randint(self._safe[name], len(copies)) :]
            if copies:
                self.secure(copies[-1])

    def _tell_alarm(self) -> None:
        for conversation in self.conversations:
            self.when_awake(conversation.heed_alarm)
