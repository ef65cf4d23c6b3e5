"""The end of a task's input: of all rows, or a cut. The JVM's side of the socket is scripted, since Spark cuts at no chosen place."""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import closing
from importlib.machinery import ModuleSpec
from types import SimpleNamespace
from typing import Any
from unittest.mock import create_autospec

import pyarrow as pa
import pytest
from pyspark.serializers import SpecialLengths
from pyspark.sql.pandas.serializers import ArrowStreamSerializer
from spark_messages import SCHEMA

from rabbit_chx.errors import InputError, RabbitChxError
from spark_connector.reports import FinishedTask
from spark_connector.writing import task_writer, tasks
from spark_connector.writing.preflight import WritePlan
from spark_connector.writing.stream_sink import StreamSink
from spark_connector.writing.task_writer import TaskWriter
from spark_connector.writing.tasks import Task, find_input, whole, without_marks

SIGNAL = struct.pack("!i", SpecialLengths.END_OF_STREAM)
BATCH = pa.record_batch([pa.array(["a", "b", "c"]), pa.array([1, None, 3])], names=["key", "number"])
ARROW_END = 8  # bytes
CUT = "the input of this task was cut after {} rows"


def sent(batches: int, end: bytes, *, ended: bool = True) -> bytes:
    """Return what the JVM writes: batches, the end of Arrow's stream if it comes to it, and the bytes behind it."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, BATCH.schema) as writer:
        for _ in range(batches):
            writer.write_batch(BATCH)
    data = sink.getvalue().to_pybytes()
    return data + end if ended else data[:-ARROW_END]


Receive = Callable[..., tuple[Any, Iterator[pa.RecordBatch]]]


@pytest.fixture
def receive() -> Iterator[Receive]:
    """Returns the input of a worker and its batches; ``silent`` leaves the socket open."""
    sockets: list[socket.socket] = []
    files: list[Any] = []

    def start(data: bytes, *, buffer: int = 65_536, silent: bool = False) -> Any:
        ours, jvm = socket.socketpair()
        sockets.extend((ours, jvm))
        jvm.sendall(data)
        if not silent:
            jvm.shutdown(socket.SHUT_WR)
        file = os.fdopen(os.dup(ours.fileno()), "rb", buffer)  # as pyspark/daemon.py does
        files.append(file)
        serializer: Any = ArrowStreamSerializer()
        return file, serializer.load_stream(file)

    yield start
    for each in (*sockets, *files):
        each.close()


@pytest.mark.parametrize("buffer", [2, 3, 5, 65_536])
@pytest.mark.parametrize("batches", [0, 1, 4])
def test_the_signal_proves_the_end_and_stays_for_the_worker(
    receive: Receive, batches: int, buffer: int
) -> None:
    """Whatever part of it has come into the buffer."""
    file, rows = receive(sent(batches, SIGNAL), buffer=buffer, silent=True)
    assert list(whole(rows, file)) == [BATCH] * batches
    assert file.read(4) == SIGNAL


@pytest.mark.parametrize("batches", [0, 1, 4])
@pytest.mark.parametrize(
    ("end", "how"),
    [(b"", {"ended": False}), (b"", {}), (struct.pack("!i", SpecialLengths.PYTHON_EXCEPTION_THROWN), {})],
    ids=["at the border of a batch", "behind Arrow's end", "another signal"],
)
def test_a_cut_is_an_error_behind_its_rows(
    receive: Receive, batches: int, end: bytes, how: dict[str, bool]
) -> None:
    file, rows = receive(sent(batches, end, **how))
    given = whole(rows, file)
    assert [next(given) for _ in range(batches)] == [BATCH] * batches
    with pytest.raises(RabbitChxError, match=CUT.format(3 * batches)):
        next(given)


def test_a_cut_inside_a_batch_is_an_error_of_arrow(receive: Receive) -> None:
    data = sent(2, b"", ended=False)
    file, rows = receive(data[:-20])
    with pytest.raises((OSError, pa.ArrowInvalid)):
        list(whole(rows, file))


def test_a_silent_end_is_waited_for_and_then_a_cut(receive: Receive, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "_WAIT_S", 0.01)
    file, rows = receive(sent(1, b""), silent=True)
    with pytest.raises(RabbitChxError, match=CUT.format(3)):
        list(whole(rows, file))


def test_a_reset_is_a_cut() -> None:
    server = socket.create_server(("127.0.0.1", 0))
    with closing(server), closing(socket.create_connection(server.getsockname())) as ours:
        jvm, _ = server.accept()
        file: Any = ours.makefile("rwb", 65_536)  # as pyspark/worker.py does without a daemon
        with file:
            jvm.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            jvm.close()
            with pytest.raises(RabbitChxError, match=CUT.format(3)):
                list(whole([BATCH], file))


# -- where the input is


def call_as_worker(function: Callable[[], Any], infile: object, module: str = "pyspark.worker") -> Any:
    """Call a function below one that looks like PySpark's worker, which is the module that was run."""
    names: dict[str, Any] = {"__name__": "__main__", "__spec__": ModuleSpec(module, None)}
    exec("def main(infile, call):\n    return [found for found in (call() for _ in '1')][0]", names)  # noqa: S102
    return names["main"](infile, function)


