"""Binding after binding, and one binding less: how a ring comes to be.

Mirrors rabbitmq-server ``rabbit_exchange_type_consistent_hash.erl``, ``add_binding/3`` and ``remove_bindings/3``
(``chx_hash_ring_update_fun/3`` and ``ch_hash_ring_delete_fun/2`` since v3.12.0), v3.7.8 to v4.3.6.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rabbit_chx.errors import InputError, NotDeterminedError
from rabbit_chx.routing.bindings import Binding, Destination, binding_key, check_destination, weight_of
from rabbit_chx.routing.rules import DUPLICATES_APPEND, UNBIND_SHIFTS_BY_WEIGHT, UNSORTED_ENDS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rabbit_chx.routing.release import Release

__all__ = ["MAX_BUCKETS", "Replay", "without"]

MAX_BUCKETS = 10_000_000
SMALL_MAP_KEYS = 32


class Replay:
    """Buckets and bindings under way.

    Attributes:
        buckets: the destination of each bucket so far; None at a hole.
        bindings: in bind order.
        release: whose rules apply.
    """

    def __init__(
        self, buckets: list[Destination | None], bindings: dict[Binding, None], release: Release
    ) -> None:
        self.buckets = buckets
        self.bindings = bindings
        self.release = release
        self._held = set(buckets)
        self._duplicates_append = release.follows(DUPLICATES_APPEND)

    def bind(self, destination: Destination, weight: int | str) -> None:
        """Adds a binding, unless it stands already, and its buckets.

        Raises:
            InputError: the broker would refuse the binding.
        """
        check_destination(destination)
        count = weight_of(destination, weight, self.release)
        binding = (destination, binding_key(weight))
        if binding in self.bindings:
            return
        self.bindings[binding] = None
        self._add_buckets(destination, count)

    def restore(self, destination: Destination, key: str) -> None:
        """Gives a binding that stands already its buckets."""
        self._add_buckets(destination, weight_of(destination, key))

    def _add_buckets(self, destination: Destination, count: int) -> None:
        if destination in self._held and not self._duplicates_append:
            return
        if len(self.buckets) + count > MAX_BUCKETS:
            raise InputError(
                f"{destination!s} with the weight {count} makes a ring of more than {MAX_BUCKETS} buckets, "
                "which a broker's memory would not bear: divide all weights by the same number"
            )
        self.buckets += [destination] * count
        self._held.add(destination)


def without(
    destination: Destination, gone: Sequence[Binding], buckets: Sequence[Destination | None], release: Release
) -> list[Destination | None]:
    """The buckets after the first of the `gone` bindings of a destination went: it takes all there are.

    Raises:
        InputError: the outcome depends on a weight that is not known.
        NotDeterminedError: no rule decides the outcome.
    """
    left = list(buckets)
    held = left.count(destination)
    if not held:
        return left
    shift = _shift(destination, held, gone, release)
    first = left.index(destination)
    end = len(left) - left[::-1].index(destination)
    # Buckets of others between the first and the last are lost; those behind move down by the shift.
    left[first:end] = [None] * (end - first - shift)
    return left


def _shift(destination: Destination, held: int, gone: Sequence[Binding], release: Release) -> int:
    about = f"unbinding {destination!s} on RabbitMQ {release.version}"
    if held > SMALL_MAP_KEYS and release.follows(UNSORTED_ENDS):
        raise NotDeterminedError(
            f"{about}, which mistakes the ends of its {held} buckets: read the ring again"
        )
    if not release.follows(UNBIND_SHIFTS_BY_WEIGHT):
        return held
    if not gone:
        raise InputError(f"{about} depends on the binding's weight, which a ring read lacks: give the weight")
    shift = weight_of(*gone[0])
    if shift > held:
        raise NotDeterminedError(
            f"{about} moves buckets by {shift}, over others, as it holds only {held}: read the ring again"
        )
    return shift
