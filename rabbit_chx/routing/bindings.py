"""Bindings of an exchange: destinations, and binding keys, which are weights."""

from __future__ import annotations

import heapq
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any, Literal, NotRequired, TypeAlias, TypedDict, TypeVar, get_args

from rabbit_chx.checks import MAX_SHORTSTR, check_name
from rabbit_chx.errors import InputError
from rabbit_chx.lazy_names import shown_by
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


# -- What is known about a ring: the origin of its order, or why its order is not known


#: The origin of a ring, as :class:`OrderKnowledge` explains it.
Provenance: TypeAlias = Literal["read", "recorded", "observed", "replayed"]
PROVENANCES: tuple[Provenance, ...] = get_args(Provenance)
#: The origins of a ring that is that of a broker.
CERTAIN: tuple[Provenance, ...] = ("read", "recorded", "observed")
#: What must be true for a record to hold: it is a statement about the past, and what others did and took back since leaves no trace.
RECORD_CONDITION = (
    "known as of the record, if only rabbit_chx has changed the bindings of this exchange since"
)
#: What must be true for what is said of a ring whose order is not known: a list of bindings does not show all its buckets.
LISTED_CONDITION = "if no buckets without a queue are left, where messages are unroutable"
#: The origins in words.
ORIGINS: dict[Provenance | None, str] = {
    "read": "read from a broker",
    "recorded": f"recorded on the broker: {RECORD_CONDITION}",
    "observed": "observed from keys and their queues",
    "replayed": "replayed from the bindings in order",
    None: "order not known",
}


@dataclass(frozen=True, slots=True)
class OrderKnowledge:
    """What is known about a ring.

    Attributes:
        origin: ``read`` from a broker; ``recorded``: that of a record which fits the live bindings, known on the `condition` that nobody else
            has changed these since; ``observed`` from keys and the queues that got them; ``replayed`` from bindings whose order the caller vouches for; None: the order is not known.
        doubt: the reason why it is not known, as a sentence without a full stop and without a remedy; empty if there is none to name. Only
            a ring whose order is not known has a doubt.

    Raises:
        InputError: the origin is not one of these, or a ring whose order is known has a doubt.
    """

    origin: Provenance | None
    doubt: str = ""

    def __post_init__(self) -> None:
        if self.origin is not None and self.origin not in PROVENANCES:
            raise InputError(f"the provenance is {self.origin!r:.40}: pass one of {', '.join(PROVENANCES)}")
        if not isinstance(self.doubt, str):
            raise InputError(f"the doubt is {self.doubt!r:.40}: pass text")
        if self.doubt and self.origin is not None:
            raise InputError(
                f"the ring is {self.origin} and has a doubt, {self.doubt!r:.60}: leave the doubt or the origin out"
            )

    @property
    def condition(self) -> str | None:
        """What must be true for the ring to be that of the broker now; None unless it is recorded."""
        return condition_of(self.origin)

    @property
    def is_certain(self) -> bool:
        """True if the ring is that of a broker."""
        return self.origin in CERTAIN

    @property
    def is_known(self) -> bool:
        """True if the order is known."""
        return self.origin is not None

    def after_change(self) -> OrderKnowledge:
        """Return how the order of a ring is known after a bind or an unbind: one that was that of a broker is then replayed."""
        return OrderKnowledge("replayed") if self.is_certain else self

    @property
    def text(self) -> str:
        """The origin in words, with the doubt."""
        words = ORIGINS[self.origin]
        return f"{words} ({self.doubt})" if self.doubt else words

    def __str__(self) -> str:
        words = self.origin or "of an unknown order"
        return f"{words} ({self.doubt})" if self.doubt else words


class OriginJson(TypedDict):
    """How a map is known, in JSON.

    Attributes:
        provenance: The source of the ring.
        condition: What must be true for a recorded ring to be that of the broker, and for the shares of a ring whose order is not known; else null.
        doubt: Why the order is not known.
    """

    provenance: Provenance | None
    condition: str | None
    doubt: NotRequired[str]


def condition_of(origin: Provenance | None) -> str | None:
    """Return the condition of an answer from a ring of this origin; None if it has none."""
    return RECORD_CONDITION if origin == "recorded" else None


#: What is known about a ring of which only the binding list is.
UNORDERED = OrderKnowledge(None, "its bindings are listed without their order")
#: What is known about a ring that is taken to have its members in the order of a file, or of a call.
AS_LISTED = OrderKnowledge("replayed")


# -- The flows of keys between destinations, when one map or one release becomes another. Every share is a sum of them


