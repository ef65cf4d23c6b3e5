"""The load of the members of an exchange: a sample of keys, and what a report says about it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rabbit_chx.analysis import SlotLoad
from rabbit_chx.analysis.key_routing import Hashing
from rabbit_chx.analysis.wording import place_text
from rabbit_chx.cli.samples import KeySource, StreamedSample
from rabbit_chx.errors import InputError
from rabbit_chx.fixes import Fix
from rabbit_chx.rendering import Table
from rabbit_chx.result_fields import Shown
from rabbit_chx.routing import ExchangeRef, SlotTable
from rabbit_chx.routing.bindings import Place
from rabbit_chx.routing.key_map import KeyMap
from rabbit_chx.topology.planning.refusals import know_rings
from rabbit_chx.words import percent

_HEAVIEST = 5


@dataclass(frozen=True, slots=True)
class SlotSample:
    """The load of slots.

    Attributes:
        load: the load.
        messages: the number of messages.
        source: the file of keys, or the pattern.
    """

    load: SlotLoad
    messages: int
    source: str

    def share(self, messages: float) -> float:
        """Return the share of the load of this number of messages."""
        return float(f"{messages / sum(self.load.messages.values()):.9g}")


def read_load(keys: KeySource, arguments: Mapping[str, str], key_map: KeyMap) -> SlotSample:
    """Count the keys of a sample. The memory use does not grow with a file."""
    hashing = keys.hashing(Hashing(arguments.get("hash-header"), arguments.get("hash-property")))
    batches = StreamedSample(keys, hashing, key_map)
    with batches.name_errors():
        load = SlotLoad.of_keys(key_map, batches, hashing=hashing)
    counted = int(sum(load.messages.values()))
    if not counted:
        raise InputError(
            f"{keys.name} does not contain a key that reaches a member: pass a sample of the exchange's own keys"
        )
    return SlotSample(load, counted + load.nowhere, keys.name)


def slot_name(place: Place) -> str | None:
    """Return the name of a slot; None for a queue, and for no destination."""
    return place.name if isinstance(place, ExchangeRef) else None


def slot_text(place: Place) -> str:
    """Return the name of a slot, without the word that it is an exchange."""
    return slot_name(place) or place_text(place)


def _text_or_none(place: Place) -> str | None:
    return None if place is None else str(place)


def rate_text(rate: float | None) -> str:
    """Return messages per second; nothing if they are not known."""
    return "" if rate is None else f"{rate:,.1f}"


_HEAVY = {
    "key": Shown("heaviest keys"),
    "slot": Shown("slot", slot_text, sparse=True, as_json=slot_name),
    "queue": Shown("queue", place_text, as_json=_text_or_none),
    "load": Shown("of the load", percent, number=True, json=None),
    "least": Shown(),
    "most": Shown(),
}


def heaviest_keys(key_map: KeyMap, sample: SlotSample | None) -> Table:
    """Return the heavy keys of a sample: the slot, the queue, the share of the load, and the bounds of the number of messages."""
    if sample is None:
        return Table.of(_HEAVY, (), key="heaviest").for_people(None)
    rows = [
        (
            str(heavy.key),
            heavy.place if isinstance(heavy.place, ExchangeRef) else None,
            key_map.queue_of(heavy.place) if isinstance(key_map, SlotTable) else heavy.place,
            sample.share(heavy.least),
            heavy.least,
            heavy.most,
        )
        for heavy in sample.load.keys
    ]
    return Table.of(_HEAVY, rows, key="heaviest", most=_HEAVIEST)


def check_certain(exchange: str, slots: KeyMap) -> None:
    """Raise an error for a ring that is assumed: the member of a key is then not known."""
    if not slots.ground.is_certain:
        raise InputError(
            Fix(
                f"the ring of {exchange!r} was not read but is {slots.ground}, so the member of a key is not known: ",
                know_rings({exchange: slots}),
            )
        )
