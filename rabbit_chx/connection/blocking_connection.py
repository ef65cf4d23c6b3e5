"""The blocking connection: a `Session` over a `Transport`, which is a socket, plain or TLS. All waits are bounded.

*Poll.* `Connection.poll` is one round: send queued frames, wait for the socket for a bounded time, pass the received bytes to the session,
and check that the broker is alive. With `until_open` it continues while more messages are open, so that a caller that waits for room does
not wake for every ack. The caller's thread does this. While the caller is busy, a thread of the connection polls occasionally, for the
heartbeats. Both hold the same lock, and the thread gives way to the caller. *Faults* are kept in `Session.failure`; this poll and each
later one raise them. *Interruptions* (Ctrl-C, or the exception of another signal handler) can occur between the socket and the ledger, when
bytes are received and not yet counted. The counts can then be too low, and never too high. So the connection is given up and the counts
stay.
"""

from __future__ import annotations

import contextlib
import logging
import os
import selectors
import socket
import ssl
import struct
import sys
import threading
import time
import weakref
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, ClassVar, Concatenate, NoReturn, ParamSpec, TypeVar

from rabbit_chx.amqp import ConnectionSettings, TlsSettings
from rabbit_chx.amqp.frames import ControlBytes
from rabbit_chx.connection import failures
from rabbit_chx.connection.session import Phase, Session
from rabbit_chx.connection.tokens import log_in, server_name, tls_context
from rabbit_chx.errors import ConnectionLostError, InputError, RabbitChxError, UnreachableError

if TYPE_CHECKING:
    from pamqp.base import Frame as Method

_log = logging.getLogger(__name__)

#: The pause between two looks for a token that is due.
RENEWAL_S = 0.1
_REPLY_S = 60.0
_LONGEST_WAIT_S = 1.0
_RECEIVE_BYTES = 1 << 18
_INT = struct.Struct("i")
#: A selector without a file descriptor, unlike epoll. Windows has no poll.
_Selector = getattr(selectors, "PollSelector", selectors.SelectSelector)


class ServedConnection(ABC):
    """A connection with a thread that serves it while its user is busy, for heartbeats and new tokens.

    Args:
        settings: the address and the login.
        lock: held by its users while they use the connection; None for a new lock.

    Attributes:
        where: the address without its password.
    """

    where: str
    #: The time that `close` waits for the reply, in seconds.
    close_s: ClassVar[float] = 5.0
    _transport: Transport
    _out: deque[memoryview]

    def __init__(self, settings: ConnectionSettings, lock: threading.RLock | None = None) -> None:
        self._password = settings.password
        self._lock = lock or threading.RLock()
        self._closed = threading.Event()
        log_in(settings, self._open)
        # With a weak reference, so that a connection that nobody closes can be collected.
        self._keeper = threading.Thread(
            target=_keep_alive,
            args=(weakref.ref(self), self._closed),
            name="rabbit_chx heartbeat",
            daemon=True,
        )

    def _start_keeper(self) -> None:
        try:
            failures.start_thread(self._keeper, self.where)
        except UnreachableError:
            self._transport.close()
            raise

    def _open(self, settings: ConnectionSettings) -> None:
        """Connect and log in."""
        self.where = settings.masked_url
        self._out = deque()
        self._begin(settings)
        deadline = time.monotonic() + settings.connection_timeout_s
        self._transport = Transport(settings, deadline)
        self._last_sent = self._last_received = time.monotonic()
        try:
            self._shake_hands(deadline, settings)
        except BaseException:
            self._transport.close()
            raise

    @abstractmethod
    def _begin(self, settings: ConnectionSettings) -> None:
        """Set the state of the protocol before an attempt to connect."""

    @abstractmethod
    def _shake_hands(self, deadline: float, settings: ConnectionSettings) -> None:
        """Log in over the transport."""

    def _sent_pieces(self) -> Iterator[tuple[memoryview, int]]:
        """Send what waits, as far as the socket takes it; yield each piece with the number of its bytes that were sent."""
        out = self._out
        while out:
            sent = self._transport.send(out[0])
            if not sent:
                break
            self._last_sent = time.monotonic()
            yield out[0], sent
            if sent == len(out[0]):
                out.popleft()
            else:
                out[0] = out[0][sent:]

    @abstractmethod
    def _serve(self) -> None:
        """Send a heartbeat and a token that are due, and receive."""

    @abstractmethod
    def _say_goodbye(self, within_s: float) -> None:
        """Tell the broker that the connection ends, unless it is lost, and wait for the reply for a limited time."""

    @abstractmethod
    def _fail(self, error: RabbitChxError) -> None:
        """Keep the error that ends the connection; the first one counts."""

    @property
    @abstractmethod
    def next_beat_s(self) -> float:
        """The seconds until the thread serves the connection again."""

    def close(self, within_s: float | None = None) -> None:
        """Close the connection; wait for the reply for `close_s`, or another time. Further calls do nothing."""
        if self._closed.is_set():
            return
        within_s = self.close_s if within_s is None else within_s
        self._closed.set()
        with self._lock:
            try:
                self._say_goodbye(within_s)
            except RabbitChxError as cause:
                _log.debug("%s: closing: %s", self.where, cause)
            finally:
                self._transport.close()
                self._fail(failures.use_after_close_error(self.where))
        # A finalizer may run in the thread itself.
        if self._keeper.is_alive() and self._keeper is not threading.current_thread():
            self._keeper.join(within_s)

    def keep_alive(self) -> bool:
        """Serve the connection, unless its user does; return whether it still works."""
        if not self._lock.acquire(blocking=False):
            return True
        try:
            if not self._closed.is_set():
                self._serve()
        except Exception as cause:  # noqa: BLE001  # the next call of the user raises it
            _log.debug("%s: no more heartbeats: %s", self.where, cause)
            return False
        finally:
            self._lock.release()
        return True


