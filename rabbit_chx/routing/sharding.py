"""The queues of a rabbitmq_sharding policy with ``shards-per-node``.

Mirrors rabbitmq-server ``deps/rabbitmq_sharding/src/rabbit_sharding_util.erl``, ``make_queue_name/3``, and ``rabbit_sharding_shard.erl``,
``ensure_sharded_queues/1`` (v3.8.0 to v4.3.6).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from rabbit_chx.amqp.names import short_string
from rabbit_chx.checks import check_whole
from rabbit_chx.errors import InputError
from rabbit_chx.routing.bindings import listed

_NAME = re.compile(r"sharding: (.+) - (\S+@\S+) - (0|[1-9][0-9]*)", re.ASCII | re.DOTALL)


@dataclass(frozen=True, slots=True)
class ShardName:
    """The parts of a shard's name; `number` counts from 0 on each node."""

    exchange: str
    node: str
    number: int

    def __str__(self) -> str:
        return f"sharding: {self.exchange} - {self.node} - {self.number}"

    @classmethod
    def parsed(cls, queue: str) -> ShardName | None:
        """Parse the name of a queue; return None if it is not the name of a shard."""
        match = _NAME.fullmatch(queue)
        return None if match is None else cls(match[1], match[2], int(match[3]))


def shard_names(exchange: str, nodes: Iterable[str], shards_per_node: int) -> tuple[str, ...]:
    """Return the names of an exchange's shards on the running nodes, in the order in which ``x-modulus-hash`` counts them.

    All have the same binding key, so the order is that of the names: by node, then by number as text, 10 before 2. Shards of an earlier,
    larger policy remain bound; the caller adds them.
    """
    check_whole("shards-per-node", shards_per_node, 0)
    node_names = listed(nodes, "the names of the nodes, even of one")
    for name in (exchange, *node_names):
        if not isinstance(name, str):
            raise InputError(f"{name!r:.60} is not the name of an exchange or node: give str")
    names = [
        str(ShardName(exchange, node, number))
        for node in dict.fromkeys(node_names)
        for number in range(shards_per_node)
    ]
    return tuple(sorted(names, key=lambda name: short_string(name, "the shard")))
