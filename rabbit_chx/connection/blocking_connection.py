"""The one socket loop: drives a `Session` over a `Transport`."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from typing import TYPE_CHECKING

from rabbit_chx.amqp.frames import HEARTBEAT_FRAME
from rabbit_chx.connection.link import InterruptedLinkError
from rabbit_chx.connection.session import Phase, Session, broken_handshake, closed, no_handshake
from rabbit_chx.connection.transport import Transport
from rabbit_chx.errors import BrokerTimeoutError, ConnectionLostError, RabbitChxError, UnreachableError

if TYPE_CHECKING:
    from pamqp.base import Frame as Method

    from rabbit_chx.amqp import ConnectionSettings

__all__ = ["Connection"]

_log = logging.getLogger(__name__)

_GOODBYE_S = 5.0
_REPLY_S = 60.0
_LONGEST_WAIT_S = 1.0


class Connection:
    """An open connection with a confirming channel.

    A thread keeps the heartbeats going while the caller is busy elsewhere, waiting for its input for example.

    Args:
        settings: where to, and how.
        lock: held by whoever touches the session; the thread waits its turn.

    Attributes:
        session: the protocol's side.
        bytes_sent: bytes that the socket has taken, heartbeats left out.

    Raises:
        UnreachableError: nobody answers, or not within ``settings.connection_timeout_s``.
        BrokerRefusedError: the broker answers, and refuses user, vhost or mechanism.
    """

    def __init__(self, settings: ConnectionSettings, lock: threading.RLock | None = None) -> None:
        self._where = settings.masked_url
        self.session = Session(settings)
        self.bytes_sent = 0
        self._heartbeat_bytes = 0  # sent since the last other byte
        self._out: deque[memoryview] = deque()
        self._lock = lock or threading.RLock()
        self._closed = threading.Event()
        deadline = time.monotonic() + settings.connection_timeout_s
        self._transport = Transport(settings, deadline)
        self._last_sent = self._last_received = time.monotonic()
        try:
            self._open(deadline, settings)
        except BaseException:
            self._transport.close()
            raise
        self._keeper = threading.Thread(target=self._keep_alive, name="rabbit_chx heartbeat", daemon=True)
        if self.session.heartbeat_s:
            self._keeper.start()

    def _open(self, deadline: float, settings: ConnectionSettings) -> None:
        while self.session.phase is not Phase.READY:
            left = deadline - time.monotonic()
            if left <= 0:
                raise no_handshake(settings)
            try:
                self.turn(left)
            except ConnectionLostError as cause:
                raise broken_handshake(settings, cause) from None

    # -- what the caller does

    @property
    def backlog(self) -> bool:
        """Whether bytes wait for the socket to take them."""
        return bool(self._out)

    @property
    def bytes_under_way(self) -> int:
        """Bytes that the socket has taken and the peer's has not, heartbeats left out; 0 where no one can tell."""
        return max(0, self._transport.bytes_not_taken - self._heartbeat_bytes)

    def turn(self, longest_wait_s: float, enough: int | None = None) -> None:
        """Write, wait for the socket, read, and see whether the connection lives.

        Args:
            longest_wait_s: seconds; it may be less.
            enough: go on as long as more messages than this are open; None for one round.

        Raises:
            RabbitChxError: it does not, or the broker refused something.
        """
        session = self.session
        if session.failure is None:
            try:
                self._keep_heart_beating()
                wait_s = min(longest_wait_s, (session.heartbeat_s or 60) / 4, _LONGEST_WAIT_S)
                self._exchange(wait_s)
                if enough is not None:
                    self._go_on(wait_s, enough)
                self._look_alive()
            except RabbitChxError as cause:
                session.failure = session.failure or cause
            except BaseException as cause:
                # Ctrl-C may have come between the socket and the ledger: the counts hold, the connection does not.
                session.failure = InterruptedLinkError(
                    f"{self._where}: given up after an interruption ({type(cause).__name__}): open a new one"
                )
                raise
        if session.failure is not None:
            raise session.failure

    def request(self, method: Method) -> Method:
        """Send a method and wait for its answer.

        Raises:
            RabbitChxError: the broker refused, or the connection cannot go on.
        """
        with self._lock:
            session = self.session
            session.request(method)
            deadline = time.monotonic() + _REPLY_S
            while session.reply is None:
                self.turn(_LONGEST_WAIT_S)
                if time.monotonic() > deadline:
                    raise BrokerTimeoutError(
                        f"{self._where}: no answer to {method.name} within {_REPLY_S:g} s: look at the broker's log"
                    )
            return session.reply

    def close(self) -> None:
        """Say goodbye and close the socket; bounded, and may be called again."""
        if self._closed.is_set():
            return
        self._closed.set()
        with self._lock:
            try:
                if not isinstance(self.session.failure, UnreachableError):
                    self._say_goodbye()
            except RabbitChxError as cause:
                _log.debug("%s: closing: %s", self._where, cause)
            finally:
                self._transport.close()
                self.session.failure = self.session.failure or closed(self._where)
        if self._keeper.is_alive():
            self._keeper.join(_GOODBYE_S)

    def _say_goodbye(self) -> None:
        self.session.close()
        deadline = time.monotonic() + _GOODBYE_S
        while self._out or self.session.output or self.session.phase is not Phase.CLOSED:
            left = deadline - time.monotonic()
            if left <= 0:
                return
            self._exchange(left)

    # -- the loop

    def _exchange(self, wait_s: float) -> None:
        if self._out or self.session.output:
            self._send()
        if wait_s and self._out:
            self._transport.wait(wait_s)
            wait_s = 0.0
        if data := self._transport.receive(wait_s):
            self._last_received = time.monotonic()
            self.session.receive(data)
            if self.session.output:
                self._send()

    def _go_on(self, wait_s: float, enough: int) -> None:
        deadline = time.monotonic() + wait_s
        while not self.session.has_news(enough) and time.monotonic() <= deadline:
            self._exchange(wait_s)

    def _send(self) -> None:
        out, output = self._out, self.session.output
        while output:
            out.append(memoryview(output.popleft()))
        while out:
            sent = self._transport.send(out[0])
            if not sent:
                break
            self._last_sent = time.monotonic()
            if out[0].obj is HEARTBEAT_FRAME:  # a sign of life is no progress
                self._heartbeat_bytes += sent
            else:
                self.bytes_sent += sent
                self._heartbeat_bytes = 0
            if sent == len(out[0]):
                out.popleft()
            else:
                out[0] = out[0][sent:]

    def _keep_heart_beating(self) -> None:
        heartbeat_s = self.session.heartbeat_s
        if heartbeat_s and not self._out and time.monotonic() - self._last_sent > heartbeat_s / 2:
            self.session.heartbeat()

    def _look_alive(self) -> None:
        self.session.look_alive(time.monotonic() - self._last_received)

    def _keep_alive(self) -> None:
        while not self._closed.wait(self.session.heartbeat_s / 4):
            if not self._lock.acquire(blocking=False):
                continue  # the caller is at it, and its loop does the same
            try:
                if not self._closed.is_set():
                    self.turn(0)
            except Exception as cause:  # noqa: BLE001  # it is kept in the session; the caller meets it next
                _log.debug("%s: no more heartbeats: %s", self._where, cause)
                return
            finally:
                self._lock.release()
