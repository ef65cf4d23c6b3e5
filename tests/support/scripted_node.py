"""A node with streams on the loopback, which answers as a test tells it: faults that no real one has on demand."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Self

from stream_bytes import chunk_bytes, entry

from rabbit_chx.streams.connection import stream_settings
from rabbit_chx.streams.frames import FrameSplitter, Key, frame, texts_field

OK = b"\0\1"
EMPTY = b"\0\0\0\0"
HOST = "127.0.0.1"
_HEADER = struct.Struct(">4xI16xQ")  # how many records, and the offset of the first


def reply(key: int, correlation_id: bytes, content: bytes) -> bytes:
    """Return the frame of a reply, whose content begins with a code."""
    return frame(0x8000 | key, correlation_id + content)


def _text(text: str) -> bytes:
    return len(text).to_bytes(2) + text.encode()


class ScriptedNode:
    """Says that it is 3.10 unless a test changes that, and answers the login of each connection.

    Attributes:
        settings: where it listens.
        answer: what it answers to any other request, by its key and correlation id.
        opening: what it tells when the vhost is opened: its advertised address; none by default.
        seen: the keys of all requests, of all connections.
        requests: their contents behind the correlation id.
        version: the release that it tells.
        commands: the commands that it tells to know, each in version 1.
    """

    def __init__(self) -> None:
        self._listener = socket.create_server((HOST, 0))
        self.port: int = self._listener.getsockname()[1]
        self.settings = stream_settings(f"rabbitmq-stream://{HOST}:{self.port}?heartbeat=0")
        self.answer: Callable[[int, bytes], bytes] = lambda key, correlation_id: reply(
            key, correlation_id, OK
        )
        self.opening: dict[str, str] = {}
        self.seen: list[int] = []
        self.requests: list[bytes] = []
        self.version = "3.10.8"
        self.commands: Sequence[int] = ()
        self._clients: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._listen)]
        self._threads[0].start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _listen(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                self._clients.append(client)
                thread = threading.Thread(target=self._serve, args=(client,))
                self._threads.append(thread)
                thread.start()

    def _serve(self, client: socket.socket) -> None:
        splitter = FrameSplitter()
        with contextlib.suppress(OSError), client:
            while data := client.recv(65_536):
                for request in splitter.split(data):
                    key = int.from_bytes(request[:2])
                    self.seen.append(key)
                    self.requests.append(bytes(request[8:]))
                    client.sendall(self.said(client, key, bytes(request[4:])))

    def said(self, _client: socket.socket, key: int, content: bytes) -> bytes:
        """Return the answer to a request."""
        correlation_id = content[:4]
        if key == Key.TUNE:
            return b""
        versions = b"".join(command.to_bytes(2) + OK + OK for command in self.commands)
        login = {
            Key.PEER_PROPERTIES: texts_field({"version": self.version}, ""),
            Key.SASL_HANDSHAKE: b"\0\0\0\1\0\5PLAIN",
            Key.SASL_AUTHENTICATE: b"",
            Key.OPEN: texts_field(self.opening, ""),
            Key.EXCHANGE_COMMAND_VERSIONS: len(self.commands).to_bytes(4) + versions,
        }
        if key not in login:
            return self.answer(key, correlation_id)
        limits = (1 << 20).to_bytes(4) + (60).to_bytes(4)
        tune = frame(Key.TUNE, limits) if key == Key.SASL_AUTHENTICATE else b""
        return reply(key, correlation_id, OK + login[Key(key)]) + tune

    def close(self) -> None:
        """End all connections."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for client in self._clients:
            with contextlib.suppress(OSError):
                client.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()


