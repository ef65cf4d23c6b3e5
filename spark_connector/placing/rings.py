"""The ring of a write: as the caller passed it, cached by a Python worker, and read again after the write."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeAlias

from rabbit_chx.errors import InputError
from rabbit_chx.publishing.batches import describe_ring_change
from rabbit_chx.routing import ConsistentHashExchange, HashRing
from rabbit_chx.routing.key_map import KeyMap, check_key_map, is_routed_by_broker
from rabbit_chx.routing.key_map_json import key_map_from_json
from rabbit_chx.streams.frames import Node
from rabbit_chx.streams.nodes import at_node
from rabbit_chx.streams.rows import check_stream_ring
from rabbit_chx.text import error_text

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from rabbit_chx.amqp import ConnectionSettings
    from rabbit_chx.amqp.settings import ManagementUrl

#: The text of reports for rows without a queue.
NO_QUEUE = "(no queue)"
#: Rings that a Python worker keeps; each task contains its own.
CACHED_RINGS = 8


def as_key_map(given: KeyMap | str) -> KeyMap:
    """Return a key map, or that of a JSON; InputError if the argument is not one, or does not determine the destinations of keys."""
    key_map = key_map_from_json(given) if isinstance(given, str) else given
    check_key_map(key_map)
    if not key_map.destinations:
        raise InputError(
            "the ring has no buckets or bindings, or its slots no queue, so it predicts nothing: bind queues first, or read it again"
        )
    key_map.indices([])  # raises an error for releases without an order
    return key_map


def as_ring(given: KeyMap | str) -> KeyMap:
    """Return the key map of an exchange, as `as_key_map`; InputError for a super stream, whose keys the client hashes."""
    key_map = as_key_map(given)
    if not is_routed_by_broker(key_map):
        raise InputError(
            "the broker does not hash the keys of a super stream: pass a ring, or write with the option superStream"
        )
    return key_map


@lru_cache(CACHED_RINGS)
def cached_ring(ring_json: str) -> KeyMap:
    """Return a ring that is parsed once in each Python worker; its table of seeds is kept."""
    return key_map_from_json(ring_json)


def destination_indices(
    ring: KeyMap,
    keys: Any,  # Arrow has no types
) -> NDArray[np.int32]:
    """Return the indices of the destinations, -1 for a hole and for a null key."""
    if not getattr(keys, "null_count", 0):
        return ring.indices(keys)
    import pyarrow as pa

    indices = ring.indices(keys.fill_null(pa.scalar("", keys.type)))
    indices[keys.is_null().to_numpy(zero_copy_only=False)] = -1
    return indices


def count_by_queue(ring: KeyMap, keys: Any) -> dict[str, int]:
    """Return the number of keys of each queue; queues without keys are omitted."""
    import numpy as np

    names = (NO_QUEUE, *map(str, ring.destinations))
    counts = np.bincount(destination_indices(ring, keys) + 1, minlength=len(names))
    return {name: int(count) for name, count in zip(names, counts, strict=True) if count}


#: A ring, its JSON, or a function that reads it. A function may return the exchange of a ring as well.
GivenRing: TypeAlias = "KeyMap | str | Callable[[], KeyMap | ConsistentHashExchange]"


class WatchedRing:
    """A ring that can be read again, if the caller has passed a function for it.

    Args:
        source: a ring, its JSON, or a function that reads it; None for no ring.
        read: reads a ring again that was read before, perhaps in another process.

    `ring` is the last ring that was read; None without one.
    """

    def __init__(self, source: GivenRing | None, read: Callable[[], Any] | None = None) -> None:
        self._read = source if callable(source) else read
        self.ring: KeyMap | None = None
        if callable(source):
            self.ring = _ring_of(source())
        elif source is not None:
            self.ring = _ring_of(source)

    @property
    def can_be_read(self) -> bool:
        """True if the caller has passed a function that reads the ring."""
        return self._read is not None

    def read_again(self) -> KeyMap:
        """Read the ring, keep and return it; `can_be_read` is true. Raises what the function raises, or InputError."""
        assert self._read is not None  # `can_be_read`
        self.ring = now = _ring_of(self._read())
        return now

    def check_again(self, *, report_unchanged: bool = True) -> str | None:
        """Read the ring again if possible, and return a note on its change, or on no change if `report_unchanged`; else None."""
        before = self.ring
        if self._read is None or before is None:
            return None
        try:
            now = self.read_again()
        except Exception as cause:  # noqa: BLE001  # the messages are published: this must not fail the write
            return f"the ring could not be read again, so it may have changed: {error_text(cause)}"
        if _same(before, now):
            return "the ring is the same as before" if report_unchanged else None
        what = "the slots or the ring have" if now.slots is not None else "the ring has"
        moved = before.share_moved(now) if before.hashing == now.hashing else 1.0
        return (
            f"{what} changed, and {moved:.1%} of all keys changed queue during the write: rows by predicted "
            "queue are wrong"
        )

    def change(self, rows: Mapping[str, int]) -> str | None:
        """Read the ring again, and return why the rows of each queue may be in the wrong one; None if it is the same."""
        before = self.ring
        try:
            now = self.read_again()
        except Exception as cause:  # noqa: BLE001  # whether the rows are right is then unknown
            return (
                "the ring could not be read again, so rows may have gone to a queue that no longer has their keys: "
                f"{error_text(cause)}"
            )
        if before is not None and _same(before, now):
            return None
        changes_unseen = any(ring is not None and ring.slots is not None for ring in (before, now))
        if before is not None and before.hashing == now.hashing and not changes_unseen:
            return describe_ring_change(before, now, rows)
        return "the exchange has another type or slots now, and rows may have gone to a queue that no longer has their keys"


def read_exchange(prefix: str, vhost: str, exchange: str) -> ConsistentHashExchange:
    """Return an exchange with its current ring; `prefix` is that of the broker's command line tool, such as ``docker exec NAME``."""
    from rabbit_chx.broker.ring_source import DiagnosticsRing  # only the driver loads it

    buckets, arguments = DiagnosticsRing(prefix).read_exchange(vhost, exchange)
    ring = HashRing.from_buckets(buckets, next_bucket=buckets.next_bucket)
    return ConsistentHashExchange(exchange, ring, arguments)


