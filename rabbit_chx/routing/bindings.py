"""Bindings of an exchange: destinations, and binding keys, which are weights."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypeVar

from rabbit_chx.checks import MAX_SHORTSTR, check_name
from rabbit_chx.errors import InputError
from rabbit_chx.result_fields import shown
from rabbit_chx.routing.release import Release
from rabbit_chx.routing.rules import WEIGHT_IS_REFUSED

T = TypeVar("T")

MAX_BINDING_WEIGHT = 10_000
#: The largest ring that is computed here.
MAX_BUCKETS = 10_000_000
_MAX_WEIGHT_BITS = 1000

_INTEGER = re.compile(r"[+-]?[0-9]+")


@dataclass(frozen=True, slots=True, order=True)
class ExchangeRef:
    """An exchange as a destination. It never equals a str, which is a queue.

    Attributes:
        name: the exchange's name.
    """

    name: str = field(metadata=shown(json="exchange"))

    def __post_init__(self) -> None:
        check_name(self.name, "exchange")

    def __str__(self) -> str:
        return f"exchange {self.name}"


#: A queue by its name, or an exchange.
Destination: TypeAlias = str | ExchangeRef
#: The destination of a message; None for a hole or an empty ring.
Place: TypeAlias = Destination | None
#: A destination with its binding key.
Binding: TypeAlias = tuple[Destination, str]
#: Destinations with their weights, an int or the binding key's text, in the order of the ring.
GivenBindings: TypeAlias = (
    Iterable[tuple[Destination, int | str]]
    | Mapping[str, int | str]
    | Mapping[ExchangeRef, int | str]
    | Mapping[Destination, int | str]
)


def check_destination(destination: object) -> Destination:
    """Return the destination; raise an InputError if its type or name is invalid."""
    if isinstance(destination, ExchangeRef):
        return destination
    if not isinstance(destination, str):
        raise InputError(
            f"{destination!r} is not a destination: pass a queue's name as str, or ExchangeRef(name)"
        )
    check_name(destination, "queue")
    return destination


def place_to_json(destination: Place) -> str | dict[str, str] | None:
    """Return a destination as JSON; None is a hole."""
    return {"exchange": destination.name} if isinstance(destination, ExchangeRef) else destination


def destination_from_json(written: Any) -> Destination:
    """Return the destination of `place_to_json`; an InputError if it is not valid."""
    return ExchangeRef(written["exchange"]) if isinstance(written, dict) else check_destination(written)


def binding_key(weight: int | str) -> str:
    """Return the binding key of a weight: ``7`` for 7; the key ``007`` is a different one."""
    if not _is_key(weight):
        raise InputError(f"the binding key {weight!r:.60} is neither int nor text: pass an int or str")
    if isinstance(weight, int) and weight.bit_length() > _MAX_WEIGHT_BITS:
        raise InputError(
            f"a weight of hundreds of digits: a binding key has at most {MAX_SHORTSTR} bytes; pass a smaller one"
        )
    return weight if isinstance(weight, str) else str(weight)


def weight_of(destination: Destination, weight: int | str, release: Release | None = None) -> int:
    """Return the number of buckets of a binding.

    Mirrors rabbitmq-server ``rabbit_exchange_type_consistent_hash.erl``, ``validate_binding/2`` (v4.3.6): the key must be an integer for
    ``list_to_integer/1``, above 0 and, by release, at most 10,000.
    """
    key = binding_key(weight) if _is_key(weight) else ""
    if len(key) > MAX_SHORTSTR or not _INTEGER.fullmatch(key):
        fault = f"{weight!r:.60}: a weight is a whole number above 0, as int or text"
    elif (buckets := int(key)) < 1:
        fault = f"{weight!r}: it must be at least 1; to send it nothing, unbind it"
    elif release and buckets > MAX_BINDING_WEIGHT and release.follows(WEIGHT_IS_REFUSED):
        most = f"RabbitMQ {release.version} takes at most {MAX_BINDING_WEIGHT}"
        fault = f"{weight!r}: {most}; divide all weights by the same number"
    else:
        return buckets
    if isinstance(destination, ExchangeRef):
        raise InputError(f"exchange {destination.name!r} is bound with the weight {fault}")
    raise InputError(f"queue {destination!r} is bound with the weight {fault}", queue=destination)


def checked_bindings(
    bindings: Iterable[tuple[Destination, int | str]], release: Release
) -> list[tuple[Binding, int]]:
    """Return the distinct bindings, each with its weight in buckets."""
    checked = []
    for destination, weight in bindings:
        buckets = weight_of(check_destination(destination), weight, release)
        checked.append(((destination, binding_key(weight)), buckets))
    return checked


def _is_key(weight: object) -> bool:
    return isinstance(weight, (int, str)) and not isinstance(weight, bool)


def as_tuple(values: Iterable[T], wanted: str) -> tuple[T, ...]:
    """Return the values as a tuple; raise an InputError for text. `wanted` describes the values, for the error."""
    if isinstance(values, (str, bytes)) or not isinstance(values, Iterable):
        raise InputError(f"{values!r:.60} is not a list: pass {wanted}")
    return tuple(values)


def tuples_of(bindings: Iterable[Any], size: int, wanted: str) -> tuple[Any, ...]:
    """Return bindings as a tuple; check that each is a sequence of this size. `wanted` describes it, for the error."""
    tuples = as_tuple(bindings, wanted)
    for binding in tuples:
        if (
            not isinstance(binding, Sequence)
            or isinstance(binding, (str, bytes, bytearray))
            or len(binding) != size
        ):
            raise InputError(f"{binding!r:.60} is not a binding: pass {wanted}")
    return tuples


def pairs_of_bindings(bindings: GivenBindings) -> tuple[tuple[Destination, int | str], ...]:
    """Return bindings as ``(destination, weight)`` pairs, in the order given."""
    wanted = "(destination, weight) pairs"
    if isinstance(bindings, (set, frozenset)):
        raise InputError(f"{bindings!r:.60} has no order, and a ring has one: pass a list of {wanted}")
    return tuples_of(bindings.items() if isinstance(bindings, Mapping) else bindings, 2, wanted)


def order_of_destination(destination: Destination) -> tuple[str, bytes]:
    """Return a sort key for destinations of one vhost in Erlang's order of ``#resource{}``: exchanges, then queues, by the bytes of the
    name.
    """
    if isinstance(destination, ExchangeRef):
        return "exchange", destination.name.encode()
    return "queue", destination.encode()


def order_of_binding(binding: Binding) -> tuple[bytes, tuple[str, bytes]]:
    """Return a sort key for bindings of one exchange in Erlang's order of ``#binding{}`` without arguments: key, then destination."""
    destination, key = binding
    return key.encode(), order_of_destination(destination)


def without_binding(
    name: str, bindings: Iterable[Binding], destination: Destination, key: int | str | None
) -> tuple[Binding, ...]:
    """Return the bindings of the exchange `name` without those of a destination; with a key only the one with that key."""
    bindings = tuple(bindings)
    text = None if key is None else binding_key(key)
    remaining = tuple(
        (place, bound) for place, bound in bindings if place != destination or text not in (None, bound)
    )
    if len(remaining) == len(bindings):
        which = f"{destination!s}" if text is None else f"{destination!s} with the key {text!r}"
        raise InputError(f"{which} is not bound to {name}: pass one that is")
    return remaining


def ascending_bindings(places: Iterable[Destination]) -> tuple[Binding, ...]:
    """Return bindings with ascending keys, so that releases that sort an ``x-modulus-hash`` exchange by binding key keep the order of the places."""
    return tuple((place, f"{number:09}") for number, place in enumerate(places))
