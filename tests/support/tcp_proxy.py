"""A line to a broker that can be cut, silenced, slowed and delayed, over real sockets."""

from __future__ import annotations

import contextlib
import select
import socket
import ssl
import struct
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from urllib.parse import urlsplit

_CHUNK = 65_536
_NOTICE_S = 0.02
_SLOW_S = 0.2  # what a slow line holds
_END_S = 5.0
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)


@dataclass
class Way:
    """One direction of all connections of a proxy; any thread may change it while they live.

    Attributes:
        held: whether nothing comes through. What was sent meanwhile comes through afterwards, as after a lost route.
        bytes_per_s: how fast it is; 0 for as fast as can be.
        delay_s: how long each byte is under way.
        bytes_at_once: how many bytes one packet has at most; 0 for as many as there are.
    """

    held: bool = False
    bytes_per_s: float = 0.0
    delay_s: float = 0.0
    bytes_at_once: int = 0

    @property
    def capacity(self) -> int:
        """How many bytes may be under way: a line that is slow holds little."""
        if self.bytes_per_s:
            return max(1, min(_CHUNK, int(self.bytes_per_s * _SLOW_S)))
        return _CHUNK * 16 if self.delay_s else _CHUNK


class Proxy:
    """Forwards one address of 127.0.0.1 to a broker, connection by connection.

    Args:
        url: the broker's URL.
        tls: what to speak TLS with to the clients; None for plain TCP.
        bytes_per_s: how fast the way to the broker is at first; 0 for as fast as can be.

    Attributes:
        port: where clients connect to.
        to_broker: the way from the clients to the broker.
        to_client: the way back.
    """

    def __init__(self, url: str, tls: ssl.SSLContext | None = None, bytes_per_s: float = 0.0) -> None:
        parts = urlsplit(url)
        self.target = (parts.hostname or "", parts.port or 5672)
        self.tls = tls
        self._connections: list[_Connection] = []
        self.to_broker = Way(bytes_per_s=bytes_per_s)
        self.to_client = Way()
        self.port = 0
        self._listener = self._bound()
        self.port = self._listener.getsockname()[1]
        self.accept()

    def _bound(self) -> socket.socket:
        bound = socket.socket()
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _CHUNK)  # what it holds is not yet under way
        bound.bind(("127.0.0.1", self.port))
        return bound

    def _take(self, listener: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = listener.accept()
                connection = _Connection(client, self)
                self._connections = [*filter(_Connection.is_alive, self._connections), connection]
                connection.start()

    def cut(self) -> None:
        """Reset every connection, as a crash or a firewall does."""
        self._end("reset")

    def finish(self) -> None:
        """End every connection in good order (FIN), as a load balancer with an idle timeout does."""
        self._end("finish")

    def abandon(self) -> None:
        """Reset every connection towards the client, while the broker does not notice."""
        self._end("abandon")

    def freeze(self) -> None:
        """Let nothing through, and say nothing of it."""
        self.to_broker.held = self.to_client.held = True

    def leave_frozen(self) -> None:
        """Let new connections through after `freeze`. Those that are there stay silent for good."""
        self.to_broker, self.to_client = Way(), Way()

    def refuse(self) -> None:
        """Accept nobody any more, and keep the port; who is connected stays."""
        self._stop_listening()
        self._listener = self._bound()

    def accept(self) -> None:
        """Accept connections at the port."""
        self._listener.listen()
        threading.Thread(target=self._take, args=(self._listener,), daemon=True).start()

    def close(self) -> None:
        """Accept nobody any more, and cut who is there."""
        self._stop_listening()
        self.cut()

    def _stop_listening(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # or the accept that waits would still take one
        self._listener.close()

    def _end(self, ending: str) -> None:
        connections = self._connections
        for connection in connections:
            connection.ending = ending
        for connection in connections:
            connection.ended.wait(_END_S)


class _Connection(threading.Thread):
    """One client and its connection to the broker. One thread serves both ways, since TLS is not for two at a time."""

    def __init__(self, client: socket.socket, proxy: Proxy) -> None:
        super().__init__(daemon=True)
        self._client = client
        self._target, self._tls = proxy.target, proxy.tls
        self._ways = proxy.to_broker, proxy.to_client
        self.ending = ""
        self.ended = threading.Event()

    def run(self) -> None:
        with contextlib.suppress(OSError), contextlib.ExitStack() as stack:
            stack.callback(self.ended.set)
            client = stack.enter_context(self._client)
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # a byte alone is a packet alone
            if self._tls:
                client = stack.enter_context(self._tls.wrap_socket(client, server_side=True))
            broker = stack.enter_context(socket.create_connection(self._target, timeout=_END_S))
            broker.settimeout(None)
            broker.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._serve(client, broker)

    def _serve(self, client: socket.socket, broker: socket.socket) -> None:
        lines = _Line(client, broker, self._ways[0]), _Line(broker, client, self._ways[1])
        try:
            while not self.ending and not all(line.ended for line in lines):
                _forward(lines)
        except OSError:  # one side has reset it, so the other is reset as well
            self.ending = "reset"
        if self.ending == "abandon":
            _reset(client)
            self.ended.set()
            while self.ending == "abandon":
                time.sleep(_NOTICE_S)
            _reset(broker)
        elif self.ending == "reset":
            _reset(client)
            _reset(broker)
        elif self.ending == "finish":
            _finish(client, broker)


class _Line:
    """One direction of one connection."""

    def __init__(self, source: socket.socket, sink: socket.socket, way: Way) -> None:
        self.source = source
        self.sink = sink
        self._way = way
        self._under_way: deque[tuple[float, bytes]] = deque()  # when each is to arrive
        self._size = 0
        self._free_at = 0.0
        self._finished = False  # the source has nothing more to say
        self.ended = False

    @property
    def takes(self) -> bool:
        """Whether what the source says can be taken."""
        return not self._finished and not self._way.held and self._size < self._way.capacity

    @property
    def decoded(self) -> bool:
        """Whether TLS has bytes that no `select` sees any more."""
        return self.takes and isinstance(self.source, ssl.SSLSocket) and self.source.pending() > 0

    def gives(self, now: float) -> bool:
        """Whether something is to arrive now."""
        return (
            bool(self._under_way) and not self._way.held and now >= max(self._under_way[0][0], self._free_at)
        )

    def take(self) -> None:
        """Take what the source says."""
        data = self.source.recv(max(1, self._way.capacity - self._size))
        if data:
            self._under_way.append((time.monotonic() + self._way.delay_s, data))
            self._size += len(data)
        else:
            self._finished = True
            self._pass_end()

    def give(self) -> None:
        """Let the first bytes arrive."""
        due, data = self._under_way.popleft()
        part = data[: self._way.bytes_at_once or len(data)]
        sent = self.sink.send(part)
        if sent < len(data):
            self._under_way.appendleft((due, data[sent:]))
        self._size -= sent
        if self._way.bytes_per_s:
            self._free_at = time.monotonic() + sent / self._way.bytes_per_s
        self._pass_end()

    def _pass_end(self) -> None:
        if self._finished and not self._under_way:
            self.ended = True
            with contextlib.suppress(OSError):
                self.sink.shutdown(socket.SHUT_WR)


def _forward(lines: tuple[_Line, _Line]) -> None:
    """Let each line take and give once, as far as it can."""
    decoded = [line for line in lines if line.decoded]
    now = time.monotonic()
    taking = {line.source: line for line in lines if line.takes}
    giving = {line.sink: line for line in lines if line.gives(now)}
    wait_s = 0.0 if decoded else _NOTICE_S / 4 if any(line._under_way for line in lines) else _NOTICE_S
    readable, writable, _ = select.select(taking, giving, [], wait_s)
    for line in {*decoded, *(taking[side] for side in readable)}:
        line.take()
    for side in writable:
        giving[side].give()


def _reset(side: socket.socket) -> None:
    side.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
    side.close()


def _finish(*sides: socket.socket) -> None:
    for side in sides:
        with contextlib.suppress(OSError):
            side.shutdown(socket.SHUT_WR)
    for side in sides:  # closed with bytes unread, a socket would reset
        with contextlib.suppress(OSError):
            side.settimeout(_END_S)
            while side.recv(_CHUNK):
                pass


@contextmanager
def black_hole() -> Iterator[int]:
    """Provide a port of 127.0.0.1 that answers no SYN, since its queue of connections is full and nobody takes one."""
    with socket.socket() as listener, contextlib.ExitStack() as stack:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        port = listener.getsockname()[1]
        for _ in range(2):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(("127.0.0.1", port))
        yield port
