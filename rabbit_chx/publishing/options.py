"""The options of publishing, each declared once: name, type with unit and range, default, meaning.

From these classes follow the arguments and docstrings of `Publisher` and `SharedPublisher`, their list in docs/publish/bulk.md, and the
options of Spark that mean the same. `Limits` and `Retries` are values, which several publishers may share.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Literal, TypeAlias

from rabbit_chx.amqp import ConnectionSettings
from rabbit_chx.amqp.frames import is_transient
from rabbit_chx.connection.failures import InterruptedLinkError, StallError
from rabbit_chx.connection.session import OpenConnection
from rabbit_chx.connection.tokens import Credentials
from rabbit_chx.errors import BrokerTimeoutError, ConnectionLostError, RabbitChxError
from rabbit_chx.options import (
    BYTES,
    COUNT,
    FLAG,
    POSITIVE_SECONDS,
    SECONDS,
    TEXT,
    WHOLE,
    ValueKind,
    check_options,
    declared,
    documented,
    one_of,
    option,
    value_of,
)
from rabbit_chx.publishing.encoder import MessageProperties
from rabbit_chx.publishing.publish_report import PublishReport
from rabbit_chx.retry import Backoff, Retry
from rabbit_chx.routing import ConsistentHashExchange
from rabbit_chx.routing.key_map import KeyMap
from rabbit_chx.text import plural

#: A broker: its AMQP URI, or settings.
Target: TypeAlias = "str | ConnectionSettings"
#: The result of `Broker.ring` or of `Broker.exchange`, which includes the hashed part.
GivenRing: TypeAlias = KeyMap | ConsistentHashExchange

#: Repeats of a refused message by a `Publisher`, if `Retries.nack_retries` is None.
NACK_RETRIES = 3
_LONGEST_BACKOFF_S = 5.0


_MAPPING = ValueKind(
    "mapping of names to values", lambda value: isinstance(value, Mapping), "a dict of values by name"
)
_FUNCTION = ValueKind("function")
_URL = ValueKind("`str` or `ConnectionSettings`, or a list of them")
_RING = ValueKind("`HashRing`, `ConsistentHashExchange`, or a function that reads one")


@documented()
@dataclass(frozen=True)
class Limits:
    """The window and the time limits of a publishing connection.

    The first time that `confirm_timeout_s` passes, the connection is replaced; the second time without a confirm in between is an error.
    Blocks add up, unless there is a confirm or a sent byte of a message between them.
    """

    max_in_flight: int = option(COUNT, "maximum number of unconfirmed messages (the window)", 1000)
    max_in_flight_bytes: int = option(
        BYTES, "maximum size of unconfirmed messages as frames; a larger batch is sent alone", 8 << 20
    )
    confirm_timeout_s: float = option(
        POSITIVE_SECONDS,
        "maximum time without a confirm or a sent byte until the connection is replaced; blocked time does not count",
        60.0,
    )
    blocked_timeout_s: float = option(
        SECONDS,
        "maximum time for which the broker may block publishers without progress; 0 fails at once",
        300.0,
    )

    def __post_init__(self) -> None:
        check_options(self)


@documented()
@dataclass(frozen=True)
class Retries:
    """The number and timing of repeated connections and messages."""

    reconnect_timeout_s: float = option(
        SECONDS,
        "maximum time to connect after a loss, and at the start if that is retried (as in Spark); each confirm restarts it; 0 fails at once",
        120.0,
    )
    max_reconnects: int | None = option(
        WHOLE,
        "maximum number of consecutive failed attempts, each with every address; 0 fails at once",
        otherwise="no maximum",
    )
    retry_first_connection: bool = option(
        FLAG, "whether the first connection is also retried; `SharedPublisher` always retries it", False
    )
    nack_retries: int | None = option(
        WHOLE,
        "maximum number of retries of a nacked message (`basic.nack`) while no other message is confirmed",
        otherwise=f"`{NACK_RETRIES}`, in a `SharedPublisher` `0`",
    )
    backoff_s: float = option(SECONDS, "delay before the first attempt; doubles up to 5 s, with jitter", 1.0)
    keep_order: bool = option(
        FLAG, "whether a nacked message is an error at once, so that later messages do not overtake it", False
    )

    def __post_init__(self) -> None:
        check_options(self)

    @property
    def reconnects(self) -> bool:
        """True if a lost connection is replaced."""
        return self.max_reconnects != 0 and self.reconnect_timeout_s > 0

    @property
    def repeats(self) -> int:
        """How often a refused message is sent again."""
        if self.keep_order:
            return 0
        return NACK_RETRIES if self.nack_retries is None else self.nack_retries

    @property
    def backoff(self) -> Backoff:
        """The pauses between attempts."""
        return Backoff(self.backoff_s, _LONGEST_BACKOFF_S)


@dataclass(frozen=True)
class CommonOptions:
    """The options of every publisher. It is not validated: a traceback of its constructor would show the password."""

    url: Target | Sequence[Target] = field(
        repr=False,
        metadata=declared(
            _URL,
            "AMQP URI, or the settings of a connection; several are tried in order, after a loss beginning with the next one",
        ),
    )
    exchange: str = field(metadata=declared(TEXT, "the exchange, which must exist"))
    _: KW_ONLY
    routing: Literal["exchange", "client"] = option(
        one_of("exchange", "client"),
        '`"client"` sends each message straight to the queue that the ring names: client-side routing',
        "exchange",
    )
    ring: GivenRing | Callable[[], GivenRing] | None = option(
        _RING,
        'with `routing="client"`: the ring as read from the broker by `Broker.ring` or `Broker.exchange`; a function is called again after '
        "the messages, and a ring that differs is an error",
    )
    mandatory: bool = option(
        FLAG, "whether the broker returns unroutable messages; otherwise they are lost silently", True
    )
    persistent: bool = option(
        FLAG, "whether durable queues keep the messages over a restart (delivery mode 2)", True
    )
    content_type: str | None = option(TEXT, "content type of every message")
    properties: MessageProperties | None = option(
        _MAPPING,
        "properties of every message; they override `persistent` and `content_type`",
    )
    limits: Limits = option(value_of(Limits), "the window and the time limits", Limits())
    retries: Retries = option(value_of(Retries), "repeated connections and messages", Retries())
    connection_name: str | None = option(TEXT, "name of the connection in the management UI")
    credentials: Credentials | None = option(
        _FUNCTION,
        "returns an OAuth 2 token and its expiry (an aware datetime, or seconds since 1970), instead of a "
        "password in the URL; called again, also in other threads, before the token expires",
    )


@dataclass(frozen=True, kw_only=True)
class PublishOptions(CommonOptions):
    """The options of `Publisher`."""

    on_unroutable: Literal["raise", "report"] = option(
        one_of("raise", "report"),
        "whether returned messages raise a `PublishError`, or are only counted in the report",
        "raise",
    )
    progress: Callable[[PublishReport], None] | None = option(
        ValueKind("function of a `PublishReport`"),
        "progress callback: called at most four times a second, after each reconnect, and at the end of a flush "
        "or with an error; its exceptions end the call",
    )


@dataclass(frozen=True, kw_only=True)
class SharedOptions(CommonOptions):
    """The options of `SharedPublisher`."""

    block_s: float = option(
        SECONDS,
        "maximum time for which `submit` and `publish` wait for room; then they raise `BufferFullError`",
        10.0,
    )
    linger_s: float = option(
        SECONDS, "time for which a message may wait for others, so that more are written together", 0.0
    )


# -- Applied limits: of one wait, and of one outage. Callers supply the time, in seconds of a monotonic clock


_log = logging.getLogger(__name__)


class ProgressTimeout:
    """Limits one wait, which may last while there is progress and the broker does not block for too long."""

    def __init__(self, limits: Limits, now: float) -> None:
        self._limits = limits
        self._progress: tuple[object, int, int] | None = None
        self._under_way: int | None = None
        self._blocked = False
        self._still_s = self._blocked_s = 0.0  # without and with a block, since the last progress
        self._checked_at = now

    def check(self, connection: OpenConnection, now: float) -> float:
        """Raise an error if the wait has lasted too long; return the seconds since the last check for which the broker blocked."""
        passed_s = now - self._checked_at
        self._checked_at = now
        blocked_s = passed_s if self._blocked else 0.0
        self._blocked_s += blocked_s
        self._still_s += passed_s - blocked_s
        if connection.session.blocked is not None:
            self._check_block(connection, connection.session.blocked)
            return blocked_s

        self._blocked = False
        if self._has_moved(connection):
            self._still_s = self._blocked_s = 0.0
        elif self._still_s >= self._limits.confirm_timeout_s:
            raise StallError(
                f"{connection.session.where}: the broker has answered nothing for {self._still_s:.0f} s, and "
                f"{connection.session.ledger.open} messages are unconfirmed: look at its alarms and log, "
                "or raise the confirm timeout"
            )

        return blocked_s

    def _has_moved(self, connection: OpenConnection) -> bool:
        """Return whether a confirm arrived or a byte was sent since the last check without a block, or nothing is in flight."""
        progress = (connection, connection.bytes_sent, connection.session.ledger.answered)
        if progress != self._progress or not (connection.session.ledger.open or connection.backlog):
            self._progress = progress
            self._under_way = None
            return True
        # The peer accepted more bytes from the socket: a large message on a slow line.
        before = self._under_way
        self._under_way = connection.bytes_under_way
        return before is not None and self._under_way < before

    def _check_block(self, connection: OpenConnection, reason: str) -> None:
        if not self._blocked:
            self._blocked = True
            _log.warning("%s: the broker blocks publishers: %s", connection.session.where, reason)
        if self._blocked_s >= self._limits.blocked_timeout_s:
            raise BrokerTimeoutError(
                f"{connection.session.where}: the broker has blocked publishers ({reason}) "
                f"for {self._blocked_s:.0f} s: clear its alarm, or raise the blocked timeout"
            )


class Outage:
    """An outage, from the loss of a connection until the broker answers a message again.

    Args:
        cause: the reason for the loss or the failure to connect.
        began: its start, in seconds of a monotonic clock.

    Attributes:
        retry: the attempts to connect.
        last: the error of the last attempt.
        losses: connections that were lost with open messages and without a confirm.
    """

    def __init__(self, retries: Retries, cause: RabbitChxError, began: float) -> None:
        self.retry = Retry(began + retries.reconnect_timeout_s, retries.backoff, retries.max_reconnects)
        self._stalls = 0  # connections without progress
        self.losses = 0
        self.last = cause
        self._retries = retries
        self._cause = cause
        self._began = began

    def is_recoverable(self, cause: RabbitChxError) -> bool:
        """Return whether a new connection may succeed after this error."""
        if not self._retries.reconnects or isinstance(cause, InterruptedLinkError):
            return False
        if isinstance(cause, StallError):
            self._stalls += 1
            return self._stalls == 1
        if isinstance(cause, BrokerTimeoutError):
            return False  # the broker blocks publishers, and would block another connection too
        return is_transient(cause)

    def give_up_error(self, now: float) -> RabbitChxError:
        """Return the error for an outage without attempts left."""
        if not self.retry.attempts:
            return self._cause
        # The addresses of a list are tried in turn, so that the same reasons come in another order.
        is_same = set(str(self.last).split("; ")) == set(str(self._cause).split("; "))
        return ConnectionLostError(
            f"{self._cause}; gave up after {plural(self.retry.attempts, 'attempt')} to connect in {now - self._began:.0f} s"
            f"{'' if is_same else f', the last attempt failed: {self.last}'}"
        )

    def end_error(self, cause: RabbitChxError) -> RabbitChxError:
        """Return the error for an outage that `cause` ends; it also names the first cause."""
        if cause is self._cause:
            return cause
        return cause.reworded(f"{cause}; it began with: {self._cause}")