def _keep_alive(connection_ref: weakref.ref[ServedConnection], closed: threading.Event) -> None:
    """Serve a connection now and then, until it is closed, lost or collected."""
    wait_s = 0.0
    while not closed.wait(wait_s):
        connection = connection_ref()
        if connection is None or (wait_s and not connection.keep_alive()):
            return
        wait_s = connection.next_beat_s
        del connection


class Connection(ServedConnection):
    """An open connection with a confirming channel. A thread sends heartbeats while the caller is busy, for example waiting for input.

    Args:
        lock: held by its users while they use the connection; its thread waits for it. None for a new lock.
        waker: ends the waits of `poll` from another thread. Then there is no thread for heartbeats: the caller polls all the time.

    Attributes:
        session: the protocol state, with the ledger of the messages.
        backlog: whether bytes wait to be sent.
        bytes_sent: bytes of messages written to the socket.
    """

    backlog = False
    bytes_sent = 0

    def __init__(
        self,
        settings: ConnectionSettings,
        lock: threading.RLock | None = None,
        waker: Waker | None = None,
    ) -> None:
        self._waker = waker
        super().__init__(settings, lock)
        if waker is None and (self.session.heartbeat_s or self._password.is_token):
            self._start_keeper()

    def _begin(self, settings: ConnectionSettings) -> None:
        self.session = Session(settings)
        self._control_bytes = 0  # sent since the last byte of a message

    def _shake_hands(self, deadline: float, settings: ConnectionSettings) -> None:
        while self.session.phase is not Phase.READY:
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                raise failures.handshake_timeout(settings)
            try:
                self.poll(left_s)
            except ConnectionLostError as cause:
                raise failures.handshake_failure(settings, cause) from None

    # -- for the caller

    @property
    def bytes_under_way(self) -> int:
        """Bytes of messages that the socket accepted and the peer did not acknowledge; 0 if the system does not report it."""
        return max(0, self._transport.bytes_not_taken - self._control_bytes)

    def poll(self, longest_wait_s: float, until_open: int | None = None) -> None:
        """Send, wait for the socket, receive, and check that the broker is alive.

        Args:
            longest_wait_s: seconds to wait for the socket at most; the wait may be shorter.
            until_open: continue, for the same time again at most, until at most this many messages are open or the broker refuses one; None
                for one round.
        """
        session = self.session
        if session.failure is None:
            try:
                self._keep_heart_beating()
                if time.monotonic() >= session.secret.renew_at and session.phase is Phase.READY:
                    session.update_secret(self._password.latest())
                wait_s = min(longest_wait_s, (session.heartbeat_s or 60) / 4, _LONGEST_WAIT_S)
                self._exchange(wait_s)
                deadline = time.monotonic() + wait_s
                while until_open is not None and session.failure is None:
                    if session.ledger.has_news(until_open) or time.monotonic() > deadline:
                        break
                    self._exchange(wait_s)
                silence_s = time.monotonic() - self._last_received
                if silence_s > session.longest_silence_s:
                    session.fail(failures.heartbeat_error(session.where, silence_s))
            except RabbitChxError as cause:
                session.fail(cause)
            except BaseException as cause:
                session.failure = failures.interruption(session.where, cause)
                raise

        if session.failure is not None:
            raise session.failure

    def request(self, method: Method) -> Method:
        """Send a method and wait for its reply."""
        with self._lock:
            session = self.session
            session.request(method)
            deadline = time.monotonic() + _REPLY_S
            while session.reply is None:
                self.poll(_LONGEST_WAIT_S)
                if time.monotonic() > deadline:
                    raise failures.reply_timeout_error(session.where, method.name, _REPLY_S)
            return session.reply

    def _fail(self, error: RabbitChxError) -> None:
        self.session.fail(error)

    def _serve(self) -> None:
        self.poll(0)

    def _say_goodbye(self, within_s: float) -> None:
        if isinstance(self.session.failure, UnreachableError):
            return
        deadline = time.monotonic() + within_s
        self.session.close()
        while self._out or self.session.output or self.session.phase is not Phase.CLOSED:
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                return
            self._exchange(left_s)

    # -- the loop

    def _exchange(self, wait_s: float) -> None:
        if self._out or self.session.output:
            self._send()
        if wait_s and self._out:
            self._transport.wait(wait_s)
            wait_s = 0.0
        elif wait_s and self._waker is not None:
            self._transport.wait_for_input(wait_s, self._waker)
            wait_s = 0.0
        if data := self._transport.receive(wait_s):
            self._last_received = time.monotonic()
            self.session.receive(data)
            if self.session.output:
                self._send()

    def _send(self) -> None:
        output = self.session.output
        while output:
            self._out.append(memoryview(output.popleft()))
        for piece, sent in self._sent_pieces():
            if isinstance(piece.obj, ControlBytes):
                self._control_bytes += sent
            else:
                self.bytes_sent += sent
                self._control_bytes = 0
        self.backlog = bool(self._out)

    def _keep_heart_beating(self) -> None:
        heartbeat_s = self.session.heartbeat_s
        if heartbeat_s and not self._out and time.monotonic() - self._last_sent > heartbeat_s / 2:
            self.session.heartbeat()

    @property
    def next_beat_s(self) -> float:
        """The seconds until the next heartbeat or token may be due."""
        renewal_s = max(self.session.secret.renew_at - time.monotonic(), RENEWAL_S)
        return min((self.session.heartbeat_s or 60) / 4, renewal_s)


