"""A scratch vhost that is deleted at the end of a block, a copy of a ring in it, and the queues that messages reach there.

Names do not affect the routing of a ring. So its copy has other names: one queue for each run of buckets.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any

from rabbit_chx.broker.management import Management
from rabbit_chx.broker.pika_connection import PikaConnection
from rabbit_chx.errors import (
    BrokerRefusedError,
    BrokerTimeoutError,
    EmptyRingError,
    NotFoundError,
    RabbitChxError,
    UnreachableError,
)
from rabbit_chx.routing import Destination, ExchangeRef
from rabbit_chx.routing.bindings import MAX_BINDING_WEIGHT, Place, ascending_bindings
from rabbit_chx.routing.key_map import KeyMap
from rabbit_chx.topology.live.live_broker import Operation
from rabbit_chx.topology.objects import (
    HASH_EXCHANGE,
    MODULUS_EXCHANGE,
    BindingDefinition,
    ExchangeDefinition,
    QueueDefinition,
)

if TYPE_CHECKING:
    import pika


_REMOVAL_TRIES = 5
_REMOVAL_PAUSE_S = 0.5
_SERVER_ERROR = 500


@contextmanager
def scratch_vhost(management: Management, user: str | None = None) -> Iterator[str]:
    """Create a vhost for a block; it is deleted with all its objects, also if the block is interrupted.

    Args:
        management: the broker's HTTP API, with a user who may create vhosts.
        user: another user, who gets all permissions in the vhost; None: no other user.

    Yields:
        The name of the vhost.

    Raises:
        AccessRefusedError: the user may not create vhosts.
        BrokerRefusedError: the broker refuses the vhost or the permissions, or its deletion.
        UnreachableError: the address does not answer. An error of the block is kept, and has the failed deletion as a note.
    """
    name = f"rabbit_chx-{secrets.token_hex(4)}"
    try:
        management.request("PUT", "vhosts", name)
    except BaseException as error:
        refused = (
            isinstance(error, BrokerRefusedError) and (error.reply_code or _SERVER_ERROR) < _SERVER_ERROR
        )
        if not refused:
            _remove(management, name, may_still_appear=True)
        raise
    try:
        if user is not None:
            everything = dict.fromkeys(("configure", "write", "read"), ".*")
            management.request("PUT", "permissions", name, user, body=everything)
        yield name
    except BaseException as error:
        try:
            _remove(management, name, may_still_appear=False)
        except RabbitChxError as left:
            error.add_note(str(left))
        raise
    _remove(management, name, may_still_appear=False)


def _remove(management: Management, name: str, *, may_still_appear: bool) -> None:
    try:
        _try_to_remove(management, name, may_still_appear=may_still_appear)
    except KeyboardInterrupt:  # the first signal arrives while the vhost is deleted
        _try_to_remove(management, name, may_still_appear=may_still_appear)
        raise


def _try_to_remove(management: Management, name: str, *, may_still_appear: bool) -> None:
    """Delete the vhost, with retries: a large vhost takes time, and a request may have been interrupted."""
    for last in (*(False,) * (_REMOVAL_TRIES - 1), True):
        try:
            management.request("DELETE", "vhosts", name)
        except NotFoundError:
            if not may_still_appear:
                return
        except RabbitChxError as error:
            if last:
                kind = UnreachableError if isinstance(error, UnreachableError) else BrokerRefusedError
                raise kind(
                    f"the temporary vhost {name!r} {'may be' if may_still_appear else 'is'} left ({error}): run rabbitmqctl delete_vhost {name}"
                ) from error
        else:
            return
        time.sleep(_REMOVAL_PAUSE_S)


_EXCHANGE = "rabbit-chx.copy"
_PATIENCE_S = 30.0
_BETWEEN_LOOKS = 500


@dataclass(frozen=True, slots=True)
class CopiedRun:
    """Consecutive buckets with one destination.

    Attributes:
        name: the name of the queue in the copy, and of the exchange before it if the destination is an exchange.
        place: the destination that the queue represents; None for a hole.
        weight: the number of buckets.
    """

    name: str
    place: Place
    weight: int


@dataclass(frozen=True, slots=True)
class ScratchMessage:
    """A message to publish, without its body."""

    routing_key: str = ""
    properties: pika.BasicProperties | None = None


def _runs_of(ring: KeyMap) -> list[CopiedRun]:
    """Return the runs of the buckets that routing counts; with holes, routing never draws the last bucket numbers."""
    if not ring.bucket_count:
        raise EmptyRingError(
            "the ring has no buckets: nothing is bound to the exchange, so there is nothing to copy"
        )
    runs: list[CopiedRun] = []
    for place, group in groupby(ring.buckets[: ring.bucket_count]):
        size = len(list(group))
        for start in range(0, size, MAX_BINDING_WEIGHT):
            weight = min(MAX_BINDING_WEIGHT, size - start)
            runs.append(CopiedRun(f"run-{len(runs)}", place, weight))
    return runs


def declare_copy(
    connection: PikaConnection, key_map: KeyMap, arguments: Mapping[str, str]
) -> list[CopiedRun]:
    """Declare an exchange with the buckets of a map and a queue for each run, and return the runs. It is deleted with its vhost.

    Raises:
        EmptyRingError: the map has no buckets.
    """
    if key_map.traits.exchange_type == MODULUS_EXCHANGE:
        return _declare_modulus_copy(connection, key_map.destinations)
    runs = _runs_of(key_map)
    exchange = ExchangeDefinition(_EXCHANGE, HASH_EXCHANGE, durable=False, arguments=arguments)
    connection.perform(Operation("declare", exchange))
    for run in runs:
        connection.perform(Operation("declare", QueueDefinition(run.name)))
        destination: Destination = run.name
        if isinstance(run.place, ExchangeRef):
            destination = ExchangeRef(run.name)
            connection.perform(Operation("declare", ExchangeDefinition(run.name, "fanout", durable=False)))
            connection.perform(Operation("bind", BindingDefinition(run.name, run.name)))
        binding = BindingDefinition(_EXCHANGE, destination, str(run.weight))
        connection.perform(Operation("bind", binding))
    return runs


def _declare_modulus_copy(connection: PikaConnection, places: Iterable[Destination]) -> list[CopiedRun]:
    """Declare an ``x-modulus-hash`` exchange with destinations of these names, and return a run for each; it is deleted with its vhost.

    Names determine the order from 4.3 on, and binding keys before, so the keys ascend.
    """
    connection.perform(Operation("declare", ExchangeDefinition(_EXCHANGE, MODULUS_EXCHANGE, durable=False)))
    runs: dict[Destination, CopiedRun] = {}
    for place, key in ascending_bindings(places):
        if place not in runs:
            runs[place] = CopiedRun(str(place), place, 1)
            connection.perform(Operation("declare", QueueDefinition(str(place))))
            if isinstance(place, ExchangeRef):
                connection.perform(
                    Operation("declare", ExchangeDefinition(place.name, "fanout", durable=False))
                )
                connection.perform(Operation("bind", BindingDefinition(place.name, str(place))))
        connection.perform(Operation("bind", BindingDefinition(_EXCHANGE, place, key)))
    return list(runs.values())


def route_on_copy(
    connection: PikaConnection,
    runs: Sequence[CopiedRun],
    messages: Sequence[ScratchMessage],
    seen: Callable[[int], None] = lambda _: None,
) -> list[CopiedRun]:
    """Publish messages to the copy, consume them all, and return the run that each message reached.

    `seen` is called from time to time with the number of received messages.

    Raises:
        BrokerTimeoutError: no message arrived for 30 s, and some are missing.
    """
    arrived: dict[int, CopiedRun] = {}

    def receive(run: CopiedRun) -> Callable[..., None]:
        return lambda _channel, _method, _properties, body: arrived.__setitem__(int.from_bytes(body), run)

    with connection.channel() as channel:
        for run in runs:
            channel.basic_consume(run.name, receive(run), auto_ack=True)
        for number, message in enumerate(messages):
            channel.basic_publish(_EXCHANGE, message.routing_key, number.to_bytes(4), message.properties)
            if number % _BETWEEN_LOOKS == 0:
                connection.process(0)
                seen(len(arrived))
        _wait(connection, arrived, len(messages), seen)
    return [arrived[number] for number in range(len(messages))]


def _wait(
    connection: PikaConnection, arrived: Mapping[int, Any], wanted: int, seen: Callable[[int], None]
) -> None:
    before, deadline = len(arrived), time.monotonic() + _PATIENCE_S
    while len(arrived) < wanted:
        connection.process(0.2)
        seen(len(arrived))
        if len(arrived) > before:
            before, deadline = len(arrived), time.monotonic() + _PATIENCE_S
        elif time.monotonic() > deadline:
            raise BrokerTimeoutError(
                f"of {wanted:,} messages {len(arrived):,} came, and none for {_PATIENCE_S:g} s: look at the broker's "
                "log and alarms"
            )
