"""The options of publishing, each declared once: name, type with unit and range, default, meaning.

From these classes follow the arguments and docstrings of `Publisher` and `SharedPublisher`, their list in docs/publish/bulk.md, and the
options of Spark that mean the same. `Limits` and `Retries` are values, which several publishers may share.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Literal, TypeAlias

from rabbit_chx.amqp import ConnectionSettings
from rabbit_chx.connection.tokens import Credentials
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
from rabbit_chx.publishing.message_properties import MessageProperties
from rabbit_chx.publishing.publish_report import PublishReport
from rabbit_chx.retry import Backoff
from rabbit_chx.routing import ConsistentHashExchange
from rabbit_chx.routing.key_map import KeyMap

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
