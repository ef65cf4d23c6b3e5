"""Finds the queue with a message that the broker cannot deliver, without I/O.

A message of an AMQP 1.0 client may have a property that AMQP 0.9.1 does not have, of type uuid or char. The broker fails when it converts it,
and closes the connection (541), with the consumers of all queues. The close does not name the queue.

So after a 541 the next session consumes the queues one after the other. A queue is left out if it was the only one that was consumed. If
others were, too, the last one is the first of the next session: a consumer that waited behind another member may be what got the message.
"""

from __future__ import annotations

from typing import Protocol

from rabbit_chx.errors import RabbitChxError

#: Seconds between two trials of a queue that is left out.
RETRY_S = 60.0
_INTERNAL_ERROR = 541
#: Seconds in which a queue that is consumed shows that it can be. They double after each session in which several were consumed.
_SETTLE_S = 0.5
_MAX_SETTLE_S = 8.0


class _EndedSession(Protocol):
    settle_s: float
    consumed: list[str]
    has_settled: bool


class UndeliverableQueues:
    """The queues of a member that are left out, and how its next session consumes the others.

    Attributes:
        left_out: the queues that end each connection that consumes them.
        settle_s: seconds between two queues in the next session; 0 to consume all at once.
        first: the queue that the next session consumes first; None for any.
    """

    def __init__(self) -> None:
        self.left_out: set[str] = set()
        self.settle_s = 0.0
        self.first: str | None = None

    def on_session_ended(self, cause: RabbitChxError, session: _EndedSession) -> str | None:
        """Learn from the error that ended a session; return the queue that is left out from now on, None for none."""
        if cause.reply_code != _INTERNAL_ERROR or not session.consumed:
            self.settle_s = 0.0
            self.first = None
            return None
        if not session.settle_s or session.has_settled:
            self.settle_s = _SETTLE_S
            self.first = None
            return None
        last = session.consumed[-1]
        if len(session.consumed) > 1:
            self.settle_s = min(2 * session.settle_s, _MAX_SETTLE_S)
            self.first = last
            return None
        self.left_out.add(last)
        self.settle_s = _SETTLE_S
        self.first = None
        return last
