"""A consumer of all shards of an exchange, on all nodes, that follows them."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol, Unpack

from rabbit_chx.consuming.shard_consumer_base import ShardConsumerBase, ShardPace
from rabbit_chx.errors import RabbitChxError

if TYPE_CHECKING:
    from rabbit_chx.consuming.shard_link import ShardLink
    from rabbit_chx.topology import ShardedExchange

__all__ = ["ReadSharding", "ShardConsumer"]

_log = logging.getLogger(__name__)


class ReadSharding(Protocol):
    """What reads a sharded exchange: `AsyncBroker.sharding`."""

    async def __call__(self, exchange: str, /, *, counts: bool) -> ShardedExchange:
        """Return the exchange with its shards."""


class ShardConsumer(ShardConsumerBase):
    """A consumer of all shards of an exchange, each by its own name, on all nodes of the cluster.

    It looks for shards again every few seconds. So it follows a policy that asks for more, and a node that joins, and it goes on
    with what a lowered policy leaves. A shard whose node is away is tried again.

    It has one connection: any node serves the consumers of any shard. Two such consumers share the messages of each shard, so
    a key keeps its order only where there is one.

    Args:
        url: the AMQP URI, see :func:`rabbit_chx.amqp.uri.parse_uri`.
        exchange: the name of the sharded exchange.
        sharding: what reads it: `AsyncBroker.sharding` of a broker with a management URL.
        prefetch: how many messages of each shard the broker may send ahead, 100 by default.
        look_every_s: seconds between two looks for shards, 10 by default.
        reconnect_timeout_s: seconds for which to try to connect again after a loss, 120 by default.

    Raises:
        UriError: the URL is malformed, or has a parameter that is not supported.
        InputError: a number is not what it has to be.

    Example::

        async with AsyncBroker(url, management_url) as broker:
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

    async def _look(self, link: ShardLink) -> Mapping[str, str]:  # noqa: ARG002  # as the other consumer
        try:
            found = await self._sharding(self._exchange, counts=False)
        except RabbitChxError as error:
            if self._known is None:
                raise
            _log.warning(
                "%s; consuming what was known before, and looking again in %g s", error, self._look_every_s
            )
            return self._known
        names = {shard.name: shard.name for shard in found.reachable}
        if self._known is not None and (new := sorted(names.keys() - self._known.keys())):
            _log.info("consuming new shards: %s", ", ".join(new))
        self._known = names
        return names
