"""Super streams: the partition of a routing key, which the client chooses, not the broker.

Mirrors rabbitmq-stream-java-client ``HashRoutingStrategy.java`` and ``RoutingKeyRoutingStrategy.java``; the official client for Python,
rstream 1.1.1, ``superstream.py``, ``HashRoutingMurmurStrategy``, which hashes differently; and rabbitmq-server
``deps/rabbitmq_stream/src/rabbit_stream_utils.erl``, ``sort_partitions/1`` (v3.11.0 to v4.3.6).
"""

from __future__ import annotations

import codecs
import json
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, TypeAlias, cast, get_args

from rabbit_chx.checks import bytes_of, is_whole, short_string
from rabbit_chx.errors import InputError, RowError
from rabbit_chx.result_fields import json_fields
from rabbit_chx.routing.bindings import (
    Binding,
    Destination,
    ExchangeRef,
    as_tuple,
    tuples_of,
    without_binding,
)
from rabbit_chx.routing.ground import Ground, Provenance
from rabbit_chx.routing.key_map import (
    SHOW_FORMAT,
    TRAITS,
    Flows,
    KeyMap,
    KeyMapKind,
    MapTraits,
    check_comparable,
)
from rabbit_chx.routing.modulo_shares import modulo_flows, modulo_shares
from rabbit_chx.routing.release import Release
from rabbit_chx.words import plural

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


StreamClient: TypeAlias = Literal["java", "rstream"]
#: How clients route: by a hash, or by the binding keys of the partitions.
StreamRouting: TypeAlias = Literal["hash", "key"]

_FORMAT = "rabbit-chx/super-stream"
_SEED = 104729  # the 10,000th prime
#: The number of hashes. rstream has 128 bits, of which every share is the ideal share, to all digits of a float.
_HASHES = {"java": 1 << 32, "rstream": 1 << 128}


