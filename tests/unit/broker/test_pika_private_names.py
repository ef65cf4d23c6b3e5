"""The private names of pika that `pika_connection._BoundedConnection` uses: one test for each, so that a new pika tells what it changed."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import pika
import pika.frame
import pytest

CHANGED = "pika changed this: adapt rabbit_chx/broker/pika_connection.py, _BoundedConnection"


@pytest.fixture
def idle() -> Iterator[Any]:
    """A connection of pika that does not connect."""
    connection: Any = pika.SelectConnection(
        pika.ConnectionParameters(heartbeat=0), internal_connection_workflow=False
    )
    yield connection
    connection.ioloop.close()


def parameters_of(function: Any) -> list[str]:
    return list(inspect.signature(function).parameters)


def test_flush_output_waits_for_every_reply() -> None:
    assert parameters_of(pika.BlockingConnection._flush_output) == ["self", "waiters"], CHANGED  # type: ignore[attr-defined]
    for method in ("process_data_events", "channel", "close"):
        source = inspect.getsource(getattr(pika.BlockingConnection, method))
        assert "_flush_output(" in source, f"{CHANGED}: {method} waits otherwise"


def test_impl_is_the_connection_below() -> None:
    source = inspect.getsource(pika.BlockingConnection.__init__)
    assert "self._impl = " in source or "self._impl:" in source, CHANGED
    assert "self._impl" in inspect.getsource(pika.BlockingConnection._flush_output), CHANGED  # type: ignore[attr-defined]


def test_frame_buffer_has_the_bytes_that_read_frame_parses(idle: Any) -> None:
    idle._frame_buffer = pika.frame.Heartbeat().marshal()
    size, value = idle._read_frame()
    assert (size, type(value)) == (8, pika.frame.Heartbeat), CHANGED


def test_read_frame_is_called_by_its_name_for_all_bytes(idle: Any) -> None:
    read: list[int] = []

    def read_nothing() -> tuple[int, None]:
        read.append(len(idle._frame_buffer))
        return 0, None

    idle._read_frame = read_nothing
    idle._on_data_available(b"123")
    assert read == [3], CHANGED


def test_adapter_call_later_calls_a_function_in_the_loop(idle: Any) -> None:
    called: list[int] = []
    idle._adapter_call_later(0, lambda: called.append(1))
    idle.ioloop.process_timeouts()
    assert called == [1], CHANGED


def test_adapter_remove_timeout_forgets_the_function(idle: Any) -> None:
    called: list[int] = []
    idle._adapter_remove_timeout(idle._adapter_call_later(0, lambda: called.append(1)))
    idle.ioloop.process_timeouts()
    assert called == [], CHANGED


def test_terminate_stream_takes_the_error_that_the_caller_gets(idle: Any) -> None:
    assert parameters_of(idle._terminate_stream) == ["error"], CHANGED
