"""What a sequence asks for, and what it makes of the answer."""

from __future__ import annotations

import pytest

from rabbit_chx.drive import drive
from rabbit_chx.errors import NotFoundError
from rabbit_chx.topology.operations import QueueCounts, QueueDeclare, Refusal
from rabbit_chx.topology.steps import asked

WHERE = "amqp://guest:***@host:5672/%2F"


def test_an_operation_answers_or_is_refused() -> None:
    operation = QueueDeclare("q", passive=True)

    assert drive(asked(WHERE, operation), lambda _: QueueCounts(3, 1)) == QueueCounts(3, 1)
    assert drive(asked(WHERE, operation), lambda _: None) is None
    with pytest.raises(NotFoundError, match="no queue 'q'") as caught:
        drive(asked(WHERE, operation), lambda _: Refusal(404, "NOT_FOUND - no queue 'q' in vhost '/'"))
    assert (caught.value.queue, caught.value.reply_code) == ("q", 404)
