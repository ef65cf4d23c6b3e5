"""One connection to a broker's stream port: login, requests, rows that go, chunks and confirms that come. All waits are bounded.

The caller's thread does all of it. While the caller is elsewhere, a thread of the connection receives and keeps the heartbeats
going. Both hold the same lock for as long as they send or receive, so frames never interleave. What comes by itself, an
*event*, is kept until the caller takes it.

A fault is kept, and raised by this call and each later one. Events that came before it can still be taken.
"""

from __future__ import annotations

import logging
import math
import platform
import re
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from types import MappingProxyType
from typing import Any, TypeVar

from rabbit_chx.amqp import ConnectionSettings
from rabbit_chx.amqp.urls import parse_stream_uri
from rabbit_chx.connection import failures
from rabbit_chx.connection.blocking_connection import Transport
from rabbit_chx.errors import (
    AccessRefusedError,
    BrokerTimeoutError,
    ConnectionLostError,
    InputError,
    RabbitChxError,
    UriError,
)
from rabbit_chx.streams import frames
from rabbit_chx.streams.codes import Code, code_in_words, refusal
from rabbit_chx.streams.frames import Event, Key, Node, OffsetSpec, Request, StreamPlaces

Answer = TypeVar("Answer")

_log = logging.getLogger(__name__)

#: How often the thread of a connection takes what has come. The broker would wait, and list no connections meanwhile.
_DRAIN_EVERY_S = 1.0
#: Nothing hangs on the answer: what matters is confirmed, or given up.
_GOODBYE_S = 1.0
#: How long a request may wait for its answer, unless the caller says otherwise.
REPLY_S = 60.0
#: How long the broker may take no byte. It takes none during a disk alarm, or with 50,000 rows unconfirmed. A memory alarm does
#: not stop it (rabbitmq-server v4.3.5, rabbit_stream_reader.erl, ``resource_alarm/3``).
_STALL_S = 60.0
_LONGEST_WAIT_S = 1.0
#: Before the vhost is open the broker takes no larger frame, and hangs up (rabbitmq-server v4.3.5, stream.initial_frame_max).
_LARGEST_LOGIN = 8192 - 64
_TOO_LARGE = "it has {:,} bytes, and stream.initial_frame_max allows 8,192 in a frame"
_HEARTBEAT = frames.frame(Key.HEARTBEAT, b"")
#: A routing key that nobody has bound.
_NO_KEY = "rabbit_chx: is this a super stream?"
_NO_PROPERTIES: Mapping[str, str] = MappingProxyType({})


def stream_settings(url: str | ConnectionSettings) -> ConnectionSettings:
    """Return the settings of a connection to a broker's stream port.

    Args:
        url: ``rabbitmq-stream://user:password@host:5552/vhost``, ``rabbitmq-stream+tls://`` (port 5551), or the AMQP URI of
            the same host, whose port is passed over; or settings, of AMQP likewise.

    Raises:
        UriError: the URL cannot be followed. No part of a password is in the message.
    """
    if isinstance(url, ConnectionSettings):
        stream_port = 5551 if url.tls else 5552
        return url if url.protocol == "stream" else replace(url, protocol="stream", port=stream_port)
    try:
        return parse_stream_uri(url)
    except UriError as cause:  # without its traceback, whose frames have the password
        error = cause.with_traceback(None)
    finally:
        del url
    raise error