class ScriptedLog(ScriptedNode):
    """A node that leads the stream `s`, and delivers its chunks.

    Args:
        chunks: the chunks of the stream, as bytes.

    Attributes:
        replicas: the other nodes that have the stream.
        delivered: what is sent for a chunk: all, changed, or nothing, by the chunk.
        silent: commands that it does not answer.
        late_s: how many seconds after the answer the chunk of a subscription to "last" comes.
        at_once: the most chunks that it delivers for a credit; the others come with the next one.
        credits: each credit that it got, the first of a subscription included.
        most_ahead: the most credit that a subscription had at a time.
        moves_starts: whether a start behind the log is that of the log instead.
        starts: where the subscriptions began: the kind and the offset, which is 0 for "first" and "last".
    """

    def __init__(self, chunks: Iterable[bytes] = ()) -> None:
        super().__init__()
        self.chunks = list(chunks)
        self.opening = {"advertised_host": HOST, "advertised_port": str(self.port)}
        self.replicas: Sequence[ScriptedNode] = ()
        self.leader: ScriptedNode = self
        self.delivered: Callable[[bytes], bytes] = lambda chunk: chunk
        self.silent: set[int] = set()
        self.late_s = 0.0
        self.at_once = 1 << 20
        self.credits: list[int] = []
        self.most_ahead = 0
        self.moves_starts = False
        self.starts: list[tuple[int, int]] = []
        self._left: dict[
            tuple[socket.socket, int], tuple[int, int]
        ] = {}  # of a subscription: next chunk, and credit

    def said(self, client: socket.socket, key: int, content: bytes) -> bytes:
        if key in self.silent:
            return b""
        match key:
            case Key.METADATA:
                nodes = [self.leader, *self.replicas]
                places = b"".join(
                    place.to_bytes(2) + _text(HOST) + node.port.to_bytes(4)
                    for place, node in enumerate(nodes)
                )
                replicas = b"".join(place.to_bytes(2) for place in range(1, len(nodes)))
                stream = _text("s") + OK + b"\0\0" + (len(nodes) - 1).to_bytes(4) + replicas
                return reply(key, content[:4], len(nodes).to_bytes(4) + places + b"\0\0\0\1" + stream)
            case Key.SUBSCRIBE:
                return reply(key, content[:4], OK) + self._subscribed(client, content[4:])
            case Key.CREDIT:
                return self._more(client, content[0], int.from_bytes(content[1:3]))
            case _:
                return super().said(client, key, content)

    def _subscribed(self, client: socket.socket, content: bytes) -> bytes:
        size = int.from_bytes(content[1:3])
        kind, rest = int.from_bytes(content[3 + size : 5 + size]), content[5 + size :]
        offset = int.from_bytes(rest[:8]) if kind == 4 else 0
        credit = int.from_bytes(rest[8:10] if kind == 4 else rest[:2])
        self.starts.append((kind, offset))
        ends = [sum(_HEADER.unpack_from(chunk)) for chunk in self.chunks]
        first = (
            len(ends) - 1 if kind == 2 else next((n for n, end in enumerate(ends) if end > offset), len(ends))
        )
        if first == len(ends) and self.moves_starts:
            first = 0
        self._left[client, content[0]] = first, 0
        if kind == 2 and self.late_s:
            threading.Timer(
                self.late_s, lambda: client.sendall(self._more(client, content[0], credit))
            ).start()
            return b""
        return self._more(client, content[0], credit)

    def _more(self, client: socket.socket, subscription: int, credit: int) -> bytes:
        place, left = self._left[client, subscription]
        self.credits.append(credit)
        left += credit
        self.most_ahead = max(self.most_ahead, left)
        chunks = self.chunks[place : place + min(left, self.at_once)]
        self._left[client, subscription] = place + len(chunks), left - len(chunks)
        found = (self.delivered(chunk) for chunk in chunks)
        return b"".join(frame(Key.DELIVER, bytes([subscription]) + chunk) for chunk in found if chunk)


def chunks_of(count: int, rows: int = 10, body: bytes = b"") -> list[bytes]:
    """So many chunks of rows, each of which says its offset."""
    return [
        chunk_bytes(
            (
                entry(b"\0Su\xb0" + struct.pack(">I", len(body) + 8) + (at + row).to_bytes(8) + body)
                for row in range(rows)
            ),
            offset=at,
        )
        for at in range(0, count * rows, rows)
    ]
