"""A fake node with streams: it answers the commands of the stream protocol from its logs, and as a test scripts it.

Real brokers do not have these faults at a chosen place. `StreamNode` does no I/O. It is reached without sockets and with a clock that
only tests move (`in_memory`), or on the loopback (`ListeningNode`).
"""

from __future__ import annotations

import contextlib
import itertools
import socket
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from chunk_columns import columns_of
from loopback import HOST, LoopbackServer
from stream_logs import ChunkLog, RowLog, header_of, timestamp_of

from rabbit_chx import retry
from rabbit_chx.connection import blocking_connection
from rabbit_chx.errors import ConnectionLostError
from rabbit_chx.streams import (
    chunk_readers,
    connection,
    frames,
    log_lookup,
    nodes,
    reader,
    stored_ids,
    writer,
)
from rabbit_chx.streams.chunks import CODECS, Piece, read_chunk
from rabbit_chx.streams.connection import StreamConnection
from rabbit_chx.streams.frames import Event, Fields, Key, frame
from rabbit_chx.streams.nodes import stream_settings

OK = b"\0\1"
EMPTY = b"\0\0\0\0"
_NO_STREAM, _NOT_AVAILABLE = b"\0\2", b"\0\6"
_NO_LEADER = b"\xff\xff"
_LAST, _NEXT, _OFFSET, _TIME = 2, 3, 4, 5
_CONSUMER_UPDATE_REPLY = 0x8000 | Key.CONSUMER_UPDATE
_LOGIN = (
    Key.PEER_PROPERTIES,
    Key.SASL_HANDSHAKE,
    Key.SASL_AUTHENTICATE,
    Key.OPEN,
    Key.EXCHANGE_COMMAND_VERSIONS,
    Key.TUNE,
)


def reply(key: int, correlation_id: bytes, content: bytes) -> bytes:
    """Return the frame of a reply, whose content begins with a code."""
    return frame(0x8000 | key, correlation_id + content)


def event_frame(event: Event) -> bytes:
    """Return the frame of an unsolicited message."""
    match event:
        case frames.Confirms():
            return frame(
                Key.PUBLISH_CONFIRM,
                bytes([event.publisher_id]) + frames.array(int(id_).to_bytes(8) for id_ in event.ids),
            )
        case frames.PublishErrors():
            errors = zip(event.ids, event.codes, strict=True)
            refused = frames.array(int(id_).to_bytes(8) + int(code).to_bytes(2) for id_, code in errors)
            return frame(Key.PUBLISH_ERROR, bytes([event.publisher_id]) + refused)
        case frames.StreamChanged():
            return frame(Key.METADATA_UPDATE, event.code.to_bytes(2) + frames.name_field(event.stream))
        case frames.ConsumerUpdate(number, is_active, correlation_id):
            return frame(Key.CONSUMER_UPDATE, correlation_id.to_bytes(4) + bytes([number, is_active]))
    raise AssertionError(event)


@dataclass
class _Subscription:
    log: ChunkLog | RowLog
    next: int  # the number of a chunk
    credit: int
    has_all_kinds: bool
    filters: frozenset[bytes] = frozenset()
    group: tuple[str, str] | None = None  # of a single active consumer, with its stream
    is_active: bool = True
    is_stepping_down: bool = False  # until its client answers that it is passive


