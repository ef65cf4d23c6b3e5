"""The blocking and the asyncio broker with one interface, for tests of what they share."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Any, Self, TypeAlias

from rabbit_chx.broker import AsyncBroker, Broker
from rabbit_chx.routing import ConsistentHashExchange, HashRing, ModulusHashExchange, Release, SlotTable
from rabbit_chx.topology import Applied, Plan, ShardedExchange, Topology
from rabbit_chx.topology.declaring import Declared
from rabbit_chx.topology.reading import PublishRates


class AwaitedBroker:
    """An `AsyncBroker` with the interface of `Broker`: each call runs the event loop until it is done.

    `close` closes the loop as well, so that it is another one after the next `open`.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self._runner: asyncio.Runner | None = None
        self._broker = AsyncBroker(*arguments, **options)

    def __repr__(self) -> str:
        return repr(self._broker).removeprefix("Async")

    def _run(self, coroutine: Any) -> Any:
        if self._runner is None:
            return asyncio.run(coroutine)
        return self._runner.run(coroutine)

    def open(self) -> Self:
        """As `AsyncBroker.open`."""
        if self._runner is None:
            self._runner = asyncio.Runner()
        try:
            self._run(self._broker.open())
        except BaseException:
            self.close()
            raise
        return self

    def close(self) -> None:
        """As `AsyncBroker.close`."""
        self._run(self._broker.close())
        if self._runner is not None:
            self._runner.close()
            self._runner = None

    def __enter__(self) -> Self:
        return self.open()

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def release(self) -> Release:
        """As that of `AsyncBroker`."""
        return self._broker.release

    def declare(self, *arguments: Any, **options: Any) -> Declared:
        """As `AsyncBroker.declare`."""
        done: Declared = self._run(self._broker.declare(*arguments, **options))
        return done

    def ring(self, exchange: str) -> HashRing:
        """As `AsyncBroker.ring`."""
        ring: HashRing = self._run(self._broker.ring(exchange))
        return ring

    def publish_rates(self, exchange: str) -> PublishRates:
        """As `AsyncBroker.publish_rates`."""
        rates: PublishRates = self._run(self._broker.publish_rates(exchange))
        return rates

    def slots(self, exchange: str) -> SlotTable:
        """As `AsyncBroker.slots`."""
        slots: SlotTable = self._run(self._broker.slots(exchange))
        return slots

    def exchange(self, name: str) -> ConsistentHashExchange | ModulusHashExchange:
        """As `AsyncBroker.exchange`."""
        exchange: ConsistentHashExchange | ModulusHashExchange = self._run(self._broker.exchange(name))
        return exchange

    def sharding(self, *arguments: Any, **options: Any) -> ShardedExchange:
        """As `AsyncBroker.sharding`."""
        sharded: ShardedExchange = self._run(self._broker.sharding(*arguments, **options))
        return sharded

    def topology(self) -> Topology:
        """As `AsyncBroker.topology`."""
        topology: Topology = self._run(self._broker.topology())
        return topology

    def apply(self, plan: Plan, **options: Any) -> Applied:
        """As `AsyncBroker.apply`."""
        applied: Applied = self._run(self._broker.apply(plan, **options))
        return applied


AnyBroker: TypeAlias = "type[Broker | AwaitedBroker]"
BOTH_BROKERS: tuple[AnyBroker, ...] = (Broker, AwaitedBroker)
