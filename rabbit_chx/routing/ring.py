"""The ring of an ``x-consistent-hash`` exchange as a value: the destination of each bucket and of each key.

It changes by bind, unbind, deletion and a full restart of a single node. The effect depends on the release, by these rules of
:mod:`rabbit_chx.routing.rules`:

- A bind appends as many buckets as the weight. A second binding of the same destination appends too
  (`DUPLICATES_APPEND`) or is ignored.
- An unbind removes all buckets of the destination, even if another binding of it remains. The buckets
  after them get lower numbers. Buckets of other destinations in between are lost.
- A full restart keeps the ring on Khepri (`RESTART_KEEPS`). On Mnesia the ring is only in memory: after the
  restart it is rebuilt in an unpredictable order (`RESTART_SHUFFLES`).

Mirrors rabbitmq-server ``deps/rabbitmq_consistent_hash_exchange/src/rabbit_exchange_type_consistent_hash.erl``: ``route/3``,
``add_binding/3`` and ``remove_bindings/3`` (``chx_hash_ring_update_fun/3`` and ``ch_hash_ring_delete_fun/2`` since v3.12.0), v3.10.0 to
v4.3.6; ``init/0`` and ``recover/0`` (to v4.2.x) or ``recover/2`` (from v4.3.0). Restarts were compared with real brokers of 3.10.8,
4.0.5 and 4.3.6.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import TYPE_CHECKING, Any, Literal, NotRequired

from rabbit_chx.amqp.exchange_types import HASH_EXCHANGE
from rabbit_chx.checks import similar
from rabbit_chx.erlang.hashing import Term, hash_binary
from rabbit_chx.errors import InputError, NotDeterminedError
from rabbit_chx.routing.bindings import (
    MAX_BUCKETS,
    UNORDERED,
    Binding,
    Destination,
    ExchangeRef,
    Flows,
    GivenBindings,
    OrderKnowledge,
    OriginJson,
    Place,
    as_tuple,
    binding_key,
    check_destination,
    checked_bindings,
    destination_from_json,
    order_of_binding,
    pairs_of_bindings,
    place_to_json,
    weight_of,
)
from rabbit_chx.routing.jump import SEED_MASK, bucket_of_seed, jump_consistent_hash
from rabbit_chx.routing.key_map import KeyHash, KeyMap, release_of_json, set_fields
from rabbit_chx.routing.observations import Observation, observed_ring
from rabbit_chx.routing.release import NEWEST_COMPARED, Release, check_release
from rabbit_chx.routing.rules import (
    DUPLICATES_APPEND,
    RESTART_KEEPS,
)
from rabbit_chx.text import plural

if TYPE_CHECKING:
    from array import array

    import numpy as np
    from numpy.typing import NDArray


_SHOWN_RUNS = 8


class RingSummary(OriginJson):
    """What a JSON document says of a ring."""

    release: Release
    buckets: int | None
    destinations: Sequence[Place]


class RingFields(OriginJson):
    """The fields of a ring in JSON, as `to_json` writes them."""

    release: Release
    buckets: Sequence[Place] | None
    bindings: Sequence[tuple[Place, str]] | None
    next_bucket: NotRequired[int | None]
    slots: NotRequired[Mapping[str, Place]]


class RingJson(RingFields):
    """The JSON document of a ring."""

    format: Literal["rabbit-chx/ring"]
    format_version: Literal[1]


@dataclass(frozen=True, slots=True)
class JumpHash(KeyHash):
    """The hash of an ``x-consistent-hash`` exchange: jump consistent hashing of one of 2^21 seeds."""

    exchange_type = HASH_EXCHANGE
    title = json_field = "ring"
    article = "a ring"
    json_buckets = "buckets"
    part = "bucket"
    hashes = "2^21 seeds"
    how_to_read = "pass Broker a ring_source, which reads it"
    has_order = True

    def bucket_of(self, key: str | bytes, buckets: int) -> int:
        """Return the bucket of a hashed text, such as a routing key."""
        if type(key) is str:
            try:
                data = key.encode()
            except UnicodeEncodeError:
                raise InputError(
                    f"the key {key!r:.60} holds half of a surrogate pair: pass its bytes"
                ) from None
        elif isinstance(key, bytes):
            data = key
        elif isinstance(key, str):
            return self.bucket_of(str(key), buckets)
        else:
            raise InputError(f"the key {key!r:.60} is neither str nor bytes: a routing key is text")
        return bucket_of_seed(hash_binary(data) & SEED_MASK, buckets)

    def indices(
        self, keys: Iterable[Any], index_of_bucket: array[int], buckets: int, fill_null: str | bytes | None
    ) -> NDArray[np.int32]:
        """Return the index of the bucket of each key, by arrays."""
        from rabbit_chx.routing.arrays.seeds import indices

        return indices(keys, index_of_bucket, buckets, fill_null)

    def flows(self, before: KeyMap, after: KeyMap) -> Flows:
        """Return the flows between two rings, with or without slots."""
        from rabbit_chx.routing.arrays.seeds import flows

        sides = [(side.destinations, side.index_of_bucket, side.bucket_count) for side in (before, after)]
        return Flows(before.destinations, after.destinations, flows(*sides))

    def destinations_of(self, buckets: tuple[Place, ...]) -> tuple[Destination, ...]:
        """Return the destinations of a ring: each one once."""
        return tuple(place for place in dict.fromkeys(buckets) if place is not None)


@dataclass(frozen=True, slots=True, init=False, repr=False)
class HashRing(KeyMap):
    """The ring of one exchange: a key map. `bind` and `unbind` return another ring.

    Create it with `from_bindings`, `from_buckets`, `from_observations` or `from_json`. Rings are equal if their buckets and their release are.

    Attributes:
        buckets: the destination of each bucket number, in order; None at a hole, also at the end, where old releases leave some. If the
            order is not known (`is_determined`), the buckets of the bindings by key and name, however a broker lists them.
        release: the release whose rules apply.
        order: what is known about it: the origin of its order, or why that is not known. It survives `bind`, `unbind` and JSON.
        bindings: ``(destination, binding key)`` of all bindings that the broker lists, in bind order, including those without a bucket;
            None if they are unknown.
        end_known: whether the next bucket follows the last of `buckets`. False if the ring was read in a way that does not show holes at
            the end.
    """

    _hash = JumpHash

    buckets: tuple[Place, ...]
    release: Release = field()
    order: OrderKnowledge = field(compare=False)
    bindings: tuple[Binding, ...] | None = field(compare=False)
    end_known: bool = field(compare=False)

    def __init__(
        self,
        buckets: tuple[Place, ...],
        release: Release,
        order: OrderKnowledge,
        bindings: tuple[Binding, ...] | None = None,
        *,
        end_known: bool = True,
    ) -> None:
        """Create a ring of checked buckets and bindings; the attributes are those of the class."""
        check_release(release)
        if not isinstance(order, OrderKnowledge):
            raise InputError(f"what is known of the order of a ring is {order!r:.40}: pass an OrderKnowledge")
        if len(buckets) > MAX_BUCKETS:
            raise InputError(f"a ring of {len(buckets)} buckets is too large: pass smaller weights")
        KeyMap.__init__(self, buckets, JumpHash(), order)
        set_fields(self, release=release, bindings=bindings, end_known=end_known)

    @classmethod
    def from_bindings(
        cls,
        bindings: GivenBindings,
        release: Release | None = None,
    ) -> HashRing:
        """Return the ring of these bindings, in bind order.

        Args:
            bindings: ``(destination, weight)`` pairs, or a mapping; a weight is an int or the binding key's text. Duplicates are ignored.
            release: the release whose rules apply; None for the newest.

        Raises:
            InputError: the broker would refuse a binding.
        """
        rules = NEWEST_COMPARED if release is None else check_release(release)
        distinct = dict(checked_bindings(pairs_of_bindings(bindings), rules))
        return cls(_grown((), distinct.items(), rules), rules, OrderKnowledge("replayed"), tuple(distinct))

    @classmethod
    def unordered(
        cls, bindings: GivenBindings, release: Release | None = None, doubt: str = UNORDERED.doubt
    ) -> HashRing:
        """Return the ring of bindings whose order is not known. It answers what is the same in every order.

        Args:
            bindings: ``(destination, weight)`` pairs, or a mapping.
            release: the release whose rules apply; None for the newest.
            doubt: why the order is not known.

        Raises:
            InputError: the broker would refuse a binding.
        """
        rules = NEWEST_COMPARED if release is None else check_release(release)
        checked = checked_bindings(pairs_of_bindings(bindings), rules)
        by_key = sorted((binding for binding, _ in checked), key=order_of_binding)
        return replace(cls.from_bindings(by_key, rules), order=OrderKnowledge(None, doubt))

    @classmethod
    def from_buckets(
        cls,
        buckets: Iterable[Place],
        release: Release | None = None,
        *,
        next_bucket: int | None = None,
    ) -> HashRing:
        """Return the ring that was read from a broker.

        Args:
            buckets: the destination of bucket 0, 1 and so on; None at a hole.
            release: the release whose rules apply; None for the newest.
            next_bucket: the number of the next bucket, if it is known. It shows holes at the end, which releases before 3.10.6 leave.

        Raises:
            InputError: an entry is not a destination, or the next bucket would replace another.
        """
        places = as_tuple(buckets, "one destination for each bucket")
        for destination, _ in groupby(places):
            if destination is not None:
                check_destination(destination)
        if next_bucket is not None:
            if not len(places) <= next_bucket <= MAX_BUCKETS:
                raise InputError(
                    f"the next bucket of a ring of {len(places)} buckets is {next_bucket}: pass {len(places)} or more"
                )
            places += (None,) * (next_bucket - len(places))
        rules = NEWEST_COMPARED if release is None else release
        return cls(places, rules, OrderKnowledge("read"), end_known=next_bucket is not None)

    @classmethod
    def from_observations(
        cls,
        bindings: GivenBindings,
        pairs: Iterable[
            Observation
            | tuple[Term, Place]
            | tuple[Term, Place, str | None]
            | tuple[Term, Place, str | None, int]
        ],
        release: Release | None = None,
    ) -> HashRing:
        """Return the ring of these bindings whose order shows in keys and their queues, as from the logs of consumers.

        Each pair fixes one bucket. All N buckets are fixed by about N ln N distinct keys. At least 20 keys, or N if that is more, must agree
        beyond those that fix the buckets, because keys that are not what the exchange hashes may fit a few buckets by chance.

        The result relies on the bindings: each must have its buckets, and no other destination may have any. Keys contradict rings that
        differ. The messages of a bucket that no key shows may be lost, also behind the last one of the bindings, where an exclusive queue of
        4.3 leaves its buckets at a restart; one of N + 1 keys shows that there are none. Bindings of one destination with several keys are
        in no known order; then `bindings` of the result is None.

        Args:
            bindings: ``(destination, weight)`` pairs in any order, or a mapping; a weight is an int or the binding key's text.
            pairs: ``(key, queue)``, or ``(key, queue, time, messages)`` with a time that an error shows, and a number of messages that does
                not matter here; the last two may be missing. Of an Observation with `is_traced` the broker said where it went. The key is the hashed value: a routing key as str or bytes, or an Erlang term
                as in :func:`jump_consistent_hash`. The queue is a destination of the bindings. Messages that reached the queue in another
                way, or were published before the last change of the ring, must not be among them.
            release: the release whose rules apply; None for the newest.

        Raises:
            ContradictedError: two pairs contradict each other; a queue is not bound, or is seen in more buckets than its weight; traced
                keys show holes, with their numbers.
            NotDeterminedError: too few keys agree, or a bucket may be a hole, with the number of keys that are missing; the number of
                buckets does not follow from the bindings, because a destination is bound with several weights.
            InputError: an argument is invalid. The two errors above are InputErrors, too.
        """
        rules = NEWEST_COMPARED if release is None else check_release(release)
        buckets, ordered = observed_ring(bindings, pairs, rules)
        # Releases that leave holes may have them behind the last bucket, where no message shows them.
        return cls(
            buckets,
            rules,
            OrderKnowledge("observed"),
            ordered,
            end_known=not rules.follows(DUPLICATES_APPEND),
        )

    def bind(self, destination: Destination, weight: int | str = 1) -> HashRing:
        """Return the ring after a bind.

        If the bindings of the ring are unknown, the binding counts as new. If its end is unknown, and the release may leave holes there
        (before 3.10.6), the order of the result is not known.

        Args:
            destination: the queue or exchange.
            weight: an int or the binding key's text.

        Raises:
            InputError: the broker would refuse the binding.
        """
        if self.bindings is not None and (destination, binding_key(weight)) in self.bindings:
            return self
        added = checked_bindings([(destination, weight)], self.release)
        bindings = (*(self.bindings or ()), added[0][0])
        # Where second bindings append buckets, an unbind may leave holes at the end. Then the number of the next bucket is not known.
        is_guess = not self.end_known and self.release.follows(DUPLICATES_APPEND)
        why = (
            f"an earlier unbind on RabbitMQ {self.release.version} may have left holes behind its last bucket"
        )
        return self._after(_grown(self.buckets, added, self.release), bindings, why if is_guess else "")

    def unbind(
        self, destination: Destination, weight: int | str | None = None, *, missing_ok: bool = False
    ) -> HashRing:
        """Return the ring after an unbind.

        Every release removes all buckets of the destination, even if another binding of it remains.

        Args:
            destination: the queue or exchange.
            weight: the weight of the removed binding; None for all bindings of the destination, in bind order. If the bindings of the ring
                are unknown, a destination with buckets is bound.
            missing_ok: whether to return the ring itself if the binding does not exist, as a broker accepts such an unbind.

        Raises:
            InputError: the binding does not exist, or the weight is invalid.
        """
        check_destination(destination)
        key = None if weight is None else binding_key(weight)
        if weight is not None:
            weight_of(destination, weight)

        bindings = self.bindings
        if bindings is None:
            remaining = []
            is_bound = destination in self.buckets
        else:
            remaining = [
                binding for binding in bindings if binding[0] != destination or key not in (None, binding[1])
            ]
            is_bound = len(remaining) < len(bindings)

        if is_bound:
            return self._after(_without(destination, self.buckets), remaining)
        if missing_ok:
            return self
        raise InputError(_why_not_bound(self, destination, weight))

    def delete_destination(self, destination: Destination) -> HashRing:
        """Return the ring after the deletion of the queue or exchange, which removes its bindings.

        Args:
            destination: the queue or exchange.
        """
        return self.unbind(destination, missing_ok=True)

    def delete_exchange(self) -> HashRing:
        """Return the ring of a later exchange with the same name, without buckets and bindings."""
        return HashRing((), self.release, self.order.after_change(), ())

    def restarted(self) -> HashRing:
        """Return the ring after a full restart of a single node with durable exchange and destinations.

        The order of the result is not known if the release's store is unknown, or if the ring remains but its bindings are unknown, because a binding
        without buckets would get them at the end. On 4.3 exclusive and transient queues keep their buckets and lose their bindings; read
        such a ring from the broker.

        Raises:
            NotDeterminedError: the broker rebuilds the ring in an unpredictable order (Mnesia), or from unknown bindings.
        """
        keeps = self.release.follows(RESTART_KEEPS)
        added = [(binding, weight_of(*binding)) for binding in _bindings_added_by_restart(self)]
        buckets = _grown(self.buckets if keeps else (), added, self.release)
        doubt = "its bindings are not known" if keeps and self.bindings is None else ""
        if not self.release.store_known:
            doubt = "the store of the broker is not known"
        restarted = self._after(buckets, self.bindings or (), doubt)
        return replace(restarted, end_known=self.end_known or not keeps)

    def with_release(self, release: Release) -> HashRing:
        """Return the same buckets under the rules of another release.

        Args:
            release: the release whose rules apply.
        """
        return replace(self, release=release, order=self.order.after_change())

    def destination_for_term(self, term: Term) -> Place:
        """Return the destination of an Erlang term, as the server hashes it; None if its bucket is a hole.

        Args:
            term: the hashed term, as in :func:`jump_consistent_hash`.

        Raises:
            EmptyRingError: the ring has no buckets.
            InputError: the value is not an Erlang term.
        """
        if not self.bucket_count:
            raise self.hashing.empty_error()
        self.check_order()
        return self.buckets[jump_consistent_hash(term, self.bucket_count)]

    def indices_of_all_seeds(self) -> NDArray[np.int32]:
        """Return the destination of each of the 2^21 seeds, as in `indices`; all -1 on an empty ring."""
        from rabbit_chx.routing.arrays.seeds import indices_of_all_seeds

        return indices_of_all_seeds(self.index_of_bucket)

    def facts(self) -> tuple[str, ...]:
        """Return the origin, the rules and the size in words, for a report."""
        size = plural(len(self.destinations), "destination")
        if self.has_bucket_counts:
            size = f"{plural(len(self.buckets), 'bucket')}, {size}"
        if not self.buckets:
            size = "no buckets: every message is unroutable"
        return self.order.text, f"rules of {self.release}", size

    def summary(self) -> RingSummary:
        """Return release, provenance, doubt, size and destinations; `to_json` returns all of the ring."""
        return {
            "release": self.release,
            **self.order_fields(),
            "buckets": len(self.buckets) if self.has_bucket_counts else None,
            "destinations": self.destinations if self.is_determined else sorted(self.destinations, key=str),
        }

    def other_fields(self) -> dict[str, Any]:
        """Return the bindings, and the number of the next bucket if it does not follow from the provenance."""
        bindings = self.bindings
        if bindings is not None and not self.is_determined:
            bindings = tuple(sorted(bindings, key=order_of_binding))
        found: dict[str, Any] = {
            "bindings": bindings
            if bindings is None
            else [[place_to_json(name), key] for name, key in bindings]
        }
        if self.end_known != (self.provenance != "read"):
            found["next_bucket"] = len(self.buckets) if self.end_known else None
        return found

    @classmethod
    def _of_unknown_order(cls, read: Mapping[str, Any], order: OrderKnowledge) -> HashRing:
        return ring_of_unknown_order(read, order)

    @classmethod
    def _of_json(cls, read: Mapping[str, Any], buckets: list[Place], order: OrderKnowledge) -> HashRing:
        return ring_of_json(read, buckets, order)

    def __repr__(self) -> str:
        buckets = self.buckets if self.is_determined else sorted(self.buckets, key=str)
        runs = [f"{name!s} x{len(list(run))}" for name, run in groupby(buckets)]
        shown = ", ".join(runs[:_SHOWN_RUNS]) + (", ..." if len(runs) > _SHOWN_RUNS else "")
        count = "1 bucket" if len(self.buckets) == 1 else f"{len(self.buckets)} buckets"
        return (
            f"<HashRing {self.provenance or 'of unknown order'}, {self.release}, {count}: {shown or 'empty'}>"
        )

    def _after(self, buckets: Iterable[Place], bindings: Iterable[Binding], doubt: str = "") -> HashRing:
        """Return the ring with other buckets, and with other bindings if they are known; with a doubt their order is not known, and the first doubt remains."""
        order = OrderKnowledge(None, self.order.doubt or doubt) if doubt else self.order.after_change()
        bound = None if self.bindings is None else tuple(bindings)
        return replace(self, buckets=tuple(buckets), order=order, bindings=bound)


def check_ring(ring: object) -> None:
    """Raise an InputError unless the argument is a HashRing."""
    if not isinstance(ring, HashRing):
        raise InputError(f"{ring!r:.60} is not a ring: pass a HashRing")


def ring_of_json(read: Mapping[str, Any], buckets: list[Place], order: OrderKnowledge) -> HashRing:
    """Return the ring in a JSON document; without ``next_bucket`` its end is known unless it was read from a broker."""
    size = len(buckets)
    bindings = read["bindings"]
    next_bucket = read.get("next_bucket", None if order.origin == "read" else size)
    if next_bucket not in (None, size):
        raise InputError(
            f"the ring has {size} buckets, and its next bucket is {next_bucket!r:.40}: holes at the "
            "end are missing; write it again with to_json"
        )
    return HashRing(
        tuple(buckets),
        release_of_json(read),
        order,
        None if bindings is None else tuple(map(_read_binding, bindings)),
        end_known=next_bucket is not None,
    )


def ring_of_unknown_order(read: Mapping[str, Any], order: OrderKnowledge) -> HashRing:
    """Return the ring in a JSON document that does not have its order."""
    bindings = [_read_binding(each) for each in read["bindings"] or ()]
    return HashRing.unordered(bindings, release_of_json(read), order.doubt)


def _read_binding(written: Any) -> Binding:
    name, key = written
    destination = destination_from_json(name)
    if not isinstance(key, str):
        raise InputError(f"the binding {written!r} has no text as its key: write it again with to_json")
    weight_of(destination, key)
    return destination, key


def _grown(
    buckets: tuple[Place, ...], bindings: Iterable[tuple[Binding, int]], release: Release
) -> tuple[Place, ...]:
    """Return the buckets with those of further bindings, each with its weight."""
    grown = list(buckets)
    present = set(buckets)
    duplicates_append = release.follows(DUPLICATES_APPEND)
    for (destination, _), count in bindings:
        if destination in present and not duplicates_append:
            continue
        if len(grown) + count > MAX_BUCKETS:
            raise InputError(
                f"{destination!s} with the weight {count} makes a ring of more than {MAX_BUCKETS} buckets, "
                "which a broker's memory would not bear: divide all weights by the same number"
            )
        grown += [destination] * count
        present.add(destination)
    return tuple(grown)


def _without(destination: Destination, buckets: tuple[Place, ...]) -> tuple[Place, ...]:
    """Return the buckets after the removal of a binding, which removes all buckets of the destination."""
    if destination not in buckets:
        return buckets
    first = buckets.index(destination)
    end = len(buckets) - buckets[::-1].index(destination)
    # Buckets of others between the first and the last are lost. Those after them move down by the number of removed buckets.
    lost = end - first - buckets.count(destination)
    return (*buckets[:first], *(None for _ in range(lost)), *buckets[end:])


def _bindings_added_by_restart(ring: HashRing) -> list[Binding]:
    """Return the bindings that get their buckets at the start, in that order."""
    release = ring.release
    bindings = ring.bindings
    if release.follows(RESTART_KEEPS):
        destinations = set(ring.buckets)
        return sorted(
            [binding for binding in bindings or () if binding[0] not in destinations], key=order_of_binding
        )
    if bindings is None:
        raise NotDeterminedError(
            f"RabbitMQ {release} rebuilds the ring from its bindings, and this ring does not contain them: read the ring "
            "after the restart"
        )
    if len(bindings) > 1:  # RESTART_SHUFFLES
        raise NotDeterminedError(
            f"RabbitMQ {release} adds the bindings again in no order that can be computed: read the ring after the "
            "restart, or unbind and bind everything in the order that is wanted"
        )

    return list(bindings)  # one at most


def _why_not_bound(ring: HashRing, destination: Destination, weight: int | str | None) -> str:
    """Return an error message for a destination that is not bound, with a similar name that is bound."""
    bindings = ring.bindings or ()
    if keys := [key for place, key in bindings if place == destination]:
        return f"{destination!s} is bound with the key {' and '.join(keys)}, and not with {weight!s}: pass a key that is bound"
    if destination in ring.buckets:
        return f"{destination!r} has buckets and no binding: no unbind takes them away"
    places = dict.fromkeys((*ring.buckets, *(place for place, _ in bindings)))
    names = {place: place.name if isinstance(place, ExchangeRef) else place for place in places if place}
    wanted = destination.name if isinstance(destination, ExchangeRef) else destination
    meant = similar(wanted, names.values())
    near = " or ".join(repr(place) for place, name in names.items() if name == meant)
    remedy = f"did you mean {near}?" if near else "pass a destination of the ring, or missing_ok=True"
    return f"{destination!r} is not bound: {remedy}"
