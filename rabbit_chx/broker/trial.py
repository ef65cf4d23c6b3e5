"""A topology that is applied in an empty vhost, and the queues that messages reach there.

Only the exchanges that hash are applied, with the queues of their rings. Routing does not depend on the type, the arguments and the
policies of a queue, so each is a classic queue without arguments, which keeps every message. Another exchange in a ring is replaced by a
fanout with one queue, which gets every message of its buckets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from itertools import islice
from typing import Any

import pika

from rabbit_chx.amqp import ConnectionSettings
from rabbit_chx.analysis.key_routing import Hashing, Refused
from rabbit_chx.broker.facade import Broker
from rabbit_chx.broker.pika_connection import PikaConnection
from rabbit_chx.errors import BrokerTimeoutError, ChannelClosedError, InputError
from rabbit_chx.routing import Destination, ExchangeRef
from rabbit_chx.routing.bindings import Place
from rabbit_chx.routing.key_map import KeyMap
from rabbit_chx.routing.message import HASH_ARGUMENTS
from rabbit_chx.topology import Topology, plan
from rabbit_chx.topology.objects import (
    HASH_EXCHANGE,
    MODULUS_EXCHANGE,
    BindingDefinition,
    ExchangeDefinition,
    QueueDefinition,
)

_DELIVERY_TIMEOUT_S: Any = 30.0  # pika's stubs know whole seconds only
_NUMBER_BYTES = 4


class Trial:
    """The exchanges of a topology that hash, applied in an empty vhost.

    Args:
        broker: the broker, open, with a management URL, on an empty vhost, where everything remains until the vhost is deleted.
        settings: the connection to that vhost.
        topology: the topology.

    Raises:
        InputError: no exchange of the topology hashes and has a destination; or the release refuses a weight.
        PlanRefusedError: the broker does not permit an object.
        RabbitChxError: the broker refuses a change, or does not answer.
    """

    def __init__(self, broker: Broker, settings: ConnectionSettings, topology: Topology) -> None:
        self._settings = settings
        applied, self._stand_ins = _plain(topology)
        broker.apply(plan(applied, broker.topology(), propose=False))
        release = broker.release
        self._hashing = {
            exchange.name: _hashing(exchange) for exchange in applied.exchanges if _hashes(exchange)
        }
        self._maps = {name: applied.key_map(name, release) for name in self._hashing}
        self._mirrors = {name: self._hashing[name].exchange(self._maps[name]) for name in self._hashing}
        self._places: dict[str, Place] = {queue.name: queue.name for queue in applied.queues}
        self._places |= {queue: ExchangeRef(name) for name, queue in self._stand_ins.items()}

    @property
    def exchanges(self) -> tuple[str, ...]:
        """The names of the exchanges that hash."""
        return tuple(self._hashing)

    def hashing_of(self, exchange: str) -> tuple[Hashing, KeyMap]:
        """Return what an exchange hashes, and where its keys go."""
        return self._hashing[exchange], self._maps[exchange]

    def predicted(self, exchange: str, values: Sequence[Any]) -> list[Place | Refused]:
        """Return the destination of each value by the mirror; None if its message is unroutable.

        Args:
            exchange: the exchange to which messages are published.
            values: routing keys, or values of the header or the property that the exchange hashes.
        """
        hashing = self._hashing[exchange]
        places = hashing.route_all(values, self._maps[exchange])
        if not any(isinstance(place, ExchangeRef) for place in places):
            return places
        return [
            self._onwards(place, hashing.message(value), {exchange})
            for place, value in zip(places, values, strict=True)
        ]

    def _onwards(self, place: Place | Refused, message: dict[str, Any], seen: set[str]) -> Place | Refused:
        """Follow a message through exchanges of a ring that hash, too."""
        while isinstance(place, ExchangeRef) and place.name in self._mirrors:
            if place.name in seen:  # a broker visits no exchange twice
                return None
            seen.add(place.name)
            try:
                place = self._mirrors[place.name].route(**message)
            except ChannelClosedError as error:
                return Refused(str(error))
        return place

    def routed(
        self, exchange: str, values: Sequence[Any], seen: Callable[[int], None] = lambda _: None
    ) -> list[tuple[Place, ...]]:
        """Publish a message for each value, and return the destinations at which it is found; none for one that is unroutable.

        Args:
            exchange: the exchange to which the messages are published.
            values: routing keys, or values of the header or the property that the exchange hashes.
            seen: called after each queue with the number of messages that were found so far.

        Raises:
            BrokerTimeoutError: a queue has a message that it does not deliver within 30 s.
            RabbitChxError: the broker closes the channel or the connection.
        """
        hashing = self._hashing[exchange]
        found: list[tuple[Place, ...]] = [()] * len(values)
        arrived = 0
        with closing(PikaConnection(self._settings)) as connection, connection.channel() as channel:
            channel.confirm_delivery()  # a queue may answer a count before it handles earlier messages, but a confirmed one is there
            for number, value in enumerate(values):
                key, properties = _message(hashing, value)
                channel.basic_publish(exchange, key, number.to_bytes(_NUMBER_BYTES), properties)
            for queue, place in self._places.items():
                for body in _contents(channel, queue):
                    found[int.from_bytes(body)] += (place,)
                    arrived += 1
                seen(arrived)
        return found


def _message(hashing: Hashing, value: Any) -> tuple[str, pika.BasicProperties | None]:
    if hashing.hash_header is not None:
        return "", pika.BasicProperties(headers={hashing.hash_header: value})
    if hashing.hash_property is not None:
        return "", pika.BasicProperties(**{hashing.hash_property: value})
    return value, None


def _contents(channel: Any, queue: str) -> Iterator[bytes]:
    """Take all messages out of a classic queue whose publisher has ended."""
    count = channel.queue_declare(queue, passive=True).method.message_count
    if not count:
        return
    coming = channel.consume(queue, auto_ack=True, inactivity_timeout=_DELIVERY_TIMEOUT_S)
    for method, _properties, body in islice(coming, count):
        if method is None:
            raise BrokerTimeoutError(
                f"queue {queue!r} does not deliver its messages within {_DELIVERY_TIMEOUT_S:g} s: look at the broker's log and alarms",
                queue=queue,
            )
        yield body
    channel.cancel()


def _plain(topology: Topology) -> tuple[Topology, dict[str, str]]:
    """Return the topology to apply, and the queue of each exchange that is replaced."""
    exchanges = [_without_settings(exchange) for exchange in topology.exchanges if _hashes(exchange)]
    if not exchanges:
        raise InputError(
            f"the topology has no exchange of type {HASH_EXCHANGE} or {MODULUS_EXCHANGE} with a destination: there is nothing to compare"
        )
    hashing = {exchange.name for exchange in exchanges}
    places = dict.fromkeys(place for exchange in exchanges for place in _destinations(exchange))
    others = [place.name for place in places if isinstance(place, ExchangeRef) and place.name not in hashing]
    stand_ins = {name: f"rabbit-chx.exchange.{number}" for number, name in enumerate(others)}
    queues = [place for place in places if isinstance(place, str)]
    return Topology(
        exchanges=(*exchanges, *(ExchangeDefinition(name, "fanout") for name in others)),
        queues=tuple(map(QueueDefinition, [*queues, *stand_ins.values()])),
        bindings=tuple(BindingDefinition(name, queue) for name, queue in stand_ins.items()),
    ), stand_ins


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