def test_the_input_is_found_in_a_worker_and_nowhere_else(receive: Receive) -> None:
    file, _ = receive(b"")
    assert call_as_worker(find_input, file) is file
    assert call_as_worker(find_input, object()) is None
    assert call_as_worker(find_input, file, "another.worker") is None
    assert find_input() is None


@pytest.mark.parametrize("delivery", ["exactly-once", "at-least-once"])
def test_a_spark_that_shows_no_end_writes_at_least_once_with_a_note(
    monkeypatch: pytest.MonkeyPatch, delivery: str
) -> None:
    monkeypatch.setattr(task_writer, "TaskContext", SimpleNamespace(get=object))  # a task of Spark
    once = {"appId": "load", "version": "1"} if delivery == "exactly-once" else {}
    options = {"url": "amqp://h", "superStream": "s", "delivery": delivery, **once}
    plan = WritePlan.parse(options, SCHEMA)
    sink = create_autospec(StreamSink, instance=True)
    sink.most_row_bytes = None
    sink.finish.return_value = FinishedTask(1, 0)
    monkeypatch.setattr(task_writer, "make_sink", lambda *_: sink)
    batch = pa.record_batch([pa.array(["a"]), pa.array(["b"])], names=["key", "value"])
    writer = TaskWriter(plan, Task(partition=1, speculation=False))
    if once:
        with pytest.raises(InputError, match="partition 1: delivery is exactly-once, and this PySpark"):
            writer.publish_partition([batch])
        assert not sink.send.called
    else:
        assert "does not show whether" in writer.publish_partition([batch]).notes[0]
        sink.send.assert_called_once()


# -- marks


def marked(rows: int) -> list[pa.RecordBatch]:
    schema = BATCH.schema.append(pa.field("end", pa.bool_()))
    return list(tasks._add_marks(schema, [BATCH.slice(0, rows)] if rows else []))


@pytest.mark.parametrize("rows", [0, 1, 3])
def test_rows_are_whole_only_with_both_marks(rows: int) -> None:
    """Spark passes rows on in batches of its own."""
    table = pa.Table.from_batches(marked(rows))
    for kept in range(table.num_rows + 1):
        for size in (1, 2, 100):
            batches = table.slice(0, kept).to_batches(max_chunksize=size)
            if kept == rows + 2:
                found = pa.Table.from_batches(without_marks(batches), BATCH.schema)
                assert found.to_pylist() == BATCH.slice(0, rows).to_pylist()
            else:
                with pytest.raises(RabbitChxError, match=CUT.format(min(rows, kept))):
                    list(without_marks(batches))


def test_the_stage_of_the_marks_adds_none_to_a_cut_input(receive: Receive) -> None:
    file, rows = receive(sent(1, b"", ended=False))
    schema = BATCH.schema.append(pa.field("end", pa.bool_()))
    found = call_as_worker(lambda: tasks._add_marks(schema, rows), file)
    assert call_as_worker(lambda: next(found).num_rows, file) == 3
    with pytest.raises(RabbitChxError, match=CUT.format(3)):
        call_as_worker(lambda: next(found), file)
