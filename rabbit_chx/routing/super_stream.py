"""Super streams: the partition of a routing key, which the client chooses, not the broker.

Mirrors rabbitmq-stream-java-client ``HashRoutingStrategy.java`` and ``RoutingKeyRoutingStrategy.java``; the official client for Python,
rstream 1.1.1, ``superstream.py``, ``HashRoutingMurmurStrategy``, which hashes differently; and rabbitmq-server
``deps/rabbitmq_stream/src/rabbit_stream_utils.erl``, ``sort_partitions/1`` (v3.11.0 to v4.3.6).
"""

from __future__ import annotations

import codecs
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NotRequired, TypeAlias, cast, get_args

from rabbit_chx.checks import bytes_of, is_whole, short_string
from rabbit_chx.errors import InputError
from rabbit_chx.routing.bindings import (
    Binding,
    ExchangeRef,
    Flows,
    OrderKnowledge,
    OriginJson,
    Place,
    Provenance,
    as_tuple,
    tuples_of,
)
from rabbit_chx.routing.key_map import KeyHash, KeyMap, set_fields
from rabbit_chx.text import plural

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


StreamClient: TypeAlias = Literal["java", "rstream"]
#: How clients route: by a hash, or by the binding keys of the partitions.
StreamRouting: TypeAlias = Literal["hash", "key"]

_SEED = 104729  # the 10,000th prime
#: The number of hashes. rstream has 128 bits, of which every share is the ideal share, to all digits of a float.
_HASHES = {"java": 1 << 32, "rstream": 1 << 128}


class SuperStreamSummary(OriginJson):
    """What a JSON document says of a super stream."""

    exchange: str
    client: StreamClient
    routing: StreamRouting | None
    partitions: Sequence[str]


class SuperStreamFields(OriginJson):
    """The fields of a super stream in JSON, as `to_json` writes them."""

    name: str
    client: StreamClient
    routing: NotRequired[StreamRouting]
    partitions: Sequence[str]
    binding_keys: Sequence[str]


class SuperStreamJson(SuperStreamFields):
    """The JSON document of a super stream."""

    format: Literal["rabbit-chx/super-stream"]
    format_version: Literal[1]


@dataclass(frozen=True, slots=True)
class StreamHash(KeyHash):
    """How clients map routing keys to the partitions of a super stream: by a hash modulo their number, or by binding key.

    Attributes:
        client: the client of the producers: ``java`` hashes UTF-8 by 32-bit murmur3; ``rstream`` hashes UTF-16 with its byte order mark,
            as on little-endian machines, by 128-bit murmur3.
        bound: the partition and the binding key of each binding, if clients route by binding key; None if they hash.
    """

    exchange_type = "super-stream"
    article = "a super stream"
    json_field = "super_stream"
    json_buckets = "partitions"

    client: StreamClient = "java"
    bound: tuple[Binding, ...] | None = field(default=None, compare=False)

    @property
    def name(self) -> str:
        """``super-stream/`` and the client, or ``key`` for all clients."""
        return f"{self.exchange_type}/{self.client if self.bound is None else 'key'}"

    def bucket_of(self, key: str | bytes, buckets: int) -> int:
        """Return the number of the partition of a routing key; -1 if no partition is bound with it, an InputError if several are."""
        data = bytes_of(key, "the routing key")
        if self.bound is not None:
            numbers = [number for number, (_, bound) in enumerate(self.bound) if bound.encode() == data]
            if len(names := dict.fromkeys(str(self.bound[number][0]) for number in numbers)) > 1:
                raise InputError(
                    f"{len(names)} partitions are bound with the key {key!r:.60}, {' and '.join([*names][:10])}: unbind all but one, or "
                    "use partitions_bound_with"
                )
            return numbers[0] if numbers else -1
        if self.client == "java":
            return murmur3_x86_32(data, _SEED) % buckets
        return murmur3_x64_128(_utf_16(data), _SEED) % buckets

    def hashes_of(self, keys: Iterable[Any], *, is_filled: bool) -> NDArray[np.uint32] | None:
        """Return the hash of each routing key, if ``java`` hashes and no nulls are filled."""
        from rabbit_chx.routing.arrays.keys import murmur3_hashes

        return None if is_filled or self.name != "super-stream/java" else murmur3_hashes(keys, _SEED)

    def flows(self, before: KeyMap, after: KeyMap) -> Flows:
        """Return the flows between two super streams; an InputError if clients route by binding key, since any key may occur."""
        from rabbit_chx.routing.arrays.seeds import ModuloFlows

        if self.bound is not None:
            raise InputError(
                f"clients of {before.name!r} route by binding key, so the shares of the keys are not known: pass keys"
            )
        return ModuloFlows(before.buckets, after.buckets, _HASHES[self.client])


