"""Small worlds of a group, explored to their ends. `tools/group_exploration.py` explores larger ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from group_exploration import BrokenInvariantError, explored

from rabbit_chx.consuming.seat import Seat

if TYPE_CHECKING:
    from rabbit_chx.consuming.queue_line import QueueLine
    from rabbit_chx.consuming.seat_commands import SeatCommand


@pytest.mark.parametrize(
    ("members", "messages", "crashes", "rises"), [(1, 3, 1, 1), (2, 1, 1, 0), (2, 2, 0, 0)]
)
def test_all_invariants_hold(members: int, messages: int, crashes: int, rises: int) -> None:
    found = explored(members, messages, crashes=crashes, rises=rises)
    assert found.states > 500
    assert found.ends > 5


def test_a_consumer_that_ends_politely_breaks_the_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """The exploration can fail: with what RabbitMQ does to the messages of a consumer that is cancelled."""

    def end(self: Seat, line: QueueLine) -> list[SeatCommand]:
        return self._end(line) if not line.working else []

    monkeypatch.setattr(Seat, "_let_go", end)
    with pytest.raises(BrokenInvariantError, match="message 2 is started; the next one is 1"):
        explored(2, 2, crashes=0, rises=0)