class Transport:
    """A byte stream to a broker; connecting ends at `deadline`, a value of `time.monotonic()`."""

    def __init__(self, settings: ConnectionSettings, deadline: float) -> None:
        self._where = settings.masked_url
        context = tls_context(settings.tls) if settings.tls else None
        sock = _connect(settings, deadline)
        self._selector = _Selector()
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if context and settings.tls:
                sock = _wrap(sock, context, settings, settings.tls, deadline)
            sock.settimeout(0)
            self._selector.register(sock, selectors.EVENT_READ | selectors.EVENT_WRITE)
        except BaseException:
            sock.close()
            raise
        self._socket = sock
        self._timeout_s = 0.0

    def wait(self, timeout_s: float) -> None:
        """Wait until the socket is readable or writable, for a limited time."""
        self._selector.select(timeout_s)

    def wait_for_input(self, timeout_s: float, waker: Waker) -> None:
        """Wait until the socket is readable or `waker` wakes, for a limited time."""
        waker.wait(timeout_s, self._socket)

    def receive(self, wait_s: float = 0.0) -> bytes:
        """Return the bytes that arrive within the wait, or b""."""
        try:
            self._set_timeout(wait_s)
            data = self._socket.recv(_RECEIVE_BYTES)
            if data and isinstance(self._socket, ssl.SSLSocket):
                while self._socket.pending():  # a selector does not see what TLS has already decoded
                    data += self._socket.recv(_RECEIVE_BYTES)
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return b""
        except OSError as cause:
            if isinstance(cause, TimeoutError) and cause.errno is None:
                return b""  # with an errno it is ETIMEDOUT of the network
            raise failures.disconnect_error(self._where, cause) from None
        if not data:
            raise failures.disconnect_error(self._where)
        return data

    def send(self, data: memoryview) -> int:
        """Send the bytes that the socket accepts now, and return their number."""
        try:
            self._set_timeout(0.0)
            return self._socket.send(data)
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return 0
        except OSError as cause:
            raise failures.disconnect_error(self._where, cause) from None

    @property
    def bytes_not_taken(self) -> int:
        """Bytes sent and not acknowledged by the peer; 0 if the system does not report it."""
        return bytes_not_taken(self._socket)

    def _set_timeout(self, timeout_s: float) -> None:
        if timeout_s != self._timeout_s:
            self._socket.settimeout(timeout_s)
            self._timeout_s = timeout_s

    def close(self) -> None:
        """Close the socket; further calls do nothing."""
        self._selector.close()
        self._socket.close()