class Session:
    """A connection to a node.

    Attributes:
        out: bytes for the client.
        failure: why it is lost; None while it is open.
        stream: the log of the latest publisher.
        sent: the reference and the id of each row that was published over it.
        unconfirmed: of each row without confirm the publisher, the id, and the rows that must be committed first.
        withheld: how many of the last chunks it does not give: no majority has them, or the node is a replica that is behind.
        subscriptions: by their ids.
        owner: the name of the connection.
    """

    def __init__(self, node: StreamNode) -> None:
        self.node = node
        self.out = bytearray()
        self.failure: Exception | None = None
        self.stream = RowLog()
        self.sent: list[tuple[str | None, int]] = []
        self.unconfirmed: list[tuple[int, int, int]] = []
        self.withheld = node.withheld
        self.subscriptions: dict[int, _Subscription] = {}
        self.is_publisher = False
        self.owner = ""
        self._references: dict[int, str | None] = {}
        self._splitter = frames.FrameSplitter()
        self._splitter.largest = 1 << 30

    def receive(self, data: bytes | memoryview) -> int:
        """Answer the requests in received bytes."""
        for request in self._splitter.split(bytes(data)):
            self.out += self.node.handle(self, bytes(request))
        return len(data)

    def look(self) -> None:
        """Let happen what a test has scripted; without it all rows are committed and confirmed."""
        if self.failure is not None:
            return
        if not self.is_publisher:
            self.node.on_read(self)
            return
        self.node.fault(self)
        if self.failure is None and not self.out:
            self.commit(len(self.stream.log))
            self.tell(*self.confirms())

    def tell(self, *events: Event) -> None:
        """Send unsolicited messages."""
        self.out += b"".join(map(event_frame, events))

    def lose(self) -> None:
        """Cut the connection."""
        self.end(ConnectionLostError("the line is cut"))

    def end(self, failure: Exception) -> None:
        """End the connection: the next consumers of its groups are elected."""
        self.failure = self.failure or failure
        for number in list(self.subscriptions):
            self.unsubscribe(number)

    # -- publishing

    def declare_publisher(self, publisher_id: int, reference: str | None, stream: str) -> None:
        assert publisher_id not in self._references
        self._references[publisher_id] = reference
        log = self.node.streams[stream]
        assert isinstance(log, RowLog)
        self.stream, self.is_publisher = log, True

    def delete_publisher(self, publisher_id: int) -> None:
        del self._references[publisher_id]

    def publish(self, content: bytes, version: int) -> None:
        """Take a Publish frame, of version 2 with a filter value before each message."""
        assert len(content) + 8 <= self.node.frame_max
        reference, place = self._references[content[0]], 5
        for _ in range(int.from_bytes(content[1:5])):
            row_id, place = int.from_bytes(content[place : place + 8]), place + 8
            if version > 1:
                place += 2 + int.from_bytes(content[place : place + 2])
            messages, place = _entry_at(content, place)
            self.sent.append((reference, row_id))
            needed = self.stream.take(reference, row_id, messages)
            self.unconfirmed.append((content[0], row_id, needed))
        assert place == len(content)

    def commit(self, rows: int) -> None:
        """Commit the first rows of the log."""
        self.stream.committed = max(self.stream.committed, self.stream.end_of_entry(rows))

    def confirms(self) -> list[frames.Confirms]:
        """Return the confirms of rows that are committed, each once."""
        ready = [each for each in self.unconfirmed if each[2] <= self.stream.committed]
        self.unconfirmed = [each for each in self.unconfirmed if each[2] > self.stream.committed]
        return [
            frames.Confirms(publisher_id, np.array([row_id for _, row_id, _ in each], np.uint64))
            for publisher_id, each in itertools.groupby(ready, key=lambda entry: entry[0])
        ]

    # -- reading

    def subscribe(self, fields: Fields) -> bytes:
        """Begin where a broker does, and return the first chunks."""
        number, stream, kind = fields.integer(1), fields.text(), fields.integer(2)
        log = self.node.streams[stream]
        offset = fields.integer(8) if kind in (_OFFSET, _TIME) else 0
        credit = fields.integer(2)
        properties = dict(fields.array(lambda: (fields.text(), fields.text())))
        self.node.starts.append((kind, offset))
        place = self.place_of(log, kind, offset)
        if place == log.end and self.node.moves_starts:
            place = log.begin
        has_all_kinds = properties.get("chunk_selector") == "all"
        filters = {value.encode() for name, value in properties.items() if name.startswith("filter.")}
        if properties.get("match-unfiltered") == "true":
            filters.add(b"")
        self.subscriptions[number] = _Subscription(log, place, credit, has_all_kinds, frozenset(filters))
        if properties.get("single-active-consumer") == "true":
            self.node.join(self, number, (properties["name"], stream))
        return self.deliver(number)

    @staticmethod
    def place_of(log: ChunkLog | RowLog, kind: int, offset: int) -> int:
        """Return the number of the chunk where a subscription begins."""
        if kind == _LAST:
            users = (number for number in reversed(log.numbers) if not header_of(log.chunk(number))[0])
            return next(users, log.end)
        if kind == _TIME:
            late = (number for number in log.numbers if timestamp_of(log.chunk(number)) >= offset)
            return next(late, log.end)
        return log.end if kind == _NEXT else log.find(offset)

    def unsubscribe(self, number: int) -> None:
        """End a subscription."""
        group = self.subscriptions.pop(number).group
        if group is not None:
            self.node.leave(self, group)

    def begin(self, number: int, fields: Fields) -> bytes:
        """Take the answer to a ConsumerUpdate; return the first chunks if it is that of an active consumer."""
        subscription = self.subscriptions[number]
        code, kind = fields.integer(2), fields.integer(2)
        assert code == 1
        self.node.answers.append(kind)
        if kind:
            offset = fields.integer(8) if kind in (_OFFSET, _TIME) else 0
            subscription.next = self.place_of(subscription.log, kind, offset)
            subscription.is_active = True
        elif subscription.is_stepping_down and subscription.group is not None:
            subscription.is_stepping_down = False
            self.node.elect_next(subscription.group)
        return self.deliver(number)

    def give_credit(self, fields: Fields) -> bytes:
        """Return the chunks that follow; `at_once` of them at the most."""
        number = fields.integer(1)
        if number not in self.subscriptions:
            return frame(0x8000 | Key.CREDIT, b"\0\4" + bytes([number]))
        subscription = self.subscriptions[number]
        subscription.credit += fields.integer(2)
        self.node.most_credit = max(self.node.most_credit, subscription.credit)
        return self.deliver(number, self.node.at_once)

    def deliver(self, number: int, most: int = 1 << 30) -> bytes:
        """Return chunks of a subscription, as far as its credit goes."""
        subscription, found = self.subscriptions[number], []
        log = subscription.log
        if not subscription.is_active:
            return b""
        subscription.next = max(subscription.next, log.begin)
        while subscription.credit and most and subscription.next < log.end - self.withheld:
            chunk = log.chunk(subscription.next)
            subscription.next += 1
            is_wanted = not subscription.filters or subscription.filters & self.node.filter_values(chunk)
            if is_wanted and (subscription.has_all_kinds or not header_of(chunk)[0]):
                subscription.credit, most = subscription.credit - 1, most - 1
                if chunk := self.node.delivered(chunk):
                    found.append(frame(Key.DELIVER, bytes([number]) + chunk))
        return b"".join(found)

    def statistics(self, stream: str) -> dict[str, int]:
        """Return the statistics of a stream as a leader has them."""
        log = self.node.streams[stream]
        chunks = {
            "first_chunk_id": log.begin,
            "committed_chunk_id": log.end - self.withheld - 1,
            "last_chunk_id": log.end - 1,
        }
        return {
            name: header_of(log.chunk(number))[2] if number in log.numbers else -1
            for name, number in chunks.items()
        }


