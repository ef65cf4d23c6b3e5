"""One connection to a broker's stream port: login, requests, sent rows, received chunks and confirms. All waits are bounded.

The caller's thread sends and receives in its calls. Between calls a thread of the connection receives and sends heartbeats. Each holds the
lock meanwhile, so frames never interleave. The broker's unsolicited messages, the *events*, are kept until the caller takes them.

A failure is permanent: the current call and each later one raise it. Events that were received before can still be taken.
"""

from __future__ import annotations

import math
import platform
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from types import MappingProxyType
from typing import TypeVar

from rabbit_chx import errors
from rabbit_chx.amqp import ConnectionSettings
from rabbit_chx.checks import check_whole
from rabbit_chx.connection import failures
from rabbit_chx.connection.blocking_connection import ServedConnection
from rabbit_chx.streams import frames
from rabbit_chx.streams.frames import (
    Code,
    Event,
    Fields,
    Key,
    Node,
    OffsetSpec,
    StreamMetadata,
    array,
    code_in_words,
    id_field,
    name_field,
    text_field,
    texts_field,
)
from rabbit_chx.version import __version__

_T = TypeVar("_T")

#: The interval at which the thread of a connection receives: a broker that blocks on a full socket does not list its connections.
_SERVICE_INTERVAL_S = 1.0
REQUEST_TIMEOUT_S = 60.0
#: The longest time in which the broker reads nothing, as during a disk alarm, or with 50,000 rows unconfirmed. A memory alarm does not
#: block it (rabbitmq-server v4.3.5, rabbit_stream_reader.erl, ``resource_alarm/3``).
_STALL_S = 60.0
_MAX_WAIT_S = 1.0
#: The broker closes the connection on a larger frame before the vhost is open (rabbitmq-server v4.3.5, stream.initial_frame_max).
_MAX_LOGIN_BYTES = 8192 - 64
_LOGIN_TOO_LARGE = "it has {:,} bytes, and stream.initial_frame_max allows 8,192 in a frame"
#: The correlation id of requests with a new token; other requests have lower ids, from 1 on.
_RENEWAL_ID = (1 << 32) - 1
#: That of a request whose reply comes before the one that is waited for.
_AHEAD_ID = _RENEWAL_ID - 1
_HEARTBEAT = frames.frame(Key.HEARTBEAT, b"")
#: A routing key that no partition is bound with.
_UNBOUND_KEY = "rabbit_chx: is this a super stream?"
_NO_PROPERTIES: Mapping[str, str] = MappingProxyType({})


