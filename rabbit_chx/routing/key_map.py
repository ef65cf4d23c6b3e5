"""What says which destination a key has: a ring, or a table of slots above one.

Whatever asks about keys takes either. A table answers with queues, where its ring answers with slots.
"""

from __future__ import annotations

from typing import TypeAlias

from rabbit_chx.errors import InputError
from rabbit_chx.routing import slot_json
from rabbit_chx.routing.bindings import Place
from rabbit_chx.routing.ring import HashRing
from rabbit_chx.routing.slot_table import SlotTable

#: What routes a key: a ring, or the slots that are in one.
KeyMap: TypeAlias = HashRing | SlotTable


def check_key_map(*key_maps: object) -> None:
    """Raise an error unless each argument is a ring or a table of slots.

    Args:
        *key_maps: the arguments to check.

    Raises:
        InputError: an argument is neither.
    """
    for key_map in key_maps:
        if not isinstance(key_map, KeyMap):
            raise InputError(f"{key_map!r:.60} is no ring: give a HashRing or a SlotTable")


def ring_beneath(key_map: KeyMap) -> HashRing:
    """Return the ring of a table, and a ring itself.

    Args:
        key_map: the ring or the table.
    """
    return key_map.ring if isinstance(key_map, SlotTable) else key_map


def queue_behind(key_map: KeyMap, place: Place) -> Place:
    """Return what gets the messages of a destination of the ring: in a table the queue that has the slot.

    Args:
        key_map: the ring or the table.
        place: a destination of the ring; None for a hole.
    """
    return key_map.queue_of(place) if isinstance(key_map, SlotTable) else place


def share_between(before: KeyMap, after: KeyMap) -> float:
    """Return the exact share of the 2^21 seeds that have another destination in the other ring or table.

    Args:
        before: a ring or a table.
        after: what to compare it with.
    """
    if isinstance(before, SlotTable):
        return before.share_moved(after)
    return after.share_moved(before) if isinstance(after, SlotTable) else before.share_moved(after)


def key_map_from_json(text: str | bytes) -> KeyMap:
    """Read the text that `HashRing.to_json` or `SlotTable.to_json` made.

    Args:
        text: the JSON text; bytes are UTF-8.

    Raises:
        InputError: the text is of neither, or is of a later format.
    """
    return SlotTable.from_json(text) if slot_json.has_slots(text) else HashRing.from_json(text)
