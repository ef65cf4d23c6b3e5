"""A check that a real broker routes the keys of a topology as predicted.

Only the exchanges that hash are applied in a vhost of their own, with the queues of their rings. Routing does not depend on the type, the
arguments and the policies of a queue, so each is a classic queue without arguments, which keeps every message. Another exchange in a ring is
replaced by a fanout with one queue, which gets every message of its buckets.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack, closing
from typing import Any, NamedTuple

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
from rabbit_chx.testing import broker_search
from rabbit_chx.testing.running_broker import RunningBroker, temporary_vhost
from rabbit_chx.topology import Topology
from rabbit_chx.topology.objects.objects import (
    HASH_EXCHANGE,
    MODULUS_EXCHANGE,
    BindingDefinition,
    ExchangeDefinition,
    QueueDefinition,
)

_MOST_SHOWN = 20


def assert_parity(topology: Topology, keys: Iterable[Any], *, broker: RunningBroker | None = None) -> None:
    """Assert that a broker puts a message of each key into the predicted queue.

    The exchanges of the topology that hash are applied in a temporary vhost. A message of each key is published to each of them, and the
    contents of every queue are compared with the prediction. The queues are classic queues without arguments, because routing depends
    neither on their type nor on their arguments. Another exchange in a ring is replaced by a queue: what is behind it is not compared.

    Args:
        topology: the topology, as in `Topology.from_toml`.
        keys: routing keys, or values of the header or the property that the exchanges hash.
        broker: the broker, with a management URL; None: that of the running test, which takes `chx_broker` or `chx_vhost`.

    Raises:
        AssertionError: a message is in another queue, in several, or in none. The message has the first 20 keys of each exchange, each with
            the expected and the actual queue.
        InputError: there is no broker or no key, or that of `broker` has no management URL (without one, the test of a fixture is skipped); or no exchange of the topology hashes.
        RabbitChxError: the topology cannot be applied, or the broker does not answer.
    """
    __tracebackhide__ = True
    of_test = broker_search.broker_of_test
    broker = broker or of_test
    if broker is None:
        raise InputError("assert_parity has no broker: take chx_broker or chx_vhost, or pass broker=")
    values = list(keys)
    if not values:
        raise InputError("assert_parity has no keys to compare: pass some")
    wrong: list[str] = []
    with ExitStack() as stack:
        skipping = [InputError] if broker is of_test else []  # as `chx_vhost` does
        inside = broker_search.enter_or_give_up(stack, temporary_vhost(broker), *skipping)
        connected = stack.enter_context(Broker(inside.url, inside.management_url))
        applied, places = _plain(topology)
        connected.apply(plan(applied, connected.topology(), propose=False))
        connection = stack.enter_context(closing(PikaConnection(ConnectionSettings.from_uri(inside.url))))
        hashing = [exchange for exchange in applied.exchanges if _hashes(exchange)]
        maps = {exchange.name: applied.key_map(exchange.name, connected.release) for exchange in hashing}
        mirrors = {exchange.name: _Mirror(_hashing_of(exchange), maps[exchange.name]) for exchange in hashing}
        for exchange in hashing:
            wrong += _mismatches(connection, exchange.name, mirrors, values, places)
    if wrong:
        raise AssertionError("\n".join([f"{broker.origin} routes otherwise than predicted:", *wrong]))


class _Mirror(NamedTuple):
    """What an exchange hashes, and its map."""

    hashing: Hashing
    key_map: KeyMap


def _hashing_of(exchange: ExchangeDefinition) -> Hashing:
    return Hashing(exchange.arguments.get("hash-header"), exchange.arguments.get("hash-property"))


def _mismatches(
    connection: PikaConnection,
    exchange: str,
    mirrors: Mapping[str, _Mirror],
    values: Sequence[Any],
    places: Mapping[str, Place],
) -> list[str]:
    """Publish a message of each key; return a line for each of the first wrong ones, and one with the number of all."""
    hashing, key_map = mirrors[exchange]
    found = find_routes(connection, exchange, hashing, values, places)
    wrong = []
    for key, place, actual in zip(values, hashing.route_all(values, key_map), found, strict=True):
        predicted = _follow(exchange, mirrors, place, hashing.message(key))
        if actual != (() if predicted is None else (predicted,)):
            names = " and ".join(map(_name, actual)) or "no queue"
            wrong.append(
                f"  exchange {exchange}, key {key!r:.80}: expected {_name(predicted)}, actual {names}"
            )
    if not wrong:
        return []
    of = f" {len(wrong):,} of {len(values):,} keys of exchange {exchange}, first:"
    return [of, *wrong[:_MOST_SHOWN]]


def _name(place: Place | Refused) -> str:
    if place is None:
        return "no queue"
    return f"a refusal ({place.reason})" if isinstance(place, Refused) else str(place)


def _follow(
    exchange: str, mirrors: Mapping[str, _Mirror], place: Place | Refused, message: dict[str, Any]
) -> Place | Refused:
    """Return where a message ends that an exchange sends to a place, which may hash as well: the broker visits no exchange twice."""
    passed = {exchange}
    while isinstance(place, ExchangeRef) and place.name in mirrors:
        if place.name in passed:
            return None
        passed.add(place.name)
        hashing, key_map = mirrors[place.name]
        try:
            place = hashing.exchange(key_map).route(**message)
        except ChannelClosedError as error:
            return Refused(str(error))
    return place


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
