"""A peer on the loopback that speaks AMQP and answers as a test tells it.

It does what a real broker does not do on demand, or not within milliseconds.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Self, TypeAlias

from broker_frames import CHANNEL, handshake, said
from pamqp import body, commands, frame, header
from pamqp.exceptions import UnmarshalingException

from rabbit_chx.amqp import ConnectionSettings
from rabbit_chx.amqp.frames import HEARTBEAT_FRAME
from rabbit_chx.connection.session import OpenConnection, Session

_SOON_S = 10.0  # nothing takes as long, on a busy machine either


@dataclass(frozen=True, slots=True)
class Message:
    """A message as it came.

    Attributes:
        connection: the number of its connection, from 1.
        tag: its delivery tag on that connection.
        publish: the method: exchange, routing key, mandatory.
        properties: those of its header.
        body: its body.
    """

    connection: int
    tag: int
    publish: commands.Basic.Publish
    properties: commands.Basic.Properties
    body: bytes = b""


#: What the broker sends for a message.
Answer: TypeAlias = "Callable[[Message], bytes]"


def ack(message: Message) -> bytes:
    """Return the answer to a message that is in a queue."""
    return said(commands.Basic.Ack(message.tag))


def nack(message: Message) -> bytes:
    """Return the answer to a message that is refused."""
    return said(commands.Basic.Nack(message.tag))


def unroutable(message: Message) -> bytes:
    """Return the message, and its ack, as brokers do."""
    publish = message.publish
    return b"".join(
        (
            said(commands.Basic.Return(312, "NO_ROUTE", publish.exchange, publish.routing_key)),
            frame.marshal(header.ContentHeader(0, len(message.body), message.properties), CHANNEL),
            frame.marshal(body.ContentBody(message.body), CHANNEL) if message.body else b"",
            ack(message),
        )
    )


def nothing(_: Message) -> bytes:
    """Return no answer: the message stays open."""
    return b""


def hang_up(_: Message) -> bytes:
    """Close the connection without a word."""
    raise ConnectionResetError


class Peer:
    """Listens, takes one connection after the other, and answers each message by `answer`.

    Args:
        answer: what to say for each message.
        heartbeat_s: what it offers for heartbeats, in seconds; 0 is none. It sends one only when told to `say` it.

    Attributes:
        answer: may be changed at any time.
        messages: all that came whole, over all connections.
        connections: how many there were.
        heartbeats: how many came.
    """

    def __init__(self, answer: Answer = ack, *, heartbeat_s: int = 0) -> None:
        self.answer = answer
        self.messages: list[Message] = []
        self.connections = 0
        self.heartbeats = 0
        self._heartbeat_s = heartbeat_s
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._client: socket.socket | None = None
        self._over = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._serve)
        host, port = self._listener.getsockname()
        #: How to reach it.
        self.settings = ConnectionSettings(host=host, port=port)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over = True
        with contextlib.suppress(OSError):  # wakes it, where it waits for a client or for what one says
            if self._client is not None:
                self._client.shutdown(socket.SHUT_RDWR)
        with contextlib.suppress(OSError):
            socket.create_connection(self._listener.getsockname()).close()
        self._thread.join()
        self._listener.close()

    @property
    def bodies(self) -> list[str]:
        """The bodies of all messages, in the order in which they came."""
        return [message.body.decode() for message in self.messages]

    def say(self, wire: bytes = HEARTBEAT_FRAME) -> None:
        """Send this to the present client."""
        assert self._client is not None, "nobody is connected"
        self._client.sendall(wire)

    def until(self, done: Callable[[], bool]) -> None:
        """Wait until what has come makes this true; fail after 10 s."""
        with self._changed:
            assert self._changed.wait_for(done, _SOON_S), "it did not come"

    def hear(self, heartbeats: int) -> None:
        """Wait until so many heartbeats have come; fail after 10 s."""
        self.until(lambda: self.heartbeats >= heartbeats)

    def reach(self, connection: OpenConnection, word: str) -> None:
        """Say something, and wait until this connection has received it; fail after 10 s."""
        self.say(said(commands.Connection.Blocked(word), 0))
        deadline = time.monotonic() + _SOON_S
        while connection.session.blocked != word:
            assert time.monotonic() < deadline, f"{word!r} is not taken in: {connection.session.failure}"
            time.sleep(0.001)

    # -- in the thread

    def _serve(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:  # a test leaves no descriptor, to the peer neither
                time.sleep(0.01)
                continue
            with client:
                client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                if self._over:
                    return
                self._client = client
                self.connections += 1
                with contextlib.suppress(ConnectionError):
                    self._talk(client)

    def _talk(self, client: socket.socket) -> None:
        client.sendall(b"".join(handshake(self._heartbeat_s)))
        listening = _Listening(self.connections)
        wire = b""
        while data := client.recv(1 << 16):
            wire += data
            while wire and (found := _frame(wire)):
                used, received = found
                wire = wire[used:]
                if isinstance(received, commands.Connection.Close):
                    client.sendall(said(commands.Connection.CloseOk(), 0))
                with self._changed:
                    self.heartbeats += type(received).__name__ == "Heartbeat"
                    message = listening.take(received)
                    if message is not None:
                        self.messages.append(message)
                    answer = self.answer  # whoever sees the message may change the answer for the next
                    self._changed.notify_all()
                if message is not None:
                    client.sendall(answer(message))


def _frame(wire: bytes) -> tuple[int, Any] | None:
    try:
        used, _, method = frame.unmarshal(wire)
    except UnmarshalingException:  # it is not wholly there
        return None
    return used, method


class _Listening:
    """Puts messages together from the frames of one connection."""

    def __init__(self, connection: int) -> None:
        self._connection = connection
        self._tag = 0
        self._publish: commands.Basic.Publish | None = None
        self._message: Message | None = None
        self._left = 0

    def take(self, received: object) -> Message | None:
        """Return the message that this frame ends; None where it ends none."""
        if isinstance(received, commands.Basic.Publish):
            self._publish = received
        elif isinstance(received, header.ContentHeader):
            assert self._publish is not None
            self._tag += 1
            self._message = Message(self._connection, self._tag, self._publish, received.properties)
            self._left = received.body_size
            return self._message if not self._left else None
        elif isinstance(received, body.ContentBody):
            assert self._message is not None
            self._message = replace(self._message, body=self._message.body + received.value)
            self._left -= len(received.value)
            return self._message if not self._left else None
        return None


class HastySession(Session):
    """A session that takes agreed seconds of heartbeats for hundredths, so that no test waits for a whole second."""

    heartbeat_s: Any

    def _on_tune(self, method: commands.Connection.Tune) -> None:
        super()._on_tune(method)
        self.heartbeat_s /= 100
        self.longest_silence_s /= 100


class Clock:
    """Replaces the module `time`, and goes on only when a test says so.

    Attributes:
        now: seconds.
    """

    def __init__(self) -> None:
        self.now = time.monotonic()

    def monotonic(self) -> float:
        """Return the seconds."""
        return self.now
