"""Routing in the client: messages are published to their queue by the ring, through the default exchange.

The broker does not evaluate the ring, so it is several times as fast per message, and a wrong ring means a wrong queue. So only a ring read
from the broker is accepted. If the caller supplies a function that reads it, the ring is read again after the messages are answered. Other
functions of the exchange do not apply: its alternate exchange, its permissions, and routing keys of CC and BCC headers.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rabbit_chx.checks import short_string
from rabbit_chx.errors import EmptyRingError, InputError, RowError
from rabbit_chx.routing import ConsistentHashExchange
from rabbit_chx.routing.key_map import KeyMap, is_routed_by_broker

_log = logging.getLogger(__name__)
#: The default exchange routes to the queue whose name is the routing key. rabbitmq-server v4.3.6, rabbit_exchange.erl, route/3.
DEFAULT_EXCHANGE = b""
_COPIES = ("CC", "BCC")
_SHOWN_MOVES = 3


class ClientRouting:
    """A ring that routes messages, and the number of messages per queue since the last `compare`. For any number of threads."""

    def __init__(self, exchange: str, ring: object) -> None:
        self.ring = _check_ring(exchange, ring)
        if self.ring.provenance == "recorded":
            _log.warning(
                "the ring of exchange %r, by which this client routes, is %s",
                exchange,
                self.ring.ground.condition,
            )
        self._exchange = exchange
        self._names = [short_string(str(queue), "the queue name") for queue in self.ring.destinations]
        self._sent = [0] * len(self._names)
        self._counting = threading.RLock()  # a signal handler may publish in the same thread

    def queues(self, keys: Sequence[bytes]) -> list[bytes]:
        """Return the queue of each key, and count them."""
        import numpy as np

        indices = self.ring.indices(keys)
        counts = np.bincount(indices, minlength=len(self._names))
        with self._counting:
            self._sent = (counts + self._sent).tolist()
        return list(map(self._names.__getitem__, indices.tolist()))

    def compare(self, ring: object) -> str | None:
        """Compare with the current ring, reset the counts, and return the changes with the messages that may be in a wrong queue; None without
        changes.
        """
        with self._counting:
            sent = self._sent
            self._sent = [0] * len(self._names)
        now = _check_ring(self._exchange, ring)
        if now.kind != self.ring.kind:
            return "the exchange has another type now, and messages may be in a queue that no longer has their keys"
        if now.buckets == self.ring.buckets:
            return None
        rows: Counter[Any] = Counter()
        for destination, count in zip(self.ring.destinations, sent, strict=True):
            rows[destination] += count
        return describe_ring_change(self.ring, now, rows)


def describe_ring_change(before: KeyMap, now: KeyMap, rows: Mapping[Any, int]) -> str:
    """Describe the change between two key maps and the messages that may be in a wrong queue; `rows` counts them by destination.

    Both hash keys alike.
    """
    matrix = before.flows(now)
    totals = matrix.before_totals()
    moves = [
        f"{amount / totals[source]:.1%} of the keys of {source} belong to {target or 'no queue'} now, "
        f"and {rows.get(source, 0):,} messages went to {source}"
        for source, target, amount in matrix.largest_moves(_SHOWN_MOVES)
    ]
    if more := matrix.move_count - len(moves):
        moves.append(f"and {more:,} more")
    return (
        f"the ring has changed during the write: {matrix.moved:.1%} of all keys have another queue now, and their messages may be in "
        f"the old one: {'; '.join(moves)}. Compare destination_for of both rings for each key, and publish these messages again"
    )


def check_for_copies(headers: Iterable[Any], first_row: int | None = None) -> None:
    """Raise an error for CC and BCC headers: the default exchange would treat their keys as names of queues.

    `first_row` is the number of the first message, for the error; None for the headers of all messages.
    """
    for row, row_headers in enumerate(headers):
        for name in _COPIES:
            if row_headers and name in dict(row_headers):
                problem = (
                    f"the header {name!r} names further routing keys, which with routing='client' would be queues: "
                    "leave it out, or publish to the exchange"
                )
                raise (
                    InputError(problem)
                    if first_row is None
                    else RowError(f"row {first_row + row}: {problem}")
                )


def _check_ring(exchange: str, ring: object) -> KeyMap:
    where = f"exchange {exchange!r}: routing='client'"
    if isinstance(ring, ConsistentHashExchange):
        if ring.hashed_on.kind != "routing-key":
            raise InputError(
                f"{where} hashes the routing key, and this exchange hashes {ring.hashed_on}: publish to the exchange",
                exchange=exchange,
            )
        ring = ring.key_map
    if not is_routed_by_broker(ring):
        raise InputError(
            f"{where} got ring={ring!r:.60}, expected a HashRing that was read, such as "
            f"Broker(url, ring_source='docker exec NAME').ring({exchange!r}), or a function that reads it",
            exchange=exchange,
        )
    if ring.slots is not None:
        raise InputError(
            f"{where} is not for slots, whose queues change while the ring stays: publish to the exchange",
            exchange=exchange,
        )
    if not ring.ground.is_certain:
        raise InputError(
            f"{where} needs a ring that was read from the broker, recorded or observed, and this one is {ring.ground}: "
            f"{ring.hashing.how_to_read}",
            exchange=exchange,
        )
    if not ring.destinations:
        raise EmptyRingError(f"{where}: the ring has no buckets: bind queues first", exchange=exchange)
    for bucket, destination in enumerate(ring.buckets):
        if not isinstance(destination, str):
            what = (
                "has no destination" if destination is None else f"belongs to {destination}, not to a queue"
            )
            raise InputError(
                f"{where}: bucket {bucket} of the ring {what}: publish to the exchange", exchange=exchange
            )
    return ring
