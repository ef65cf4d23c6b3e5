"""A stream connection to a broker that is scripted: it is late, or talks nonsense. No real one can be made to."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
import weakref
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from itertools import count, repeat
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from bounded import until
from stream_node import OK, ListeningNode, Session, reply

from rabbit_chx import errors
from rabbit_chx.amqp import ConnectionSettings, TlsSettings
from rabbit_chx.connection import blocking_connection
from rabbit_chx.connection.tokens import TokenSecret
from rabbit_chx.streams import connection, nodes
from rabbit_chx.streams.connection import StreamConnection
from rabbit_chx.streams.frames import Key, Node, StreamMetadata, frame
from rabbit_chx.streams.nodes import stream_settings


@pytest.mark.parametrize(
    ("nonsense", "words"),
    [
        (b"AMQP\0\0\x09\1", "begins no frame"),
        (frame(8, b""), "in the middle of a field of 1 bytes"),
        (frame(0x8008, b"\0\0\0\2"), "in the middle of a field of 2 bytes"),
        (frame(0x801C, b"\0\0\0\6" + OK), "in the middle of a field of 4 bytes"),  # the reply itself
    ],
)
def test_a_damaged_frame_ends_the_connection(
    node: ListeningNode, opened: StreamConnection, nonsense: bytes, words: str
) -> None:
    node.answer = lambda _, correlation_id: nonsense.replace(b"\0\0\0\6" + OK, correlation_id + OK)
    for _ in range(2):  # it is said again, as often as it is asked for
        with pytest.raises(errors.ConnectionLostError, match=f"cannot be understood: .*{words}"):
            opened.stats("s")


def test_a_reply_that_does_not_come(node: ListeningNode, opened: StreamConnection) -> None:
    late: list[bytes] = []

    def delayed(key: int, correlation_id: bytes) -> bytes:
        late.append(reply(key, correlation_id, b"\0\2"))
        return b"" if len(late) == 1 else b"".join(late[:2])

    node.answer = delayed
    opened.request_timeout_s = 0.2
    with pytest.raises(errors.BrokerTimeoutError, match=r"no answer to delete within 0.2\d* s"):
        opened.delete_stream("s")
    opened.request_timeout_s = 20
    with pytest.raises(errors.NotFoundError, match=r"stream 't' .*does not exist"):
        opened.delete_stream("t")  # the late reply is not taken for its own


def test_a_refusal_after_the_token_has_expired_is_a_lost_connection(
    node: ListeningNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reconnect logs in with the next token. With the permission itself missing, that is refused again."""
    lifetime_s = 60.0
    token = TokenSecret(lambda: ("token", time.time() + lifetime_s))
    with closing(StreamConnection(replace(node.settings, password=token))) as opened:
        node.answer = lambda key, correlation_id: reply(key, correlation_id, b"\0\x10")
        with pytest.raises(errors.AccessRefusedError, match="grant the user the permission"):
            opened.stats("s")
        later = SimpleNamespace(monotonic=lambda: time.monotonic() + lifetime_s)
        monkeypatch.setattr(connection, "time", later)
        for _ in range(2):
            with pytest.raises(errors.ConnectionLostError, match="the token has expired"):
                opened.stats("s")


class Renewals:
    """Tokens that are due at each call, and those that the node was given."""

    def __init__(self, node: ListeningNode, version: str = "4.3.6", *, are_fresh: bool = True) -> None:
        node.version, self._node, self.lifetime_s = version, node, 0.1
        self._numbers: Iterator[int] = count(1) if are_fresh else repeat(1)
        self.settings = replace(node.settings, password=TokenSecret(self._token))

    def _token(self) -> tuple[str, float]:
        return f"token-{next(self._numbers)}", time.time() + self.lifetime_s

    @property
    def given(self) -> list[str]:
        requests = zip(self._node.seen, self._node.requests, strict=True)
        logins = (content for key, content in requests if key == Key.SASL_AUTHENTICATE)
        return [content.rpartition(b"\0")[2].decode() for content in logins]