def read_recorded(
    exchange: str, management_url: ManagementUrl, addresses: Mapping[str, str], settings: ConnectionSettings
) -> KeyMap:
    """Return the ring of streams of an exchange that the record on the broker proves; an InputError if none does.

    `settings` are those of AMQP, which the proof takes, at the reachable one of `addresses`.
    """
    from rabbit_chx.broker import Broker  # only the driver loads it
    from rabbit_chx.broker.live_routing import key_map_of, mirror_of

    at = at_node(settings, Node(settings.host, settings.port), addresses)
    with Broker(at, management_url.with_login_of(at)) as broker:
        live = broker.inspect(exchange)
        ring = check_stream_ring(
            key_map_of(live, exchange), "record the ring, or pass ringVia, such as 'docker exec NAME'"
        )
        _ring_of(mirror_of(live, exchange))  # an error unless keys are hashed
        return ring


def _ring_of(source: KeyMap | ConsistentHashExchange | str) -> KeyMap:
    if isinstance(source, ConsistentHashExchange):
        if source.hashed_on.kind != "routing-key":
            raise InputError(
                f"exchange {source.name!r} hashes {source.hashed_on}, and what is predicted here is by routing key: leave the "
                "ring out, and let the exchange route"
            )
        source = source.key_map
    return as_ring(source)


def _same(before: KeyMap, now: KeyMap) -> bool:
    return (before.hashing, before.buckets) == (now.hashing, now.buckets)