class Waker:
    """Ends a wait of another thread."""

    def __init__(self) -> None:
        self._reader, self._writer = socket.socketpair()
        self._reader.setblocking(False)  # the argument has no name
        self._writer.setblocking(False)
        self._watched: socket.socket | None = None
        self._selector: Any = None

    def wake(self) -> None:
        """End the current wait, or the next one."""
        with contextlib.suppress(OSError):  # it is full, so there is a wake-up; or it is closed
            self._writer.send(b"w")

    def wait(self, timeout_s: float, watched: socket.socket | None = None) -> None:
        """Wait for `wake`, or until the socket is readable, for a limited time."""
        if self._selector is None or watched is not self._watched:
            self._watch(watched)
        for key, _ in self._selector.select(timeout_s):
            if key.fileobj is self._reader:
                with contextlib.suppress(OSError):
                    self._reader.recv(_RECEIVE_BYTES)

    def _watch(self, watched: socket.socket | None) -> None:
        selector = _Selector()
        selector.register(self._reader, selectors.EVENT_READ)
        if watched is not None:
            selector.register(watched, selectors.EVENT_READ)
        self._selector = selector
        self._watched = watched

    def close(self) -> None:
        """Close it; later calls of `wake` do nothing."""
        self._reader.close()
        self._writer.close()


def _connect(settings: ConnectionSettings, deadline: float) -> socket.socket:
    problem: OSError | None = None
    addresses = _addresses(settings, deadline)
    for i, (family, kind, protocol, _, address) in enumerate(addresses):
        # Each address gets a share of the time, so that an unresponsive address leaves time for the next.
        share = (deadline - time.monotonic()) / (len(addresses) - i)
        sock = None
        try:
            sock = socket.socket(family, kind, protocol)  # fails for IPv6 if the machine does not support it
            sock.settimeout(max(share, 0.001))
            sock.connect(address)
        except OSError as cause:
            problem = cause
            if sock is not None:
                sock.close()
        else:
            return sock
    raise failures.unreachable(settings, problem)