@dataclass(frozen=True, slots=True, init=False, repr=False)
class SuperStream(KeyMap):
    """The partitions of a super stream: a key map.

    Attributes:
        buckets: the streams, in the broker's order; also `partitions` and `destinations`.
        binding_keys: the binding key of each partition.
        name: the name of the exchange; empty if it is not known.
        client: the client of the producers, which determines the hash: ``java``, which hashes as those for .NET and Go do, or ``rstream``.
        order: the origin of the partitions. It does not count in comparisons.
        routing: how clients route: ``hash``, ``key`` (the routing key is the binding key of a partition, as for AMQP clients and the Java
            client's ``.key()``), or None: not known, taken for ``hash``.
    """

    _hash = StreamHash

    binding_keys: tuple[str, ...]
    name: str = field(compare=False)
    client: StreamClient
    routing: StreamRouting | None

    def __init__(
        self,
        partitions: Iterable[str],
        binding_keys: Iterable[str] | None = None,
        *,
        name: str = "",
        client: StreamClient = "java",
        provenance: Provenance | None = "replayed",
        routing: StreamRouting | None = None,
    ) -> None:
        """Create a super stream from its partitions.

        Args:
            partitions: the streams' names, in the broker's order.
            binding_keys: the binding key of each partition; None for the broker's default ``0``, ``1`` and so on.
            name: the name of the exchange.
            client: the client of the producers.
            provenance: the origin of the partitions.
            routing: how clients route, ``hash`` or ``key``; None if that is not known.

        Raises:
            InputError: an argument is invalid.
        """
        names = as_tuple(partitions, "the names of the streams, even of one")
        if binding_keys is None:
            binding_keys = map(str, range(len(names)))
        keys = as_tuple(binding_keys, "the binding key of each partition")
        if not names:
            raise InputError("a super stream has at least one partition: pass the names of its streams")
        if len(keys) != len(names):
            raise InputError(f"{len(names)} partitions have {len(keys)} binding keys: pass one for each")
        for partition, key in zip(names, keys, strict=True):
            _check_text(partition, "the partition's name")
            _check_text(key, "the binding key")
        check_routing(routing)
        bound = tuple(zip(names, keys, strict=True)) if routing == "key" else None
        hashing = StreamHash(_check_client(client), bound)
        KeyMap.__init__(self, names, hashing, OrderKnowledge(provenance))
        set_fields(self, binding_keys=keys, name=name, client=client, routing=routing)

    @classmethod
    def from_bindings(cls, bindings: Iterable[tuple[str, str, int | None]]) -> SuperStream:
        """Return the super stream with these bindings of its exchange.

        Args:
            bindings: ``(stream, binding key, order)`` of each binding. The order is the argument ``x-stream-partition-order``, or None;
                bindings without it are last, in the given order.

        Raises:
            InputError: an entry is not such a binding.
        """
        entries = tuples_of(bindings, 3, "(stream, binding key, order) of each")
        for name, _, order in entries:
            if order is not None and not is_whole(order):
                raise InputError(f"the order of {name!r:.60} is {order!r:.60}: pass an int or None")
        ordered = sorted(entries, key=lambda binding: (binding[2] is None, binding[2] or 0))
        return cls([name for name, _, _ in ordered], [key for _, key, _ in ordered])

    @property
    def has_named_keys(self) -> bool:
        """True if the binding keys are not ``0``, ``1`` and so on: then clients route by key or by hash, as their program says."""
        return are_names(self.binding_keys)

    @property
    def routes_by_key(self) -> bool | None:
        """True if clients route by binding key; None if that is not known, and the binding keys are names, not ``0``, ``1`` and so on."""
        if self.routing is None:
            return None if self.has_named_keys else False
        return self.routing == "key"

    @property
    def partitions(self) -> tuple[str, ...]:
        """The streams, in the broker's order."""
        return cast("tuple[str, ...]", self.buckets)

    @property
    def bindings(self) -> tuple[Binding, ...]:
        """The partition and the binding key of each binding."""
        return tuple(zip(self.partitions, self.binding_keys, strict=True))

    def partition_for(self, routing_key: str | bytes, client: StreamClient | None = None) -> str | None:
        """Return the partition of a routing key: its unsigned hash modulo the number of partitions.

        The two kinds of producers put the same key into different partitions. With the routing ``key`` it is the partition that is bound
        with the key; None if no partition is.

        Args:
            routing_key: text or its UTF-8 bytes, of any length.
            client: the client of the producer; None for that of the super stream: ``java`` hashes UTF-8 by 32-bit murmur3; ``rstream``
                hashes UTF-16 with its byte order mark, as on little-endian machines, by 128-bit murmur3.

        Raises:
            InputError: the key is neither text nor bytes, or the client is unknown; with the routing ``key`` several partitions are bound
                with it.
        """
        hashing = self.hashing if client is None else StreamHash(_check_client(client))
        number = hashing.bucket_of(routing_key, self.bucket_count)
        return self.partitions[number] if number >= 0 else None

    def partitions_bound_with(self, routing_key: str | bytes) -> tuple[str, ...]:
        """Return the partitions that are bound with a routing key, for clients that route by binding key.

        Args:
            routing_key: text or its UTF-8 bytes.

        Raises:
            InputError: the routing key is neither text nor bytes.
        """
        wanted = bytes_of(routing_key, "the routing key")
        return tuple(str(name) for name, key in self.bindings if key.encode() == wanted)

    def route(self, routing_key: str | bytes = "", **other: Any) -> str | None:
        """Return the partition of a message, as `partition_for`.

        Args:
            routing_key: text or its UTF-8 bytes.
            **other: other parts of a message, which the clients do not hash.

        Raises:
            InputError: another part is given.
        """
        if other:
            raise InputError(
                f"the client hashes the routing key alone for the super stream {self.name!r}: leave the rest out"
            )
        return self.partition_for(routing_key)

    def with_client(self, client: str) -> SuperStream:
        """Return the super stream with producers of another client.

        Args:
            client: ``java`` or ``rstream``.

        Raises:
            InputError: the client is unknown.
        """
        return self._copy(client=_check_client(client))

    def with_routing(self, routing: StreamRouting | None) -> SuperStream:
        """Return the super stream with clients that route in another way.

        Args:
            routing: ``hash`` or ``key``; None if that is not known.

        Raises:
            InputError: the routing is unknown.
        """
        return self._copy(routing=routing)

    def _copy(self, **changed: Any) -> SuperStream:
        attributes = {name: getattr(self, name) for name in ("name", "client", "provenance", "routing")}
        return SuperStream(self.partitions, self.binding_keys, **(attributes | changed))

    def facts(self) -> tuple[str, ...]:
        """Return the kind, the clients and the size in words, for a report."""
        client = "the clients for Java, .NET and Go" if self.client == "java" else "rstream"
        way = "routed by binding key" if self.routing == "key" else f"hashed by {client}"
        return self.kind, way, plural(self.bucket_count, "partition")

    def summary(self) -> SuperStreamSummary:
        """Return name, provenance, client, routing and partitions."""
        return {
            "exchange": self.name,
            **self.order_fields(),
            "client": self.client,
            "routing": self.routing,
            "partitions": self.partitions,
        }

    def other_fields(self) -> dict[str, Any]:
        """Return the name, the clients and the binding keys."""
        routing = {} if self.routing is None else {"routing": self.routing}
        return {"name": self.name, "client": self.client, "binding_keys": self.binding_keys, **routing}

    @classmethod
    def _of_json(cls, read: Mapping[str, Any], buckets: list[Place], order: OrderKnowledge) -> SuperStream:
        partitions = cast("list[str]", buckets)  # they are checked
        named = {name: read[name] for name in ("name", "client")}
        routing = read.get("routing")
        return cls(partitions, read["binding_keys"], provenance=order.origin, routing=routing, **named)

    def _with_bindings(self, bindings: tuple[Binding, ...]) -> SuperStream:
        provenance = self.order.after_change().origin
        return super_stream_of(
            self.name, bindings, client=self.client, provenance=provenance, routing=self.routing
        )