class StreamConnection:
    """An open connection to one node, used by one thread.

    Args:
        settings: the address, and how to log in; see `stream_settings`.
        request_timeout_s: see the attribute.
        max_frame_bytes: the largest frame that is received. A Deliver frame is a whole chunk, and ``frame_max`` does not bound it.

    Attributes:
        request_timeout_s: seconds that a request waits for its answer at most. It may be changed.
        deadline: when all requests end at the latest, by ``time.monotonic()``. It may be changed.
        where: the address without its password.
        server_version: what the broker says, such as "4.3.6".
        node: the address that the node advertises for streams; None where it tells none.
        frame_max: the largest frame that may be sent, in bytes, with its size; 0 for no limit.
        heartbeat_s: seconds between heartbeats, as agreed on; 0 is none.
        commands: the lowest and highest version of each command that the broker knows; empty before 3.11.

    Raises:
        UnreachableError: nobody answers, or not within ``settings.connection_timeout_s``.
        BrokerRefusedError: the broker answers, and refuses user, vhost or mechanism.
        InputError: the port speaks another protocol.
    """

    def __init__(
        self,
        settings: ConnectionSettings,
        *,
        request_timeout_s: float = REPLY_S,
        max_frame_bytes: int = frames.LARGEST_FRAME,
    ) -> None:
        self.request_timeout_s = request_timeout_s
        self.deadline = math.inf
        self.where = settings.masked_url
        self.server_version = ""
        self.node: Node | None = None
        self.frame_max = 0
        self.heartbeat_s = 0
        self.commands: Mapping[int, tuple[int, int]] = {}
        self._settings = settings
        self._max_frame_bytes = max_frame_bytes
        self._cutter = frames.FrameCutter()
        self._out: deque[memoryview] = deque()
        self._events: list[Event] = []
        self._tune: frames.Tune | None = None
        self._correlation_id = 0
        self._replies: dict[int, frames.Reply] = {}
        self._failure: RabbitChxError | None = None
        self._lock = threading.RLock()
        self._closed = threading.Event()
        deadline = time.monotonic() + settings.connection_timeout_s
        self._transport = Transport(settings, deadline)
        self._last_sent = self._last_received = time.monotonic()
        try:
            self._shake_hands(deadline)
        except BaseException:
            self._transport.close()
            raise
        every_s = min(self.heartbeat_s / 4 or _DRAIN_EVERY_S, _DRAIN_EVERY_S)
        self._keeper = threading.Thread(
            target=_keep_alive,
            args=(weakref.ref(self), self._closed, every_s),
            name="rabbit_chx stream heartbeat",
            daemon=True,
        )
        self._keeper.start()

    def _shake_hands(self, deadline: float) -> None:
        settings = self._settings
        login_bytes = 2 + len(settings.username.encode()) + len(settings.password.reveal().encode())
        try:
            properties = self._ask(frames.peer_properties(self._our_properties()), "log in", until=deadline)
            self.server_version = properties.get("version", "")
            offered = self._ask(frames.sasl_handshake(), "log in", until=deadline)
            mechanism = next((name for name in settings.auth_mechanisms if name in offered), None)
            if mechanism is None:
                raise failures.no_mechanism(settings, offered)
            code = self._reply_to(  # no variable of a frame has the password
                frames.sasl_authenticate(
                    mechanism,
                    f"\0{settings.username}\0{settings.password.reveal()}".encode()
                    if mechanism == "PLAIN"
                    else b"",
                ),
                deadline,
            ).code
            if code != Code.OK:
                raise failures.refused_login(settings, code_in_words(code))
            while self._tune is None:
                self._turn(_left(deadline, lambda: failures.late_handshake(settings)))
            self._agree(self._tune)
            opening = frames.open_vhost(settings.vhost)
            reply = self._reply_to(opening, deadline)
            if reply.code != Code.OK:
                raise failures.refused_vhost(settings, code_in_words(reply.code))
            self.node = self._read(opening, reply)
            self._cutter.largest = self._max_frame_bytes
            if self._is_at_least(3, 11):
                known = self._ask(frames.exchange_command_versions(), "log in", until=deadline)
                self.commands = known
        except BrokerTimeoutError:
            raise failures.late_handshake(settings) from None
        except ConnectionLostError as cause:
            if login_bytes > _LARGEST_LOGIN:
                raise failures.refused_login(settings, _TOO_LARGE.format(login_bytes)) from None
            raise failures.broken_handshake(settings, cause) from None

    def _our_properties(self) -> dict[str, str]:
        named = self._settings.connection_name
        return {
            "product": "rabbit_chx",
            "version": _our_version(),
            "platform": f"Python {platform.python_version()}",
        } | ({"connection_name": named} if named else {})

    def _agree(self, proposed: frames.Tune) -> None:
        wanted = self._settings.heartbeat_s
        self.heartbeat_s = proposed.heartbeat_s
        if wanted is not None:
            self.heartbeat_s = min(filter(None, (wanted, proposed.heartbeat_s)), default=0) if wanted else 0
        self.frame_max = min(filter(None, (proposed.frame_max, self._settings.frame_max)), default=0)
        self._put(frames.tune(frames.Tune(self.frame_max, self.heartbeat_s)))

    # -- what is where

    def metadata(self, streams: Sequence[str], *, missing_ok: bool = False) -> dict[str, StreamPlaces]:
        """Return where streams are: the node of the leader, and those of the replicas.

        Args:
            streams: their names.
            missing_ok: give the places of a stream that is not there, too; its `code` says why there are none.

        Raises:
            NotFoundError: a stream does not exist.
            AccessRefusedError: the user may neither read nor write it.
            UnreachableError: it is not available now.
        """
        places = self._ask(frames.metadata(streams), "tell where streams are")
        if not places.keys() >= set(streams):
            missing = next(stream for stream in streams if stream not in places)
            raise failures.nonsense(
                self.where, ValueError(f"the answer to metadata does not have {missing!r}")
            )
        for stream in streams:
            if not missing_ok and places[stream].code != Code.OK:
                raise refusal(self.where, f"tell where stream {stream!r} is", places[stream].code, stream)
        return places

    def queues_of(self, exchange: str) -> tuple[str, ...]:
        """Return the queues that are bound to an exchange, whatever its type (3.10.8 and 4.3.6).

        Raises:
            NotFoundError: there is none of that name.
        """
        return self._ask(frames.partitions(exchange), f"list the queues of exchange {exchange!r}", exchange)

    def partitions(self, super_stream: str) -> tuple[str, ...]:
        """Return the streams of a super stream, in its order.

        Its exchange has a binding key for each partition, so it has nothing for another key. An exchange that hashes has. A user
        without the permission write is not told.

        Raises:
            NotFoundError: there is none of that name.
            InputError: there is an exchange of that name, and it is none of a super stream.
        """
        doing = f"list the partitions of super stream {super_stream!r}"
        streams = self._ask(frames.partitions(super_stream), doing, super_stream)
        with suppress(AccessRefusedError):
            if self._ask(frames.route(_NO_KEY, super_stream), doing, super_stream):
                raise InputError(
                    f"{self.where}: {super_stream!r} is no super stream, but an exchange that takes any key: give the exchange with its "
                    "ring",
                    exchange=super_stream,
                )
        return streams

    def stats(self, stream: str) -> dict[str, int]:
        """Return the figures of a stream by their names, such as ``first_chunk_id``; -1 in an empty stream.

        Raises:
            NotFoundError: there is no such stream.
            InputError: the broker is older than 3.11.
        """
        self._need(Key.STREAM_STATS, "3.11")
        return self._ask(frames.stream_stats(stream), f"give the figures of stream {stream!r}", stream)

    def resolve_offset(
        self, stream: str, start: OffsetSpec, properties: Mapping[str, str] = _NO_PROPERTIES
    ) -> int:
        """Return the offset where a subscription with this start would begin; a tracking chunk may have it.

        Args:
            stream: its name.
            start: as for `subscribe`.
            properties: as for `subscribe`.

        Raises:
            NotFoundError: there is no such stream.
            InputError: the broker is older than 4.3.
        """
        self._need(Key.RESOLVE_OFFSET_SPEC, "4.3")
        request = frames.resolve_offset_spec(stream, start, properties)
        return self._ask(request, f"resolve {start!r} in stream {stream!r}", stream)

    # -- publishing

    def declare_publisher(self, publisher_id: int, stream: str, reference: str | None) -> None:
        """Announce a publisher.

        Args:
            publisher_id: 0 to 255, one that is free on this connection.
            stream: where it publishes to. The connection must be to the stream's leader.
            reference: the name by which the broker drops rows that it has; None for none.

        Raises:
            NotFoundError: there is no such stream.
            BrokerRefusedError: the id, or the reference on this stream, is in use on this connection.
        """
        doing = f"declare publisher {publisher_id} of stream {stream!r}"
        self._ask(frames.declare_publisher(publisher_id, stream, reference), doing, stream)

    def delete_publisher(self, publisher_id: int) -> None:
        """Take a publisher back."""
        self._ask(frames.delete_publisher(publisher_id), f"delete publisher {publisher_id}")

    def publisher_sequence(self, reference: str, stream: str) -> int:
        """Return the last id that the leader has seen of a reference; 0 where there is none. Its row may not be stored yet."""
        doing = f"tell the last id of {reference!r} in stream {stream!r}"
        return self._ask(frames.query_publisher_sequence(reference, stream), doing, stream)

    def send(self, frames: memoryview | bytes, *, stall_s: float = _STALL_S) -> None:
        """Send whole frames, until the socket has taken them. Meanwhile events are collected.

        Args:
            frames: the bytes.
            stall_s: seconds without any byte taken, after which it is given up.

        Raises:
            BrokerTimeoutError: the broker takes nothing for so long. The connection cannot go on.
            RabbitChxError: the connection cannot go on. `events` still gives what came before.
        """
        with self._lock:
            self._put(frames)
            left = sum(map(len, self._out))
            deadline = time.monotonic() + stall_s
            while left:
                self._turn(max(0.0, deadline - time.monotonic()), until_sent=True)
                if (now_left := sum(map(len, self._out))) < left:
                    left, deadline = now_left, time.monotonic() + stall_s
                elif time.monotonic() >= deadline:
                    self._failure = BrokerTimeoutError(
                        f"{self.where}: the broker has taken no byte for {stall_s:g} s: it takes none during a disk alarm "
                        "(rabbitmqctl status), or while too many rows are unconfirmed"
                    )
                    raise self._failure

    # -- reading

    def subscribe(
        self,
        subscription_id: int,
        stream: str,
        start: OffsetSpec,
        credit: int,
        properties: Mapping[str, str] = _NO_PROPERTIES,
    ) -> None:
        """Ask for the chunks of a stream; they come as events.

        Args:
            subscription_id: 0 to 255, one that is free on this connection.
            stream: its name. The connection must be to a node that has a member of it.
            start: "first", "last", "next", an offset, or an aware datetime. What comes is whole chunks: first the one that has the
                offset, or the first that is not older than the time. What is not in the stream is moved to its nearest end.
            credit: how many chunks may come. From 4.0 on, the broker sends no more until more than half of this number is free,
                so give back as many as came, or at least more than half.
            properties: the broker's own, such as ``filter.0``, ``match-unfiltered`` or ``chunk_selector``.

        Raises:
            NotFoundError: there is no such stream.
            AccessRefusedError: the user may not read it.
            UnreachableError: the node has no member of it.
            BrokerRefusedError: the id is in use.
        """
        request = frames.subscribe(subscription_id, stream, start, credit, properties)
        self._ask(request, f"subscribe to stream {stream!r} as {subscription_id}", stream)

    def unsubscribe(self, subscription_id: int) -> None:
        """End a subscription. Chunks that were under way are still among the events."""
        self._ask(frames.unsubscribe(subscription_id), f"end subscription {subscription_id}")

    def give_credit(self, subscription_id: int, chunks: int) -> None:
        """Let so many more chunks come. If the broker does not have the subscription, a `CreditRefused` comes."""
        with self._lock:
            self._put(frames.credit(subscription_id, chunks))
            self._turn(0)

    def events(self, wait_s: float) -> list[Event]:
        """Return what came by itself, in order; wait for it if nothing has come yet.

        Args:
            wait_s: seconds to wait at most.

        Raises:
            RabbitChxError: the connection cannot go on, and all that came before was taken.
        """
        deadline = time.monotonic() + wait_s
        with self._lock:
            while not self._events:
                left_s = max(0.0, deadline - time.monotonic())
                try:
                    self._turn(left_s)
                except RabbitChxError:
                    if not self._events:
                        raise
                if not left_s:
                    break
            events, self._events = self._events, []
            return events

    # -- making and deleting

    def create_stream(self, stream: str, arguments: Mapping[str, str] = _NO_PROPERTIES) -> None:
        """Make a stream.

        Args:
            stream: its name.
            arguments: such as ``max-length-bytes``, ``max-age`` or ``stream-max-segment-size-bytes``.

        Raises:
            MismatchError: it is there.
            AccessRefusedError: the user may not configure it.
        """
        self._ask(frames.create_stream(stream, arguments), f"create stream {stream!r}", stream)

    def delete_stream(self, stream: str) -> None:
        """Delete a stream and all rows in it.

        Raises:
            NotFoundError: there is no such stream.
        """
        self._ask(frames.delete_stream(stream), f"delete stream {stream!r}", stream)

    def create_super_stream(
        self,
        super_stream: str,
        streams: Sequence[str],
        binding_keys: Sequence[str],
        arguments: Mapping[str, str] = _NO_PROPERTIES,
    ) -> None:
        """Make a super stream with its streams.

        Args:
            super_stream: its name.
            streams: the names of its partitions.
            binding_keys: one for each.
            arguments: of each stream, as for `create_stream`.

        Raises:
            InputError: the broker is older than 3.13.
        """
        self._need(Key.CREATE_SUPER_STREAM, "3.13")
        request = frames.create_super_stream(super_stream, streams, binding_keys, arguments)
        self._ask(request, f"create super stream {super_stream!r}", super_stream)

    def delete_super_stream(self, super_stream: str) -> None:
        """Delete a super stream, its streams, and all rows in them.

        Raises:
            InputError: the broker is older than 3.13.
        """
        self._need(Key.DELETE_SUPER_STREAM, "3.13")
        request = frames.delete_super_stream(super_stream)
        self._ask(request, f"delete super stream {super_stream!r}", super_stream)

    def close(self) -> None:
        """Say goodbye and close the socket; bounded, and may be called again."""
        if self._closed.is_set():
            return
        self._closed.set()
        with self._lock:
            try:
                if self._failure is None:
                    goodbye = frames.close(Code.OK, "Goodbye")
                    self._ask(goodbye, "close", until=time.monotonic() + _GOODBYE_S)
            except RabbitChxError as cause:
                _log.debug("%s: closing: %s", self.where, cause)
            finally:
                self._transport.close()
                self._failure = self._failure or failures.closed_connection(self.where)
        if self._keeper.is_alive():
            self._keeper.join(_GOODBYE_S)

    # -- requests

    def _ask(
        self, request: Request[Answer], doing: str, stream: str | None = None, *, until: float | None = None
    ) -> Answer:
        with self._lock:
            reply = self._reply_to(
                request, until or min(time.monotonic() + self.request_timeout_s, self.deadline)
            )
            if reply.code != Code.OK:
                raise refusal(self.where, doing, reply.code, stream)
            return self._read(request, reply)

    def _reply_to(self, request: Request[Any], deadline: float) -> frames.Reply:
        """Send a request, and wait for the reply."""
        name = request.key.name.lower().replace("_", " ")
        started = time.monotonic()
        self._correlation_id = correlation_id = (self._correlation_id + 1) % (1 << 32)
        self._put(request.frame(correlation_id))
        del request  # it may have the password
        while correlation_id not in self._replies:
            self._turn(
                _left(deadline, lambda: failures.missing_reply(self.where, name, time.monotonic() - started))
            )
        return self._replies.pop(correlation_id)

    def _read(self, request: Request[Answer], reply: frames.Reply) -> Answer:
        try:
            return request.read(frames.Fields(reply.content))
        except ValueError as cause:
            self._failure = failures.nonsense(self.where, cause)
            raise self._failure from None

    def _need(self, key: Key, release: str) -> None:
        if key not in self.commands:
            name = key.name.lower().replace("_", " ")
            raise InputError(
                f"{self.where}: RabbitMQ {self.server_version} does not have the command '{name}' of the stream protocol: it "
                f"needs {release} or newer"
            )

    def _is_at_least(self, *release: int) -> bool:
        numbers = re.match(r"(\d+)\.(\d+)", self.server_version)
        return numbers is not None and (int(numbers[1]), int(numbers[2])) >= release

    # -- the loop

    def _put(self, data: memoryview | bytes) -> None:
        self._out.append(memoryview(data))
        del data  # it may have the password
        if self._failure is not None:
            raise self._failure

    def _turn(self, wait_s: float, *, until_sent: bool = False) -> None:
        """Send, wait for the socket (for less, if need be), receive, and see whether the broker is alive."""
        if self._failure is None:
            try:
                self._beat()
                self._exchange(
                    min(wait_s, (self.heartbeat_s or 60) / 4, _LONGEST_WAIT_S), until_sent=until_sent
                )
                silence_s = time.monotonic() - self._last_received
                if silence_s > (2 * self.heartbeat_s or math.inf):
                    self._failure = self._failure or failures.silence(self.where, silence_s)
            except RabbitChxError as cause:
                self._failure = self._failure or cause
            except ValueError as cause:
                self._failure = failures.nonsense(self.where, cause)
            except BaseException as cause:
                self._failure = failures.interruption(self.where, cause)
                raise
        if self._failure is not None:
            raise self._failure

    def _exchange(self, wait_s: float, *, until_sent: bool) -> None:
        self._flush()
        if self._out:
            self._transport.wait(wait_s)
            self._flush()
        data = self._transport.receive(0.0 if self._out or until_sent else wait_s)
        if data:
            self._last_received = time.monotonic()
            if self._tune is None and data.startswith((b"AMQP", b"HTTP")):
                raise _other_protocol(self._settings, data[:4].decode())
            for frame in self._cutter.cut(data):
                self._take(frames.parse_frame(frame))
            self._flush()

    def _flush(self) -> None:
        out = self._out
        while out:
            sent = self._transport.send(out[0])
            if not sent:
                return
            self._last_sent = time.monotonic()
            if sent == len(out[0]):
                out.popleft()
            else:
                out[0] = out[0][sent:]

    def _take(self, message: frames.Message) -> None:
        match message:
            case frames.Reply():
                if message.correlation_id == self._correlation_id:  # else nobody waits for it any more
                    self._replies[message.correlation_id] = message
            case frames.Tune():
                self._tune = message
            case frames.Closing():
                self._out.append(memoryview(frames.closed(message.correlation_id)))
                self._failure = ConnectionLostError(
                    f"{self.where}: the broker closes the connection ({code_in_words(message.code)}): {message.reason}",
                    reply_code=message.code,
                )
            case frames.Heartbeat():
                pass
            case _:
                self._events.append(message)

    def _beat(self) -> None:
        if self.heartbeat_s and not self._out and time.monotonic() - self._last_sent > self.heartbeat_s / 2:
            self._out.append(memoryview(_HEARTBEAT))

    def _keep_up(self) -> None:
        """Do what is due while the caller is elsewhere: heartbeats, and all that has come, for which the broker would wait."""
        if not self._lock.acquire(blocking=False):
            return  # the caller is at it, and its loop does the same
        try:
            received_at = math.nan
            while received_at != self._last_received and not self._closed.is_set():
                received_at = self._last_received
                self._turn(0)
        finally:
            self._lock.release()


def _keep_alive(connection: weakref.ref[StreamConnection], closed: threading.Event, every_s: float) -> None:
    """Keep a connection up until it is closed, or nobody has it any more."""
    while not closed.wait(every_s):
        kept = connection()
        if kept is None:
            return
        try:
            kept._keep_up()  # noqa: SLF001  # a method as the target would hold the connection for ever
        except Exception as cause:  # noqa: BLE001  # it is kept as the failure, which the caller meets next
            _log.debug("%s: no more heartbeats: %s", kept.where, cause)
            return
        del kept


def _other_protocol(settings: ConnectionSettings, protocol: str) -> InputError:
    usual = "5551 with TLS" if settings.tls else "5552"
    return InputError(
        f"{settings.masked_url}: this port speaks {protocol}, not the stream protocol: streams are on port {usual} (rabbitmq-plugins "
        "enable rabbitmq_stream)"
    )


def _left(deadline: float, late: Callable[[], RabbitChxError]) -> float:
    left_s = deadline - time.monotonic()
    if left_s <= 0:
        raise late()
    return left_s


def _our_version() -> str:
    try:
        return version("rabbit-chx")
    except PackageNotFoundError:  # on an executor that got the code as a zip file
        return "unknown"
