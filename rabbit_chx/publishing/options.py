"""The options of publishing, each declared once: name, type with unit and range, default, meaning.

From these classes follow the arguments and docstrings of `Publisher` and `SharedPublisher`, their list in docs/publishing.md, and the
options of Spark that mean the same. `Limits` and `Retries` are values, which several publishers may share.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, MISSING, dataclass, field, fields, is_dataclass, replace
from functools import partial, update_wrapper
from inspect import cleandoc
from typing import Any, Concatenate, Literal, ParamSpec, TypeAlias, TypeVar

from rabbit_chx.amqp import ConnectionSettings
from rabbit_chx.checks import check_seconds, check_whole, shown
from rabbit_chx.connection.tokens import Credentials
from rabbit_chx.errors import InputError
from rabbit_chx.publishing.publish_report import PublishReport
from rabbit_chx.retry import Backoff
from rabbit_chx.routing import ConsistentHashExchange
from rabbit_chx.routing.key_map import KeyMap

#: A broker: its AMQP URI, or settings.
Target: TypeAlias = "str | ConnectionSettings"
#: The result of `Broker.ring` or of `Broker.exchange`, which includes the hashed part.
GivenRing: TypeAlias = KeyMap | ConsistentHashExchange

_P = ParamSpec("_P")
_T = TypeVar("_T")
_Options = TypeVar("_Options", bound="CommonOptions")

#: Repeats of a refused message by a `Publisher`, if `Retries.nack_retries` is None.
NACK_RETRIES = 3
_LONGEST_BACKOFF_S = 5.0
_DOC_WIDTH = 110
_SECTION = re.compile(r"\n\n(?=[A-Z]\w+::?\n)")
_LINK = re.compile(r"\[([^]]*)\]\([^)]*\)")


# -- a declaration


@dataclass(frozen=True, slots=True)
class Kind:
    """The type of an option.

    Attributes:
        label: type, unit and range, for documents.
        check: raises an InputError for a value that cannot be; the name is for the error.
    """

    label: str
    check: Callable[[str, object], None] = lambda _name, _value: None


@dataclass(frozen=True, slots=True)
class Option:
    """The declaration of one option.

    Attributes:
        name: that of its field.
        meaning: one or two clauses for docstrings and pages; links are those of a page in docs.
        default: the value if the option is not given; MISSING for a required one.
        otherwise: the meaning of a default of None, in words.
    """

    name: str
    kind: Kind
    meaning: str
    default: Any
    otherwise: str = ""

    @property
    def type_text(self) -> str:
        """Type, unit, range and default, for documents."""
        if self.default is MISSING:
            return f"{self.kind.label}; required"
        default = self.default
        if isinstance(default, str):
            text = f'"{default}"'
        else:
            text = f"{type(default).__name__}()" if is_dataclass(default) else repr(default)
        return f"{self.kind.label}; default {self.otherwise or f'`{text}`'}"


def option(kind: Kind, meaning: str, default: object, *, otherwise: str = "") -> Any:  # a field of any type
    """Return the dataclass field of an option with a default; `otherwise` words what None means."""
    return field(default=default, metadata=_declared(kind, meaning, otherwise))


def _declared(kind: Kind, meaning: str, otherwise: str = "") -> Mapping[str, Any]:
    return {"kind": kind, "meaning": meaning, "otherwise": otherwise}


def options_of(values: Any) -> dict[str, Option]:
    """Return the options of a class or value by name, in the order of its arguments."""
    return {
        member.name: Option(member.name, default=member.default, **member.metadata)
        for member in fields(values)
    }


def check_options(values: object) -> None:
    """Raise an InputError if an option has a value that it cannot have. A default is valid."""
    for name, declared in options_of(values).items():
        if declared.default is not MISSING:  # a URL may hold a password
            value = getattr(values, name)
            if value is not declared.default:
                declared.kind.check(name, value)


def documented(values: type | None = None) -> Callable[[type[_T]], type[_T]]:
    """Add the options of a class, by default the decorated one, to the docstring of the decorated one, before its other sections."""

    def extend(documented_class: type[_T]) -> type[_T]:
        if documented_class.__doc__ is not None:  # python -OO
            text, *rest = _SECTION.split(cleandoc(documented_class.__doc__))
            entries = map(_entry, options_of(values or documented_class).values())
            section = "\n".join(["Args:" if values else "Attributes:", *entries])
            documented_class.__doc__ = "\n\n".join([text, section, *rest]) + "\n"
        return documented_class

    return extend


def _entry(declared: Option) -> str:
    meaning = _LINK.sub(r"\1", declared.meaning)
    text = f"{declared.name} ({declared.type_text}): {meaning}."
    return textwrap.fill(
        text, _DOC_WIDTH, initial_indent=" " * 4, subsequent_indent=" " * 8, break_on_hyphens=False
    )


def takes(
    options: Callable[_P, _Options],
) -> Callable[[Callable[[Any, _Options], None]], Callable[Concatenate[Any, _P], None]]:
    """Give a constructor the arguments of a class of options, of which it gets one value.

    It also takes the options of `Limits` and `Retries` by their own names: they change the given values, or the defaults.
    """

    def decorate(construct: Callable[[Any, _Options], None]) -> Callable[Concatenate[Any, _P], None]:
        def __init__(self: Any, /, *arguments: _P.args, **named: _P.kwargs) -> None:  # noqa: N807
            try:
                single = {name: named.pop(name) for name in _single_options() if name in named}
                given = options(*arguments, **named)
            finally:
                del arguments, named  # a traceback with local variables must not show the password
            construct(self, _with_single(given, single) if single else given)

        update_wrapper(__init__, options.__init__)  # its signature
        return __init__

    return decorate


def _single_options() -> set[str]:
    return {*options_of(Limits), *options_of(Retries)}


def _with_single(given: _Options, single: Mapping[str, Any]) -> _Options:
    values: dict[str, Any] = {}
    for name, kind in (("limits", Limits), ("retries", Retries)):
        mine = {option: single[option] for option in options_of(kind) if option in single}
        if mine:
            values[name] = replace(getattr(given, name), **mine)
    return replace(given, **values)


def _whole(least: int) -> Callable[[str, object], None]:
    return lambda name, value: check_whole(name, value, least)


def _one_of(*words: str) -> Kind:
    texts = " or ".join(map(repr, words))

    def check(name: str, value: object) -> None:
        if value not in words:
            raise InputError(f"{name} is {shown(value)}: give {texts}")

    return Kind(" or ".join(f'`"{word}"`' for word in words), check)


def _value_of(kind: type) -> Kind:
    def check(name: str, value: object) -> None:
        if not isinstance(value, kind):
            raise InputError(f"{name} is {shown(value)}: give {kind.__name__}(...)")

    return Kind(f"`{kind.__name__}`", check)


def _check_mapping(name: str, value: object) -> None:
    if not isinstance(value, Mapping):
        raise InputError(f"{name} is of type {type(value).__name__}: give a dict of values by name")


FLAG = Kind("`bool`")
COUNT = Kind("`int`, 1 or more", _whole(1))
WHOLE = Kind("`int`, 0 or more", _whole(0))
BYTES = Kind("`int`, bytes, 1 or more", _whole(1))
SECONDS = Kind("`float`, seconds, 0 or more", check_seconds)
POSITIVE_SECONDS = Kind("`float`, seconds, more than 0", partial(check_seconds, zero=False))
_NAME = Kind("`str`")
_MAPPING = Kind("mapping of names to values", _check_mapping)
_FUNCTION = Kind("function")
_URL = Kind("`str` or `ConnectionSettings`, or a list of them")
_RING = Kind("`HashRing`, `ConsistentHashExchange`, or a function that reads one")


# -- the options


@documented()
@dataclass(frozen=True)
class Limits:
    """The window and the time limits of a publishing connection.

    The first time that `confirm_timeout_s` passes, the connection is replaced; the second time without a confirm in between is an error.
    Blocks add up, unless there is a confirm or a sent byte of a message between them.
    """

    max_in_flight: int = option(
        COUNT,
        "maximum number of unconfirmed messages (the window)",
        1000,
    )
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
        None,
        otherwise="no maximum",
    )
    retry_first_connection: bool = option(
        FLAG, "whether the first connection is also retried; `SharedPublisher` always retries it", False
    )
    nack_retries: int | None = option(
        WHOLE,
        "maximum number of repeats of a refused message (`basic.nack`) while no other message is confirmed",
        None,
        otherwise=f"`{NACK_RETRIES}`, in a `SharedPublisher` `0`",
    )
    backoff_s: float = option(SECONDS, "delay before the first attempt; doubles up to 5 s, with jitter", 1.0)
    keep_order: bool = option(
        FLAG,
        "whether a refused message is an error at once, so that later messages do not overtake it",
        False,
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
        metadata=_declared(
            _URL,
            "AMQP URI, or the settings of a connection; several are tried in order, after a loss beginning with the next one",
        ),
    )
    exchange: str = field(metadata=_declared(_NAME, "the exchange, which must exist"))
    _: KW_ONLY
    routing: Literal["exchange", "client"] = option(
        _one_of("exchange", "client"),
        '`"client"` sends each message straight to the queue that the ring names: [client-side routing](publishing.md#client-side-routing)',
        "exchange",
    )
    ring: GivenRing | Callable[[], GivenRing] | None = option(
        _RING,
        'with `routing="client"`: the ring as read from the broker by `Broker.ring` or `Broker.exchange`; a function is called again after '
        "the messages, and a ring that differs is an error",
        None,
    )
    mandatory: bool = option(
        FLAG, "whether the broker returns unroutable messages; otherwise they are lost silently", True
    )
    persistent: bool = option(
        FLAG, "whether durable queues keep the messages over a restart (delivery mode 2)", True
    )
    content_type: str | None = option(_NAME, "content type of every message", None)
    properties: Mapping[str, Any] | None = option(
        _MAPPING,
        "[properties](publishing.md#properties-and-exchanges-row-by-row) of every message; they override `persistent` and `content_type`",
        None,
    )
    limits: Limits = option(_value_of(Limits), "the window and the time limits", Limits())
    retries: Retries = option(_value_of(Retries), "repeated connections and messages", Retries())
    connection_name: str | None = option(_NAME, "name of the connection in the management UI", None)
    credentials: Credentials | None = option(
        _FUNCTION,
        "returns an [OAuth 2 token](security.md#oauth-2-tokens) and its expiry (an aware datetime, or seconds since 1970), instead of a "
        "password in the URL; called again, also in other threads, before the token expires",
        None,
    )


@dataclass(frozen=True, kw_only=True)
class PublishOptions(CommonOptions):
    """The options of `Publisher`."""

    on_unroutable: Literal["raise", "report"] = option(
        _one_of("raise", "report"),
        "whether returned messages raise a `PublishError`, or are only counted in the report",
        "raise",
    )
    progress: Callable[[PublishReport], None] | None = option(
        Kind("function of a `PublishReport`"),
        "[progress callback](publishing.md#the-report): called at most four times a second, after each reconnect, and at the end of a flush "
        "or with an error; its exceptions end the call",
        None,
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
