"""An ``x-modulus-hash`` exchange from a list of its bindings, and the share of keys that another list moves."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from rabbit_chx.routing import Destination, ModulusHashExchange, Release
from rabbit_chx.routing.bindings import Place, ascending_bindings, order_of_binding, order_of_destination
from rabbit_chx.routing.ground import Provenance
from rabbit_chx.routing.modulo import modulo_share_moved
from rabbit_chx.routing.rules import MODULUS_BY_BINDING_KEY
from rabbit_chx.topology.objects import BindingDefinition

_HASHES = 1 << 27


def numbered(bindings: Iterable[BindingDefinition], release: Release) -> tuple[Destination, ...]:
    """Return the destination of each binding, in the order of the broker's numbers.

    If the order of `release` cannot be computed, that of 4.3 is used.
    """
    if release.follows(MODULUS_BY_BINDING_KEY):
        ordered = sorted(
            bindings, key=lambda binding: order_of_binding((binding.destination, binding.routing_key))
        )
    else:
        ordered = sorted(bindings, key=lambda binding: order_of_destination(binding.destination))
    return tuple(binding.destination for binding in ordered)


def modulus_of(
    name: str, bindings: Iterable[BindingDefinition], release: Release, provenance: Provenance
) -> ModulusHashExchange:
    """Return the exchange with these bindings. Bindings that differ only in their arguments count, too."""
    bindings = sorted(bindings, key=lambda binding: order_of_destination(binding.destination))
    pairs = [(binding.destination, binding.routing_key) for binding in bindings]
    if len(set(pairs)) < len(pairs):
        pairs = list(ascending_bindings(numbered(bindings, release)))
    return ModulusHashExchange(name, pairs, release, provenance)


def share_moved(before: Sequence[Place], after: Sequence[Place]) -> float:
    """Return the exact share of the 2^27 hashes whose destination differs between two sequences of numbered destinations."""
    return modulo_share_moved(before, after, _HASHES)


def largest_share(before: Sequence[Destination], after: Sequence[Destination]) -> float:
    """Return the largest share of keys that can move if the order of the bindings is not known.

    If the two numbers of bindings have no common divisor, each order moves the same share.
    """
    return share_moved(before, after) if math.gcd(len(before), len(after)) == 1 else 1.0
