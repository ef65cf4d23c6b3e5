"""The mover of the hand-over's model: the sequence that runs in production, brought to where it was by the answers that it has had."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, Literal
from unittest.mock import patch

from hand_over_model import slot_name

from rabbit_chx.topology.applying import changes_done
from rabbit_chx.topology.changes import PlannedChange
from rabbit_chx.topology.hand_over import HandOver, HandOverTally, handed_over, park_drained, parts_of
from rabbit_chx.topology.objects import BindingDefinition
from rabbit_chx.topology.steps import Access, Sequence

_ACCESS = Access("broker", "/")


@dataclass
class Mover:
    """One who moves slots: where the slots were when it began, and the answers that it has had. A generator is not copied."""

    run: int
    level: Literal["parked", "in-order"]
    found: tuple[tuple[str, ...], ...]
    answers: list[Any] = field(default_factory=list)
    done: int = 0  # operations of a pipeline, or messages of a transfer

    def step(self) -> Any:  # noqa: ANN401
        """Return what the mover asks for now; None where it has ended."""
        hand_over_id = SimpleNamespace(hex=str(self.run))
        with patch("rabbit_chx.topology.hand_over.uuid4", lambda: hand_over_id):
            sequence = self._sequence()
            try:
                step: Any = next(sequence)
                for answer in self.answers:
                    step = sequence.send(answer)
            except StopIteration:
                return None
        return step

    def _sequence(self) -> Sequence[None]:
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
                yield from handed_over(part, _ACCESS, self.level, tally)
            else:
                yield from changes_done(part, _ACCESS, lambda _: None, allow_loss=False)
        yield from park_drained("broker", "x", "park")