@dataclass(frozen=True, slots=True, init=False)
class SuperStream:
    """The partitions of a super stream.

    Attributes:
        partitions: the streams, in the broker's order.
        binding_keys: the binding key of each partition.
        name: the name of the exchange; empty if it is not known.
        client: the client of the producers, which determines the hash: ``java``, which hashes as those for .NET and Go do, or ``rstream``.
        provenance: the origin of the partitions. It does not count in comparisons.
        routing: how clients route: ``hash``, ``key`` (the routing key is the binding key of a partition, as for AMQP clients and the Java
            client's ``.key()``), or None: not known, taken for ``hash``.
    """

    kind: ClassVar[KeyMapKind] = "super-stream"
    traits: ClassVar[MapTraits] = TRAITS["super-stream"]
    #: The client chooses the partition, on all releases alike.
    release: ClassVar[None] = None

    partitions: tuple[str, ...]
    binding_keys: tuple[str, ...]
    name: str = field(compare=False)
    client: StreamClient
    provenance: Provenance = field(compare=False)
    routing: StreamRouting | None

    def __init__(
        self,
        partitions: Iterable[str],
        binding_keys: Iterable[str] | None = None,
        *,
        name: str = "",
        client: StreamClient = "java",
        provenance: Provenance = "replayed",
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
        # dataclass(frozen=True) leaves no other way to set an attribute.
        object.__setattr__(self, "partitions", names)
        object.__setattr__(self, "binding_keys", keys)
        object.__setattr__(self, "name", name)
        object.__setattr__(self, "client", _check_client(client))
        object.__setattr__(self, "provenance", provenance)
        object.__setattr__(self, "routing", routing)

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
            _check_order(name, order)
        ordered = sorted(entries, key=lambda binding: (binding[2] is None, binding[2] or 0))
        return cls([name for name, _, _ in ordered], [key for _, key, _ in ordered])

    @property
    def has_named_keys(self) -> bool:
        """True if the binding keys are not ``0``, ``1`` and so on: then clients route by key or by hash, as their program says."""
        return are_names(self.binding_keys)

    @property
    def hashing(self) -> str:
        """The name of the hash: ``super-stream/`` and the client, or ``key``."""
        return f"{self.kind}/{'key' if self.routing == 'key' else self.client}"

    @property
    def destinations(self) -> tuple[str, ...]:
        """The partitions."""
        return self.partitions

    @property
    def buckets(self) -> tuple[str, ...]:
        """The partition of each remainder of a hash: `partitions`."""
        return self.partitions

    @property
    def ground(self) -> Ground:
        """What is known about the partitions."""
        return Ground(self.provenance)

    @property
    def bucket_count(self) -> int:
        """The number of partitions."""
        return len(self.partitions)

    @property
    def beneath(self) -> SuperStream:
        """The super stream itself."""
        return self

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
        if self.routing == "key" and client is None:
            bound = tuple(dict.fromkeys(self.partitions_bound_with(routing_key)))
            if len(bound) > 1:
                raise InputError(
                    f"{len(bound)} partitions are bound with the key {routing_key!r:.60}, {' and '.join(bound[:10])}: unbind all but one, or "
                    "use partitions_bound_with"
                )
            return bound[0] if bound else None
        data = bytes_of(routing_key, "the routing key")
        if (self.client if client is None else _check_client(client)) == "java":
            hash_ = murmur3_x86_32(data, _SEED)
        else:
            hash_ = murmur3_x64_128(_utf_16(data), _SEED)
        return self.partitions[hash_ % len(self.partitions)]

    def partitions_bound_with(self, routing_key: str | bytes) -> tuple[str, ...]:
        """Return the partitions that are bound with a routing key, for clients that route by binding key.

        Args:
            routing_key: text or its UTF-8 bytes.

        Raises:
            InputError: the routing key is neither text nor bytes.
        """
        wanted = bytes_of(routing_key, "the routing key")
        bound = zip(self.partitions, self.binding_keys, strict=True)
        return tuple(name for name, key in bound if key.encode() == wanted)

    def destination_for(self, key: str | bytes) -> str | None:
        """Return the partition of a routing key, as `partition_for`.

        Args:
            key: text or its UTF-8 bytes.
        """
        return self.partition_for(key)

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

    def indices(self, keys: Iterable[Any]) -> NDArray[np.int32]:
        """Return the partition of each key as an index into `partitions`, as `partition_for`; -1 if it is None.

        Args:
            keys: a list of str or bytes; a NumPy array of them; a pyarrow Array or ChunkedArray of strings or binaries.

        Raises:
            RowError: a key is null or neither text nor bytes, or `partition_for` has no answer for it; the error contains its position.
            InputError: `keys` is not a sequence of keys.
        """
        import numpy as np

        from rabbit_chx.routing import arrays

        if self.routing != "key" and self.client == "java":
            return (arrays.murmur3_hashes(keys, _SEED) % np.uint32(len(self.partitions))).astype(np.int32)
        numbers: dict[str | None, int] = {None: -1}
        for number, name in enumerate(self.partitions):
            numbers.setdefault(name, number)
        known: dict[Any, int] = {}
        indices = []
        for position, key in enumerate(keys.to_pylist() if hasattr(keys, "to_pylist") else keys):
            if not isinstance(key, (str, bytes)) or key not in known:
                try:
                    known[key] = numbers[self.partition_for(key)]
                except InputError as error:
                    raise RowError(f"the key at position {position}: {error}") from None
            indices.append(known[key])
        return np.array(indices, np.int32)

    def shares(self) -> dict[str, float]:
        """Return the exact share of the hashes of each partition."""
        self._check_hashed()
        return modulo_shares(self.partitions, _HASHES[self.client])

    def share_moved(self, other: KeyMap) -> float:
        """Return the exact share of the hashes whose partition differs in the other super stream.

        Args:
            other: the super stream to compare with, of the same client.

        Raises:
            InputError: keys are hashed differently there, or clients route by binding key.
        """
        check_comparable(self, other)
        self._check_hashed()
        return 1 - modulo_flows(self.partitions, other.buckets, _HASHES[self.client]).staying

    def flows(self, after: KeyMap) -> Flows:
        """Return the exact share of the hashes of each ``(partition here, partition there)``, only those above 0.

        Args:
            after: the super stream after a change, of the same client.

        Raises:
            InputError: keys are hashed differently there, or clients route by binding key.
        """
        check_comparable(self, after)
        self._check_hashed()
        return modulo_flows(self.partitions, after.buckets, _HASHES[self.client])

    def bind(self, destination: Destination, weight: int | str) -> SuperStream:
        """Return the super stream with one partition more at its end.

        Args:
            destination: the stream.
            weight: the binding key.
        """
        return self._with((*self._bindings, (destination, str(weight))))

    def unbind(self, destination: Destination, weight: int | str | None = None) -> SuperStream:
        """Return the super stream without a partition.

        Args:
            destination: the stream.
            weight: the binding key; None for all bindings of the stream.

        Raises:
            InputError: it is not bound.
        """
        return self._with(without_binding(self.name, self._bindings, destination, weight))

    def with_client(self, client: str) -> SuperStream:
        """Return the super stream with producers of another client.

        Args:
            client: ``java`` or ``rstream``.

        Raises:
            InputError: the client is unknown.
        """
        return replace(self, client=_check_client(client))

    def with_release(self, release: Release) -> Self:
        """Raise an InputError: the client chooses the partition, on all releases alike.

        Args:
            release: the release.
        """
        raise InputError(
            f"exchange {self.name!r} is a super stream, and the client chooses its partitions, on all releases alike, so also on {release}: "
            "leave the release out"
        )

    def facts(self) -> tuple[str, ...]:
        """Return the kind, the clients and the size in words, for a report."""
        client = "the clients for Java, .NET and Go" if self.client == "java" else "rstream"
        way = "routed by binding key" if self.routing == "key" else f"hashed by {client}"
        return self.kind, way, plural(self.bucket_count, "partition")

    def summary(self) -> dict[str, Any]:
        """Return name, provenance, client, routing and partitions."""
        return {
            "exchange": self.name,
            **json_fields(self.ground),
            "client": self.client,
            "routing": self.routing,
            "partitions": self.partitions,
        }

    def to_json(self) -> str:
        """Return the super stream as JSON text on one line: the format ``rabbit-chx/super-stream`` with its attributes."""
        return json.dumps(
            {
                "format": _FORMAT,
                "format_version": 1,
                "name": self.name,
                "client": self.client,
                "provenance": self.provenance,
                "partitions": self.partitions,
                "binding_keys": self.binding_keys,
                **({} if self.routing is None else {"routing": self.routing}),
            }
        )

    @classmethod
    def from_json(cls, text: str | bytes) -> SuperStream:
        """Parse the text of `to_json`, or of ``rabbit-chx show -o json`` about the exchange.

        Args:
            text: the JSON text; bytes are UTF-8.

        Raises:
            InputError: the text is not a super stream.
        """
        try:
            read = json.loads(text)
            if read["format"] not in (_FORMAT, SHOW_FORMAT) or read["format_version"] != 1:
                raise InputError(f"its format is not {_FORMAT!r}, version 1")
            names = {name: read[name] for name in ("name", "client", "provenance")}
            return cls(read["partitions"], read["binding_keys"], routing=read.get("routing"), **names)
        except (KeyError, TypeError, ValueError, RecursionError) as error:
            raise InputError(f"this is not a super stream ({error}): write it again with to_json") from None

    @property
    def _bindings(self) -> tuple[Binding, ...]:
        return tuple(zip(self.partitions, self.binding_keys, strict=True))

    def _with(self, bindings: tuple[Binding, ...]) -> SuperStream:
        provenance = self.ground.after_change().origin
        stream = super_stream_of(self.name, bindings, client=self.client, provenance=provenance)
        return replace(stream, routing=self.routing)

    def _check_hashed(self) -> None:
        if self.routing == "key":
            raise InputError(
                f"clients of {self.name!r} route by binding key, so the shares of the keys are not known: pass keys"
            )


def super_stream_of(
    name: str,
    bindings: Iterable[Binding],
    *,
    client: StreamClient = "java",
    provenance: Provenance = "replayed",
) -> SuperStream:
    """Return the super stream with these bindings in the order of its partitions; an InputError if one of them is not a stream."""
    bindings = tuple(bindings)
    if exchanges := [place.name for place, _ in bindings if isinstance(place, ExchangeRef)]:
        raise InputError(f"a partition of a super stream is a stream, and {exchanges[0]!r} is an exchange")
    if not bindings:
        raise InputError(f"the super stream {name!r} has no partition: bind a stream to its exchange")
    streams, keys = [str(place) for place, _ in bindings], [key for _, key in bindings]
    return SuperStream(streams, keys, name=name, client=client, provenance=provenance)


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


def _check_order(name: object, order: object) -> None:
    if order is not None and not is_whole(order):
        raise InputError(f"the order of {name!r:.60} is {order!r:.60}: pass an int or None")


def _utf_16(data: bytes) -> bytes:
    try:
        return codecs.BOM_UTF16_LE + data.decode().encode("utf-16-le")
    except UnicodeDecodeError:
        raise InputError(f"rstream sends text, and the routing key {data!r:.60} is not UTF-8") from None


# -- murmur3 (Austin Appleby, MurmurHash3.cpp)

_MASK = 0xFFFFFFFF
_C1, _C2 = 0xCC9E2D51, 0x1B873593
_MASK_64 = (1 << 64) - 1
_D1, _D2 = 0x87C37B91114253D5, 0x4CF5AD432745937F


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
    h1, h2 = _finalize_64(h1), _finalize_64(h2)
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
