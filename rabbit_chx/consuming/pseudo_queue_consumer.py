"""Consumers of a sharded exchange by its own name: the pseudo-queue of the plugin rabbitmq_sharding."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Unpack

from rabbit_chx.checks import check_whole
from rabbit_chx.consuming.shard_consumer_base import ShardConsumerBase, ShardPace
from rabbit_chx.errors import MismatchError, NotFoundError
from rabbit_chx.routing.sharding import ShardName

if TYPE_CHECKING:
    from rabbit_chx.consuming.shard_link import ShardLink

__all__ = ["PseudoQueueConsumer"]

_log = logging.getLogger(__name__)
_MOST_SHARDS = 10_000


class PseudoQueueConsumer(ShardConsumerBase):
    """Consumers of a sharded exchange by its own name, which stands for a shard of **the node that they are connected to**.

    The broker gives each consumer the shard of that node which has the fewest consumers, and it keeps it. So

    - shards of other nodes are not consumed here: connect to each node;
    - with fewer consumers than shards on the node, some shards are not consumed: `unconsumed` has their names, and a line in the
      log says so;
    - a shard that is made later gets none of the consumers that are there;
    - the broker does not tell which shard a message came from.

    `ShardConsumer` has none of these limits, and needs the management API for that. This one needs AMQP alone.

    Args:
        url: the AMQP URI of one node, see :func:`rabbit_chx.amqp.uri.parse_uri`.
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

    async def _look(self, link: ShardLink) -> Mapping[str, str]:
        return dict.fromkeys(map(str, range(self._asked or await self._wanted(link))), self._exchange)

    async def _wanted(self, link: ShardLink) -> int:
        """Return how many consumers it takes: the broker gives each further one a shard that has none."""
        consumers = await self._local_consumers(link)
        idle = sum(not count for count in consumers.values())
        return len(self.queues) + idle if self.queues else len(consumers)

    async def _looked(self, link: ShardLink) -> None:
        consumers = await self._local_consumers(link)
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

    async def _local_consumers(self, link: ShardLink) -> dict[str, int]:
        """Return the shards of the node with the number of their consumers."""
        first = await self._first_shard(link)
        counts: dict[str, int] = {}
        for number in range(_MOST_SHARDS):
            try:
                name, count = await link.declared(str(ShardName(first.exchange, first.node, number)))
            except NotFoundError:
                break
            counts[name] = count
        return counts

    async def _first_shard(self, link: ShardLink) -> ShardName:
        """Return the first shard of the node: the broker answers with its name if asked for a queue of the exchange's name."""
        try:
            name, _ = await link.declared(self._exchange)
        except NotFoundError:
            raise NotFoundError(
                f"{self._settings.masked_url}: exchange {self._exchange!r} has no shard on this node: check that a policy with "
                "shards-per-node applies to it, and that the plugin rabbitmq_sharding is enabled there",
                queue=self._exchange,
                reply_code=404,
            ) from None
        shard = ShardName.parsed(name)
        if shard is None or shard.exchange != self._exchange:
            raise MismatchError(
                f"{self._settings.masked_url}: {self._exchange!r} is a queue, and no sharded exchange: give the name of one",
                queue=self._exchange,
            )
        return shard
