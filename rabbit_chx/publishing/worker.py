"""The thread that serves an outbox: it delivers the messages over a blocking connection, and begins again after each failure.

*Outages.* A delivery that fails gives its error to every open message. The worker then begins another delivery: at once for messages, and
without messages with pauses between its attempts, so that `Worker.is_healthy` recovers by itself.

*Exit.* The daemon thread runs until the interpreter stops it, after the functions of `atexit`. One of them waits for open messages. A process
of `multiprocessing` does not call them, but finalizers of its own.
"""

from __future__ import annotations

import atexit
import logging
import multiprocessing
import os
import threading
import time
import weakref
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from multiprocessing.util import Finalize

from rabbit_chx.connection.blocking_connection import Connection, Waker
from rabbit_chx.connection.failures import start_thread
from rabbit_chx.errors import ConnectionLostError, RabbitChxError, UnknownOutcomeError, UnreachableError
from rabbit_chx.publishing.delivery import Close, Delivery, Open, Poll, Sleep, Step, drive
from rabbit_chx.publishing.options import Retries
from rabbit_chx.publishing.outbox import Message, Outbox, OutboxRows, SharedStats, tell_left
from rabbit_chx.retry import Backoff, jitter
from rabbit_chx.text import plural, typed_error_text

_log = logging.getLogger(__name__)

_EXIT_S = 5.0
_LAST_S = 1.0  # for the thread to notice that it must end
_SHORTEST_S = 0.25  # for an attempt to connect, and between two looks for messages that have expired
_SHORTEST_POLL_S = 0.01  # of those that end with the time of a message
#: The life of a connection after which the next one is opened at once, also without messages.
_STEADY_S = 10.0
#: The longest pause after a second failure to connect, for messages, too.
_LONGEST_PAUSE_S = 1.0
#: The pauses between attempts to connect while there is no message.
_IDLE_PAUSES = Backoff(1.0, 30.0)


_WORKERS: weakref.WeakSet[Worker] = weakref.WeakSet()


@atexit.register
def _finish() -> None:
    """Wait for the open messages of all publishers when the interpreter exits."""
    workers = [worker for worker in _WORKERS if worker.process == os.getpid() and worker.thread.is_alive()]
    for worker in workers:
        worker.begin_to_close()
    deadline = time.monotonic() + _EXIT_S
    for worker in workers:
        if left := worker.close(max(0.0, deadline - time.monotonic())):
            _log.warning("%s: %d messages are not answered at the exit of the interpreter", worker.name, left)
    tell_left()


class _AbortedError(Exception):
    """The publisher was closed, and its open messages are given up."""


