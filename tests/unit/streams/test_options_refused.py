"""What the public calls of streams refuse: `refusals.txt` has the arguments and the errors."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from stored_cases import cases_of_sections
from stream_publishers import URL, Broker, publisher

from rabbit_chx import StreamGroup, StreamReader, routing
from rabbit_chx.consuming import GroupTiming
from rabbit_chx.errors import RabbitChxError
from rabbit_chx.streams import Fingerprint
from rabbit_chx.streams.frames import Key
from rabbit_chx.streams.reader import RangeReader

STORED = cases_of_sections(__file__, "refusals.txt", r"^(\{.*)\n-> (.*)")
#: What the arguments may name, in addition to the names of `rabbit_chx.routing`.
NAMES: dict[str, Any] = {each.__name__: each for each in (datetime, timedelta, Fingerprint, GroupTiming)}
NAMES |= {**vars(routing), "UTC": UTC, "np": np, "pa": pa}


def publish_many(**how: Any) -> None:
    columns = ("keys", "bodies", "ids", "filter_values")
    rows = {"keys": ["k", "k"], "bodies": ["b", "b"]} | {
        name: how.pop(name) for name in columns if name in how
    }
    with publisher(**how) as made:
        made.publish_many(**rows)


USES: dict[str, Callable[..., object]] = {
    "StreamReader": lambda **how: StreamReader(**{"url": URL, "stream": "s"} | how),
    "RangeReader": lambda **how: RangeReader(**{"url": URL, "stream": "s"} | how),
    "StreamPublisher": publisher,
    "publish_many": publish_many,
    "StreamGroup": lambda **how: StreamGroup(URL, streams=["s"], name="g", **how),
}


@pytest.mark.parametrize(("use", "arguments", "said"), STORED)
def test_what_is_refused_is_as_stored(broker: Broker, use: str, arguments: str, said: str) -> None:
    """Before anything is sent, and but for publishers before anything is connected."""
    broker.commands = list(Key)
    with pytest.raises(RabbitChxError) as caught:
        USES[use](**eval(arguments, NAMES))  # noqa: S307  # the file is ours
    assert f"{type(caught.value).__name__}: {caught.value}" == said
    assert not broker.rows["s"].log
    assert "publish" in use.lower() or not broker.seen