class StreamConnection(ServedConnection):
    """An open connection to one node; for one thread.

    Args:
        settings: the address and the login; see `nodes.stream_settings`.
        request_timeout_s: see the attribute.
        max_frame_bytes: the largest frame that is received. A Deliver frame is a whole chunk, and ``frame_max`` does not bound it.

    Attributes:
        request_timeout_s: the timeout of each request in seconds. It may be changed.
        deadline: a further bound on all requests, by ``time.monotonic()``. It may be changed.
        where: the address without its password.
        node: the address that the node advertises for streams; None if it advertises none.
        frame_max: the largest frame that may be sent, in bytes including its size field; 0 for unlimited.
        heartbeat_s: the negotiated seconds between heartbeats; 0 for none.
        commands: the lowest and highest version of each command that the broker supports; empty before 3.11.

    Raises:
        UnreachableError: the broker does not answer within ``settings.connection_timeout_s``.
        BrokerRefusedError: the broker refuses the user, the vhost or the mechanism.
        InputError: the port is of another protocol.
    """

    close_s = 1.0  # the reply is not needed: rows are confirmed or given up by then

    def __init__(
        self,
        settings: ConnectionSettings,
        *,
        request_timeout_s: float = REQUEST_TIMEOUT_S,
        max_frame_bytes: int = frames.LARGEST_FRAME,
    ) -> None:
        self.request_timeout_s = request_timeout_s
        self.deadline = math.inf
        self._max_frame_bytes = max_frame_bytes
        super().__init__(settings)
        self._takes_tokens = self._release >= (3, 13)
        self._start_keeper()

    def _begin(self, settings: ConnectionSettings) -> None:
        self.server_version = ""
        self.cluster_name: str | None = None
        self.node: Node | None = None
        self.frame_max = self.heartbeat_s = 0
        self.commands: Mapping[int, tuple[int, int]] = {}
        self._settings = settings
        self._token_at_login = settings.password
        self._splitter = frames.FrameSplitter()
        self._events: list[Event] = []
        self._proposed: frames.Tune | None = None  # the broker's limits
        self._correlation_id = 0
        self._replies = dict[int, frames.Reply]()
        self._failure: errors.RabbitChxError | None = None
        self._release: tuple[int, ...] = ()
        self._takes_tokens = False  # on the open connection

    def _shake_hands(self, deadline: float, settings: ConnectionSettings) -> None:
        """Log in and open the vhost. A lost connection is reported as what the broker means by closing it."""
        login_bytes = 2 + len(settings.username.encode()) + len(settings.password.reveal().encode())
        try:
            client_properties = {"product": "rabbit_chx", "version": __version__}
            client_properties["platform"] = f"Python {platform.python_version()}"
            if settings.connection_name:
                client_properties["connection_name"] = settings.connection_name

            content = texts_field(client_properties, "the client property")
            properties = self._request(
                Key.PEER_PROPERTIES, content, frames.read_texts, "log in", deadline=deadline
            )
            self.server_version = properties.get("version", "")
            self.cluster_name = properties.get("cluster_name")
            offered = self._request(Key.SASL_HANDSHAKE, b"", frames.read_names, "log in", deadline=deadline)
            mechanism = next((name for name in settings.auth_mechanisms if name in offered), None)
            if mechanism is None:
                raise failures.no_mechanism(settings, offered)

            code = self._call(Key.SASL_AUTHENTICATE, self._login(mechanism), deadline).code
            if code != Code.OK:
                raise failures.login_error(settings, code_in_words(code))

            while self._proposed is None:
                self._poll(_remaining_s(deadline, lambda: failures.handshake_timeout(settings)))
            self._accept_tune(self._proposed)
            reply = self._call(Key.OPEN, name_field(settings.vhost, "the vhost"), deadline)
            if reply.code != Code.OK:
                raise failures.vhost_error(settings, code_in_words(reply.code))

            self.node = self._read(reply, frames.read_opened)
            self._splitter.largest = self._max_frame_bytes
            self._release = tuple(
                int(part) for part in self.server_version.split(".")[:2] if part.isdecimal()
            )

            if self._release >= (3, 11):
                content = array([b"".join(number.to_bytes(2) for number in (Key.DELIVER, 1, 1))])
                self.commands = self._request(
                    Key.EXCHANGE_COMMAND_VERSIONS, content, frames.read_versions, "log in", deadline=deadline
                )
        except errors.BrokerTimeoutError:
            raise failures.handshake_timeout(settings) from None
        except errors.ConnectionLostError as cause:
            if login_bytes > _MAX_LOGIN_BYTES:
                raise failures.login_error(settings, _LOGIN_TOO_LARGE.format(login_bytes)) from None
            raise failures.handshake_failure(settings, cause) from None

    def _login(self, mechanism: str) -> bytes:
        if mechanism != "PLAIN":
            return text_field(mechanism, "the mechanism") + bytes(4)
        # Made twice, so that no local variable has the password.
        size = len(self._credentials())
        return text_field(mechanism, "the mechanism") + size.to_bytes(4) + self._credentials()

    def _credentials(self) -> bytes:
        return f"\0{self._settings.username}\0{self._settings.password.reveal()}".encode()

    def _renew_token(self) -> None:
        """Send a new token, unless the broker has it; `_dispatch` takes the reply."""
        before = self._settings.password
        secret = self._password.latest()
        self._settings = replace(self._settings, password=secret)
        if secret == before:
            return
        content = _RENEWAL_ID.to_bytes(4) + self._login("PLAIN")
        self._out.append(memoryview(frames.frame(Key.SASL_AUTHENTICATE, content)))
        del content  # as in `_call`

    def _accept_tune(self, proposed: frames.Tune) -> None:
        """Reply with the lower of the proposed and the configured limits. 0 is no limit; the settings can disable heartbeats."""
        wanted = self._settings.heartbeat_s
        self.heartbeat_s = proposed.heartbeat_s
        if wanted is not None:
            self.heartbeat_s = min(filter(None, (wanted, proposed.heartbeat_s)), default=0) if wanted else 0
        self.frame_max = min(filter(None, (proposed.frame_max, self._settings.frame_max)), default=0)
        agreed = self.frame_max.to_bytes(4) + self.heartbeat_s.to_bytes(4)
        self._enqueue(frames.frame(Key.TUNE, agreed))

    # -- streams and nodes

    def metadata(self, streams: Sequence[str], *, missing_ok: bool = False) -> dict[str, StreamMetadata]:
        """Return the leader and the replicas of each stream; with `missing_ok` an unavailable stream is not an error but has a `code`."""
        content = array(map(name_field, streams))
        metadata = self._request(Key.METADATA, content, frames.read_metadata, "find the nodes of streams")
        if not metadata.keys() >= set(streams):
            missing = next(stream for stream in streams if stream not in metadata)
            raise failures.invalid_bytes(
                self.where, ValueError(f"the answer to metadata does not have {missing!r}")
            )
        for stream in streams:
            if not missing_ok and metadata[stream].code != Code.OK:
                if metadata[stream].code == Code.STREAM_DOES_NOT_EXIST:
                    self.check_no_super_stream(stream)
                raise self.refusal(f"find the nodes of stream {stream!r}", metadata[stream].code, stream)
        return metadata

    def check_no_super_stream(self, stream: str) -> None:
        """Raise an InputError if the name of a stream that does not exist is that of a super stream."""
        partitions: tuple[str, ...] = ()
        with suppress(
            errors.InputError, errors.BrokerRefusedError
        ):  # an exchange that takes any key, or none
            partitions = self.partitions(stream)
        if partitions and self._are_streams(partitions):
            raise errors.InputError(
                f"{self.where}: {stream!r} is not a stream, but a super stream with the partitions {', '.join(partitions)}: pass it as super_stream "
                "(in Spark superStream), or pass a partition",
                queue=stream,
            )

    def _are_streams(self, names: Sequence[str]) -> bool:
        codes = {each.code for each in self.metadata(names, missing_ok=True).values()}
        return Code.STREAM_DOES_NOT_EXIST not in codes

    def queues_of(self, exchange: str, action: str = "list the queues of exchange {!r}") -> tuple[str, ...]:
        """Return the queues bound to an exchange of any type (3.10.8 and 4.3.6); `action` describes the request in errors."""
        name = name_field(exchange, "the super stream name")
        return self._request(Key.PARTITIONS, name, frames.read_names, action.format(exchange), exchange)

    def partitions(self, super_stream: str) -> tuple[str, ...]:
        """Return the streams of a super stream, in its order; an InputError for another exchange, and for a stream.

        The broker returns the queues of any exchange. So a key that is not bound is routed: a super stream has no route for it, and an
        exchange that hashes has one. A user without write permission cannot request a route, and receives the queues of any exchange.
        """
        action = "list the partitions of super stream {!r}"
        try:
            streams = self.queues_of(super_stream, action)
        except errors.NotFoundError:
            if not self._are_streams([super_stream]):
                raise
            raise errors.InputError(
                f"{self.where}: {super_stream!r} is not a super stream, but a stream: pass it as stream",
                queue=super_stream,
            ) from None

        with suppress(errors.AccessRefusedError):
            if self.routes(super_stream, _UNBOUND_KEY):
                raise errors.InputError(
                    f"{self.where}: {super_stream!r} is not a super stream, but an exchange that takes any key: pass the exchange with its "
                    "ring",
                    exchange=super_stream,
                )

        if not streams:
            raise errors.InputError(
                f"{self.where}: {super_stream!r} is not a super stream, but an exchange to which no queue is bound: choose another name",
                exchange=super_stream,
            )

        return streams

    def routes(self, super_stream: str, key: str) -> tuple[str, ...]:
        """Return the partitions that are bound with a routing key."""
        route = name_field(key, "the routing key") + name_field(super_stream, "the super stream name")
        action = f"find the route of {key!r:.60} in {super_stream!r}"
        return self._request(Key.ROUTE, route, frames.read_names, action, super_stream)

    def binding_keys(self, super_stream: str, streams: Sequence[str]) -> tuple[str | None, ...]:
        """Return the binding key of each partition, None where it is not found.

        The protocol does not list them. A route is requested for the number of the partition, and for its name with and without that of
        the super stream, as `rabbitmq-streams add_super_stream --binding-keys` makes it. A user without write permission cannot request
        a route, and gets the numbers.
        """
        found = []
        for number, stream in enumerate(streams):
            candidates = (str(number), stream.removeprefix(f"{super_stream}-"), stream)
            try:
                found.append(
                    next((key for key in candidates if stream in self.routes(super_stream, key)), None)
                )
            except errors.AccessRefusedError:
                found.append(str(number))
        return tuple(found)

    def stats(self, stream: str) -> dict[str, int]:
        """Return the statistics of a stream by their names, such as ``first_chunk_id`` (-1 in an empty stream); from 3.11 on."""
        self._require_command(Key.STREAM_STATS, "3.11")
        action = f"return the figures of stream {stream!r}"
        return self._request(Key.STREAM_STATS, name_field(stream), frames.read_statistics, action, stream)

    @property
    def no_filters(self) -> str:
        """Why the broker does not filter streams; "" if it does (rabbitmq-server v3.13.0, rabbit_stream_utils.erl, ``command_versions``)."""
        if self.commands.get(Key.PUBLISH, (1, 1))[1] > 1:
            return ""
        return (
            f"{self.where}: RabbitMQ {self.server_version} does not filter streams: upgrade to 3.13 or newer, enable the feature flag "
            "stream_filtering there, or leave filters and filter values out"
        )

    # -- publishing

    def declare_publisher(self, publisher_id: int, stream: str, reference: str | None) -> None:
        """Declare a publisher on a connection to the stream's leader.

        Args:
            publisher_id: 0 to 255, unused on this connection.
            stream: the stream to publish to.
            reference: the name by which the broker drops rows whose id is not above the last one; None for none.
        """
        content = (
            id_field(publisher_id, "publisher_id")
            + name_field(reference or "", "the publisher's name")
            + name_field(stream)
        )
        action = f"declare publisher {publisher_id} of stream {stream!r}"
        self._request_ok(Key.DECLARE_PUBLISHER, content, action, stream)

    def delete_publisher(self, publisher_id: int) -> None:
        """Delete a publisher from this connection."""
        content = id_field(publisher_id, "publisher_id")
        self._request_ok(Key.DELETE_PUBLISHER, content, f"delete publisher {publisher_id}")

    def publisher_sequence(self, reference: str, stream: str) -> int:
        """Return the last id that the leader has received of a reference, or 0. Its row may not be stored yet."""
        content = name_field(reference, "the publisher's name") + name_field(stream)
        action = f"return the last id of {reference!r} in stream {stream!r}"
        return self._request(
            Key.QUERY_PUBLISHER_SEQUENCE, content, lambda fields: fields.integer(8), action, stream
        )

    def sequence_and_offset(self, reference: str, reader: str, stream: str) -> tuple[int, int | None]:
        """Return `publisher_sequence` and `query_offset`, of a reader's name, in one round trip."""
        content = _AHEAD_ID.to_bytes(4) + name_field(reference) + name_field(stream)
        with self._lock:
            self._enqueue(frames.frame(Key.QUERY_PUBLISHER_SEQUENCE, content))
            offset = self.query_offset(reader, stream)
            reply = self._replies.pop(_AHEAD_ID)  # the broker answers in order
        if reply.code != Code.OK:
            raise self.refusal(f"return the last id of {reference!r} in {stream!r}", reply.code, stream)
        return self._read(reply, lambda fields: fields.integer(8)), offset

    def send(self, data: memoryview | bytes, *, stall_s: float = _STALL_S) -> None:
        """Send complete frames, and collect events meanwhile. Return when the socket has taken all bytes.

        Raises:
            BrokerTimeoutError: the socket took no byte for `stall_s` seconds. The connection is unusable.
            RabbitChxError: the connection is unusable. `events` still returns the events that were received before.
        """
        with self._lock:
            self._enqueue(data)
            left = sum(map(len, self._out))
            deadline = time.monotonic() + stall_s
            while left:
                self._poll(max(0.0, deadline - time.monotonic()), until_sent=True)
                if (left_now := sum(map(len, self._out))) < left:
                    left = left_now
                    deadline = time.monotonic() + stall_s
                elif time.monotonic() >= deadline:
                    self._failure = errors.BrokerTimeoutError(
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
        properties: Mapping[str, str | bytes] = _NO_PROPERTIES,
    ) -> None:
        """Subscribe to a stream that has a member on this node; its chunks arrive as events.

        Args:
            subscription_id: 0 to 255, unused on this connection.
            stream: the stream's name.
            start: "first", "last", "next", an offset, or an aware datetime. The first chunk is the one that has the offset, or the first
                one that is not older than the time. A start outside of the log is moved to its nearer end.
            credit: the number of chunks that may be sent. From 4.0 on, the broker sends only while more than half of this first credit is
                available: so give credit in time.
            properties: of the subscription, such as ``filter.0``, ``match-unfiltered`` or ``chunk_selector``.
        """
        content = frames.subscription(subscription_id, stream, start, credit, properties)
        action = f"subscribe to stream {stream!r} as {subscription_id}"
        self._request_ok(Key.SUBSCRIBE, content, action, stream)

    def unsubscribe(self, subscription_id: int) -> None:
        """End a subscription. Chunks that were in flight may still be among the events.

        Raises:
            ConnectionLostError: the broker has ended it before, since the stream was deleted or has another leader.
        """
        content = id_field(subscription_id, "subscription_id")
        self._request_ok(Key.UNSUBSCRIBE, content, f"end subscription {subscription_id}")

    def give_credit(self, subscription_id: int, chunks: int) -> None:
        """Let the broker send more chunks. If the subscription does not exist, a `CreditRefused` arrives."""
        self._tell(frames.credit(subscription_id, chunks))

    def events(self, wait_s: float) -> list[Event]:
        """Return the unsolicited messages in their order; wait for one for at most `wait_s` seconds."""
        deadline = time.monotonic() + wait_s
        with self._lock:
            while not self._events:
                remaining_s = max(0.0, deadline - time.monotonic())
                try:
                    self._poll(remaining_s)
                except errors.RabbitChxError:
                    if not self._events:
                        raise
                if not remaining_s:
                    break
            events = self._events
            self._events = []
            return events

    def answer_consumer_update(self, correlation_id: int, start: OffsetSpec | None) -> None:
        """Answer a `ConsumerUpdate`: an active consumer reads from `start`, or from the start of its subscription if it is None.

        The broker sends the update of the next consumer after the answer of the one before, and closes a connection that has not answered
        within 60 s (rabbitmq-server v4.3.6, rabbit_stream_reader.erl, ``ensure_outstanding_requests_timer/1``).
        """
        self._tell(frames.reply_to_consumer_update(correlation_id, start))

    def store_offset(self, reference: str, stream: str, offset: int) -> None:
        """Store an offset under a name in the stream. Any node passes it to the leader.

        The command has no reply: the broker drops it while the stream has no leader, or without read permission. `query_offset` verifies it.
        """
        check_whole("offset", offset, 0, (1 << 63) - 1)
        content = name_field(reference, "the reader's name") + name_field(stream) + offset.to_bytes(8)
        self._tell(frames.frame(Key.STORE_OFFSET, content))

    def query_offset(self, reference: str, stream: str) -> int | None:
        """Return the offset that the leader has for a name; None if nothing is stored."""
        content = name_field(reference, "the reader's name") + name_field(stream)
        action = f"return the offset of {reference!r} in stream {stream!r}"
        try:
            return self._request(Key.QUERY_OFFSET, content, lambda fields: fields.integer(8), action, stream)
        except errors.BrokerRefusedError as cause:
            if cause.reply_code != Code.NO_OFFSET:
                raise
            return None

    # -- creating and deleting streams

    def create_stream(self, stream: str, arguments: Mapping[str, str] = _NO_PROPERTIES) -> None:
        """Create a stream, with arguments such as ``max-age``; a MismatchError if it exists."""
        content = name_field(stream) + texts_field(arguments, "the argument")
        self._request_ok(Key.CREATE, content, f"create stream {stream!r}", stream)

    def create_super_stream(self, super_stream: str, streams: Sequence[str]) -> None:
        """Create a super stream and its partitions, with the binding keys 0, 1 and so on; a MismatchError if it exists. From 3.13 on."""
        self._require_command(Key.CREATE_SUPER_STREAM, "3.13")
        content = (
            name_field(super_stream, "the super stream name")
            + array(name_field(stream) for stream in streams)
            + array(name_field(str(number), "the binding key") for number in range(len(streams)))
            + array(())  # of arguments
        )
        action = f"create super stream {super_stream!r}"
        self._request_ok(Key.CREATE_SUPER_STREAM, content, action, super_stream)

    def delete_stream(self, stream: str) -> None:
        """Delete a stream with all of its rows."""
        self._request_ok(Key.DELETE, name_field(stream), f"delete stream {stream!r}", stream)

    def _say_goodbye(self, within_s: float) -> None:
        if self._failure is None:
            content = Code.OK.to_bytes(2) + text_field("Goodbye", "the reason")
            self._call(Key.CLOSE, content, time.monotonic() + within_s)

    def _fail(self, error: errors.RabbitChxError) -> None:
        self._failure = self._failure or error

    # -- requests

    def _tell(self, frame: bytes) -> None:
        """Send a frame that has no reply, as far as the socket takes it now."""
        with self._lock:
            self._enqueue(frame)
            self._poll(0)

    def _request_ok(self, key: Key, content: bytes, action: str, name: str | None = None) -> None:
        """Send a request whose reply has only a code, and raise an error for another code than OK."""
        self._request(key, content, lambda _: None, action, name)

    def _request(
        self,
        key: Key,
        content: bytes,
        read: Callable[[Fields], _T],
        action: str,
        name: str | None = None,
        *,
        deadline: float | None = None,
    ) -> _T:
        """Send a request, and return its parsed reply; `action` and `name` describe it in the error for a refusal."""
        with self._lock:
            limit = min(time.monotonic() + self.request_timeout_s, self.deadline)
            reply = self._call(key, content, deadline or limit)
            if reply.code != Code.OK:
                raise self.refusal(action, reply.code, name, key)
            return self._read(reply, read)

    def refusal(
        self, action: str, code: int, stream: str | None = None, key: int | None = None
    ) -> errors.RabbitChxError:
        """Return the error for a code of the broker: as `frames.refusal`, and a lost connection once the token of the login is due.

        That token may be the reason: it may have expired by the clock of the broker, and a new one may have arrived after the request.
        A missing permission is refused again after the next login.
        """
        if code == Code.ACCESS_REFUSED and time.monotonic() >= self._token_at_login.renew_at:
            self._failure = errors.ConnectionLostError(f"{self.where}: the token has expired: connect again")
            return self._failure
        return frames.refusal(self.where, action, code, stream, key)

    def _call(self, key: Key, content: bytes, deadline: float) -> frames.Reply:
        """Send a request, and return its reply with any code."""
        started = time.monotonic()
        self._correlation_id = correlation_id = (self._correlation_id + 1) % _AHEAD_ID
        self._enqueue(frames.frame(key, correlation_id.to_bytes(4) + content))
        del content  # it may have the password, which a traceback with local variables would show

        def timeout_error() -> errors.RabbitChxError:
            return failures.reply_timeout_error(self.where, key.text, time.monotonic() - started)

        while correlation_id not in self._replies:
            self._poll(_remaining_s(deadline, timeout_error))
        return self._replies.pop(correlation_id)

    def _read(self, reply: frames.Reply, read: Callable[[Fields], _T]) -> _T:
        """Parse a reply; a malformed one is a failure of the connection."""
        try:
            return read(Fields(reply.content))
        except ValueError as cause:
            self._failure = failures.invalid_bytes(self.where, cause)
            raise self._failure from None

    def _require_command(self, key: Key, release: str) -> None:
        if key not in self.commands:
            raise errors.InputError(
                f"{self.where}: RabbitMQ {self.server_version} does not have the command '{key.text}' of the stream protocol: it "
                f"needs {release} or newer"
            )

    # -- the loop

    def _enqueue(self, data: memoryview | bytes) -> None:
        self._out.append(memoryview(data))
        del data  # as in `_call`
        if self._failure is not None:
            raise self._failure

    def _poll(self, wait_s: float, *, until_sent: bool = False) -> None:
        """Send, wait for the socket at most `wait_s`, receive, and check that the broker is alive."""
        if self._failure is None:
            try:
                self._queue_heartbeat()
                if self._takes_tokens and time.monotonic() >= self._settings.password.renew_at:
                    self._renew_token()
                self._transfer(min(wait_s, (self.heartbeat_s or 60) / 4, _MAX_WAIT_S), until_sent=until_sent)
                silence_s = time.monotonic() - self._last_received
                if silence_s > (2 * self.heartbeat_s or math.inf):
                    self._failure = self._failure or failures.heartbeat_error(self.where, silence_s)
            except errors.RabbitChxError as cause:
                self._fail(cause)
            except ValueError as cause:
                self._failure = failures.invalid_bytes(self.where, cause)
            except BaseException as cause:
                self._failure = failures.interruption(self.where, cause)
                raise

        if self._failure is not None:
            raise self._failure

    def _transfer(self, wait_s: float, *, until_sent: bool) -> None:
        """Send and receive what the socket allows; wait to receive only if all is sent, and not for `until_sent`."""
        self._flush()
        if self._out:
            self._transport.wait(wait_s)
            self._flush()
        data = self._transport.receive(0.0 if self._out or until_sent else wait_s)
        if data:
            self._last_received = time.monotonic()
            if self._proposed is None and data.startswith((b"AMQP", b"HTTP")):
                raise failures.not_a_stream_port(self._settings, data[:4].decode())
            for frame in self._splitter.split(data):
                self._dispatch(frames.parse_frame(frame))
            self._flush()

    def _flush(self) -> None:
        for _ in self._sent_pieces():
            pass

    def _dispatch(self, message: frames.Message) -> None:
        match message:
            case frames.Reply(correlation_id=id_) if id_ == _RENEWAL_ID:
                if message.code != Code.OK:
                    self._failure = failures.renewal_error(self.where, code_in_words(message.code))
            case frames.Reply():
                # A reply to a request that has timed out is ignored.
                if message.correlation_id in (self._correlation_id, _AHEAD_ID):
                    self._replies[message.correlation_id] = message
            case frames.Tune():
                self._proposed = message
            case frames.Closing():
                self._out.append(memoryview(frames.reply_to_close(message.correlation_id)))
                self._failure = errors.ConnectionLostError(
                    f"{self.where}: the broker closes the connection ({code_in_words(message.code)}): {message.reason}",
                    reply_code=message.code,
                )
            case None:
                pass
            case _:
                self._events.append(message)

    def _queue_heartbeat(self) -> None:
        idle_s = time.monotonic() - self._last_sent
        if self.heartbeat_s and not self._out and idle_s > self.heartbeat_s / 2:
            self._out.append(memoryview(_HEARTBEAT))

    def _serve(self) -> None:
        """Send a heartbeat if one is due, and receive all that has arrived."""
        received_at = math.nan  # not equal to any time
        while received_at != self._last_received and not self._closed.is_set():
            received_at = self._last_received
            self._poll(0)

    @property
    def next_beat_s(self) -> float:
        """The seconds until the thread serves the connection again."""
        return min(self.heartbeat_s / 4 or _SERVICE_INTERVAL_S, _SERVICE_INTERVAL_S)


def _remaining_s(deadline: float, timeout_error: Callable[[], errors.RabbitChxError]) -> float:
    remaining_s = deadline - time.monotonic()
    if remaining_s <= 0:
        raise timeout_error()
    return remaining_s