#: How much flows from a destination to another one, or stays.
FlowCell = TypedDict("FlowCell", {"from": Place, "to": Place, "amount": float})


class FlowsJson(TypedDict):
    """A movement in JSON.

    Attributes:
        moved: The share of keys, or the number, with another destination afterwards.
        least: The minimum for this change.
        cells: A pair without a cell is 0.
        more_cells: The number of smaller cells that are left out.
    """

    moved: float
    least: float
    cells: list[FlowCell]
    more_cells: NotRequired[int]


class Flows(Mapping[tuple[Place, Place], float]):
    """The amount of each ``(destination before, destination after)``, without zeros. The place None means no destination, as at a hole.

    The amounts are exact shares of all hashes, or whole numbers of keys. Those of rings are floats k/2^21, which add up without an error.

    Attributes:
        before: the destinations before, in ring order; None last, if something is there.
        after: the destinations after, in the same order.
    """

    _repr_html_ = shown_by("rabbit_chx.analysis.reports", "matrix_report")

    def __init__(
        self,
        before: Iterable[Place],
        after: Iterable[Place],
        amounts: Mapping[tuple[Place, Place], float],
    ) -> None:
        self._amounts = amounts
        self.before = _places(before, is_nowhere=any(source is None for source, _ in amounts))
        self.after = _places(after, is_nowhere=any(target is None for _, target in amounts))

    def __getitem__(self, pair: tuple[Place, Place]) -> float:
        return self._amounts[pair]

    def __iter__(self) -> Iterator[tuple[Place, Place]]:
        return iter(self._amounts)

    def __len__(self) -> int:
        return len(self._amounts)

    @property
    def moved(self) -> float:
        """How much changes its destination."""
        return sum(amount for (source, target), amount in self.items() if source != target)

    @property
    def move_count(self) -> int:
        """How many flows change the destination."""
        return len(self) - sum((place, place) in self for place in self.before)

    @property
    def least(self) -> float:
        """How much must move in any case, so that each destination gets its new amount: the ideal."""
        after = self.after_totals()
        return sum(max(0, amount - after.get(place, 0)) for place, amount in self.before_totals().items())

    @property
    def cells(self) -> list[FlowCell]:
        """The amounts as a list of ``{"from": ..., "to": ..., "amount": ...}``."""
        return [{"from": source, "to": to, "amount": amount} for (source, to), amount in self.items()]

    def as_json(self) -> FlowsJson:
        """Return the document of the flows, for `to_json`."""
        return {"moved": self.moved, "least": self.least, "cells": self.cells}

    def before_totals(self) -> dict[Place, float]:
        """Return how much each destination has before."""
        return self._totals(0)

    def after_totals(self) -> dict[Place, float]:
        """Return how much each destination has after."""
        return self._totals(1)

    def _totals(self, side: int) -> dict[Place, float]:
        totals: dict[Place, float] = dict.fromkeys((self.before, self.after)[side], 0)
        for pair, amount in self.items():
            totals[pair[side]] += amount
        return totals

    def largest_moves(self, most: int) -> list[tuple[Place, Place, float]]:
        """Return ``(from, to, how much)`` of the flows that change the destination, the largest first.

        Args:
            most: how many are returned at most.
        """
        moves = ((source, target, amount) for (source, target), amount in self.items() if source != target)
        return heapq.nlargest(most, moves, key=itemgetter(2))

    def moves(self) -> list[tuple[Place, Place, float]]:
        """Return all flows that change the destination, as `largest_moves` does."""
        return self.largest_moves(self.move_count)

    def sorted_by(self, key: Callable[[Destination], Any]) -> Flows:
        """Return the flows with their destinations in another order. The place None stays last.

        Args:
            key: the sort key of a destination.
        """
        before = sorted((place for place in self.before if place is not None), key=key)
        after = sorted((place for place in self.after if place is not None), key=key)
        return Flows(before, after, self).row_by_row()

    def row_by_row(self) -> Flows:
        """Return the flows in the order of the destinations before, and of each in that of the destinations after."""
        row = {place: n for n, place in enumerate(self.before)}
        column = {place: n for n, place in enumerate(self.after)}
        ordered = sorted(self.items(), key=lambda cell: (row[cell[0][0]], column[cell[0][1]]))
        return Flows(self.before, self.after, dict(ordered))


def _places(destinations: Iterable[Place], *, is_nowhere: bool) -> tuple[Place, ...]:
    places = dict.fromkeys(destinations)
    places.pop(None, None)
    return (*places, None) if is_nowhere else tuple(places)
