"""Key maps from JSON text of any kind."""

from __future__ import annotations

from rabbit_chx.checks import json_object
from rabbit_chx.routing.key_map import SHOW_FORMAT, KeyMap
from rabbit_chx.routing.modulus_exchange import ModulusHashExchange
from rabbit_chx.routing.ring import HashRing
from rabbit_chx.routing.slot_table import SlotTable
from rabbit_chx.routing.super_stream import SuperStream


def key_map_from_json(text: str | bytes) -> KeyMap:
    """Parse the text that `to_json` of a key map returned, or that ``rabbit-chx show`` wrote about an exchange.

    Args:
        text: the JSON text; bytes are UTF-8.

    Raises:
        InputError: the text is not a key map, or has a later format.
    """
    known = json_object(text)
    is_shown = known.get("format") == SHOW_FORMAT
    if known.get("format") == "rabbit-chx/modulus" or (is_shown and "destinations" in known):
        return ModulusHashExchange.from_json(text)
    if known.get("format") == "rabbit-chx/super-stream" or (is_shown and "partitions" in known):
        return SuperStream.from_json(text)
    return HashRing.from_json(text) if known.get("slots") is None else SlotTable.from_json(text)
