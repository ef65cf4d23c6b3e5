"""Which bindings of a wanted ring an exchange still lacks. No I/O.

A new binding adds buckets at the end of the ring only. So the ring that exists must be the beginning of the
wanted one. Anything else is refused before something is changed.
"""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING

from rabbit_chx.errors import InputError, MismatchError
from rabbit_chx.routing import HashRing
from rabbit_chx.routing.bindings import order_of_binding, order_of_destination, weight_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rabbit_chx.routing import Binding, Destination, Release
    from rabbit_chx.routing.bindings import GivenBindings

__all__ = ["left_by_bindings", "left_by_ring", "wanted_ring"]

_REMEDY = "nothing was changed; unbind and bind in the order that is wanted, which moves keys, or declare what is there"


def wanted_ring(bindings: GivenBindings, release: Release) -> HashRing:
    """Return the ring that bindings make on a fresh exchange.

    Args:
        bindings: the bindings, in bind order.
        release: the broker's release.

    Raises:
        InputError: the broker would refuse a binding, or a destination has two bindings.
    """
    ring = HashRing.from_bindings(bindings, release)
    keys: dict[Destination, str] = {}
    for destination, key in ring.bindings or ():
        if keys.setdefault(destination, key) != key:
            raise InputError(
                f"{destination!r} is bound twice, with the weights {keys[destination]} and {key}: the broker would "
                "ignore or add the second, by release; give it once"
            )
    return ring


def left_by_ring(exchange: str, wanted: HashRing, live: HashRing) -> tuple[Binding, ...]:
    """Return the bindings of the wanted ring that come after the ring that was read.

    Args:
        exchange: the exchange's name, for errors.
        wanted: the ring to have in the end.
        live: the ring that was read.

    Raises:
        MismatchError: the wanted ring does not begin with the ring that was read.
    """
    bindings = wanted.bindings or ()
    ends = [0, *accumulate(weight_of(*binding) for binding in bindings)]
    size = len(live.buckets)
    if live.buckets == wanted.buckets[:size] and size in ends:
        return bindings[ends.index(size) :]
    pairs = zip(live.buckets, wanted.buckets, strict=False)
    first = next((n for n, (one, two) in enumerate(pairs) if one != two), min(size, len(wanted.buckets)))
    raise MismatchError(
        f"exchange {exchange!r} has the ring {live!r}, not {wanted!r}; bucket {first} is the first that differs: {_REMEDY}",
        exchange=exchange,
    )


def left_by_bindings(exchange: str, wanted: HashRing, live: Sequence[Binding]) -> tuple[Binding, ...]:
    """Return the bindings of the wanted ring that come after the listed ones, whose order no API tells.

    Args:
        exchange: the exchange's name, for errors.
        wanted: the ring to have in the end.
        live: the bindings that the exchange has, in any order.

    Raises:
        MismatchError: the exchange has other bindings than the first of the wanted ones.
    """
    bindings = wanted.bindings or ()
    if sorted(live, key=order_of_binding) == sorted(bindings[: len(live)], key=order_of_binding):
        return bindings[len(live) :]
    found = sorted(live, key=lambda binding: order_of_destination(binding[0]))
    raise MismatchError(
        f"exchange {exchange!r} has the bindings {_shown(found)}, not {_shown(bindings)}: {_REMEDY}",
        exchange=exchange,
    )


def _shown(bindings: Sequence[Binding]) -> str:
    shown = ", ".join(f"{destination!s}={key}" for destination, key in bindings)
    return f"{shown:.400}" or "(none)"
