"""The subscription of a stream: what ends it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from rabbit_chx.errors import ConnectionLostError
from rabbit_chx.streams.frames import Code, CreditRefused, DeliveredChunk, Event, StreamChanged
from rabbit_chx.streams.options import StreamSubscription


def receiving(*events: Event) -> StreamSubscription:
    """Return a subscription over a connection that receives these events."""
    connection: Any = SimpleNamespace(
        where="broker", events=lambda _: list(events), subscribe=lambda *_: None
    )
    subscription = StreamSubscription("s")
    subscription.begin(connection, "first", {})
    return subscription


@pytest.mark.parametrize(
    "event",
    [
        StreamChanged("s", Code.STREAM_NOT_AVAILABLE),
        CreditRefused(0, Code.SUBSCRIPTION_DOES_NOT_EXIST),
    ],
)
def test_the_broker_has_ended_it(event: Event) -> None:
    """After a refused credit no chunk comes: the reader would wait for it until its time is over. Other events are those of the user."""
    with pytest.raises(ConnectionLostError, match="the broker has ended the subscription of stream 's'"):
        receiving(event).receive(0.0)
    other = DeliveredChunk(1, memoryview(b"chunk"))
    assert receiving(other).receive(0.0) == [other]
