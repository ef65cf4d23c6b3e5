"""The asyncio connection: a `Session` over an `asyncio.Transport`, plain or TLS.

*Poll.* The event loop passes received bytes to the session immediately, also between polls. `AsyncConnection.poll` passes queued frames to
the transport and waits for an event: a reply, room in the transport, or the end. With `until_open` it waits while more messages are open.
The event loop's timer sends heartbeats. *Interruptions* are cancelled tasks. A cancellation occurs at an await, never between the socket
and the ledger. So the connection and its counts remain consistent, and the next task continues with both.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import time
from functools import partial
from typing import Any, Self

from rabbit_chx.amqp import ConnectionSettings, Secret
from rabbit_chx.amqp.frames import ControlBytes
from rabbit_chx.connection.blocking_connection import RENEWAL_S, bytes_not_taken
from rabbit_chx.connection.client_settings import server_name, tls_context
from rabbit_chx.connection.failures import (
    closed_connection,
    failed_tls,
    handshake_failure,
    handshake_timeout,
    lost_connection,
    missed_heartbeats,
    unreachable,
)
from rabbit_chx.connection.session import Phase, Session
from rabbit_chx.connection.tokens import log_in_async
from rabbit_chx.errors import ConnectionLostError, RabbitChxError, UnreachableError

_CLOSE_S = 5.0
#: An unresponsive address leaves time for the next (RFC 8305).
_NEXT_ADDRESS_S = 0.25


class AsyncConnection(asyncio.Protocol):
    """An open connection with a confirming channel, created by `connect`.

    Attributes:
        session: the protocol state, with the ledger of the messages.
    """

    def __init__(self, settings: ConnectionSettings) -> None:
        self.session = Session(settings)
        self._transport: asyncio.Transport | None = None
        self._moved = asyncio.Event()  # bytes arrived, the buffer has room, or the connection ended
        self._until_open: int | None = None
        self._gone = asyncio.Event()
        self._full = False  # the transport's buffer is full
        self._written = 0
        self._taken = 0
        self._control_bytes = 0  # written since the last byte of a message
        self._closed = False
        self._last_sent = self._last_received = time.monotonic()
        self._timer: asyncio.TimerHandle | None = None
        self._renewal: asyncio.Task[None] | None = None
        self._loop = asyncio.get_running_loop()

    @classmethod
    async def connect(cls, settings: ConnectionSettings) -> Self:
        """Open a connection within ``settings.connection_timeout_s``."""
        return await log_in_async(settings, partial(cls._open, settings.password))

    @classmethod
    async def _open(cls, password: Secret, settings: ConnectionSettings) -> Self:
        connection = cls(settings)
        try:
            async with asyncio.timeout(settings.connection_timeout_s):
                await connection._connect(settings)
                await connection._shake_hands(settings)
        except TimeoutError as cause:
            if isinstance(cause, RabbitChxError):
                raise
            connected = connection._transport is not None
            raise (handshake_timeout(settings) if connected else unreachable(settings, cause)) from None
        finally:
            if connection.session.phase is not Phase.READY or connection.session.failure is not None:
                connection._abort()
        connection._beat()
        if password.is_token:
            connection._renewal = asyncio.create_task(connection._renew_tokens(password))
        return connection

    async def _connect(self, settings: ConnectionSettings) -> None:
        secure: dict[str, Any] = {}
        if settings.tls:
            name = server_name(settings.host, settings.tls)
            secure = {"ssl": tls_context(settings.tls), "server_hostname": name or ""}
        loop = asyncio.get_running_loop()
        try:
            await loop.create_connection(
                lambda: self, settings.host, settings.port, happy_eyeballs_delay=_NEXT_ADDRESS_S, **secure
            )
        except (ssl.SSLError, ConnectionError) as cause:
            if settings.tls and not isinstance(cause, ConnectionRefusedError):
                raise failed_tls(settings, cause) from None
            raise unreachable(settings, cause) from None
        except (OSError, UnicodeError) as cause:
            if isinstance(cause, TimeoutError):
                raise
            raise unreachable(settings, cause) from None

    async def _shake_hands(self, settings: ConnectionSettings) -> None:
        while self.session.phase is not Phase.READY:
            try:
                await self.poll(1.0)
            except ConnectionLostError as cause:
                raise handshake_failure(settings, cause) from None

    # -- for the caller

    @property
    def backlog(self) -> bool:
        """True if bytes wait in the transport's buffer."""
        return self._full or bool(self.session.output)

    @property
    def bytes_sent(self) -> int:
        """Bytes of messages written to the socket."""
        waiting = self._transport.get_write_buffer_size() if self._transport else 0
        self._taken = max(self._taken, self._written - waiting)
        return self._taken

    @property
    def bytes_under_way(self) -> int:
        """Bytes of messages that the socket accepted and the peer did not acknowledge; 0 if the system does not report it."""
        if self._transport is None:
            return 0
        return max(0, bytes_not_taken(self._transport.get_extra_info("socket")) - self._control_bytes)

    async def poll(self, longest_wait_s: float, until_open: int | None = None) -> None:
        """Send, and wait for an event.

        Args:
            longest_wait_s: seconds to wait at most.
            until_open: wait, within that time, until at most this many messages are open or the broker refuses one; None for any event.
        """
        self._write()
        if self.session.failure is None:
            self._moved.clear()
            self._until_open = until_open
            if longest_wait_s:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(longest_wait_s):
                        await self._moved.wait()
            else:
                await asyncio.sleep(0)
            self._write()
        if self.session.failure is not None:
            raise self.session.failure

    async def close(self) -> None:
        """Send connection.close and close the socket, within a bounded time; further calls do nothing."""
        if self._closed:
            return
        self._closed = True
        try:
            if not isinstance(self.session.failure, UnreachableError):
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_CLOSE_S):
                        await self._send_close()
        finally:
            self._abort()
            self.session.fail(closed_connection(self.session.where))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_CLOSE_S):
                await self._gone.wait()

    def abandon(self) -> None:
        """Close the connection without waiting, after what was written; from any thread. A closed event loop has closed it."""
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._say_goodbye)

    def _say_goodbye(self) -> None:
        if self._closed or self._transport is None:
            return
        self._closed = True
        self._stop_timers()
        self.session.close()
        self._write()
        self.session.fail(closed_connection(self.session.where))
        self._transport.close()

    async def _send_close(self) -> None:
        self._until_open = None
        self.session.close()
        while self.session.phase is not Phase.CLOSED and not self._gone.is_set():
            self._write()
            self._moved.clear()
            await self._moved.wait()
        self._write()  # the close-ok, if the broker closed first

    # -- for the event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send the protocol header."""
        assert isinstance(transport, asyncio.Transport)  # true for TCP and TLS
        self._transport = transport
        self._write()

    def data_received(self, data: bytes) -> None:
        """Pass received bytes to the session."""
        self._last_received = time.monotonic()
        self.session.receive(data)
        self._write()
        if (
            self.session.failure is not None
            or self._until_open is None
            or self.session.ledger.has_news(self._until_open)
        ):
            self._moved.set()

    def connection_lost(self, exc: Exception | None) -> None:
        """Keep the reason for the end of the connection, and end the wait."""
        self.session.fail(lost_connection(self.session.where, exc))
        if self._timer is not None:
            self._timer.cancel()
        self._gone.set()
        self._moved.set()

    def pause_writing(self) -> None:
        """Hold queued bytes back until the transport has room."""
        self._full = True

    def resume_writing(self) -> None:
        """Resume writing."""
        self._full = False
        self._write()
        self._moved.set()

    def _write(self) -> None:
        output = self.session.output
        while output and not self._full and self._transport is not None:
            data = output.popleft()
            if isinstance(data, ControlBytes):
                self._control_bytes += len(data)
            else:
                self._written += len(data)
                self._control_bytes = 0
            self._transport.write(data)
            self._last_sent = time.monotonic()

    def _beat(self) -> None:
        """Send a heartbeat when it is due, and check those of the broker."""
        session = self.session
        if not session.heartbeat_s or self.session.failure is not None or self._transport is None:
            return
        now = time.monotonic()
        silence_s = now - self._last_received
        if silence_s > session.longest_silence_s:
            session.fail(missed_heartbeats(session.where, silence_s))
            self._abort()
            self._moved.set()
            return
        if now - self._last_sent > session.heartbeat_s / 2 and not self._transport.get_write_buffer_size():
            session.heartbeat()
            self._write()
        self._timer = asyncio.get_running_loop().call_later(session.heartbeat_s / 4, self._beat)

    async def _renew_tokens(self, password: Secret) -> None:
        """Send each new token."""
        while self.session.failure is None:
            await asyncio.sleep(max(self.session.secret.renew_at - time.monotonic(), RENEWAL_S))
            try:
                self.session.update_secret(password.latest())
            except RabbitChxError as cause:
                self.session.fail(cause)
                self._abort()
                self._moved.set()
                return
            self._write()

    def _stop_timers(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._renewal is not None and self._renewal is not asyncio.current_task():
            self._renewal.cancel()

    def _abort(self) -> None:
        self._stop_timers()
        if self._transport is not None:
            self._transport.abort()
        else:
            self._gone.set()
