"""What is kept of a traced message."""

from __future__ import annotations

import pytest

from rabbit_chx.amqp import AmqpField
from rabbit_chx.broker.firehose import TracedMessage
from rabbit_chx.cli.samples import traced_sample
from rabbit_chx.routing import HashedOn

HEADERS = (
    (b"CC", AmqpField("array", [AmqpField("longstr", "c")])),
    (b"tenant", AmqpField("unsignedbyte", 5)),
    (b"tenant", AmqpField("longstr", "second")),
)
MESSAGE = TracedMessage("x", b"key", HEADERS, {"message_id": b"m1", "timestamp": 7}, frozenset())


@pytest.mark.parametrize(
    ("hashed", "key", "headers"),
    [
        (HashedOn("routing-key"), "key", ()),
        (HashedOn("header", b"tenant"), "unsignedbyte 5", HEADERS[1:]),
        (HashedOn("header", b"gone"), "(no header)", ()),
        (HashedOn("property", b"message_id"), "m1", ()),
        (HashedOn("property", b"timestamp"), "7", ()),
        (HashedOn("property", b"correlation_id"), "(no correlation_id)", ()),
    ],
)
def test_only_what_is_hashed_is_kept(hashed: HashedOn, key: str, headers: tuple[object, ...]) -> None:
    (message,) = traced_sample(hashed, [MESSAGE])
    assert (message.key, message.headers) == (key, headers)
    assert bool(message.routing_key) == (key == "key")