def _entry_at(content: bytes, place: int) -> tuple[list[bytes], int]:
    """Return the messages of an entry of a Publish frame, and its end."""
    if not content[place] & 0x80:
        end = place + 4 + int.from_bytes(content[place : place + 4])
        return [content[place + 4 : end]], end
    head, rows, size, packed = struct.unpack_from(">BHII", content, place)
    end = place + 11 + packed
    piece = Piece(0, rows, 0, memoryview(content[place + 11 : end]), size, CODECS[head >> 4 & 7])
    data, ends = piece.unpack()
    begins = [0, *ends[:-1].tolist()]
    return [bytes(data[begin + 4 : end]) for begin, end in zip(begins, ends.tolist(), strict=True)], end


def filter_values(chunk: bytes) -> set[bytes]:
    """Return the filter values of a chunk, as those of its rows' annotations; an empty one for a row without."""
    if header_of(chunk)[0]:
        return set()
    rows = columns_of([read_chunk(memoryview(chunk))], 0, 1 << 62, ["filter_value"])
    return {value or b"" for value in rows["filter_value"].to_pylist()}


class StreamNode:
    """A node with streams, without I/O.

    Attributes:
        streams: the logs, by the names of the streams.
        super_streams: the partitions, by the names of the super streams.
        leader: the node with the leaders of all streams; None while none is elected.
        replicas: the other nodes that have the streams.
        starting: the streams that exist, and whose members do not run yet.
        version: the release that it reports.
        commands: the commands that it reports, each in version 1, Publish also in version 2.
        frame_max: the largest frame that it takes.
        opening: the properties of the vhost; by default its advertised address.
        answer: the answer to any request but the login, by its key and correlation id; None for an answer from the logs.
        silent: commands that it does not answer.
        refused: the codes with which it refuses commands.
        seen: the keys of all requests, of all connections.
        requests: their contents behind the correlation id.
        offsets: the stored offsets, by the names of the reader and the stream.
        starts: where subscriptions began: the kind and the offset, which is 0 for "first" and "last".
        sessions: the connections to it.
        fault: is called when a connection with a publisher waits for events.
        on_read: the same for a connection without.
        filter_values: the filter values of a chunk.
        delivered: what is sent for a chunk: all of it, a changed one, or nothing.
        withheld: see `Session`; of the next connections.
        at_once: the most chunks that it delivers for a credit.
        most_credit: the most credit that a subscription had at a time.
        moves_starts: whether a start behind the log is moved to its begin.
        answers: the kinds of the answers to a ConsumerUpdate: 0 for no start.
        consumers: the single active consumers of each group and stream, in their order; the first one is elected.
    """

    frame_max = 1 << 20
    heartbeat_s = 60

    def __init__(self, host: str = "broker", port: int = 5552) -> None:
        self.host, self.port = host, port
        self.streams: dict[str, ChunkLog | RowLog] = {}
        self.super_streams: dict[str, tuple[str, ...]] = {}
        self.leader: StreamNode | None = self
        self.replicas: Sequence[StreamNode] = ()
        self.starting: set[str] = set()
        self.version = "3.10.8"
        self.commands: Sequence[int] = ()
        self.opening = {"advertised_host": host, "advertised_port": str(port)}
        self.answer: Callable[[int, bytes], bytes] | None = None
        self.silent: set[int] = set()
        self.refused: dict[int, int] = {}
        self.seen: list[int] = []
        self.requests: list[bytes] = []
        self.starts: list[tuple[int, int]] = []
        self.offsets: dict[tuple[str, str], int] = {}
        self.sessions: list[Session] = []
        self.fault: Callable[[Session], object] = lambda _session: None
        self.on_read: Callable[[Session], object] = lambda _session: None
        self.filter_values = filter_values
        self.delivered: Callable[[bytes], bytes] = lambda chunk: chunk
        self.withheld = 0
        self.at_once = 1 << 30
        self.most_credit = 0
        self.moves_starts = False
        self.consumers: dict[tuple[str, str], list[tuple[Session, int]]] = {}
        self.answers: list[int] = []
        self._updates = itertools.count(1 << 16)

    @property
    def writers(self) -> list[Session]:
        """The connections on which a publisher was declared."""
        return [session for session in self.sessions if session.is_publisher]

    def accept(self, owner: str = "") -> Session:
        """Begin a connection of this name."""
        self.sessions.append(Session(self))
        self.sessions[-1].owner = owner
        return self.sessions[-1]

    # -- single active consumers

    def join(self, session: Session, number: int, group: tuple[str, str]) -> None:
        """Add a consumer behind those of its group."""
        subscription = session.subscriptions[number]
        subscription.group, subscription.is_active = group, False
        consumers = self.consumers.setdefault(group, [])
        consumers.append((session, number))
        if len(consumers) == 1:
            self.update(session, number, is_active=True)

    def leave(self, session: Session, group: tuple[str, str]) -> None:
        """Remove a consumer, and elect the next one if it was the first."""
        consumers = self.consumers[group]
        was_first = consumers[0][0] is session
        self.consumers[group] = consumers = [each for each in consumers if each[0] is not session]
        if was_first and consumers:
            self.update(*consumers[0], is_active=True)

    def move(self, group: tuple[str, str]) -> None:
        """Make the active consumer passive, as of a partition when a member joins or leaves. The next one is elected after its answer."""
        session, number = self.consumers[group][0]
        subscription = session.subscriptions[number]
        subscription.is_active, subscription.is_stepping_down = False, True
        self.update(session, number, is_active=False)

    def elect_next(self, group: tuple[str, str]) -> None:
        """Elect the consumer behind the first one, which becomes the last one."""
        consumers = self.consumers[group]
        consumers.append(consumers.pop(0))
        self.update(*consumers[0], is_active=True)

    def update(self, session: Session, number: int, *, is_active: bool) -> None:
        """Tell a consumer whether it is active."""
        session.tell(frames.ConsumerUpdate(number, is_active, next(self._updates)))

    # -- requests

    def handle(self, session: Session, request: bytes) -> bytes:
        """Return what is sent for a request."""
        key = int.from_bytes(request[:2])
        self.seen.append(key)
        self.requests.append(request[8:])
        if key == Key.PUBLISH:
            session.publish(request[4:], int.from_bytes(request[2:4]))
            return b""
        if key in self.refused:
            return reply(key, request[4:8], self.refused[key].to_bytes(2))
        return b"" if key in self.silent else self.said(session, key, request[4:])

    def said(  # noqa: C901, PLR0911, PLR0912  # one case for each command
        self, session: Session, key: int, content: bytes
    ) -> bytes:
        """Return the answer to a request."""
        correlation_id, fields = content[:4], Fields(memoryview(content[4:]))
        if self.answer is not None and key not in _LOGIN:
            return self.answer(key, correlation_id)
        body, follows = b"", b""
        match key:
            case Key.CREDIT:
                return session.give_credit(Fields(memoryview(content)))
            case Key.TUNE | Key.HEARTBEAT:
                return b""
            case Key.STORE_OFFSET:
                fields = Fields(memoryview(content))
                name = fields.text(), fields.text()
                self.offsets[name] = fields.integer(8)
                return b""
            case Key.QUERY_OFFSET:
                offset = self.offsets.get((fields.text(), fields.text()))
                if offset is None:
                    return reply(key, correlation_id, b"\0\x13" + bytes(8))
                body = offset.to_bytes(8)
            case Key.METADATA:
                return reply(key, correlation_id, self.metadata(fields.array(fields.text)))
            case Key.PEER_PROPERTIES:
                body = frames.texts_field({"version": self.version}, "")
            case Key.SASL_HANDSHAKE:
                body = frames.array([frames.name_field("PLAIN")])
            case Key.SASL_AUTHENTICATE:
                follows = frame(Key.TUNE, self.frame_max.to_bytes(4) + self.heartbeat_s.to_bytes(4))
            case Key.OPEN:
                body = frames.texts_field(self.opening, "")
            case Key.EXCHANGE_COMMAND_VERSIONS:
                body = frames.array(
                    command.to_bytes(2) + OK + (b"\0\2" if command == Key.PUBLISH else OK)
                    for command in self.commands
                )
            case Key.DECLARE_PUBLISHER:
                session.declare_publisher(fields.integer(1), fields.text() or None, fields.text())
            case Key.DELETE_PUBLISHER:
                session.delete_publisher(fields.integer(1))
            case Key.QUERY_PUBLISHER_SEQUENCE:
                reference, log = fields.text(), self.streams[fields.text()]
                assert isinstance(log, RowLog)
                body = log.claims.get(reference, 0).to_bytes(8)
            case Key.SUBSCRIBE:
                follows = session.subscribe(fields)
            case Key.UNSUBSCRIBE:
                session.unsubscribe(fields.integer(1))
            case Key.CREATE:
                self.streams[fields.text()] = self.new_log()
            case _ if key == _CONSUMER_UPDATE_REPLY:
                (number,) = session.subscriptions
                return session.begin(number, fields)
            case Key.STREAM_STATS:
                statistics = session.statistics(fields.text())
                body = frames.array(
                    frames.name_field(name) + value.to_bytes(8, signed=True)
                    for name, value in statistics.items()
                )
            case Key.PARTITIONS:
                return reply(key, correlation_id, self.partitions(fields.text()))
            case Key.ROUTE:
                wanted, partitions = fields.text(), self.super_streams[fields.text()]
                body = frames.array(
                    [frames.name_field(each) for n, each in enumerate(partitions) if wanted == str(n)]
                )
        return reply(key, correlation_id, OK + body) + follows

    def new_log(self) -> ChunkLog | RowLog:
        """Return the log of a stream that is created."""
        return RowLog()

    def partitions(self, super_stream: str) -> bytes:
        """Return the streams of a super stream, as the content of a reply."""
        if super_stream not in self.super_streams:
            return _NO_STREAM
        return OK + frames.array(map(frames.name_field, self.super_streams[super_stream]))

    def metadata(self, streams: Iterable[str]) -> bytes:
        """Return the nodes of streams, as the content of a reply."""
        known = {
            number: node for number, node in enumerate([self.leader, *self.replicas]) if node is not None
        }
        leader = b"\0\0" if 0 in known else _NO_LEADER
        replicas = frames.array(number.to_bytes(2) for number in known if number)

        def state(name: str) -> bytes:
            if name in self.streams and name not in self.starting:
                return OK + leader + replicas
            return (_NOT_AVAILABLE if name in self.starting else _NO_STREAM) + _NO_LEADER + EMPTY

        return frames.array(
            number.to_bytes(2) + frames.name_field(node.host) + node.port.to_bytes(4)
            for number, node in known.items()
        ) + frames.array(frames.name_field(name) + state(name) for name in streams)


