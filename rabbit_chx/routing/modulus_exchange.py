"""Exchanges of type ``x-modulus-hash``.

Mirrors rabbitmq-server ``deps/rabbitmq_sharding/src/rabbit_sharding_exchange_type_modulus_hash.erl``, ``route/3`` (until 4.2), and
``deps/rabbit/src/rabbit_exchange_type_modulus_hash.erl``, ``route/3`` (v4.3.0 to v4.3.6).
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from rabbit_chx.amqp.exchange_types import MODULUS_EXCHANGE
from rabbit_chx.checks import MAX_SHORTSTR, short_string
from rabbit_chx.erlang import phash2
from rabbit_chx.errors import EmptyRingError, InputError, NotDeterminedError
from rabbit_chx.routing.bindings import (
    Binding,
    Destination,
    Place,
    ascending_bindings,
    binding_key,
    check_destination,
    destination_from_json,
    order_of_binding,
    order_of_destination,
    place_to_json,
    tuples_of,
    without_binding,
)
from rabbit_chx.routing.exchange import HashExchange, received
from rabbit_chx.routing.ground import ORIGINS, Ground, Provenance
from rabbit_chx.routing.key_map import (
    SHOW_FORMAT,
    TRAITS,
    Flows,
    KeyMap,
    KeyMapKind,
    MapTraits,
    check_comparable,
)
from rabbit_chx.routing.message import SentMessage
from rabbit_chx.routing.modulo_shares import modulo_flows, modulo_shares
from rabbit_chx.routing.release import NEWEST_COMPARED, Release, check_release
from rabbit_chx.routing.rules import MODULUS_BY_BINDING_KEY, MODULUS_BY_NAME, MODULUS_UNORDERED
from rabbit_chx.words import plural

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

#: The range of ``erlang:phash2/1``.
_HASHES = 1 << 27
_FORMAT = "rabbit-chx/modulus"


@dataclass(frozen=True, slots=True, init=False)
class ModulusHashExchange(HashExchange):
    """An exchange of type ``x-modulus-hash``, by the rules of a release.

    Every binding counts: a destination that is bound with two keys counts twice.

    Attributes:
        name: the exchange's name.
        bindings: the distinct bindings, in the given order; they do not count in comparisons.
        destinations: the destination of each binding, in the order of the release; in the given order if the release has none.
        release: the release whose rules apply.
        provenance: the origin of the bindings, which determine the destinations: ``read``, ``replayed`` or ``assumed``; ``assumed`` if the
            release has no order. It does not count in comparisons.
    """

    kind: ClassVar[KeyMapKind] = MODULUS_EXCHANGE
    traits: ClassVar[MapTraits] = TRAITS[MODULUS_EXCHANGE]
    hashing: ClassVar[str] = MODULUS_EXCHANGE

    name: str
    bindings: tuple[Binding, ...] = field(compare=False)
    destinations: tuple[Destination, ...]
    release: Release
    provenance: Provenance = field(compare=False)

    def __init__(
        self,
        name: str,
        bindings: Iterable[tuple[Destination, int | str]],
        release: Release | None = None,
        provenance: Provenance = "replayed",
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
        ground = Ground(provenance)
        release = NEWEST_COMPARED if release is None else check_release(release)
        distinct = dict.fromkeys(
            _check_binding(*pair) for pair in tuples_of(bindings, 2, "(destination, binding key) pairs")
        )
        if release.follows(MODULUS_BY_BINDING_KEY):
            ordered = sorted(distinct, key=order_of_binding)
        elif release.follows(MODULUS_BY_NAME):
            ordered = sorted(distinct, key=lambda binding: order_of_destination(binding[0]))
        else:
            ordered = list(distinct)  # MODULUS_UNORDERED: `route` raises an error
        # dataclass(frozen=True) leaves no other way to set an attribute.
        object.__setattr__(self, "name", name)
        object.__setattr__(self, "bindings", tuple(distinct))
        object.__setattr__(self, "destinations", tuple(destination for destination, _ in ordered))
        object.__setattr__(self, "release", release)
        object.__setattr__(self, "provenance", "assumed" if self._is_unordered else ground.origin)

    @property
    def ground(self) -> Ground:
        """What is known about the order of the destinations."""
        doubt = f"on RabbitMQ {self.release} {MODULUS_UNORDERED.says}" if self._is_unordered else ""
        return Ground(self.provenance, doubt)

    @property
    def buckets(self) -> tuple[Destination, ...]:
        """The destination of each remainder of a hash: `destinations`."""
        return self.destinations

    @property
    def bucket_count(self) -> int:
        """The number of bindings."""
        return len(self.destinations)

    @property
    def beneath(self) -> ModulusHashExchange:
        """The exchange itself."""
        return self

    def destination_for(self, key: str | bytes) -> Destination:
        """Return the destination of a message with this routing key, without CC and BCC.

        Args:
            key: the routing key, at most 255 bytes.

        Raises:
            EmptyRingError: the exchange has no bindings.
            NotDeterminedError: the release orders bindings unpredictably.
            InputError: the key is invalid.
        """
        place = self.route(routing_key=key)
        if place is None:
            self._refuse_empty()
        assert place is not None  # it has bindings
        return place

    def indices(self, keys: Iterable[Any]) -> NDArray[np.int32]:
        """Return the destination of each message with a routing key, without CC and BCC, as an index into `destinations`.

        A destination that is bound several times has the index of its first binding.

        Args:
            keys: a list of str or bytes; a NumPy array of them; a pyarrow Array or ChunkedArray of strings or binaries.

        Raises:
            EmptyRingError: the exchange has no bindings.
            NotDeterminedError: the release orders bindings unpredictably.
            RowError: a key is null, neither text nor bytes, or longer than 255 bytes; the error contains its position.
            InputError: `keys` is not a sequence of keys.
        """
        import numpy as np

        from rabbit_chx.routing import arrays

        self._refuse_empty()
        self._refuse_unordered()
        first = np.array([self.destinations.index(place) for place in self.destinations], np.int32)
        hashes = arrays.list_hashes(keys, MAX_SHORTSTR)
        indices: NDArray[np.int32] = first[hashes % np.uint32(_HASHES) % np.uint32(len(first))]
        return indices

    def shares(self) -> dict[Destination, float]:
        """Return the exact share of the 2^27 hashes of each destination; {} without bindings."""
        return modulo_shares(self.destinations, _HASHES)

    def share_moved(self, other: KeyMap) -> float:
        """Return the exact share of the 2^27 hashes whose destination differs in the other exchange.

        Without bindings all hashes are in the place None.

        Args:
            other: the exchange to compare with.

        Raises:
            NotDeterminedError: one of the releases orders bindings unpredictably.
            InputError: keys are hashed differently there.
        """
        self._check_comparable(other)
        return 1 - modulo_flows(self.destinations, other.buckets, _HASHES).staying

    def flows(self, after: KeyMap) -> Flows:
        """Return the exact share of the 2^27 hashes of each ``(destination here, destination there)``, only those above 0.

        Without bindings all hashes are in the place None.

        Args:
            after: the exchange after a change.

        Raises:
            NotDeterminedError: one of the releases orders bindings unpredictably.
            InputError: keys are hashed differently there.
        """
        self._check_comparable(after)
        return modulo_flows(self.destinations, after.buckets, _HASHES)

    def bind(self, destination: Destination, weight: int | str = 1) -> ModulusHashExchange:
        """Return the exchange with one binding more.

        Args:
            destination: the bound queue or exchange.
            weight: the binding key.
        """
        return self._with((*self.bindings, (destination, weight)))

    def unbind(self, destination: Destination, weight: int | str | None = None) -> ModulusHashExchange:
        """Return the exchange without the bindings of a destination.

        Args:
            destination: the unbound queue or exchange.
            weight: the binding key; None for all bindings of the destination.

        Raises:
            InputError: it is not bound.
        """
        return self._with(without_binding(self.name, self.bindings, destination, weight))

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

    def summary(self) -> dict[str, Any]:
        """Return name, release, provenance and destinations."""
        return {
            "exchange": self.name,
            "release": self.release,
            "provenance": self.provenance,
            "destinations": self.destinations,
        }

    def to_json(self) -> str:
        """Return the exchange as JSON text on one line: the format ``rabbit-chx/modulus`` with its name, release, provenance and destinations."""
        return json.dumps(
            {
                "format": _FORMAT,
                "format_version": 1,
                "name": self.name,
                "release": {"version": self.release.version, "store": self.release.store},
                "provenance": self.provenance,
                "destinations": [place_to_json(place) for place in self.destinations],
            }
        )

    @classmethod
    def from_json(cls, text: str | bytes) -> ModulusHashExchange:
        """Parse the text of `to_json`, or of ``rabbit-chx show -o json`` about the exchange.

        Args:
            text: the JSON text; bytes are UTF-8.

        Raises:
            InputError: the text is not such an exchange.
        """
        try:
            read = json.loads(text)
            if read["format"] not in (_FORMAT, SHOW_FORMAT) or read["format_version"] != 1:
                raise InputError(f"its format is not {_FORMAT!r}, version 1")
            places = [destination_from_json(place) for place in read["destinations"]]
            release = Release(read["release"]["version"], read["release"]["store"])
            return cls(read["name"], ascending_bindings(places), release, read["provenance"])
        except (KeyError, TypeError, ValueError, RecursionError) as error:
            raise InputError(
                f"this is not an x-modulus-hash exchange ({error}): write it again with to_json"
            ) from None

    def _with(self, bindings: Iterable[tuple[Destination, int | str]]) -> ModulusHashExchange:
        return ModulusHashExchange(self.name, bindings, self.release, self.ground.after_change().origin)

    @property
    def _is_unordered(self) -> bool:
        return self.release.follows(MODULUS_UNORDERED) and len(set(self.destinations)) > 1

    def _check_comparable(self, other: KeyMap) -> None:
        check_comparable(self, other)
        for exchange in (self, other):
            if exchange.buckets:
                exchange.indices([])  # raises an error if the release has no order

    def _refuse_empty(self) -> None:
        if not self.destinations:
            raise EmptyRingError(f"exchange {self.name!r} has no bindings: bind a queue", exchange=self.name)

    def _refuse_unordered(self) -> None:
        if self._is_unordered:
            raise NotDeterminedError(
                f"{MODULUS_UNORDERED.about} {self.name!r} on RabbitMQ {self.release}: "
                f"{MODULUS_UNORDERED.says}; use 4.3 or x-consistent-hash, or send probes",
                exchange=self.name,
            )

    def _destination(self, sent: SentMessage) -> Place:
        message = received(sent, self.release)
        if not self.destinations:
            return None
        self._refuse_unordered()
        return self.destinations[phash2(list(message.routing_keys)) % len(self.destinations)]


def _check_binding(destination: object, key: int | str) -> tuple[Destination, str]:
    short_string(binding_key(key), "the binding key")
    return check_destination(destination), binding_key(key)
