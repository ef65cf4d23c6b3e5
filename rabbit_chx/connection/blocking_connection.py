"""The blocking socket loop: drives a `Session` over a `Transport`.

How it works. A *turn* is one round: send what is queued, wait for the socket for a bounded time, give what came to the
session, and see whether the broker is alive. With `until_open` a turn goes on while more messages than that are open, so
that a caller that waits for room does not wake for every ack. The caller's own thread does all of this, and between two
turns nothing moves. There is one exception: while the caller is elsewhere, a thread of the connection takes a turn now and
then, for the heartbeats. Both hold the same lock, and the thread lets the caller go first.

A fault is kept in `Link.failure` and raised by this turn and each later one, so that no caller goes on over a connection that
has ended. An *interruption* (Ctrl-C, or what another signal's handler raises) may come anywhere, also between the socket and the
ledger, where bytes are received and not yet counted. The counts can then be too low, and never too high. So the connection is
given up for good, and the counts stay as they are.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from typing import TYPE_CHECKING

from rabbit_chx.amqp.frames import ControlBytes
from rabbit_chx.connection.failures import (
    broken_handshake,
    closed_connection,
    interruption,
    late_handshake,
    missing_reply,
    silence,
)
from rabbit_chx.connection.link import Link
from rabbit_chx.connection.session import Phase, Session
from rabbit_chx.connection.transport import Transport
from rabbit_chx.errors import ConnectionLostError, RabbitChxError, UnreachableError

if TYPE_CHECKING:
    from pamqp.base import Frame as Method

    from rabbit_chx.amqp import ConnectionSettings

__all__ = ["Connection"]

_log = logging.getLogger(__name__)

_GOODBYE_S = 5.0
_REPLY_S = 60.0
_LONGEST_WAIT_S = 1.0


class Connection(Link):
    """An open connection with a confirming channel.

    A thread keeps the heartbeats going while the caller is busy elsewhere, waiting for its input for example.

    Args:
        settings: the address to connect to, and how.
        lock: held by its users while they use the connection; its thread waits for it. None for a lock of its own.

    Attributes:
        session: the protocol's side.
        backlog: whether bytes wait for the socket to take them.
        bytes_sent: bytes of messages that the socket has taken.

    Raises:
        UnreachableError: nobody answers, or not within ``settings.connection_timeout_s``.
        BrokerRefusedError: the broker answers, and refuses user, vhost or mechanism.
    """

    backlog = False
    bytes_sent = 0

    def __init__(self, settings: ConnectionSettings, lock: threading.RLock | None = None) -> None:
        super().__init__(settings.masked_url)
        self.session = Session(settings, self)
        self._control_bytes = 0  # sent since the last byte of a message
        self._out: deque[memoryview] = deque()
        self._lock = lock or threading.RLock()
        self._closed = threading.Event()
        deadline = time.monotonic() + settings.connection_timeout_s
        self._transport = Transport(settings, deadline)
        self._last_sent = self._last_received = time.monotonic()
        try:
            self._shake_hands(deadline, settings)
        except BaseException:
            self._transport.close()
            raise
        self._keeper = threading.Thread(target=self._keep_alive, name="rabbit_chx heartbeat", daemon=True)
        if self.session.heartbeat_s:
            self._keeper.start()

    def _shake_hands(self, deadline: float, settings: ConnectionSettings) -> None:
        while self.session.phase is not Phase.READY:
            left = deadline - time.monotonic()
            if left <= 0:
                raise late_handshake(settings)
            try:
                self.turn(left)
            except ConnectionLostError as cause:
                raise broken_handshake(settings, cause) from None

    # -- what the caller does

    @property
    def bytes_under_way(self) -> int:
        """Bytes of messages that the socket has taken and the peer has not; 0 where the system does not tell."""
        return max(0, self._transport.bytes_not_taken - self._control_bytes)

    def turn(self, longest_wait_s: float, until_open: int | None = None) -> None:
        """Send, wait for the socket, receive, and see whether the broker is alive.

        Args:
            longest_wait_s: seconds to wait for the socket at most; it may be less.
            until_open: go on, for as long again at most, until no more messages than this are open or the broker refuses
                one; None for one round.

        Raises:
            RabbitChxError: the connection cannot go on, or the broker closed it.
        """
        if self.failure is None:
            try:
                self._keep_heart_beating()
                wait_s = min(longest_wait_s, (self.session.heartbeat_s or 60) / 4, _LONGEST_WAIT_S)
                self._exchange(wait_s)
                deadline = time.monotonic() + wait_s
                while until_open is not None and self.failure is None and not self.has_news(until_open):
                    if time.monotonic() > deadline:
                        break
                    self._exchange(wait_s)
                silence_s = time.monotonic() - self._last_received
                if silence_s > self.session.longest_silence_s:
                    self.failure = self.failure or silence(self.where, silence_s)
            except RabbitChxError as cause:
                self.failure = self.failure or cause
            except BaseException as cause:
                self.failure = interruption(self.where, cause)
                raise
        if self.failure is not None:
            raise self.failure

    def request(self, method: Method) -> Method:
        """Send a method and wait for its answer.

        Raises:
            RabbitChxError: the broker refuses it, or the connection cannot go on.
        """
        with self._lock:
            session = self.session
            session.request(method)
            deadline = time.monotonic() + _REPLY_S
            while session.reply is None:
                self.turn(_LONGEST_WAIT_S)
                if time.monotonic() > deadline:
                    raise missing_reply(self.where, method.name, _REPLY_S)
            return session.reply

    def close(self) -> None:
        """Say goodbye and close the socket; bounded, and may be called again."""
        if self._closed.is_set():
            return
        self._closed.set()
        with self._lock:
            try:
                if not isinstance(self.failure, UnreachableError):
                    self._say_goodbye()
            except RabbitChxError as cause:
                _log.debug("%s: closing: %s", self.where, cause)
            finally:
                self._transport.close()
                self.failure = self.failure or closed_connection(self.where)
        if self._keeper.is_alive():
            self._keeper.join(_GOODBYE_S)

    def _say_goodbye(self) -> None:
        self.session.close()
        deadline = time.monotonic() + _GOODBYE_S
        while self._out or self.output or self.session.phase is not Phase.CLOSED:
            left = deadline - time.monotonic()
            if left <= 0:
                return
            self._exchange(left)

    # -- the loop

    def _exchange(self, wait_s: float) -> None:
        if self._out or self.output:
            self._send()
        if wait_s and self._out:
            self._transport.wait(wait_s)
            wait_s = 0.0
        if data := self._transport.receive(wait_s):
            self._last_received = time.monotonic()
            self.session.receive(data)
            if self.output:
                self._send()

    def _send(self) -> None:
        out, output = self._out, self.output
        while output:
            out.append(memoryview(output.popleft()))
        while out:
            sent = self._transport.send(out[0])
            if not sent:
                break
            self._last_sent = time.monotonic()
            if isinstance(out[0].obj, ControlBytes):
                self._control_bytes += sent
            else:
                self.bytes_sent += sent
                self._control_bytes = 0
            if sent == len(out[0]):
                out.popleft()
            else:
                out[0] = out[0][sent:]
        self.backlog = bool(out)

    def _keep_heart_beating(self) -> None:
        heartbeat_s = self.session.heartbeat_s
        if heartbeat_s and not self._out and time.monotonic() - self._last_sent > heartbeat_s / 2:
            self.session.heartbeat()

    def _keep_alive(self) -> None:
        while not self._closed.wait(self.session.heartbeat_s / 4):
            if not self._lock.acquire(blocking=False):
                continue  # the caller is at it, and its loop does the same
            try:
                if not self._closed.is_set():
                    self.turn(0)
            except Exception as cause:  # noqa: BLE001  # it is kept as the failure, which the caller meets next
                _log.debug("%s: no more heartbeats: %s", self.where, cause)
                return
            finally:
                self._lock.release()
