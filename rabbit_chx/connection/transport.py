"""A connected socket, plain or TLS. All of its waits are bounded."""

from __future__ import annotations

import selectors
import socket
import ssl
import struct
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

from rabbit_chx.connection.failures import failed_tls, lost_connection, unreachable
from rabbit_chx.connection.tls import server_name, tls_context

if TYPE_CHECKING:
    from rabbit_chx.amqp import ConnectionSettings, TlsSettings

__all__ = ["Transport", "bytes_not_taken"]

_RECEIVE_BYTES = 1 << 18
_INT = struct.Struct("i")
#: One that needs no descriptor of its own, as epoll does. Windows has no poll.
_Selector = getattr(selectors, "PollSelector", selectors.SelectSelector)


def bytes_not_taken(sock: socket.socket) -> int:
    """Return the bytes that our kernel has taken and the peer's has not; 0 where the system does not tell.

    Linux tells (ioctl SIOCOUTQ, tcp(7)).
    """
    if sys.platform != "linux":
        return 0
    try:
        import fcntl
        import termios

        (queued,) = _INT.unpack(fcntl.ioctl(sock.fileno(), termios.TIOCOUTQ, bytes(_INT.size)))
    except (ImportError, OSError, ValueError):  # it is closed, or there is no descriptor left for the import
        return 0
    return int(queued)


class Transport:
    """A byte stream to a broker.

    Args:
        settings: the address to connect to, and how.
        deadline: the value of `time.monotonic()` at which connecting is given up.

    Raises:
        UnreachableError: nobody answers at the address, or TLS cannot be agreed on.
        InputError: the TLS files cannot be used.
    """

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
        """Wait until there is something to read or room to write, for so many seconds at most."""
        self._selector.select(timeout_s)

    def receive(self, wait_s: float = 0.0) -> bytes:
        """Return the bytes that have come or come within so many seconds; b"" where none do.

        Raises:
            ConnectionLostError: the peer closed or reset the connection.
        """
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
                return b""  # with an errno it is the network's ETIMEDOUT
            raise lost_connection(self._where, cause) from None
        if not data:
            raise lost_connection(self._where)
        return data

    def send(self, data: memoryview) -> int:
        """Send what the socket takes now, and return how many bytes it took.

        Raises:
            ConnectionLostError: the peer closed or reset the connection.
        """
        try:
            self._set_timeout(0.0)
            return self._socket.send(data)
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return 0
        except OSError as cause:
            raise lost_connection(self._where, cause) from None

    @property
    def bytes_not_taken(self) -> int:
        """Bytes that are sent and that the peer has not taken yet; 0 where the system does not tell."""
        return bytes_not_taken(self._socket)

    def _set_timeout(self, timeout_s: float) -> None:
        if timeout_s != self._timeout_s:
            self._socket.settimeout(timeout_s)
            self._timeout_s = timeout_s

    def close(self) -> None:
        """Close the socket; may be called again."""
        self._selector.close()
        self._socket.close()


def _connect(settings: ConnectionSettings, deadline: float) -> socket.socket:
    problem: OSError | None = None
    addresses = _addresses(settings, deadline)
    for i, (family, kind, protocol, _, address) in enumerate(addresses):
        # Each address gets a share of the time, so that one that swallows packets leaves some for the next.
        share = (deadline - time.monotonic()) / (len(addresses) - i)
        sock = None
        try:
            sock = socket.socket(family, kind, protocol)  # fails for IPv6 where the machine has none
            sock.settimeout(max(share, 0.001))
            sock.connect(address)
        except OSError as cause:
            problem = cause
            if sock is not None:
                sock.close()
        else:
            return sock
    raise unreachable(settings, problem)


def _addresses(settings: ConnectionSettings, deadline: float) -> list[tuple[Any, ...]]:
    """Resolve the host name. The resolver has no timeout, so it runs in a thread, which may outlive the wait."""
    found: list[tuple[Any, ...]] = []
    problems: list[Exception] = []

    def resolve() -> None:
        try:
            found.extend(socket.getaddrinfo(settings.host, settings.port, type=socket.SOCK_STREAM))
        except (OSError, UnicodeError) as cause:
            problems.append(cause)

    resolver = threading.Thread(target=resolve, name="rabbit_chx resolver", daemon=True)
    resolver.start()
    resolver.join(max(deadline - time.monotonic(), 0.001))
    if problems:
        raise unreachable(settings, problems[0])
    if not found:
        raise unreachable(settings, socket.gaierror("the resolver has not answered in time"))
    return found


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
        raise failed_tls(settings, cause) from None
