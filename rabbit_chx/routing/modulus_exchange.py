"""Exchanges of type ``x-modulus-hash``.

Mirrors rabbitmq-server ``deps/rabbitmq_sharding/src/rabbit_sharding_exchange_type_modulus_hash.erl``, ``route/3`` (until 4.2), and
``deps/rabbit/src/rabbit_exchange_type_modulus_hash.erl``, ``route/3`` (v4.3.0 to v4.3.6).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rabbit_chx.amqp.exchange_types import MODULUS_EXCHANGE
from rabbit_chx.checks import MAX_SHORTSTR, short_string
from rabbit_chx.erlang import phash2
from rabbit_chx.erlang.hashing import Term
from rabbit_chx.errors import EmptyRingError, NotDeterminedError
from rabbit_chx.routing.bindings import (
    ORIGINS,
    Binding,
    Destination,
    Flows,
    OrderKnowledge,
    OriginJson,
    Place,
    Provenance,
    ascending_bindings,
    binding_key,
    check_destination,
    order_of_binding,
    order_of_destination,
    tuples_of,
)
from rabbit_chx.routing.exchange import HashExchange, received
from rabbit_chx.routing.key_map import KeyHash, KeyMap, release_of_json, set_fields
from rabbit_chx.routing.message import SentMessage
from rabbit_chx.routing.release import NEWEST_COMPARED, Release, check_release
from rabbit_chx.routing.rules import MODULUS_BY_BINDING_KEY, MODULUS_BY_NAME, MODULUS_UNORDERED
from rabbit_chx.text import plural

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

#: The range of ``erlang:phash2/1``.
_HASHES = 1 << 27


class ModulusSummary(OriginJson):
    """What a JSON document says of an ``x-modulus-hash`` exchange."""

    exchange: str
    release: Release
    destinations: Sequence[Place]


class ModulusFields(OriginJson):
    """The fields of an ``x-modulus-hash`` exchange in JSON, as `to_json` writes them."""

    name: str
    release: Release
    destinations: Sequence[Place] | None


@dataclass(frozen=True, slots=True)
class ModulusHash(KeyHash):
    """The hash of an ``x-modulus-hash`` exchange: phash2 of the list of routing keys, modulo the number of bindings.

    Attributes:
        exchange: the exchange's name, for errors.
        unordered_on: the release, if it orders the bindings unpredictably.
    """

    exchange_type = MODULUS_EXCHANGE
    article = "an x-modulus-hash exchange"
    json_field = "modulus"
    json_buckets = "destinations"
    how_to_read = "pass the value of Broker.exchange, on a release that orders its bindings"

    exchange: str = field(default="", compare=False)
    unordered_on: Release | None = field(default=None, compare=False)

    def bucket_of(self, key: str | bytes, buckets: int) -> int:
        """Return the number of the binding of a message with a routing key, without CC and BCC."""
        return self.bucket_of_keys([short_string(key, "the routing key")], buckets)

    def bucket_of_keys(self, routing_keys: list[Term], buckets: int) -> int:
        """Return the number of the binding of a message with these routing keys, including those of CC and BCC."""
        self.refuse_unordered()
        return phash2(routing_keys) % buckets

    def hashes_of(self, keys: Iterable[Any], *, is_filled: bool) -> NDArray[np.uint32] | None:
        """Return the hash of each routing key; None if nulls are filled."""
        from rabbit_chx.routing.arrays.exchange_seeds import list_hashes

        self.refuse_unordered()
        return None if is_filled else list_hashes(keys, MAX_SHORTSTR) % _HASHES

    def flows(self, before: KeyMap, after: KeyMap) -> Flows:
        """Return the flows between two exchanges, of which each release orders the bindings. An exchange alone has shares in any order."""
        from rabbit_chx.routing.arrays.seeds import ModuloFlows

        for hashing in (before.hashing, after.hashing):
            if before is not after and isinstance(hashing, ModulusHash):
                hashing.refuse_unordered()
        return ModuloFlows(before.buckets, after.buckets, _HASHES)

    def refuse_unordered(self) -> None:
        """Raise a NotDeterminedError if the release orders the bindings unpredictably."""
        if self.unordered_on is not None:
            raise NotDeterminedError(
                f"{MODULUS_UNORDERED.about} {self.exchange!r} on RabbitMQ {self.unordered_on}: "
                f"{MODULUS_UNORDERED.says}; use 4.3 or x-consistent-hash, or send probes",
                exchange=self.exchange,
            )

    def empty_error(self) -> EmptyRingError:
        """Return the error for a key of an exchange without bindings."""
        return EmptyRingError(
            f"exchange {self.exchange!r} has no bindings: bind a queue", exchange=self.exchange
        )


@dataclass(frozen=True, slots=True, init=False, repr=False)
class ModulusHashExchange(KeyMap, HashExchange):
    """An exchange of type ``x-modulus-hash``, by the rules of a release: a key map.

    Every binding counts: a destination that is bound with two keys counts twice.

    Attributes:
        name: the exchange's name.
        bindings: the distinct bindings, in the given order; they do not count in comparisons.
        destinations: the destination of each binding, in the order of the release; in the given order if the release has none.
        release: the release whose rules apply.
        order: the origin of the bindings, which determine the destinations: ``read`` or ``replayed``; None if the
            release has no order. It does not count in comparisons.
    """

    _hash = ModulusHash

    hashing: ModulusHash = field(init=False)
    name: str = field()
    bindings: tuple[Binding, ...] = field(compare=False)
    release: Release = field()

    def __init__(
        self,
        name: str,
        bindings: Iterable[tuple[Destination, int | str]],
        release: Release | None = None,
        provenance: Provenance | None = "replayed",
    ) -> None:
        """Create an exchange with its bindings.

        Args:
            name: the exchange's name.
            bindings: ``(destination, binding key)`` in any order, without arguments; duplicates are ignored.
            release: the release whose rules apply; None for the newest.
            provenance: ``read`` if a broker listed the bindings; `Broker.exchange` and `Topology.modulus` set it.

        Raises:
            InputError: an argument is invalid.
        """
        short_string(name, "the exchange's name")
        order = OrderKnowledge(provenance)
        release = NEWEST_COMPARED if release is None else check_release(release)
        distinct = dict.fromkeys(
            _check_binding(*pair) for pair in tuples_of(bindings, 2, "(destination, binding key) pairs")
        )

        if release.follows(MODULUS_BY_BINDING_KEY):
            ordered = sorted(distinct, key=order_of_binding)
        elif release.follows(MODULUS_BY_NAME):
            ordered = sorted(distinct, key=lambda binding: order_of_destination(binding[0]))
        else:
            ordered = list(distinct)  # MODULUS_UNORDERED: keys have no destination

        places = tuple(destination for destination, _ in ordered)
        is_unordered = release.follows(MODULUS_UNORDERED) and len(set(places)) > 1
        if is_unordered:
            order = OrderKnowledge(None, f"on RabbitMQ {release} {MODULUS_UNORDERED.says}")
        KeyMap.__init__(self, places, ModulusHash(name, release if is_unordered else None), order)
        set_fields(self, name=name, bindings=tuple(distinct), release=release)

    def with_release(self, release: Release) -> ModulusHashExchange:
        """Return the same bindings under the rules of another release.

        Args:
            release: the release whose rules apply.
        """
        return ModulusHashExchange(self.name, self.bindings, release, self.provenance)

    def facts(self) -> tuple[str, ...]:
        """Return the type and origin, the rules and the size in words, for a report."""
        origin = ORIGINS[self.provenance].removesuffix(" in order")
        return f"{self.kind}, {origin}", f"rules of {self.release}", plural(self.bucket_count, "binding")

    def summary(self) -> ModulusSummary:
        """Return name, release, provenance and destinations."""
        return {
            "exchange": self.name,
            "release": self.release,
            **self.order_fields(),
            "destinations": self.destinations,
        }

    def other_fields(self) -> dict[str, Any]:
        """Return the name."""
        return {"name": self.name}

    @classmethod
    def _of_json(
        cls, read: Mapping[str, Any], buckets: list[Place], order: OrderKnowledge
    ) -> ModulusHashExchange:
        places = map(check_destination, buckets)
        return cls(read["name"], ascending_bindings(places), release_of_json(read), order.origin)

    def _with_bindings(self, bindings: tuple[Binding, ...]) -> ModulusHashExchange:
        return ModulusHashExchange(self.name, bindings, self.release, self.order.after_change().origin)

    def _destination(self, sent: SentMessage) -> Place:
        message = received(sent, self.release)
        if not self.buckets:
            return None
        return self.buckets[self.hashing.bucket_of_keys(list(message.routing_keys), self.bucket_count)]


def _check_binding(destination: object, key: int | str) -> tuple[Destination, str]:
    short_string(binding_key(key), "the binding key")
    return check_destination(destination), binding_key(key)
