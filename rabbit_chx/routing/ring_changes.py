"""Changes of a ring: bind, unbind, deletion and a full restart of a single node.

Each function takes the state of a ring and returns the state after the change, or the same object if nothing changes. The effect depends on
the release, by these rules of :mod:`rabbit_chx.routing.rules`:

- A bind appends as many buckets as the weight. A second binding of the same destination appends too
  (`DUPLICATES_APPEND`) or is ignored.
- An unbind removes all buckets of the destination, even if another binding of it remains. The buckets
  after them get lower numbers. Buckets of other destinations in between are lost.
- A full restart keeps the ring on Khepri (`RESTART_KEEPS`). On Mnesia the ring is only in memory: after the
  restart it is empty (`RESTART_EMPTIES`), or rebuilt from the sorted bindings (`RESTART_SORTS`), or rebuilt
  in an unpredictable order (`RESTART_SHUFFLES`).

Mirrors rabbitmq-server ``rabbit_exchange_type_consistent_hash.erl``: ``add_binding/3`` and ``remove_bindings/3``
(``chx_hash_ring_update_fun/3`` and ``ch_hash_ring_delete_fun/2`` since v3.12.0), v3.8.0 to v4.3.6; ``init/0`` and ``recover/0`` (v3.8.5 to
v4.2.x) or ``recover/2`` (from v4.3.0). Restarts were compared with real brokers of 3.8.9, 3.10.8, 4.0.5 and 4.3.6.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import NamedTuple

from rabbit_chx.checks import similar
from rabbit_chx.errors import InputError, NotDeterminedError
from rabbit_chx.routing.bindings import (
    Binding,
    Destination,
    ExchangeRef,
    GivenBindings,
    Place,
    as_tuple,
    binding_key,
    check_destination,
    checked_bindings,
    order_of_binding,
    pairs_of_bindings,
    weight_of,
)
from rabbit_chx.routing.ground import Ground
from rabbit_chx.routing.release import NEWEST_COMPARED, Release, check_release
from rabbit_chx.routing.rules import (
    DUPLICATES_APPEND,
    RESTART_EMPTIES,
    RESTART_KEEPS,
    RESTART_SHUFFLES,
    UNBIND_SHIFTS_BY_WEIGHT,
)

#: The largest ring that is computed here.
MAX_BUCKETS = 10_000_000


class RingState(NamedTuple):
    """The attributes of a :class:`~rabbit_chx.routing.ring.HashRing`, which documents them."""

    buckets: tuple[Place, ...]
    release: Release
    ground: Ground
    bindings: tuple[Binding, ...] | None
    end_known: bool


def check_state(state: RingState) -> None:
    """Raise an InputError for an invalid ring. The callers check the destinations."""
    check_release(state.release)
    if not isinstance(state.ground, Ground):
        raise InputError(f"the ground of a ring is {state.ground!r:.40}: pass a Ground")
    if len(state.buckets) > MAX_BUCKETS:
        raise InputError(f"a ring of {len(state.buckets)} buckets is too large: pass smaller weights")


def state_as_read(buckets: Iterable[Place], release: Release | None, next_bucket: int | None) -> RingState:
    """Return the state of a ring that was read; see :meth:`HashRing.from_buckets`."""
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
    return RingState(
        places, NEWEST_COMPARED if release is None else release, Ground("read"), None, next_bucket is not None
    )


def replay(bindings: GivenBindings, release: Release, ground: Ground) -> RingState:
    """Return the ring of these bindings, in bind order."""
    growth = _Growth([], {}, release)
    growth.bind(checked_bindings(pairs_of_bindings(bindings), release))
    return RingState(tuple(growth.buckets), release, ground, tuple(growth.bindings), end_known=True)


def bind(ring: RingState, destination: Destination, weight: int | str) -> RingState:
    """Return the ring after a bind."""
    if ring.bindings is not None and (destination, binding_key(weight)) in ring.bindings:
        return ring
    growth = _Growth(list(ring.buckets), dict.fromkeys(ring.bindings or ()), ring.release)
    growth.bind(checked_bindings([(destination, weight)], ring.release))
    bound = _change(ring, growth.buckets, growth.bindings)
    # Where second bindings append buckets, an unbind may leave holes at the end. Then the number of the next bucket is not known.
    guessed = not ring.end_known and ring.release.follows(DUPLICATES_APPEND)
    why = f"an earlier unbind on RabbitMQ {ring.release.version} may have left holes behind its last bucket"
    return bound._replace(ground=_assume(ring.ground, why)) if guessed else bound


def unbind(ring: RingState, destination: Destination, weight: int | str | None) -> RingState:
    """Return the ring after an unbind; the same ring if the binding does not exist."""
    check_destination(destination)
    key = None if weight is None else binding_key(weight)
    if weight is not None:
        weight_of(destination, weight)
    if ring.bindings is None:
        if destination not in ring.buckets:
            return ring
        removed: list[Binding] = [] if key is None else [(destination, key)]
        return _change(ring, _without(destination, removed, ring), ())
    removed = [
        binding for binding in ring.bindings if binding[0] == destination and key in (None, binding[1])
    ]
    if not removed:
        return ring
    remaining = [binding for binding in ring.bindings if binding not in removed]
    return _change(ring, _without(destination, removed, ring), remaining)


def why_not_bound(ring: RingState, destination: Destination, weight: int | str | None) -> str:
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


def delete_destination(ring: RingState, destination: Destination) -> RingState:
    """Return the ring after the deletion of the queue or exchange with all of its bindings."""
    weights = {weight_of(*binding) for binding in ring.bindings or () if binding[0] == destination}
    if len(weights) > 1 and ring.release.follows(UNBIND_SHIFTS_BY_WEIGHT):
        raise NotDeterminedError(
            f"deleting {destination!s} on RabbitMQ {ring.release.version} moves buckets by one of its weights "
            f"{sorted(weights)}, and which one cannot be known: read the ring again"
        )
    return unbind(ring, destination, None)


def delete_exchange(ring: RingState) -> RingState:
    """Return the ring of a later exchange with the same name: no buckets, no bindings."""
    return RingState((), ring.release, ring.ground.after_change(), (), end_known=True)


def restart(ring: RingState) -> RingState:
    """Return the ring after a full restart of a single node."""
    release, bindings = ring.release, ring.bindings
    keeps = release.follows(RESTART_KEEPS)
    growth = _Growth(list(ring.buckets) if keeps else [], {}, release)
    for binding in _bindings_added_by_restart(ring):
        growth.restore(*binding)
    restarted = _change(ring, growth.buckets, bindings or ())
    restarted = restarted._replace(end_known=ring.end_known or not keeps)
    if not release.store_known:
        return restarted._replace(ground=_assume(ring.ground, "the store of the broker is not known"))
    if keeps and bindings is None:
        return restarted._replace(ground=_assume(ring.ground, "its bindings are not known"))
    return restarted


def _bindings_added_by_restart(ring: RingState) -> list[Binding]:
    """Return the bindings that get their buckets at the start, in that order."""
    release, bindings = ring.release, ring.bindings
    if release.follows(RESTART_KEEPS):
        destinations = set(ring.buckets)
        return sorted(
            [binding for binding in bindings or () if binding[0] not in destinations], key=order_of_binding
        )
    if release.follows(RESTART_EMPTIES):
        return []
    if bindings is None:
        raise NotDeterminedError(
            f"RabbitMQ {release} rebuilds the ring from its bindings, and this ring does not contain them: read the ring "
            "after the restart"
        )
    if release.follows(RESTART_SHUFFLES) and len(bindings) > 1:
        raise NotDeterminedError(
            f"RabbitMQ {release} adds the bindings again in no order that can be computed: read the ring after the "
            "restart, or unbind and bind everything in the order that is wanted"
        )
    # RESTART_SORTS; and RESTART_SHUFFLES with a single binding, which has only one order.
    return sorted(bindings, key=order_of_binding)


class _Growth:
    """A ring that gets buckets, binding after binding."""

    def __init__(self, buckets: list[Place], bindings: dict[Binding, None], release: Release) -> None:
        self.buckets = buckets
        self.bindings = bindings
        self._destinations = set(buckets)
        self._duplicates_append = release.follows(DUPLICATES_APPEND)

    def bind(self, bindings: Iterable[tuple[Binding, int]]) -> None:
        """Add each new binding with its buckets."""
        for binding, weight in bindings:
            if binding not in self.bindings:
                self.bindings[binding] = None
                self._add_buckets(binding[0], weight)

    def restore(self, destination: Destination, key: str) -> None:
        """Add the buckets of an existing binding."""
        self._add_buckets(destination, weight_of(destination, key))

    def _add_buckets(self, destination: Destination, count: int) -> None:
        if destination in self._destinations and not self._duplicates_append:
            return
        if len(self.buckets) + count > MAX_BUCKETS:
            raise InputError(
                f"{destination!s} with the weight {count} makes a ring of more than {MAX_BUCKETS} buckets, "
                "which a broker's memory would not bear: divide all weights by the same number"
            )
        self.buckets += [destination] * count
        self._destinations.add(destination)


def _change(ring: RingState, buckets: Iterable[Place], bindings: Iterable[Binding]) -> RingState:
    """Return the ring with other buckets, and with other bindings if they are known."""
    return RingState(
        tuple(buckets),
        ring.release,
        ring.ground.after_change(),
        None if ring.bindings is None else tuple(bindings),
        ring.end_known,
    )


def _assume(ground: Ground, doubt: str) -> Ground:
    """Return the ground of a guess: its first doubt remains."""
    return Ground("assumed", ground.doubt or doubt)


def _without(destination: Destination, removed: Sequence[Binding], ring: RingState) -> list[Place]:
    """Return the buckets after the removal of the first of the `removed` bindings, which removes all buckets of the destination."""
    buckets = list(ring.buckets)
    if destination not in buckets:
        return buckets
    first = buckets.index(destination)
    end = len(buckets) - buckets[::-1].index(destination)
    shift = _shift(destination, buckets[first:end].count(destination), removed, ring.release)
    # Buckets of others between the first and the last are lost; those after them move down by the shift.
    buckets[first:end] = [None] * (end - first - shift)
    return buckets


def _shift(destination: Destination, count: int, removed: Sequence[Binding], release: Release) -> int:
    """Return by how much the numbers of the later buckets decrease."""
    if not release.follows(UNBIND_SHIFTS_BY_WEIGHT):
        return count
    about = f"unbinding {destination!s} on RabbitMQ {release.version}"
    if not removed:
        raise InputError(f"{about} depends on the binding's weight, which a ring read lacks: pass the weight")
    shift = weight_of(*removed[0])
    if shift > count:
        raise NotDeterminedError(
            f"{about} moves buckets by {shift}, over others, as it holds only {count}: read the ring again"
        )
    return shift