class Worker:
    """Serves the outbox in a thread of its own.

    Args:
        name: the publisher, for logs and errors.
        outbox: the messages.
        rows: makes the messages of a delivery.
        delivery: makes a delivery.
        retries: those of a delivery for messages.
    """

    def __init__(
        self,
        name: str,
        outbox: Outbox,
        rows: Callable[[], OutboxRows],
        delivery: Callable[..., Delivery],
        retries: Retries,
    ) -> None:
        self.name = name
        self.outbox = outbox
        self.process = os.getpid()
        self.is_ready = False
        self._make_rows = rows
        self._make_delivery = delivery
        self._retries = retries
        self._waker = Waker()
        self._connection: Connection | None = None
        self._delivery: Delivery | None = None
        self._republished = 0  # of deliveries that have ended
        self._connections = 0
        self._aborted = threading.Event()
        self._ended = threading.Event()
        self.thread = threading.Thread(target=self.run, name="rabbit_chx publisher", daemon=True)

    # -- for other threads

    def start(self) -> None:
        """Start the thread."""
        try:
            start_thread(self.thread, self.name)
        except UnreachableError:
            self.begin_to_close()
            self._waker.close()
            raise
        _WORKERS.add(self)
        if multiprocessing.parent_process() is not None:
            Finalize(None, _finish, exitpriority=0)

    def wake(self) -> None:
        """End a wait of the thread."""
        self._waker.wake()

    @property
    def is_healthy(self) -> bool:
        """True if messages can be sent now."""
        connection = self._connection
        return (
            self.is_ready
            and connection is not None
            and connection.session.failure is None
            and connection.session.blocked is None
        )

    def stats(self) -> SharedStats:
        """Return the current counts."""
        tally = self._delivery.tally if self._delivery is not None else None
        again = tally.republished + tally.retried if tally is not None else 0
        return self.outbox.stats(self._republished + again, max(0, self._connections - 1))

    def close(self, timeout_s: float) -> int:
        """Send what is open, for a limited time; return the number of messages that are given up."""
        self.begin_to_close()
        if threading.current_thread() is self.thread:
            return 0
        if self.outbox.is_empty and not self.is_ready:  # it connects for nothing
            timeout_s = 0.0
        if self._ended.wait(min(timeout_s, threading.TIMEOUT_MAX)):
            return 0
        cause = ConnectionLostError(f"{self.name} was closed, without an answer within {timeout_s:.3g} s")
        try:
            left = self.outbox.fail(partial(_failure_error, cause), waiting=True)
        finally:  # also after Ctrl-C
            self._aborted.set()
            self.wake()
        self._ended.wait(_LAST_S if left else _SHORTEST_S)
        return left

    def begin_to_close(self) -> None:
        """Refuse further messages, and end once there are none."""
        self.outbox.close(f"{self.name} is closed: open another one")
        self.wake()

    # -- the thread

    def run(self) -> None:
        """Deliver until the outbox is closed and empty."""
        failures = 0
        try:
            while not self._is_over():
                has_messages = not self.outbox.is_empty
                began = time.monotonic()
                has_connected = self._deliver(has_messages=has_messages, is_repeated=failures > 0)
                if has_connected and time.monotonic() - began >= _STEADY_S:
                    failures = 0
                    continue
                pause_s = _IDLE_PAUSES.delay_s(failures, jitter())
                if failures and not has_connected:  # also for messages: each would be another refused login
                    self._sleep(min(pause_s, _LONGEST_PAUSE_S))
                if has_connected or not has_messages:
                    self._rest(pause_s)
                failures += 1
        except _AbortedError:
            pass
        finally:
            self.begin_to_close()
            self.outbox.fail(
                partial(_failure_error, ConnectionLostError(f"{self.name} was closed")), waiting=True
            )
            self._ended.set()
            self._waker.close()

    def _is_over(self) -> bool:
        return self._aborted.is_set() or (self.outbox.closed is not None and self.outbox.is_empty)

    def _deliver(self, *, has_messages: bool, is_repeated: bool) -> bool:
        """Deliver until it fails or nothing is left; return whether it has connected."""
        retries = self._retries if has_messages else replace(self._retries, retry_first_connection=False)
        rows = self._make_rows()
        delivery = self._delivery = self._make_delivery(retries, outcomes=rows)
        try:
            drive(delivery.connect(), self._do)
            self.is_ready = True
            drive(delivery.serve(rows), self._do)
        except _AbortedError:
            raise
        except RabbitChxError as cause:
            if self.is_ready and not isinstance(cause, UnreachableError):  # of a message that was sent
                cause = ConnectionLostError(str(cause), exchange=cause.exchange, reply_code=cause.reply_code)
            left = self.outbox.fail(partial(_failure_error, cause)) if has_messages or self.is_ready else 0
            if left:
                _log.warning("%s: %s; %s with this error", self.name, cause, plural(left, "message"))
            elif not is_repeated:
                _log.warning("%s: %s", self.name, cause)
        except Exception as cause:  # noqa: BLE001  # the next messages must be served
            _log.exception("%s: an error of the library", self.name)
            self.outbox.fail(
                partial(_failure_error, ConnectionLostError(f"{self.name}: {typed_error_text(cause)}"))
            )
        finally:
            was_ready = self.is_ready
            self.is_ready = False
            self._republished += delivery.tally.republished + delivery.tally.retried
            self._delivery = None
            self._close_connection()

        return was_ready

    def _do(self, step: Step) -> Connection | None:
        self.outbox.expire(_EXPIRED)
        if self._aborted.is_set():
            raise _AbortedError

        if isinstance(step, Poll):
            assert self._connection is not None  # a delivery opens it first
            left_s = max(self.outbox.left_s(), _SHORTEST_POLL_S)
            self._connection.poll(min(step.wait_s, left_s), step.until_open)
        elif isinstance(step, Open):
            self._close_connection()
            # No attempt outlasts the limits of a message.
            timeout_s = min(step.settings.connection_timeout_s, max(self.outbox.left_s(), _SHORTEST_S))
            settings = replace(step.settings, connection_timeout_s=timeout_s)
            self._connection = Connection(settings, waker=self._waker)
            self._connections += 1
            return self._connection
        elif isinstance(step, Close):
            self._close_connection()
        elif isinstance(step, Sleep):
            self._sleep(step.seconds)

        return None

    def _sleep(self, seconds: float) -> None:
        """Wait without a connection, and let messages expire in time."""
        end = time.monotonic() + seconds
        while True:
            left_s = end - time.monotonic()
            if left_s <= 0:
                break
            if self._aborted.wait(min(left_s, _SHORTEST_S)):
                raise _AbortedError
            self.outbox.expire(_EXPIRED)

    def _rest(self, seconds: float) -> None:
        """Wait without a connection until there is a message."""
        if self.outbox.sleep():
            self._waker.wait(seconds)

    def _close_connection(self) -> None:
        if self._connection is not None:
            self._connection.close()


def _failure_error(cause: RabbitChxError, message: Message) -> RabbitChxError:
    """Return the error of a message after a failure: of one that was not sent, it has the type of the failure."""
    if not message.is_sent:
        return cause.reworded(f"the message was not sent: {cause}")
    unknown = UnknownOutcomeError(
        f"the message may be in a queue: {cause}", exchange=cause.exchange, reply_code=cause.reply_code
    )
    unknown.__cause__ = cause
    return unknown


_EXPIRED = partial(
    _failure_error,
    ConnectionLostError(
        "the broker has not answered it within reconnect_timeout_s + confirm_timeout_s + blocked_timeout_s"
    ),
)
