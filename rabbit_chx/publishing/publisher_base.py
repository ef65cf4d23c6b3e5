"""What `Publisher` and `SharedPublisher` make of their options, alike."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from rabbit_chx.amqp import ConnectionSettings
from rabbit_chx.amqp.settings import read_secretly
from rabbit_chx.connection.tokens import with_credentials
from rabbit_chx.connection.usage_guard import Guarded, UsageGuard
from rabbit_chx.errors import InputError
from rabbit_chx.options import check_options
from rabbit_chx.publishing.batches import BATCH_ROWS, RowBuilder
from rabbit_chx.publishing.client_routing import DEFAULT_EXCHANGE, ClientRouting, check_for_copies
from rabbit_chx.publishing.encoder import Encoder, Properties, exchange_name
from rabbit_chx.publishing.options import CommonOptions, Target

_PERSISTENT = 2
_TRANSIENT = 1


class PublisherBase(Guarded):
    """A publisher without its connection. The constructor validates the options, and does no I/O."""

    def __init__(self, options: CommonOptions) -> None:
        exchange = self.exchange = options.exchange
        targets = with_credentials(read_secretly(_targets, options.url), options.credentials)
        check_options(options)
        if options.routing == "exchange" and options.ring is not None:
            raise InputError("a ring is given, and routing is 'exchange': pass routing='client', or no ring")
        self._guard = UsageGuard(f"the {type(self).__name__} of exchange {exchange!r:.80}")
        if options.connection_name is not None:
            targets = tuple(replace(target, connection_name=options.connection_name) for target in targets)
        self._targets = targets
        self._keep_order = options.retries.keep_order
        properties = options.properties or {}
        shared = Properties(
            {
                "delivery_mode": _PERSISTENT if options.persistent else _TRANSIENT,
                "content_type": options.content_type,
                **properties,
            }
        )
        name = exchange_name(exchange)
        if options.routing == "client":
            name = DEFAULT_EXCHANGE
            check_for_copies([properties.get("headers")])
        # Half a window, so that it never empties; smaller batches cost more CPU and gain little.
        batch_rows = max(1, min(BATCH_ROWS, options.limits.max_in_flight // 2))
        self._builder = RowBuilder(exchange, shared, batch_rows)
        self._encoder_for = partial(Encoder, name, shared.constant, mandatory=options.mandatory)
        self._read_ring = options.ring if callable(options.ring) else None
        if options.routing == "client" and self._read_ring is None:
            self._route_by(options.ring)

    def _route_by(self, ring: object) -> None:
        self._builder = replace(self._builder, routing=ClientRouting(self.exchange, ring))


def _targets(url: Target | Sequence[Target]) -> tuple[ConnectionSettings, ...]:
    targets = url if isinstance(url, (list, tuple)) else (url,)
    if not targets:
        raise InputError("url is an empty list: pass one AMQP URI, or several")
    return tuple(map(ConnectionSettings.of, targets))
