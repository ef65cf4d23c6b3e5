"""What a publisher holds in memory while it works, against the bounds that it was given."""

from __future__ import annotations

from typing import Any

from simulated_faults import Scenario

from rabbit_chx.publishing import AsyncPublisher, Publisher

_WINDOW, _WINDOW_BYTES = 1000, 8 << 20  # the defaults
_BATCH_BYTES = 262_144
_LEAST = 60  # bytes of the smallest message
_FRAMES = 400  # the most bytes that a small message costs beside its body
_SMALL = 65_536  # handshake, heartbeats, and what one frame of the largest size takes beside it


class Memory:
    """Looks at a publisher.

    Args:
        scenario: says what it may hold.

    Attributes:
        publisher: whom to look at; None for nobody.
        excess: the first excess that was seen, or nothing.
    """

    def __init__(self, scenario: Scenario) -> None:
        self.publisher: Publisher | AsyncPublisher | None = None
        self.excess = ""
        given, program = scenario.publisher, scenario.program
        self._rows = given.get("max_in_flight", _WINDOW)
        batch = min(max(1, self._rows // 2), 500)
        one_batch = min(batch * program.body, _BATCH_BYTES + program.body) + batch * _FRAMES
        # A refused row is in a batch for each time that it was sent, as long as an older one is open.
        sent_again = 2 + given.get("nack_retries", 3)
        self._bytes = max(given.get("max_in_flight_bytes", _WINDOW_BYTES), one_batch) + sent_again * one_batch

    def look(self) -> None:
        """Compare what it holds with what it may."""
        if self.publisher is None or self.excess:
            return
        delivery = self.publisher._delivery
        connection = self.publisher._connection
        if connection is None:
            return
        session, ledger = connection.session, connection.session.ledger
        waiting = delivery._refused
        unsent = sum(len(sent.rows) for sent in delivery._unsent)
        is_current = delivery._connection is connection
        open_ = (ledger.open if is_current else 0) + waiting.rows + unsent
        held = {
            "unconfirmed rows": (open_, self._rows),
            "unconfirmed bytes": (ledger.open_bytes + waiting.body_bytes, self._bytes),
            # Behind a row that stays open, answered ones are kept as long as their bytes fit into the window.
            "answers ahead": (len(ledger._ahead), self._rows + self._bytes // _LEAST),
            "batches": (len(ledger._entries), self._rows + self._bytes // _LEAST),
            "bytes of an incomplete frame": (len(session._rest), session.frame_max),
            "bytes to be sent": (self._output(connection), self._bytes + _SMALL),
        }
        for what, (amount, most) in held.items():
            if amount > most:
                self.excess = f"{amount} {what}, and {most} are allowed"

    @staticmethod
    def _output(connection: Any) -> int:
        return sum(map(len, (*connection.session.output, *getattr(connection, "_out", ()))))
