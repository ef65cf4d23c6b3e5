"""A connected socket, plain or TLS, whose every wait is bounded."""

from __future__ import annotations

import selectors
import socket
import ssl
import struct
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

from rabbit_chx.errors import BrokerTimeoutError, ConnectionLostError, InputError, UnreachableError

if TYPE_CHECKING:
    from rabbit_chx.amqp import ConnectionSettings, TlsSettings

__all__ = ["Transport", "bytes_not_taken", "lost", "no_answer", "no_tls", "server_name", "tls_context"]

_RECEIVE_BYTES = 1 << 18
_INT = struct.Struct("i")


def bytes_not_taken(sock: socket.socket) -> int:
    """Bytes that the kernel has taken from us, and the peer's not yet from it; 0 on systems that do not tell.

    Linux tells (ioctl SIOCOUTQ, tcp(7)).
    """
    if sys.platform != "linux":
        return 0
    import fcntl
    import termios

    try:
        (queued,) = _INT.unpack(fcntl.ioctl(sock.fileno(), termios.TIOCOUTQ, bytes(_INT.size)))
    except (OSError, ValueError):  # it is closed
        return 0
    return int(queued)


def tls_context(tls: TlsSettings) -> ssl.SSLContext:
    """The `ssl.SSLContext` for these settings; reads the certificate files.

    Raises:
        InputError: a file is missing, unreadable, or no certificate or key.
    """
    try:
        context = ssl.create_default_context(cafile=tls.ca_file)
    except OSError as cause:  # ssl.SSLError is one
        raise InputError(f"the CA certificates in {tls.ca_file!r} cannot be used: {cause}") from None
    if not (tls.verify and tls.check_server_name):
        context.check_hostname = False
    if not tls.verify:
        context.verify_mode = ssl.CERT_NONE
    if tls.cert_file is not None:
        password = tls.key_password.reveal() if tls.key_password else None
        try:
            context.load_cert_chain(tls.cert_file, tls.key_file, password=password or "")
        except OSError as cause:
            raise InputError(
                f"the client certificate {tls.cert_file!r} with the key {tls.key_file!r} cannot be used: {cause}"
            ) from None
    return context


class Transport:
    """A byte stream to a broker.

    Args:
        settings: where to, and how.
        deadline: `time.monotonic()` at which connecting has failed.

    Raises:
        UnreachableError: nobody answers there, or TLS cannot be agreed on.
        InputError: the TLS files cannot be used.
    """

    def __init__(self, settings: ConnectionSettings, deadline: float) -> None:
        self._where = settings.masked_url
        context = tls_context(settings.tls) if settings.tls else None
        sock = _connect(settings, deadline)
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if context and settings.tls:
                sock = _wrap(sock, context, settings, settings.tls, deadline)
            sock.settimeout(0)
        except BaseException:
            sock.close()
            raise
        self._socket = sock
        self._timeout_s = 0.0
        self._selector = selectors.DefaultSelector()
        self._selector.register(sock, selectors.EVENT_READ | selectors.EVENT_WRITE)

    def wait(self, timeout_s: float) -> None:
        """Wait until there is something to read or room to write."""
        self._selector.select(timeout_s)

    def receive(self, wait_s: float = 0.0) -> bytes:
        """What has come or comes within so many seconds, or b"" where nothing does.

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
            raise lost(self._where, cause) from None
        if not data:
            raise lost(self._where)
        return data

    def send(self, data: memoryview) -> int:
        """Send what the socket takes now; how many bytes that were.

        Raises:
            ConnectionLostError: the peer closed or reset the connection.
        """
        try:
            self._set_timeout(0.0)
            return self._socket.send(data)
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return 0
        except OSError as cause:
            raise lost(self._where, cause) from None

    @property
    def bytes_not_taken(self) -> int:
        """Bytes that are sent, and that the peer has not taken yet; 0 where no one can tell."""
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
        # Each address gets its share, so that one that swallows packets leaves time for the next.
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
    raise no_answer(settings, problem)


def _addresses(settings: ConnectionSettings, deadline: float) -> list[tuple[Any, ...]]:
    """What the host name stands for. The resolver knows no timeout, so it has a thread, which may outlive the wait."""
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
        raise no_answer(settings, problems[0])
    if not found:
        raise no_answer(settings, socket.gaierror("the resolver has not answered in time"))
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
        return context.wrap_socket(sock, server_hostname=server_name(settings, tls))
    except OSError as cause:
        raise no_tls(settings, cause) from None


def server_name(settings: ConnectionSettings, tls: TlsSettings) -> str | None:
    """The name to ask for and to find in the certificate; None for neither."""
    return (tls.server_name or settings.host) if tls.check_server_name else None


def lost(where: str, cause: Exception | None = None) -> ConnectionLostError:
    """The error for a connection that ended; without a cause, the broker's side closed it."""
    why = cause or "the broker's side closed it; look at its log"
    return ConnectionLostError(f"{where}: the connection was lost: {why}")


def no_answer(settings: ConnectionSettings, cause: Exception | None) -> UnreachableError:
    """The error for a connection that could not be opened."""
    where = settings.masked_url
    if isinstance(cause, (socket.gaierror, UnicodeError)):
        return UnreachableError(
            f"{where}: the host name cannot be resolved ({cause}): check the host in the URL"
        )
    if isinstance(cause, TimeoutError):
        return BrokerTimeoutError(
            f"{where}: no answer within {settings.connection_timeout_s:g} s: check host, port and firewall"
        )
    return UnreachableError(
        f"{where}: nobody answers there ({cause}): check host and port, and that the broker runs"
    )


def no_tls(settings: ConnectionSettings, cause: OSError) -> UnreachableError:
    """The error for a TLS handshake that failed."""
    where = settings.masked_url
    if isinstance(cause, ssl.SSLCertVerificationError):
        return UnreachableError(
            f"{where}: the broker's certificate is not accepted ({cause.verify_message}): "
            "give its CA with cacertfile, or its name with server_name_indication"
        )
    if isinstance(cause, TimeoutError):
        return BrokerTimeoutError(
            f"{where}: no TLS handshake within {settings.connection_timeout_s:g} s: is it a TLS port?"
        )
    return UnreachableError(f"{where}: TLS cannot be agreed on ({cause}): is it a TLS port?")
