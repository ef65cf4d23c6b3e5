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


def test_all_bytes_pass_two_methods_that_are_called_by_their_names(idle: Any) -> None:
    heartbeat = pika.frame.Heartbeat().marshal()
    received: list[bytes] = []
    processed: list[Any] = []
    receive = idle._on_data_available

    def receive_and_note(data: bytes) -> None:
        received.append(data)
        receive(data)

    idle._on_data_available, idle._process_frame = receive_and_note, processed.append
    idle._proto_data_received(heartbeat + heartbeat[:3])
    assert received == [heartbeat + heartbeat[:3]], CHANGED
    assert [type(frame) for frame in processed] == [pika.frame.Heartbeat], CHANGED
    assert bytes(idle._frame_buffer) == heartbeat[:3], CHANGED


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