def _addresses(settings: ConnectionSettings, deadline: float) -> list[tuple[Any, ...]]:
    """Resolve the host name. The resolver has no timeout, so it runs in a thread, which may outlive the wait."""
    resolve = partial(socket.getaddrinfo, settings.host, settings.port, type=socket.SOCK_STREAM)
    problem: Exception
    try:
        return failures.call_in_thread(resolve, settings.masked_url).result(
            max(deadline - time.monotonic(), 0.001)
        )
    except TimeoutError:
        problem = socket.gaierror("the resolver has not answered in time")
    except (OSError, UnicodeError) as cause:
        problem = cause
    raise failures.unreachable(settings, problem)


def _wrap(
    sock: socket.socket,
    context: ssl.SSLContext,
    settings: ConnectionSettings,
    tls: TlsSettings,
    deadline: float,
) -> ssl.SSLSocket:
    sock.settimeout(max(deadline - time.monotonic(), 0.001))
    try:
        return context.wrap_socket(sock, server_hostname=server_name(settings.host, tls))
    except OSError as cause:
        raise failures.tls_error(settings, cause) from None


def bytes_not_taken(sock: socket.socket) -> int:
    """Return the bytes in the kernel's send queue (Linux: ioctl SIOCOUTQ, tcp(7)); 0 if the system does not report it."""
    if sys.platform != "linux":
        return 0
    try:
        import fcntl
        import termios

        (queued,) = _INT.unpack(fcntl.ioctl(sock.fileno(), termios.TIOCOUTQ, bytes(_INT.size)))
    except (ImportError, OSError, ValueError):  # the socket is closed, or the import lacks a file descriptor
        return 0
    return int(queued)


# -- Reject unsafe use of an object with a connection: two threads at once, another process or event loop, pickling


_S = TypeVar("_S", bound="Guarded")
_P = ParamSpec("_P")
_T = TypeVar("_T")

#: Seconds for which the finalizer of an object may wait for the broker. It interrupts any thread, also that of an event loop.
FINALIZER_S = 0.2


class UsageGuard:
    """The process, the event loop and, during a call, the thread that may use an object.

    Attributes:
        name: the object, for errors.
        in_use: the lock that a thread holds during a call.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.in_use = threading.RLock()  # a callback or a signal handler may call again in the same thread
        self._process = os.getpid()
        self._loop: object = None

    @property
    def is_this_process(self) -> bool:
        """True if this process opened the object. A forked child shares the socket and must not write to it."""
        return os.getpid() == self._process

    def check(self, loop: object = None) -> None:
        """Raise an InputError after a fork, or for another event loop than the first."""
        if not self.is_this_process:
            raise InputError(
                f"{self.name} was opened by process {self._process}, and a forked process must not use its connection: open one in "
                "each process, after the fork"
            )
        self._loop = self._loop or loop
        if loop is not self._loop:
            raise InputError(
                f"{self.name} belongs to another event loop: open and close it within one event loop, such as one asyncio.run()"
            )

    def check_in_loop(self) -> None:
        """Raise as `check`, for the running event loop. After a fork none runs, also within a coroutine."""
        from asyncio import get_running_loop  # an executor of Spark does not need it

        self.check(get_running_loop() if self.is_this_process else None)


class Guarded:
    """Base of objects that cannot be pickled and whose calls a `UsageGuard` guards."""

    _guard: UsageGuard

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            f"{self._guard.name} cannot be pickled or copied, because it has a connection: open one in each process or task (in Spark: "
            "spark_connector.batch_publisher)"
        )


def one_thread(method: Callable[Concatenate[_S, _P], _T]) -> Callable[Concatenate[_S, _P], _T]:
    """Make a method raise an InputError during a call by another thread, and after a fork."""

    @wraps(method)
    def guarded(self: _S, /, *given: _P.args, **named: _P.kwargs) -> _T:
        guard = self._guard
        guard.check()
        if not guard.in_use.acquire(blocking=False):
            raise InputError(
                f"{guard.name} is in a call of another thread: open one in each thread, or guard it with a lock"
            )
        try:
            return method(self, *given, **named)
        finally:
            guard.in_use.release()

    return guarded
