"""What a ring is made of, as a plain value: a change takes a state and gives another, and JSON text is made of a state."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from typing import Literal, NamedTuple, TypeAlias, get_args

from rabbit_chx.errors import InputError
from rabbit_chx.routing.bindings import Binding, Place, check_destination, listed
from rabbit_chx.routing.release import NEWEST, Release, check_release

#: Where a ring comes from: read from a broker, replayed from what was bound, or assumed.
Provenance: TypeAlias = Literal["read", "replayed", "assumed"]
PROVENANCES: tuple[Provenance, ...] = get_args(Provenance)

MAX_BUCKETS = 10_000_000


class RingState(NamedTuple):
    """The parts of a :class:`~rabbit_chx.routing.ring.HashRing`, in the order of its arguments.

    Attributes:
        buckets: the destination of each bucket number; None at a hole.
        release: the release whose rules apply.
        provenance: where the ring comes from.
        bindings: all bindings that the broker lists, in bind order; None where they are not known.
        end_known: whether the next bucket comes directly after the last bucket.
    """

    buckets: tuple[Place, ...]
    release: Release
    provenance: Provenance
    bindings: tuple[Binding, ...] | None
    end_known: bool


def check_state(state: RingState) -> None:
    """Refuse what cannot be a ring; the destinations are checked where they come from.

    Args:
        state: the parts of the ring.

    Raises:
        InputError: the release is not a Release, there is no such provenance, or there are too many buckets.
    """
    check_release(state.release)
    if state.provenance not in PROVENANCES:
        raise InputError(f"the provenance is {state.provenance!r:.40}: give one of {', '.join(PROVENANCES)}")
    if len(state.buckets) > MAX_BUCKETS:
        raise InputError(f"a ring of {len(state.buckets)} buckets is too large: give smaller weights")


def state_as_read(buckets: Iterable[Place], release: Release | None, next_bucket: int | None) -> RingState:
    """Return the state of a ring that was read; see :meth:`HashRing.from_buckets`.

    Args:
        buckets: the destination of bucket 0, 1 and so on; None at a hole.
        release: the release whose rules apply; None for the newest.
        next_bucket: the number that the broker gives to the next bucket; None where it is not known.

    Raises:
        InputError: an entry is not a destination, or the next bucket would take the place of another.
    """
    places = listed(buckets, "one destination for each bucket")
    for destination, _ in groupby(places):
        if destination is not None:
            check_destination(destination)
    if next_bucket is not None:
        if not len(places) <= next_bucket <= MAX_BUCKETS:
            raise InputError(
                f"the next bucket of a ring of {len(places)} buckets is {next_bucket}: give {len(places)} or more"
            )
        places += (None,) * (next_bucket - len(places))
    return RingState(places, NEWEST if release is None else release, "read", None, next_bucket is not None)