# -- in memory


class Clock:
    """Stands for the module time: it goes on when somebody waits, or a test lets it."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def monotonic(self) -> float:
        self.now += 0.001  # so that a loop that waits without sleeping ends
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += max(seconds, 0.05)


class Line:
    """Stands for the transport of a connection."""

    def __init__(self, session: Session, clock: Any) -> None:
        self.session = session
        self._clock = clock

    def send(self, data: memoryview) -> int:
        if self.session.failure is not None:
            raise self.session.failure
        return self.session.receive(data)

    def receive(self, wait_s: float = 0.0) -> bytes:
        session = self.session
        if wait_s and not session.out:
            session.look()
        if session.out:
            data = bytes(session.out)
            session.out.clear()
            return data
        if session.failure is not None:
            raise session.failure
        self._clock.now += wait_s
        return b""

    def wait(self, timeout_s: float) -> None:
        self._clock.now += timeout_s

    def close(self) -> None:
        self.session.end(ConnectionLostError("it is closed"))


class _Connection(StreamConnection):
    _transport: Any

    def events(self, wait_s: float) -> list[Event]:
        self._transport.session.look()
        return super().events(wait_s)


@contextmanager
def in_memory(*cluster: StreamNode, clock: Any = None, line: type[Line] = Line) -> Iterator[Any]:
    """Let stream connections go to these nodes, by their hosts, or to the first of them; return the clock of all waits."""
    clock = clock or Clock()
    by_host = {node.host: node for node in cluster}

    def transport(settings: Any, _deadline: float) -> Line:
        node = by_host.get(settings.host, cluster[0])
        return line(node.accept(settings.connection_name or ""), clock)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocking_connection, "Transport", transport)
        patch.setattr(blocking_connection, "_keep_alive", lambda *_: None)
        for module in (nodes, log_lookup):
            patch.setattr(module, "StreamConnection", _Connection)
        own = (
            blocking_connection,
            connection,
            nodes,
            log_lookup,
            writer,
            reader,
            chunk_readers,
            stored_ids,
            writer,
        )
        for module in (*own, retry):
            patch.setattr(module, "time", clock)
        yield clock


# -- on the loopback


class ListeningNode(LoopbackServer, StreamNode):
    """A node on the loopback that has the stream `s`.

    Args:
        chunks: the chunks of the stream.

    Attributes:
        settings: where it listens.
    """

    def __init__(self, chunks: Iterable[bytes] = ()) -> None:
        self._lines: list[tuple[socket.socket, Session]] = []
        LoopbackServer.__init__(self)
        StreamNode.__init__(self, HOST, self.port)
        self.settings = stream_settings(f"rabbitmq-stream://{HOST}:{self.port}?heartbeat=0")
        self.log = self.streams["s"] = ChunkLog(chunks)

    @property
    def chunks(self) -> list[bytes]:
        """The chunks of the stream; they may be replaced."""
        return self.log.chunks

    @chunks.setter
    def chunks(self, chunks: Iterable[bytes]) -> None:
        self.log.chunks = list(chunks)

    def serve(self, client: socket.socket) -> None:
        """Answer requests."""
        session = self.accept()
        self._lines.append((client, session))
        try:
            while data := client.recv(65_536):
                session.receive(data)
                answer = bytes(session.out)
                session.out.clear()
                client.sendall(answer)
        finally:
            session.end(ConnectionLostError("it is closed"))

    def release(self) -> None:
        """Deliver the chunks that were withheld."""
        self.withheld = 0
        for client, session in self._lines:
            session.withheld = 0
            with contextlib.suppress(OSError):
                client.sendall(b"".join(map(session.deliver, session.subscriptions)))
