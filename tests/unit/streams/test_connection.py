"""A stream connection to a broker that is scripted: it is late, or talks nonsense. No real one can be made to."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace

import pytest

from rabbit_chx.amqp import ConnectionSettings
from rabbit_chx.errors import BrokerTimeoutError, ConnectionLostError, NotFoundError, UnreachableError
from rabbit_chx.streams import connection, nodes
from rabbit_chx.streams.connection import StreamConnection, stream_settings
from rabbit_chx.streams.frames import FrameCutter, Key, Node, StreamPlaces, Tune, frame, tune

OK = b"\0\1"
EMPTY = b"\0\0\0\0"


def reply(key: int, correlation_id: bytes, content: bytes) -> bytes:
    return frame(0x8000 | key, correlation_id + content)


class Scripted:
    """A broker for one connection. It says that it is 3.10, and answers the login.

    Attributes:
        settings: where it listens.
        answer: what it answers to any other request, by its key and correlation id.
        seen: the keys of what came.
    """

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.settings = stream_settings(
            f"rabbitmq-stream://127.0.0.1:{self._listener.getsockname()[1]}?heartbeat=0"
        )
        self.answer: Callable[[int, bytes], bytes] = lambda key, correlation_id: reply(
            key, correlation_id, OK
        )
        self.seen: list[int] = []
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        cutter = FrameCutter()
        with contextlib.suppress(OSError):
            client, _ = self._listener.accept()
            with client:
                while data := client.recv(65_536):
                    for request in cutter.cut(data):
                        key, correlation_id = int.from_bytes(request[:2]), bytes(request[4:8])
                        self.seen.append(key)
                        client.sendall(self._answer(key, correlation_id))

    def _answer(self, key: int, correlation_id: bytes) -> bytes:
        match key:
            case Key.PEER_PROPERTIES:
                version = b"\0\0\0\1\0\x07version\0\x063.10.8"
                return reply(key, correlation_id, OK + version)
            case Key.SASL_HANDSHAKE:
                return reply(key, correlation_id, OK + b"\0\0\0\1\0\5PLAIN")
            case Key.SASL_AUTHENTICATE:
                return reply(key, correlation_id, OK) + tune(Tune(1 << 20, 60))
            case Key.OPEN:
                return reply(key, correlation_id, OK + EMPTY)
            case Key.TUNE:
                return b""
            case _:
                return self.answer(key, correlation_id)

    def close(self) -> None:
        self._listener.close()
        self._thread.join()


@pytest.fixture
def scripted() -> Iterator[Scripted]:
    broker = Scripted()
    yield broker
    broker.close()


@pytest.fixture
def opened(scripted: Scripted) -> Iterator[StreamConnection]:
    with closing(StreamConnection(scripted.settings)) as opened:
        yield opened


@pytest.mark.parametrize(
    ("nonsense", "words"),
    [
        (b"AMQP\0\0\x09\1", "begins no frame"),
        (frame(8, b""), "in the middle of a field of 1 bytes"),
        (frame(0x8008, b"\0\0\0\2"), "in the middle of a field of 2 bytes"),
        (frame(0x801C, b"\0\0\0\6" + OK), "in the middle of a field of 4 bytes"),  # the reply itself
    ],
)
def test_damaged_frames(scripted: Scripted, opened: StreamConnection, nonsense: bytes, words: str) -> None:
    scripted.answer = lambda _, correlation_id: nonsense.replace(b"\0\0\0\6" + OK, correlation_id + OK)
    opened.commands = {Key.STREAM_STATS: (1, 1)}
    for _ in range(2):  # it is said again, as often as it is asked for
        with pytest.raises(ConnectionLostError, match=f"cannot be understood: .*{words}"):
            opened.stats("s")


def test_a_reply_that_does_not_come(
    scripted: Scripted, opened: StreamConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    late: list[bytes] = []

    def delayed(key: int, correlation_id: bytes) -> bytes:
        late.append(reply(key, correlation_id, b"\0\2"))
        return b"" if len(late) == 1 else b"".join(late[:2])

    scripted.answer = delayed
    monkeypatch.setattr(connection, "_REPLY_S", 0.2)
    with pytest.raises(BrokerTimeoutError, match=r"no answer to delete within 0.2\d* s"):
        opened.delete_stream("s")
    monkeypatch.setattr(connection, "_REPLY_S", 20)
    with pytest.raises(NotFoundError, match=r"stream 't' .*does not exist"):
        opened.delete_stream("t")  # the late reply is not taken for its own


def test_a_handshake_that_does_not_end() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        started = time.monotonic()
        url = f"rabbitmq-stream://127.0.0.1:{silent.getsockname()[1]}?connection_timeout=200"
        with pytest.raises(
            BrokerTimeoutError, match=r"did not finish the stream handshake within 0.2 s: is it a stream port"
        ):
            StreamConnection(stream_settings(url))
        assert time.monotonic() - started < 20


def test_events_that_came_before_the_end_are_still_given(
    scripted: Scripted, opened: StreamConnection
) -> None:
    confirm = frame(Key.PUBLISH_CONFIRM, b"\0" + (1).to_bytes(4) + (5).to_bytes(8))
    closing_ = frame(Key.CLOSE, b"\0\0\0\1" + OK + b"\0\5sorry")
    scripted.answer = lambda *_: confirm + closing_
    with contextlib.suppress(ConnectionLostError):
        opened.give_credit(0, 1)
    events = []
    with pytest.raises(ConnectionLostError, match=r"the broker closes the connection \(code 1, ok\): sorry"):  # noqa: PT012
        while True:
            events += opened.events(5)
    assert [type(event).__name__ for event in events] == ["Confirms"]


def test_an_interruption_in_the_middle_of_a_frame_ends_the_connection(
    opened: StreamConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C at a given moment: scripted, since real signals hit where they like."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(opened._transport, "send", interrupt)
        with pytest.raises(KeyboardInterrupt):
            opened.send(b"\0" * 100)
    with pytest.raises(ConnectionLostError, match=r"given up after an interruption \(KeyboardInterrupt\)"):
        opened.send(b"")


def test_which_node_is_tried_first() -> None:
    """By one broker no other is advertised; the tests on a cluster do it for real."""
    a, b, c = (Node(name, 5552) for name in "abc")
    places = StreamPlaces(a, (b, c))
    assert list(nodes._nodes(places, c, leader=True)) == [a]
    assert list(nodes._nodes(places, c, leader=False)) == [c, b, a]
    assert {tuple(nodes._nodes(places, a, leader=False)) for _ in range(100)} == {(b, c, a), (c, b, a)}
    assert list(nodes._nodes(StreamPlaces(None, ()), a, leader=True)) == []


def test_a_stream_without_a_leader_is_waited_for_and_given_up(scripted: Scripted) -> None:
    nowhere = EMPTY + b"\0\0\0\1\0\1s" + OK + b"\xff\xff" + EMPTY
    scripted.answer = lambda key, correlation_id: reply(
        key, correlation_id, nowhere if key == Key.METADATA else OK
    )
    started = time.monotonic()
    with pytest.raises(UnreachableError, match="stream 's' has no leader now"):
        nodes.open_at(deque([scripted.settings]), "s", leader=True, timeout_s=0.1)
    assert time.monotonic() - started < 20


def test_addresses() -> None:
    settings = ConnectionSettings(protocol="stream")
    addresses = {"h:5552": "[::1]:5553"}
    there = nodes.at_node(settings, Node("h", 5552), addresses)
    assert (there.host, there.port) == ("::1", 5553)
    assert nodes.at_node(settings, Node("i", 5552), addresses).host == "i"


def test_settings_are_taken_as_a_url_is() -> None:
    of_amqp = ConnectionSettings("rabbit", 5673, "orders")
    assert stream_settings(of_amqp) == stream_settings("amqp://rabbit:5673/orders")
    of_streams = replace(of_amqp, port=5662, protocol="stream")
    assert stream_settings(of_streams) is of_streams
