"""The mover of the hand-over's model: the code that runs in production, brought to where it was by the answers that it has had."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, Literal, NamedTuple
from unittest.mock import patch

from hand_over_model import slot_name

from rabbit_chx.broker.applying import apply_changes
from rabbit_chx.broker.hand_over import (
    HandOver,
    HandOverTally,
    drain_park,
    hand_over_slot,
    parts_of,
)
from rabbit_chx.broker.live_broker import Operation
from rabbit_chx.topology.objects import BindingDefinition
from rabbit_chx.topology.schema import PlannedChange
from rabbit_chx.topology.slots import HandOverMarker


class Request(NamedTuple):
    """A call of the broker that has no answer yet.

    Attributes:
        name: the method.
        arguments: its arguments, without limits of time.
    """

    name: str
    arguments: tuple[Any, ...]


class _UnansweredError(BaseException):
    """The mover stops at this request."""


class ReplayedBroker:
    """A broker that gives the answers that the mover has had, and stops it at the first request without one."""

    where, vhost = "broker", "/"
    has_management = has_source = False
    lock_id = ""

    def __init__(self, answers: Iterable[Any]) -> None:
        self._answers = iter(answers)
        self.amqp = self.carrier = self
        self.api: Any = None

    def _ask(self, name: str, *arguments: object) -> Any:
        for answer in self._answers:
            return answer
        raise _UnansweredError(Request(name, arguments))

    def check_lock_in(self, queues: Sequence[Mapping[str, Any]]) -> None:
        """There is one broker."""

    def perform(self, operation: Operation) -> None:
        """Ask for an operation."""
        self._ask("perform", operation)

    def perform_together(self, operations: Sequence[Operation]) -> Any:
        """Ask for several operations."""
        return self._ask("perform_together", *operations)

    def count(self, queue: str) -> Any:
        """Ask for the counts of a queue."""
        return self._ask("count", queue)

    def move_messages(self, queue: str, exchange: str, limit: int) -> Any:
        """Ask for messages to be moved."""
        return self._ask("move_messages", queue, exchange, limit)

    def send_marker(self, queue: str, marker: HandOverMarker) -> None:
        """Ask for a marker to be sent."""
        self._ask("send_marker", queue, marker)

    def wait_for_reply(self, marker: HandOverMarker, kind: str, **_limits: object) -> Any:
        """Ask for a reply."""
        return self._ask("wait_for_reply", marker, kind)

    def sleep(self, seconds: float) -> None:
        """Ask for time to pass."""
        self._ask("sleep", seconds)


@dataclass
class Mover:
    """One who moves slots: where the slots were when it began, and the answers that it has had. A stack is not copied."""

    run: int
    level: Literal["parked", "in-order"]
    found: tuple[tuple[str, ...], ...]
    answers: list[Any] = field(default_factory=list)
    done: int = 0  # operations that were sent together, or messages of a move

    def step(self) -> Request | None:
        """Return what the mover asks for now; None where it has ended."""
        hand_over_id = SimpleNamespace(hex=str(self.run))
        broker: Any = ReplayedBroker(self.answers)
        with patch("rabbit_chx.broker.hand_over.uuid4", lambda: hand_over_id):
            try:
                self._move(broker)
            except _UnansweredError as unanswered:
                request: Request = unanswered.args[0]
                return request
        return None

    def _move(self, broker: Any) -> None:  # it has no management API
        tally = HandOverTally()
        changes: list[PlannedChange] = []
        for slot, bound in enumerate(self.found):
            name = slot_name(slot)
            if "old" in bound:
                changes.append(PlannedChange("unbind", BindingDefinition(name, "old"), None))
            if "new" not in bound:
                changes.append(PlannedChange("bind", None, BindingDefinition(name, "new")))
        slots = {slot_name(slot): "x" for slot in range(len(self.found))}
        for part in parts_of(changes, slots, {"x": "park"}):
            if isinstance(part, HandOver):
                hand_over_slot(part, broker, self.level, tally)
            else:
                apply_changes(part, broker)
        drain_park(broker, "x", "park")
