"""The arguments that `Publisher` and `SharedPublisher` have in common."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial, wraps
from typing import Any, Concatenate, Literal, ParamSpec, TypeAlias

from rabbit_chx.amqp import ConnectionSettings
from rabbit_chx.amqp.settings import read_secretly
from rabbit_chx.connection.owner import Owned, Owner
from rabbit_chx.connection.tokens import Credentials, with_credentials
from rabbit_chx.errors import InputError
from rabbit_chx.publishing.batches import BATCH_ROWS, RowDefaults
from rabbit_chx.publishing.client_routing import DEFAULT_EXCHANGE, ClientRouting, check_for_copies
from rabbit_chx.publishing.encoder import Properties, exchange_name, make_encoder
from rabbit_chx.publishing.limits import Limits, Retries
from rabbit_chx.publishing.publish_report import PublishReport
from rabbit_chx.routing import ConsistentHashExchange
from rabbit_chx.routing.key_map import KeyMap

#: A broker: its AMQP URI, or settings.
Target: TypeAlias = "str | ConnectionSettings"
#: The result of `Broker.ring` or of `Broker.exchange`, which includes the hashed part.
GivenRing: TypeAlias = KeyMap | ConsistentHashExchange

_P = ParamSpec("_P")

_PERSISTENT = 2
_TRANSIENT = 1


def same_arguments(
    constructor: Callable[Concatenate[Any, _P], None],
) -> Callable[[Callable[..., None]], Callable[Concatenate[Any, _P], None]]:
    """Give a constructor the signature of another one, to which it passes its arguments."""
    return wraps(constructor)


class Arguments(Owned):
    """The arguments of every publisher, which the publishers document. Its constructor does no I/O."""

    def __init__(
        self,
        url: Target | Sequence[Target],
        exchange: str,
        *,
        routing: Literal["exchange", "client"] = "exchange",
        ring: GivenRing | Callable[[], GivenRing] | None = None,
        max_in_flight: int = Limits.max_in_flight,
        max_in_flight_bytes: int = Limits.max_in_flight_bytes,
        mandatory: bool = True,
        persistent: bool = True,
        content_type: str | None = None,
        properties: Mapping[str, Any] | None = None,
        on_unroutable: Literal["raise", "report"] = "raise",
        confirm_timeout_s: float = Limits.confirm_timeout_s,
        blocked_timeout_s: float = Limits.blocked_timeout_s,
        reconnect_timeout_s: float = Retries.reconnect_timeout_s,
        max_reconnects: int | None = Retries.max_reconnects,
        retry_first_connection: bool = Retries.retry_first_connection,
        nack_retries: int = Retries.nack_retries,
        backoff_s: float = Retries.backoff_s,
        keep_order: bool = False,
        progress: Callable[[PublishReport], None] | None = None,
        connection_name: str | None = None,
        credentials: Credentials | None = None,
    ) -> None:
        self.exchange = exchange
        try:
            is_in_client = _in_client(routing, ring)
            targets = with_credentials(read_secretly(_targets, url), credentials)
        finally:
            del url
        self._owner = Owner(f"the {type(self).__name__} of exchange {exchange!r:.80}")
        if connection_name is not None:
            targets = tuple(replace(target, connection_name=connection_name) for target in targets)
        if on_unroutable not in ("raise", "report"):
            raise InputError(f"on_unroutable is {on_unroutable!r}: give 'raise' or 'report'")
        if not isinstance(properties, Mapping | None):
            raise InputError(
                f"properties is of type {type(properties).__name__}: give a dict of values by name"
            )
        limits = Limits(max_in_flight, max_in_flight_bytes, confirm_timeout_s, blocked_timeout_s)
        self._read_ring = ring if callable(ring) else None
        self._on_unroutable = on_unroutable
        self._progress = progress
        shared = Properties(
            {
                "delivery_mode": _PERSISTENT if persistent else _TRANSIENT,
                "content_type": content_type,
                **(properties or {}),
            }
        )
        name = exchange_name(exchange)
        if is_in_client:
            name = DEFAULT_EXCHANGE
            check_for_copies([(properties or {}).get("headers")])
        # Half a window, so that it never empties; smaller batches cost more CPU and gain little.
        self._defaults = RowDefaults(exchange, shared, max(1, min(BATCH_ROWS, max_in_flight // 2)))
        if routing == "client" and self._read_ring is None:
            self._take(ring)
        self._limits = limits
        self._retries = Retries(
            reconnect_timeout_s=reconnect_timeout_s,
            max_reconnects=max_reconnects,
            retry_first_connection=retry_first_connection,
            nack_retries=nack_retries,
            backoff_s=backoff_s,
            keep_order=keep_order,
        )
        self._targets = targets
        self._encoder_for = partial(make_encoder, name, shared.constant, mandatory)

    def _take(self, ring: object) -> None:
        self._defaults = replace(self._defaults, routing=ClientRouting(self.exchange, ring))


def _in_client(routing: object, ring: object) -> bool:
    if routing not in ("exchange", "client"):
        raise InputError(f"routing is {routing!r:.60}: give 'exchange' or 'client'")
    if routing == "exchange" and ring is not None:
        raise InputError(
            "a ring is given, and routing is 'exchange': give routing='client', or leave the ring out"
        )
    return routing == "client"


def _targets(url: Target | Sequence[Target]) -> tuple[ConnectionSettings, ...]:
    if not isinstance(url, (str, ConnectionSettings, list, tuple)):
        raise InputError(
            f"url is of type {type(url).__name__}: give an AMQP URI, such as amqp://localhost, or a list"
        )
    targets = (url,) if isinstance(url, (str, ConnectionSettings)) else tuple(url)
    if not targets:
        raise InputError("url is an empty list: give one AMQP URI, or several")
    return tuple(
        target if isinstance(target, ConnectionSettings) else ConnectionSettings.from_uri(target)
        for target in targets
    )
