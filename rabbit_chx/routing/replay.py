"""Binding after binding: how a ring comes to be.

Mirrors rabbitmq-server ``rabbit_exchange_type_consistent_hash.erl``, ``add_binding/3`` (``chx_hash_ring_update_fun/3``
since v3.12.0), v3.7.8 to v4.3.6.
"""

from __future__ import annotations

from rabbit_chx.errors import InputError
from rabbit_chx.routing.bindings import Binding, Destination, binding_key, check_destination, weight_of
from rabbit_chx.routing.release import DUPLICATES_APPEND, Release

__all__ = ["MAX_BUCKETS", "Replay"]

MAX_BUCKETS = 10_000_000


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
