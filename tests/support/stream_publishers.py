"""A stream publisher beside a fake node, and faults at chosen places."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, cast

import numpy as np
import pytest
from stream_logs import RowLog
from stream_node import Clock, Session, StreamNode, in_memory

from rabbit_chx.retry import Backoff
from rabbit_chx.routing import HashRing, SuperStream
from rabbit_chx.streams import StreamReader, stored_ids, writer
from rabbit_chx.streams import publisher as publisher_module
from rabbit_chx.streams.frames import Key, PublishErrors, StreamChanged
from rabbit_chx.streams.publisher import StreamPublisher

URL = "rabbitmq-stream://user:secret@broker"
ROWS = 200
FRAME_MAX = 4_096
UNAVAILABLE = 6
NOTHING = StreamChanged("another stream", UNAVAILABLE)
RING = HashRing.from_buckets(["a", "b", "c", "b"])
PARTITIONS = SuperStream(["a", "b", "c"])
#: Readers of stored rows give small batches.
READER: Any = functools.partial(cast("Any", StreamReader), batch_rows=7)


class Broker(StreamNode):
    """A node with one stream, `s`; `clock` is that of all waits."""

    frame_max = FRAME_MAX
    heartbeat_s = 0
    clock: Clock

    def __init__(self) -> None:
        super().__init__()
        self.version = "4.3.6"
        self.commands = (Key.STREAM_STATS,)
        self.rows: dict[str, RowLog] = {}
        self.streams = self.rows  # type: ignore[assignment]  # all logs are of rows
        self.rows["s"] = RowLog()

    def add_partitions(self) -> None:
        """Add the streams of `RING`, which are the partitions of the super stream `x`."""
        self.rows |= {name: RowLog() for name in PARTITIONS.partitions}
        self.super_streams["x"] = PARTITIONS.partitions


@contextmanager
def running_broker(**how: Any) -> Iterator[Broker]:
    """Let publishers connect to a node with the stream `s`; rows go in small batches. `how` is as of `in_memory`."""
    broker = Broker()
    with in_memory(broker, **how) as broker.clock, pytest.MonkeyPatch.context() as patch:
        patch.setattr(publisher_module, "_WAIT_S", 0.0)
        for name, value in {"_BACKOFF": Backoff(0.0, 0.0), "_SEND_ROWS": 8, "_WAIT_S": 0.0}.items():
            patch.setattr(writer, name, value)
        patch.setattr(stored_ids, "StreamReader", READER)
        patch.setattr(stored_ids, "_FIRST_PIECE", 16)
        yield broker


def publisher(**how: Any) -> StreamPublisher:
    if not {"stream", "super_stream", "ring"} & set(how):
        how["stream"] = "s"
    return StreamPublisher(**{"url": URL, "window": 20, **how})


def publish(made: StreamPublisher, first: int = 1, rows: int = ROWS) -> Any:
    ids = range(first, first + rows)
    return made.publish_many([f"k{n}" for n in ids], [f"body {n}" for n in ids], ids=ids)


def publish_rows(rows: int = ROWS, *, name: str = "load", **how: Any) -> Any:
    """Publish rows by a publisher that is closed then."""
    with publisher(name=name, **how) as made:
        return publish(made, rows=rows)


# -- faults


def once(fault: Callable[[Session], object], after: int) -> Callable[[Session], object]:
    """Return what lets a fault happen once, when so many rows are sent."""
    done: list[bool] = []

    def happen(session: Session) -> None:
        if not done and len(session.sent) >= after:
            done.append(True)
            fault(session)

    return happen


def refuse(session: Session) -> None:
    """Refuse the rows that are under way, which the broker then forgets."""
    session.stream.crash(0, flaw=False)
    ids = np.array([row_id for _, row_id, _ in session.unconfirmed], np.uint64)
    session.tell(PublishErrors(0, ids, np.full(len(ids), 18, np.uint16)))


def change(session: Session) -> None:
    """Elect another leader."""
    session.stream.crash(0, flaw=False)
    session.tell(StreamChanged("s", UNAVAILABLE))


def lose(session: Session) -> None:
    """Kill the broker and the connection."""
    session.stream.crash(0, flaw=False)
    session.lose()


def flaw(session: Session) -> None:
    """Die in the roll-over: the ids of the last rows are in the log, and the rows are not."""
    session.stream.crash(0, flaw=True)
    session.lose()


def confirm_and_change(session: Session) -> None:
    """Confirm all rows, and elect another leader."""
    session.commit(len(session.stream.log))
    session.tell(*session.confirms(), StreamChanged("s", UNAVAILABLE))
