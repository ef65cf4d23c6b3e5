"""A topology that is applied in an empty vhost, and the queues that messages reach there.

Only the exchanges that hash are applied, with the queues of their rings. Routing does not depend on the type, the arguments and the
policies of a queue, so each is a classic queue without arguments, which keeps every message. Another exchange in a ring is replaced by a
fanout with one queue, which gets every message of its buckets.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import closing
from typing import Any

from rabbit_chx.amqp import ConnectionSettings
from rabbit_chx.analysis.key_routing import Hashing, Refused
from rabbit_chx.broker.facade import Broker
from rabbit_chx.broker.pika_connection import PikaConnection
from rabbit_chx.broker.scratch import find_routes
from rabbit_chx.errors import ChannelClosedError, InputError
from rabbit_chx.planning.plan import plan
from rabbit_chx.routing import Destination, ExchangeRef
from rabbit_chx.routing.bindings import Place
from rabbit_chx.routing.key_map import KeyMap
from rabbit_chx.routing.message import HASH_ARGUMENTS
from rabbit_chx.topology import Topology
from rabbit_chx.topology.objects.objects import (
    HASH_EXCHANGE,
    MODULUS_EXCHANGE,
    BindingDefinition,
    ExchangeDefinition,
    QueueDefinition,
)


class Trial:
    """The exchanges of a topology that hash, applied in an empty vhost.

    Args:
        broker: the broker, open, with a management URL, on an empty vhost, where everything remains until the vhost is deleted.
        settings: the connection to that vhost.
        topology: the topology.

    Attributes:
        exchanges: what each exchange hashes, and where its keys go.

    Raises:
        InputError: no exchange of the topology hashes and has a destination; or the release refuses a weight.
        PlanRefusedError: the broker does not permit an object.
        RabbitChxError: the broker refuses a change, or does not answer.
    """

    def __init__(self, broker: Broker, settings: ConnectionSettings, topology: Topology) -> None:
        self._settings = settings
        applied, self._places = _plain(topology)
        broker.apply(plan(applied, broker.topology(), propose=False))
        self.exchanges: dict[str, tuple[Hashing, KeyMap]] = {
            exchange.name: (_hashing(exchange), applied.key_map(exchange.name, broker.release))
            for exchange in applied.exchanges
            if _hashes(exchange)
        }

    def predict(self, exchange: str, values: Sequence[Any]) -> list[Place | Refused]:
        """Return the destination of each value by the mirror; None if its message is unroutable.

        Args:
            exchange: the exchange to which messages are published.
            values: routing keys, or values of the header or the property that the exchange hashes.
        """
        hashing, key_map = self.exchanges[exchange]
        places = hashing.route_all(values, key_map.outer)
        return [
            _follow(key_map, place, hashing.message(value))
            for place, value in zip(places, values, strict=True)
        ]

    def find(self, exchange: str, values: Sequence[Any]) -> list[tuple[Place, ...]]:
        """Publish a message for each value to an exchange: see `find_routes`."""
        hashing, _ = self.exchanges[exchange]
        with closing(PikaConnection(self._settings)) as connection:
            return find_routes(connection, exchange, hashing, values, self._places)


def _follow(key_map: KeyMap, place: Place | Refused, message: dict[str, Any]) -> Place | Refused:
    """Return where a message ends behind an exchange that hashes, too."""
    if isinstance(place, Refused):
        return place
    try:
        return key_map.end_of(place, message, is_whole=True)
    except ChannelClosedError as error:
        return Refused(str(error))


def _plain(topology: Topology) -> tuple[Topology, dict[str, Place]]:
    """Return the topology to apply, and the destination that each of its queues stands for."""
    exchanges = [_without_settings(exchange) for exchange in topology.exchanges if _hashes(exchange)]
    if not exchanges:
        raise InputError(
            f"the topology has no exchange of type {HASH_EXCHANGE} or {MODULUS_EXCHANGE} with a destination: there is nothing to compare"
        )
    hashing = {exchange.name for exchange in exchanges}
    places = dict.fromkeys(place for exchange in exchanges for place in _destinations(exchange))
    others = [place.name for place in places if isinstance(place, ExchangeRef) and place.name not in hashing]
    stand_ins = {name: f"rabbit-chx.exchange.{number}" for number, name in enumerate(others)}
    stands_for: dict[str, Place] = {place: place for place in places if isinstance(place, str)}
    stands_for |= {queue: ExchangeRef(name) for name, queue in stand_ins.items()}
    return Topology(
        exchanges=(*exchanges, *(ExchangeDefinition(name, "fanout") for name in others)),
        queues=tuple(map(QueueDefinition, stands_for)),
        bindings=tuple(BindingDefinition(name, queue) for name, queue in stand_ins.items()),
    ), stands_for


def _hashes(exchange: ExchangeDefinition) -> bool:
    return exchange.type in (HASH_EXCHANGE, MODULUS_EXCHANGE) and any(True for _ in _destinations(exchange))


def _destinations(exchange: ExchangeDefinition) -> Iterable[Destination]:
    yield from (member.destination for member in exchange.ring or exchange.members or ())
    yield from exchange.queues or ()


def _without_settings(exchange: ExchangeDefinition) -> ExchangeDefinition:
    return ExchangeDefinition(
        exchange.name,
        exchange.type,
        arguments={name: exchange.arguments[name] for name in HASH_ARGUMENTS if name in exchange.arguments},
        ring=exchange.ring,
        slots=exchange.slots,
        members=exchange.members,
        queues=exchange.queues,
    )


def _hashing(exchange: ExchangeDefinition) -> Hashing:
    return Hashing(exchange.arguments.get("hash-header"), exchange.arguments.get("hash-property"))
