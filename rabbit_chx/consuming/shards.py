"""Consumers of the shards of the plugin rabbitmq_sharding: of each shard by its name, or of the exchange's own name."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol, TypedDict, Unpack

from rabbit_chx.checks import check_whole
from rabbit_chx.consuming.queue_consumers import QueueConsumers
from rabbit_chx.errors import MismatchError, NotFoundError, RabbitChxError
from rabbit_chx.routing.sharding import ShardName
from rabbit_chx.topology import ShardedExchange

if TYPE_CHECKING:
    from rabbit_chx.consuming.channels import ConsumingConnection

_log = logging.getLogger(__name__)
_MOST_SHARDS = 10_000


class ReadSharding(Protocol):
    """What reads a sharded exchange: `Broker.sharding`."""

    def __call__(self, exchange: str, /, *, counts: bool) -> ShardedExchange:
        """Return the exchange with its shards."""


class ShardPace(TypedDict, total=False):
    """What each consumer of shards may be given by keyword; `ShardConsumer` says what it is."""

    prefetch: int
    look_every_s: float
    reconnect_timeout_s: float


class ShardConsumer(QueueConsumers):
    """A consumer of all shards of an exchange, each by its own name, on all nodes of the cluster.

    It looks for shards again every few seconds. So it follows a policy that asks for more, and a node that joins, and it goes on
    with what a lowered policy leaves. A shard whose node is away is tried again.

    It has one connection: any node serves the consumers of any shard. Two such consumers share the messages of each shard, so
    a key keeps its order only where there is one.

    Args:
        url: the AMQP URI, see :func:`rabbit_chx.amqp.settings.parse_uri`.
        exchange: the name of the sharded exchange.
        sharding: what reads it, in a thread: `Broker.sharding` of a broker with a management URL, which nothing else uses meanwhile.
        prefetch: how many messages of each shard the broker may send ahead, 100 by default.
        look_every_s: seconds between two looks for shards, 10 by default.
        reconnect_timeout_s: seconds for which to try to connect again after a loss, 120 by default.

    Raises:
        UriError: the URL is malformed, or has a parameter that is not supported.
        InputError: a number is not what it has to be.

    Example::

        with Broker(url, management_url) as broker:
            await ShardConsumer(url, "images", broker.sharding).run(handle)
    """

    def __init__(
        self,
        url: str,
        exchange: str,
        sharding: ReadSharding,
        **pace: Unpack[ShardPace],
    ) -> None:
        super().__init__(url, exchange, **pace)
        self._sharding = sharding
        self._known: dict[str, str] | None = None

    async def _look(self, connection: ConsumingConnection) -> Mapping[str, str]:  # noqa: ARG002  # as the other consumer
        try:
            exchange = await asyncio.to_thread(self._sharding, self._exchange, counts=False)
        except RabbitChxError as error:
            if self._known is None:
                raise
            _log.warning(
                "%s; consuming what was known before, and looking again in %g s", error, self._look_every_s
            )
            return self._known
        names = {shard.name: shard.name for shard in exchange.reachable}
        if self._known is not None and (new := sorted(names.keys() - self._known.keys())):
            _log.info("consuming new shards: %s", ", ".join(new))
        self._known = names
        return names


class PseudoQueueConsumer(QueueConsumers):
    """Consumers of a sharded exchange by its own name, which stands for a shard of **the node that they are connected to**.

    The broker gives each consumer the shard of that node which has the fewest consumers, and it keeps it. So

    - shards of other nodes are not consumed here: connect to each node;
    - with fewer consumers than shards on the node, some shards are not consumed: `unconsumed` has their names, and a line in the
      log says so;
    - a shard that is made later gets none of the consumers that are there;
    - the broker does not tell which shard a message came from.

    `ShardConsumer` has none of these limits, and needs the management API for that. This one needs AMQP alone.

    Args:
        url: the AMQP URI of one node, see :func:`rabbit_chx.amqp.settings.parse_uri`.
        exchange: the name of the sharded exchange.
        consumers: how many consumers; None for one for each shard on the node, and one more whenever a shard has none.
        prefetch: how many messages the broker may send ahead to each, 100 by default.
        look_every_s: seconds between two looks for shards without a consumer, 10 by default.
        reconnect_timeout_s: seconds for which to try to connect again after a loss, 120 by default.

    Raises:
        UriError: the URL is malformed, or has a parameter that is not supported.
        InputError: a number is not what it has to be.
    """

    def __init__(
        self,
        url: str,
        exchange: str,
        consumers: int | None = None,
        **pace: Unpack[ShardPace],
    ) -> None:
        super().__init__(url, exchange, **pace)
        if consumers is not None:
            check_whole("consumers", consumers, 1)
        self._asked = consumers
        #: The shards of the node that had no consumer at the last look, of anybody.
        self.unconsumed: tuple[str, ...] = ()

    async def _look(self, connection: ConsumingConnection) -> Mapping[str, str]:
        return dict.fromkeys(map(str, range(self._asked or await self._wanted(connection))), self._exchange)

    async def _wanted(self, connection: ConsumingConnection) -> int:
        """Return how many consumers it takes: the broker gives each further one a shard that has none."""
        consumers = await self._local_consumers(connection)
        idle = sum(not count for count in consumers.values())
        return len(self.queues) + idle if self.queues else len(consumers)

    async def _looked(self, connection: ConsumingConnection) -> None:
        consumers = await self._local_consumers(connection)
        idle = tuple(shard for shard, count in consumers.items() if not count)
        if idle and idle != self.unconsumed:
            _log.warning(
                "%s: %d of %d shards of exchange %r on this node have no consumer (%s): give more consumers, or use ShardConsumer",
                self._settings.masked_url,
                len(idle),
                len(consumers),
                self._exchange,
                ", ".join(idle),
            )
        self.unconsumed = idle

    async def _local_consumers(self, connection: ConsumingConnection) -> dict[str, int]:
        """Return the shards of the node with the number of their consumers."""
        first = await self._first_shard(connection)
        counts: dict[str, int] = {}
        for number in range(_MOST_SHARDS):
            try:
                shard = await connection.declared(str(ShardName(first.exchange, first.node, number)))
            except NotFoundError:
                break
            counts[str(shard.queue)] = int(shard.consumer_count or 0)
        return counts

    async def _first_shard(self, connection: ConsumingConnection) -> ShardName:
        """Return the first shard of the node: the broker answers with its name if asked for a queue of the exchange's name."""
        try:
            answer = await connection.declared(self._exchange)
        except NotFoundError:
            raise NotFoundError(
                f"{self._settings.masked_url}: exchange {self._exchange!r} has no shard on this node: check that a policy with "
                "shards-per-node applies to it, and that the plugin rabbitmq_sharding is enabled there",
                queue=self._exchange,
                reply_code=404,
            ) from None
        shard = ShardName.parsed(str(answer.queue))
        if shard is None or shard.exchange != self._exchange:
            raise MismatchError(
                f"{self._settings.masked_url}: {self._exchange!r} is a queue, and no sharded exchange: give the name of one",
                queue=self._exchange,
            )
        return shard