@pytest.mark.parametrize(
    ("version", "are_fresh", "gets_tokens"),
    [("3.12.14", True, False), ("3.13.0", True, True), ("4.3.6", True, True), ("4.3.6", False, False)],
)
def test_an_open_connection_gets_new_tokens_from_3_13_on(
    node: ListeningNode, version: str, *, are_fresh: bool, gets_tokens: bool
) -> None:
    """A token that the broker has is not sent again."""
    renewals = Renewals(node, version, are_fresh=are_fresh)
    with closing(StreamConnection(renewals.settings)) as opened:
        end = time.monotonic() + (20 if gets_tokens else 0.5)
        while len(renewals.given) < 3 and time.monotonic() < end:
            opened.events(0.05)
    assert renewals.given[:2] == (["token-1", "token-2"] if gets_tokens else ["token-1"])
    assert len(set(renewals.given)) == len(renewals.given)


def test_a_refusal_by_the_token_before_the_one_that_was_just_sent_is_a_lost_connection(
    node: ListeningNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    renewals, login = Renewals(node), node.handle
    with closing(StreamConnection(renewals.settings)) as opened:
        refused: list[bytes] = []

        def expire(session: Session, request: bytes) -> bytes:
            key = int.from_bytes(request[:2])
            if key == Key.PARTITIONS:  # answered as late as the next token arrives
                refused.append(reply(key, request[4:8], b"\0\x10"))
                return b""
            answer = login(session, request)
            return refused.pop() + answer if refused and key == Key.SASL_AUTHENTICATE else answer

        monkeypatch.setattr(node, "handle", expire)
        renewals.lifetime_s = 60
        with pytest.raises(errors.ConnectionLostError, match="the token has expired"):
            opened.queues_of("x")


def test_a_new_token_that_the_broker_refuses_is_a_lost_connection(
    node: ListeningNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next login asks for another one."""
    renewals, said = Renewals(node), list[bytes]()
    with closing(StreamConnection(renewals.settings)) as opened:

        def refuse(_: Session, request: bytes) -> bytes:
            said.append(request[:2])
            return reply(Key.SASL_AUTHENTICATE, request[4:8], b"\0\x08")

        monkeypatch.setattr(node, "handle", refuse)
        with pytest.raises(errors.ConnectionLostError, match=r"refuses the new token .*: connect again"):
            opened.events(20)
    assert said.count(Key.SASL_AUTHENTICATE.to_bytes(2)) == 1


def test_the_goodbye_of_the_broker_is_answered_and_earlier_events_are_returned(
    node: ListeningNode, opened: StreamConnection
) -> None:
    confirm = frame(Key.PUBLISH_CONFIRM, b"\0" + (1).to_bytes(4) + (5).to_bytes(8))
    node.answer = lambda *_: confirm + frame(Key.CLOSE, b"\0\0\0\1\0\x63\0\5sorry")
    words = r"the broker closes the connection \(code 99\): sorry"
    events: list[object] = []
    with pytest.raises(errors.ConnectionLostError, match=words):
        opened.metadata(["s"])
    with pytest.raises(errors.ConnectionLostError, match=words):  # noqa: PT012
        while True:
            events += opened.events(5)
    assert [type(event).__name__ for event in events] == ["Confirms"]
    until(lambda: node.seen[-1] == 0x8000 | Key.CLOSE, "the goodbye is answered")


def test_a_heartbeat_is_sent_after_half_of_its_interval(
    node: ListeningNode, opened: StreamConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened.heartbeat_s = 60
    for late_s, sent in ((29, 0), (31, 1)):
        later = SimpleNamespace(monotonic=lambda late_s=late_s: time.monotonic() + late_s)
        with monkeypatch.context() as patched:
            patched.setattr(connection, "time", later)
            opened.events(0)
        opened.metadata([])  # what was sent before is received
        assert node.seen.count(Key.HEARTBEAT) == sent


def test_the_thread_of_heartbeats_ends_when_nobody_has_the_connection_any_more() -> None:
    served, closed = threading.Event(), threading.Event()

    class Idle:
        next_beat_s = 0.01

        def keep_alive(self) -> bool:
            served.set()
            return True

    idle: Any = Idle()
    thread = threading.Thread(target=blocking_connection._keep_alive, args=(weakref.ref(idle), closed))
    thread.start()
    assert served.wait(20)
    del idle
    thread.join(5)
    has_ended = not thread.is_alive()
    closed.set()
    assert has_ended


@pytest.mark.timeout(20)
def test_a_handshake_that_does_not_end() -> None:
    words = r"did not finish the stream handshake within 0.2 s: is it a stream port"
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"rabbitmq-stream://127.0.0.1:{silent.getsockname()[1]}?connection_timeout=200"
        with pytest.raises(errors.BrokerTimeoutError, match=words):
            StreamConnection(stream_settings(url))


def test_an_interruption_in_the_middle_of_a_frame_ends_the_connection(
    opened: StreamConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C at a given moment: scripted, since real signals hit where they like."""
    with monkeypatch.context() as patched:
        patched.setattr(opened._transport, "send", Mock(side_effect=KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            opened.send(b"\0" * 100)
    with pytest.raises(errors.ConnectionLostError, match=r"interrupted \(KeyboardInterrupt\)"):
        opened.send(b"")


def test_which_node_is_tried_first() -> None:
    """By one broker no other is advertised; the tests on a cluster do it for real."""
    a, b, c = (Node(name, 5552) for name in "abc")
    places = StreamMetadata(a, (b, c))
    assert list(nodes._nodes(places, c, (), leader=True)) == [a]
    assert list(nodes._nodes(places, c, (), leader=False)) == [c, b, a]
    assert list(nodes._nodes(places, c, (c,), leader=False)) == [b, a, c]
    assert {tuple(nodes._nodes(places, a, (), leader=False)) for _ in range(100)} == {(b, c, a), (c, b, a)}
    assert next(nodes._nodes(places, a, (), leader=False, stay=True)) == a
    assert list(nodes._nodes(places, a, (a,), leader=False, stay=True))[-1] == a
    assert list(nodes._nodes(StreamMetadata(None, ()), a, (), leader=True)) == []


def test_settings_are_taken_as_a_url_is() -> None:
    of_amqp = ConnectionSettings("rabbit", 5673, "orders")
    assert stream_settings(of_amqp) == stream_settings("amqp://rabbit:5673/orders")
    assert stream_settings(replace(of_amqp, tls=TlsSettings())).port == 5551
    of_streams = replace(of_amqp, port=5662, protocol="stream")
    assert stream_settings(of_streams) is of_streams


@pytest.mark.parametrize(("seconds_per_byte", "ends_at"), [(4.0, 80.0), (1_000.0, 5.0)])
def test_only_a_line_that_takes_no_byte_for_the_whole_time_is_given_up(
    opened: StreamConnection, monkeypatch: pytest.MonkeyPatch, seconds_per_byte: float, ends_at: float
) -> None:
    """Time passes while the line is waited for."""

    def wait(timeout_s: float) -> None:
        line.now += timeout_s

    def send(_: memoryview) -> int:
        is_due = line.now >= (line.taken + 1) * seconds_per_byte
        line.taken += is_due
        return int(is_due)

    line: SimpleNamespace = SimpleNamespace(
        now=0.0, taken=0, monotonic=lambda: line.now, wait=wait, send=send, receive=lambda _: b""
    )
    refused = pytest.raises(errors.BrokerTimeoutError, match="has taken no byte for 5 s")
    with monkeypatch.context() as patched:
        patched.setattr(connection, "time", line)
        patched.setattr(opened, "_transport", line)
        with contextlib.nullcontext() if seconds_per_byte < 5 else refused:
            opened.send(b"\0" * 20, stall_s=5)
    assert (line.taken, line.now) == (20 if seconds_per_byte < 5 else 0, ends_at)
