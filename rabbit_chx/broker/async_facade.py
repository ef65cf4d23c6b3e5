"""A broker, as one object, on asyncio: as `Broker`, with ``await``."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from rabbit_chx.amqp import ConnectionSettings
from rabbit_chx.broker.broker_base import BrokerBase, documented_as, ignore_progress
from rabbit_chx.broker.facade import Broker
from rabbit_chx.drive import drive_async
from rabbit_chx.errors import MissingExtraError
from rabbit_chx.routing import ConsistentHashExchange, HashRing, ModulusHashExchange, Release, SlotTable
from rabbit_chx.routing.bindings import GivenBindings
from rabbit_chx.topology import Plan, Topology, steps
from rabbit_chx.topology.applying import Applied, Permission, consumer_tags
from rabbit_chx.topology.declaring import AskedExchange, Declared, exchange_declared
from rabbit_chx.topology.hand_over import HandOverLevel
from rabbit_chx.topology.operations import ApiRequest
from rabbit_chx.topology.reading import (
    PublishRates,
    exchange_mirror,
    rates_read,
    sharded_exchange,
    slot_table_read,
    topology_read,
)
from rabbit_chx.topology.shards import ShardedExchange
from rabbit_chx.topology.steps import CarrierStep, RingRequest

if TYPE_CHECKING:
    from rabbit_chx.broker.aio_pika_connection import AioPikaConnection

_T = TypeVar("_T")


@documented_as(Broker)
class AsyncBroker(BrokerBase):
    """A live broker: declare rings, read them, and apply plans. Use one from one task at a time.

    Use it in an ``async with`` block, or call `open` and `close`.

    Args:
        url: the AMQP URI, see :func:`rabbit_chx.amqp.uri.parse_uri`.
        management_url: the management API, ``http[s]://user:password@host:15672``. It tells what AMQP cannot:
            bindings, the exchange's arguments, the metadata store.
        ring_source: how to read the true ring: a :class:`~rabbit_chx.broker.RingSource`, or the command
            prefix of a :class:`~rabbit_chx.broker.DiagnosticsRing` such as ``docker exec NAME`` (``""`` for a
            broker on this machine).

    Raises:
        UriError: the URL is malformed, or has a parameter that is not supported.
        InputError: the management URL is malformed, or the ring source is neither a prefix nor a source.
    """

    _HOW_TO_OPEN = "use it as 'async with AsyncBroker(url) as broker:', or await open() and later close()"
    _connection: AioPikaConnection | None = None
    _release: Release | None = None

    async def open(self) -> Self:
        """Connect, unless it is connected; return itself.

        Raises:
            BrokerRefusedError: the broker refuses the login or the vhost.
            UnreachableError: nothing answers at the address.
            MissingExtraError: aio-pika is not installed.
        """
        if self._connection is None:
            self._connection = await _opened(self._settings)
            try:
                self._release = await self._run(self._release_sequence(self._connection.server_version))
            except BaseException:
                await self.close()
                raise
        return self

    async def close(self) -> None:
        """Close the connection, if there is one; `open` connects again."""
        connection, self._connection, self._release = self._connection, None, None
        if connection is not None:
            await connection.close()
        await asyncio.to_thread(self._carrier.close)

    async def __aenter__(self) -> Self:
        """Connect; see `open`."""
        return await self.open()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    @property
    def release(self) -> Release:
        """The broker's version and metadata store, read when the connection was opened.

        Without a management URL the store is the default of that version, marked as not known.

        Raises:
            InputError: it is not open.
        """
        if self._release is None:
            raise self._not_open()
        return self._release

    async def declare(
        self,
        exchange: str,
        bindings: GivenBindings,
        *,
        durable: bool = True,
        arguments: Mapping[str, Any] | None = None,
        queue_arguments: Mapping[str, Any] | None = None,
        allow_existing: bool = False,
    ) -> Declared:
        asked = AskedExchange(exchange, bindings, durable, arguments, queue_arguments, allow_existing)
        return await self._run(exchange_declared(asked, self._access, self.release))

    async def ring(self, exchange: str) -> HashRing:
        return await self._run(self._ring_sequence(exchange, self.release))

    async def slots(self, exchange: str) -> SlotTable:
        return await self._run(slot_table_read(self._access, exchange, self.release))

    async def publish_rates(self, exchange: str) -> PublishRates:
        return await self._run(rates_read(self._access.vhost, exchange))

    async def exchange(self, name: str) -> ConsistentHashExchange | ModulusHashExchange:
        return await self._run(exchange_mirror(self._access, name, self.release))

    async def sharding(self, exchange: str, *, counts: bool = True) -> ShardedExchange:
        return await self._run(sharded_exchange(self._access, exchange, self.release, counts=counts))

    async def topology(self) -> Topology:
        return await self._run(topology_read(self._access))

    async def consumers(self, queues: Iterable[str]) -> dict[str, tuple[str, ...]]:
        tags = await self._run(consumer_tags(queues, self._access))
        return {queue: tuple(of_queue) for queue, of_queue in tags.items()}

    async def apply(
        self,
        plan: Plan,
        *,
        allow_moved: float | None = None,
        allow_delete: bool = False,
        allow_loss: bool = False,
        hand_over: HandOverLevel = "parked",
        progress: Callable[[int, int], None] = ignore_progress,
    ) -> Applied:
        permission = Permission(allow_moved, allow_delete, allow_loss, hand_over)
        return await self._run(self._apply_sequence(plan, permission, progress))

    @property
    def _connected(self) -> AioPikaConnection:
        if self._connection is None:
            raise self._not_open()
        return self._connection

    async def _run(self, sequence: steps.Sequence[_T]) -> _T:
        connection = self._connected

        async def do(step: steps.SequenceStep) -> Any:  # noqa: ANN401  # as the step says
            if isinstance(step, ApiRequest | RingRequest | CarrierStep):
                return await asyncio.to_thread(self._answer, step)
            return await connection.perform(step)

        return await drive_async(sequence, do)


async def _opened(settings: ConnectionSettings) -> AioPikaConnection:
    try:
        from rabbit_chx.broker.aio_pika_connection import AioPikaConnection
    except ModuleNotFoundError as missing:
        raise MissingExtraError(
            f"AsyncBroker needs {missing.name}, which is not installed: pip install 'rabbit-chx[aio]', or use Broker"
        ) from None
    return await AioPikaConnection.open(settings)
