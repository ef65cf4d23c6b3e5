"""A broker on a loopback socket that answers each message as a test tells it: faults that a real broker does not have on demand."""

from __future__ import annotations

import select
import socket
import threading
from collections.abc import Callable

from amqp_broker import Answer, BrokerConnection, Message, ack
from bounded import until
from broker_frames import said
from loopback import HOST, LoopbackServer
from pamqp import commands

from rabbit_chx.amqp import ConnectionSettings
from rabbit_chx.amqp.frames import HEARTBEAT_FRAME
from rabbit_chx.connection.session import OpenConnection

_SOON_S = 60.0  # longer than anything takes on a busy machine
_ONE_CLIENT_S = 5.0
_ONE_CLIENT = "NOT_ALLOWED - the double `Peer` serves one connection after the other"


class Peer(LoopbackServer):
    """A broker that serves one connection after the other. It refuses one that waits for five seconds, with its own name.

    Args:
        answer: returns the bytes to send for a message.
        heartbeat_s: the offered seconds between heartbeats; 0 for none. It sends one only when told to `say` it.

    Attributes:
        answer: may be replaced at any time.
        messages: all complete messages, over all connections.
        connections: how many there were.
        heartbeats: how many arrived.
        settings: how to connect to it.
    """

    is_serial = True

    def __init__(self, answer: Answer = ack, *, heartbeat_s: int = 0) -> None:
        self.answer = answer
        self.messages: list[Message] = []
        self.connections = 0
        self.heartbeats = 0
        self.changed = threading.Condition()
        self._heartbeat_s = heartbeat_s
        self._client: socket.socket | None = None
        super().__init__()
        self.settings = ConnectionSettings(host=HOST, port=self.port)

    @property
    def bodies(self) -> list[str]:
        """The bodies of all messages, in the order of their arrival."""
        return [message.body.decode() for message in self.messages]

    def say(self, wire: bytes = HEARTBEAT_FRAME) -> None:
        """Send bytes to the current client."""
        assert self._client is not None, "nobody is connected"
        self._client.sendall(wire)

    def until(self, done: Callable[[], bool]) -> None:
        """Wait until something that arrived makes this true; fail after a minute."""
        with self.changed:
            assert self.changed.wait_for(done, _SOON_S), "it did not arrive"

    def hear(self, heartbeats: int) -> None:
        """Wait until so many heartbeats have arrived; fail after a minute."""
        self.until(lambda: self.heartbeats >= heartbeats)

    def reach(self, connection: OpenConnection, word: str) -> None:
        """Send connection.blocked with this reason, and wait until the connection has processed it; fail after a minute."""
        self.say(said(commands.Connection.Blocked(word), 0))
        until(lambda: connection.session.blocked == word, f"{word!r} is processed", _SOON_S, 0.001)

    def serve(self, client: socket.socket) -> None:
        """Answer what the client says."""
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._client = client
        self.connections += 1
        connection = _PeerConnection(client.sendall, heartbeat_s=self._heartbeat_s, number=self.connections)
        connection.peer = self
        while data := self._data_of(client):
            connection.receive(data)

    def _data_of(self, client: socket.socket) -> bytes:
        """Return what the client says; refuse another one that waits while the client is silent and stays."""
        while client not in (ready := select.select([client, self._listener], [], [])[0]):
            if ready and not select.select([client], [], [], _ONE_CLIENT_S)[0]:
                with self._listener.accept()[0] as other:
                    other.sendall(said(commands.Connection.Close(530, _ONE_CLIENT, 0, 0), 0))
        return client.recv(1 << 16)


class _PeerConnection(BrokerConnection):
    peer: Peer

    def on_message(self, message: Message) -> None:
        with self.peer.changed:
            self.peer.messages.append(message)
            answer = self.peer.answer  # a test that sees the message may replace it for the next one
            self.peer.changed.notify_all()
        self.say(answer(message))

    def on_heartbeat(self) -> None:
        with self.peer.changed:
            self.peer.heartbeats += 1
            self.peer.changed.notify_all()
