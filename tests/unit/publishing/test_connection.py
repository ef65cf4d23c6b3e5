"""The socket loop against a broker that is scripted: it lives, and never confirms. No real one can be made to."""

from __future__ import annotations

import contextlib
import errno
import socket
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest
from pamqp import commands, frame

from rabbit_chx.amqp import ConnectionSettings
from rabbit_chx.amqp.frames import HEARTBEAT_FRAME
from rabbit_chx.errors import BrokerTimeoutError, ConnectionLostError, InputError, PublishError
from rabbit_chx.publishing import Limits, Publisher
from rabbit_chx.publishing.transport import Transport

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pamqp.base import Frame as Method

HANDSHAKE: tuple[tuple[Method, int], ...] = (
    (commands.Connection.Start(mechanisms="PLAIN"), 0),
    (commands.Connection.Tune(0, 131_072, 1), 0),
    (commands.Connection.OpenOk(), 0),
    (commands.Channel.OpenOk(), 1),
    (commands.Confirm.SelectOk(), 1),
)


@pytest.fixture
def never_confirming() -> Iterator[ConnectionSettings]:
    """Where a broker listens that reads everything and says nothing but heartbeats."""
    listener = socket.create_server(("127.0.0.1", 0))
    over = threading.Event()
    heartbeats = 0

    def serve() -> None:
        nonlocal heartbeats
        client, _ = listener.accept()
        with client, contextlib.suppress(OSError):
            client.sendall(b"".join(frame.marshal(method, channel) for method, channel in HANDSHAKE))
            client.settimeout(0.1)
            while not over.is_set():
                client.sendall(HEARTBEAT_FRAME)
                with contextlib.suppress(TimeoutError):
                    heartbeats += client.recv(65_536).count(HEARTBEAT_FRAME)

    thread = threading.Thread(target=serve)
    thread.start()
    yield ConnectionSettings(host="127.0.0.1", port=listener.getsockname()[1], heartbeat_s=1)
    over.set()
    thread.join()
    listener.close()
    assert heartbeats >= 4, "whoever waits must show that it lives"


class Silent:
    """A socket with a fault that no test can make: the system gives the connection up after its own long time."""

    def __init__(self, fault: OSError) -> None:
        self._fault = fault

    def settimeout(self, _seconds: float) -> None:
        """Whatever."""

    def recv(self, _count: int) -> bytes:
        """Fail."""
        raise self._fault


@pytest.mark.parametrize(
    ("fault", "lost"), [(TimeoutError("timed out"), False), (OSError(errno.ETIMEDOUT, "Timed out"), True)]
)
def test_nothing_came_is_not_the_end_of_the_connection(fault: OSError, lost: bool) -> None:  # noqa: FBT001
    with socket.create_server(("127.0.0.1", 0)) as listener:
        settings = ConnectionSettings(host="127.0.0.1", port=listener.getsockname()[1])
        with contextlib.closing(Transport(settings, time.monotonic() + 5)) as transport:
            real, scripted = transport._socket, Silent(fault)
            transport._socket = scripted  # type: ignore[assignment]
            with pytest.raises(ConnectionLostError) if lost else contextlib.nullcontext():
                assert transport.receive(0.1) == b""
            transport._socket = real


def test_heartbeats_are_no_progress(never_confirming: ConnectionSettings) -> None:
    publisher = Publisher(never_confirming, "x", confirm_timeout_s=3, max_reconnects=0)
    with contextlib.closing(publisher):
        publisher.send(["k"], ["b"])
        started = time.monotonic()
        with pytest.raises(PublishError, match="answered nothing for 3 s, and 1 messages are open") as caught:
            publisher.flush()
        assert time.monotonic() - started < 6
    assert isinstance(caught.value.__cause__, BrokerTimeoutError)


@pytest.mark.parametrize("limits", [{"max_in_flight": 2}, {"max_in_flight_bytes": 150}], ids=str)
def test_the_window_is_bounded_by_messages_and_by_bytes(
    never_confirming: ConnectionSettings, limits: dict[str, Any]
) -> None:
    publisher = Publisher(never_confirming, "x", confirm_timeout_s=3, max_reconnects=0, **limits)
    with contextlib.closing(publisher):
        publisher.send(["k"], ["b"])
        publisher.send(["k"], ["b"])
        with pytest.raises(PublishError, match="and 2 messages are open"):
            publisher.send(["k"], ["b"])


@pytest.mark.parametrize(
    "limit",
    [
        {"max_in_flight": 0},
        {"max_in_flight_bytes": 0},
        {"max_in_flight": "10"},
        {"max_in_flight": 10.5},
        {"confirm_timeout_s": "x"},
        {"confirm_timeout_s": 0},
        {"confirm_timeout_s": float("nan")},
        {"blocked_timeout_s": -1},
    ],
)
def test_limits_that_cannot_be(limit: dict[str, Any]) -> None:
    (name,) = limit
    with pytest.raises(InputError, match=name):
        Limits(**limit)
