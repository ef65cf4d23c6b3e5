"""The private names of pika that `pika_connection._BoundedConnection` uses: so that a new pika tells what it changed."""

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


def test_flush_output_waits_for_every_reply_of_the_connection_below() -> None:
    blocking: Any = pika.BlockingConnection
    assert [*inspect.signature(blocking._flush_output).parameters] == ["self", "waiters"], CHANGED
    assert "self._impl" in inspect.getsource(blocking._flush_output), CHANGED
    assert "self._impl = " in inspect.getsource(blocking.__init__), CHANGED
    for method in (blocking.process_data_events, blocking.channel, blocking.close):
        assert "_flush_output(" in inspect.getsource(method), f"{CHANGED}: {method} waits otherwise"


def test_all_bytes_pass_two_methods_that_are_called_by_their_names(idle: Any) -> None:
    heartbeat = pika.frame.Heartbeat().marshal()
    received: list[bytes] = []
    processed: list[Any] = []
    receive = idle._on_data_available

    def look_and_receive(data: bytes) -> None:
        received.append(data)
        receive(data)

    idle._on_data_available = look_and_receive
    idle._process_frame = processed.append
    idle._proto_data_received(heartbeat + heartbeat[:3])
    assert received == [heartbeat + heartbeat[:3]], CHANGED
    assert [type(frame) for frame in processed] == [pika.frame.Heartbeat], CHANGED
    assert bytes(idle._frame_buffer) == heartbeat[:3], CHANGED
    assert [*inspect.signature(idle._terminate_stream).parameters] == ["error"], CHANGED


def test_a_function_is_called_later_in_the_loop_unless_it_is_removed(idle: Any) -> None:
    called: list[int] = []
    idle._adapter_call_later(0, lambda: called.append(1))
    idle._adapter_remove_timeout(idle._adapter_call_later(0, lambda: called.append(2)))
    idle.ioloop.process_timeouts()
    assert called == [1], CHANGED
