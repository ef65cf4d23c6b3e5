"""Draining queues: batches within bounds, what is left, and an acknowledgement behind each write. The consumer is scripted."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from rabbit_chx.amqp import ConnectionSettings
from rabbit_chx.errors import InputError
from spark_connector import draining
from spark_connector.draining import DrainReport, UnsettledMessage, drain

SIZE = 100


class Scripted:
    """Queues, and the one connection that takes their messages.

    Attributes:
        queues: the messages of each queue.
        streams: the queues that are streams.
        unsettled: tags of the messages that were taken and not acknowledged, in their order.
        events: what was done, in its order.
    """

    def __init__(self) -> None:
        self.queues: dict[str, list[bytes]] = {}
        self.streams: set[str] = set()
        self.unsettled: list[int] = []
        self.events: list[str] = []
        self.tag = 0

    def __call__(self, _settings: ConnectionSettings) -> Scripted:
        return self

    def ready(self, queue: str) -> int:
        return len(self.queues[queue])

    def is_stream(self, queue: str) -> bool:
        return queue in self.streams

    def take(self, queue: str, count: int, size: int) -> list[UnsettledMessage]:
        """Return messages until a bound is reached, as `QueueConsumer.take` does: the last one may be larger than the rest."""
        taken: list[UnsettledMessage] = []
        while self.queues[queue] and len(taken) < count and size > 0:
            body = self.queues[queue].pop(0)
            self.tag += 1
            self.unsettled.append(self.tag)
            taken.append(UnsettledMessage(self.tag, False, "", queue, b"", body))
            size -= len(body)
        return taken

    def acknowledge(self, last: UnsettledMessage) -> None:
        assert last.tag == self.unsettled[-1], "messages of the batch are not acknowledged"
        self.events.append(f"acknowledge {len(self.unsettled)}")
        self.unsettled.clear()

    @contextmanager
    def keep_alive(self) -> Iterator[None]:
        yield

    def close(self) -> None:
        self.events.append("close")


#: Stands for Spark: a frame is the Arrow table.
SESSION: Any = SimpleNamespace(createDataFrame=lambda table: table)


@pytest.fixture
def consumer(monkeypatch: pytest.MonkeyPatch) -> Scripted:
    scripted = Scripted()
    monkeypatch.setattr(draining, "QueueConsumer", scripted)
    monkeypatch.setattr(
        draining, "batch_of", lambda queue, of, _: pa.record_batch({"queue": [queue] * len(of)})
    )
    return scripted


def drained_by(write: Any, queues: str, *, most: int | None = None, **options: int) -> DrainReport:
    return drain(SESSION, {"url": "amqp://h", "queue": queues, **options}, write, max_messages=most)


def drained(consumer: Scripted, *, most: int | None = None, **options: int) -> DrainReport:
    def write(df: Any) -> None:
        assert df.num_rows == len(consumer.unsettled)
        consumer.events.append(f"write {df.num_rows}")

    return drained_by(write, ",".join(consumer.queues), most=most, **options)


@pytest.mark.parametrize(
    ("queues", "options", "batches"),
    [({"a": 8}, {"maxBytes": 3 * SIZE}, [3, 3, 2]), ({"a": 2, "b": 3}, {"maxRows": 4}, [4, 1])],
)
def test_a_batch_ends_at_a_bound_and_not_with_a_queue_and_the_drain_goes_on(
    consumer: Scripted, queues: dict[str, int], options: dict[str, int], batches: list[int]
) -> None:
    consumer.queues = {queue: [b"." * SIZE] * count for queue, count in queues.items()}
    report = drained(consumer, **options)
    assert (report.messages, report.left, report.batches) == (queues, {}, len(batches))
    steps = [f"{step} {count}" for count in batches for step in ("write", "acknowledge")]
    assert consumer.events == [*steps, "close"]


@pytest.mark.parametrize("options", [{}, {"maxBytes": 2 * SIZE}, {"maxRows": 2}])
def test_what_a_bound_leaves(consumer: Scripted, options: dict[str, int]) -> None:
    consumer.queues = {"a": [b"." * SIZE] * 4, "b": [b"." * SIZE] * 3}
    report = drained(consumer, most=5, **options)
    assert (report.messages, report.left) == ({"a": 4, "b": 1}, {"b": 2})


@pytest.mark.parametrize(("seconds", "batches"), [(60, 2), (0, 0)])
def test_no_batch_begins_after_the_time(consumer: Scripted, seconds: int, batches: int) -> None:
    consumer.queues = {"a": [b"."] * 4}
    options = {"url": "amqp://h", "queue": "a", "maxRows": 2}
    assert drain(SESSION, options, lambda _: None, max_seconds=seconds).batches == batches


def test_the_queues_of_an_exchange_are_drained_without_its_streams(
    consumer: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    consumer.queues, consumer.streams = {"a": [b"."], "log": [b"."]}, {"log"}
    monkeypatch.setattr(draining, "bound_queues", lambda *_: {"log": "stream", "a": "quorum"})
    options = {"url": "amqp://h", "exchange": "x", "managementUrl": "http://h"}
    assert drain(SESSION, options, lambda _: None).messages == {"a": 1}


def test_messages_of_others_are_not_left(consumer: Scripted, monkeypatch: pytest.MonkeyPatch) -> None:
    consumer.queues = {"a": [b"." * SIZE] * 2}
    monkeypatch.setattr(consumer, "ready", lambda _: 9)
    assert drained(consumer).left == {}


def test_a_batch_that_was_not_written_is_not_acknowledged(consumer: Scripted) -> None:
    consumer.queues = {"a": [b"." * SIZE] * 4}
    frames = []

    def write(frame: Any) -> None:
        frames.append(frame)
        if len(frames) == 2:
            raise OSError("no space")

    with pytest.raises(OSError, match="no space") as raised:
        drained_by(write, "a", maxRows=3)
    assert consumer.events == ["acknowledge 3", "close"]
    assert len(consumer.unsettled) == 1
    words = "3 messages of 1 queues written and acknowledged in 1 batches, 0 redelivered, 1 left"
    assert words in str(raised.value.__notes__)


def test_a_write_that_stores_nothing_is_refused(consumer: Scripted) -> None:
    class DataFrameWriter:
        pass

    consumer.queues = {"a": [b"."]}
    with pytest.raises(InputError, match="write has returned a DataFrameWriter, so nothing is stored yet"):
        drained_by(lambda _: DataFrameWriter(), "a")
    assert consumer.events == ["close"]


def test_a_stream_is_refused_before_messages_are_taken(consumer: Scripted) -> None:
    consumer.queues, consumer.streams = {"a": [b"."], "log": [b"."]}, {"log"}
    words = r"queue 'log' is a stream, .* with spark\.read and the option stream='log'"
    with pytest.raises(InputError, match=words):
        drained(consumer)
    assert consumer.events == ["close"]