def super_stream_of(
    name: str,
    bindings: Iterable[Binding],
    *,
    client: StreamClient = "java",
    provenance: Provenance | None = "replayed",
    routing: StreamRouting | None = None,
) -> SuperStream:
    """Return the super stream with these bindings in the order of its partitions; an InputError if one of them is not a stream."""
    bindings = tuple(bindings)
    if exchanges := [place.name for place, _ in bindings if isinstance(place, ExchangeRef)]:
        raise InputError(f"a partition of a super stream is a stream, and {exchanges[0]!r} is an exchange")
    if not bindings:
        raise InputError(f"the super stream {name!r} has no partition: bind a stream to its exchange")
    streams = [str(place) for place, _ in bindings]
    keys = [key for _, key in bindings]
    return SuperStream(streams, keys, name=name, client=client, provenance=provenance, routing=routing)


def are_names(binding_keys: Sequence[str | None]) -> bool:
    """Return True if the binding keys of a super stream are not ``0``, ``1`` and so on."""
    return list(binding_keys) != list(map(str, range(len(binding_keys))))


def check_routing(routing: object) -> None:
    """Raise an InputError unless this is a way in which clients route to a super stream."""
    if routing not in (*get_args(StreamRouting), None):
        raise InputError(f"routing is {routing!r:.60}: pass 'hash' or 'key'")


