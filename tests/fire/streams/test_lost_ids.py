"""A job that has lost its ids, and gives other rows under those of an earlier run."""

from __future__ import annotations

from contextlib import closing

import pytest
from delivery_checker import Attempt, History, Judge
from fire_streams import bodies_of, stored
from super_streams import create_super_stream

from rabbit_chx import StreamPublisher, SuperStream
from rabbit_chx.errors import MismatchError, PublishError
from rabbit_chx.streams.connection import StreamConnection
from rabbit_chx.streams.nodes import stream_settings
from rabbit_chx.testing import RunningBroker

pytestmark = [pytest.mark.broker, pytest.mark.chx_broker(">=3.13")]

STREAMS = ["s-0", "s-1", "s-2"]
ROWS = 1_000


def test_other_rows_under_used_ids_of_a_super_stream_are_an_error(
    vhost: RunningBroker, record: Judge
) -> None:
    with closing(StreamConnection(stream_settings(vhost.stream_url))) as connection:
        create_super_stream(connection, "s", STREAMS, ["0", "1", "2"])
    where = SuperStream(STREAMS).partition_for
    first, second, third = (next(f"k{n}" for n in range(99) if where(f"k{n}") == name) for name in STREAMS)

    def publish(keys: list[str], from_row: int, from_id: int) -> int:
        with StreamPublisher(vhost.stream_url, super_stream="s", name="load") as publisher:
            ids = range(from_id, from_id + len(keys))
            return publisher.publish_many(keys, bodies_of(from_row, len(keys)), ids=ids).confirmed

    assert publish([first] * ROWS, 1, 1) == ROWS
    later = [first] * (ROWS // 2) + [second, third] * (ROWS // 4)
    for from_id in (2, ROWS // 2 + 1, ROWS):
        with pytest.raises(PublishError, match=r"stream 's-0' has id \d+ of 'load'") as caught:
            publish(later, ROWS + 1, from_id)
        assert isinstance(caught.value.__cause__, MismatchError)
        assert caught.value.report.confirmed == 0
    assert publish(later, ROWS + 1, 2 * ROWS) == ROWS
    keys = dict(enumerate([first] * ROWS + later, 1))
    record(
        History(
            attempted=[Attempt(row, key) for row, key in keys.items()],
            acked=range(1, 2 * ROWS + 1),
            found={stream: stored(vhost.stream_url, stream) for stream in STREAMS},
            queue_for=where,
            ordered=True,
            republished=0,
        ),
        path="StreamPublisher",
        fault="a super stream is given other rows under used ids three times, then the same rows under new ids",
        promise="PublishError names a stored row and the given one, before a row is stored. Under new ids each row is stored once.",
        outcome="PublishError: has id ...; then complete",
    )