def _check_client(client: object) -> StreamClient:
    if client in get_args(StreamClient):
        return cast("StreamClient", client)
    raise InputError(f"there is no client {client!r} of super streams here: pass 'java' or 'rstream'")


def _check_text(text: str, what: str) -> None:
    if not isinstance(text, str):
        raise InputError(f"{what} is {text!r:.60}: pass str")
    short_string(text, what)


def _utf_16(data: bytes) -> bytes:
    try:
        return codecs.BOM_UTF16_LE + data.decode().encode("utf-16-le")
    except UnicodeDecodeError:
        raise InputError(f"rstream sends text, and the routing key {data!r:.60} is not UTF-8") from None


# -- murmur3 (Austin Appleby, MurmurHash3.cpp)

_MASK = 0xFFFFFFFF
_C1 = 0xCC9E2D51
_C2 = 0x1B873593
_MASK_64 = (1 << 64) - 1
_D1 = 0x87C37B91114253D5
_D2 = 0x4CF5AD432745937F


def murmur3_x86_32(data: bytes, seed: int = 0) -> int:
    """Return the unsigned 32-bit hash."""
    hash_ = seed & _MASK
    words = len(data) // 4
    for (word,) in struct.iter_unpack("<I", data[: words * 4]):
        hash_ = _rotate(hash_ ^ _scramble(word), 13) * 5 + 0xE6546B64 & _MASK
    hash_ ^= _scramble(int.from_bytes(data[words * 4 :], "little")) ^ len(data)
    hash_ = (hash_ ^ hash_ >> 16) * 0x85EBCA6B & _MASK
    hash_ = (hash_ ^ hash_ >> 13) * 0xC2B2AE35 & _MASK
    return hash_ ^ hash_ >> 16


def _scramble(word: int) -> int:
    return _rotate(word * _C1 & _MASK, 15) * _C2 & _MASK


def _rotate(word: int, bits: int) -> int:
    return (word << bits | word >> 32 - bits) & _MASK


def murmur3_x64_128(data: bytes, seed: int = 0) -> int:
    """Return the unsigned 128-bit hash; the original's first half is the lower one."""
    h1 = h2 = seed & _MASK
    tail = len(data) // 16 * 16
    for low, high in struct.iter_unpack("<QQ", data[:tail]):
        h1 = (_rotate_64(h1 ^ _scramble_low(low), 27) + h2) * 5 + 0x52DCE729 & _MASK_64
        h2 = (_rotate_64(h2 ^ _scramble_high(high), 31) + h1) * 5 + 0x38495AB5 & _MASK_64
    h1 ^= _scramble_low(int.from_bytes(data[tail : tail + 8], "little")) ^ len(data)
    h2 ^= _scramble_high(int.from_bytes(data[tail + 8 :], "little")) ^ len(data)
    h1 = h1 + h2 & _MASK_64
    h2 = h2 + h1 & _MASK_64
    h1 = _finalize_64(h1)
    h2 = _finalize_64(h2)
    h1 = h1 + h2 & _MASK_64
    return h1 | (h2 + h1 & _MASK_64) << 64


def _scramble_low(word: int) -> int:
    return _rotate_64(word * _D1 & _MASK_64, 31) * _D2 & _MASK_64


def _scramble_high(word: int) -> int:
    return _rotate_64(word * _D2 & _MASK_64, 33) * _D1 & _MASK_64


def _finalize_64(half: int) -> int:
    half = (half ^ half >> 33) * 0xFF51AFD7ED558CCD & _MASK_64
    half = (half ^ half >> 33) * 0xC4CEB9FE1A85EC53 & _MASK_64
    return half ^ half >> 33


def _rotate_64(word: int, bits: int) -> int:
    return (word << bits | word >> 64 - bits) & _MASK_64
