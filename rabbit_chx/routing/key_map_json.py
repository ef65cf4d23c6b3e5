"""Key maps from JSON text of any kind."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from rabbit_chx.checks import json_object
from rabbit_chx.errors import InputError
from rabbit_chx.routing.bindings import ExchangeRef
from rabbit_chx.routing.key_map import SHOW_FORMAT, KeyMap
from rabbit_chx.routing.modulus_exchange import ModulusHashExchange
from rabbit_chx.routing.nested_map import NestedMap
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
    if known.get("nested") is None:
        return _own_map(text, known)
    try:
        return _nested_map(known)
    except (KeyError, TypeError, AttributeError, RecursionError) as error:
        raise InputError(
            f"the maps of the exchanges behind or before this one are damaged ({error!r}): write the JSON again with to_json"
        ) from None


def _own_map(text: str | bytes, known: Mapping[str, Any]) -> KeyMap:
    """Return the map of an exchange by itself; `known` is the object in the text."""
    is_shown = known.get("format") == SHOW_FORMAT
    if known.get("format") == "rabbit-chx/modulus" or (is_shown and "destinations" in known):
        return ModulusHashExchange.from_json(text)
    if known.get("format") == "rabbit-chx/super-stream" or (is_shown and "partitions" in known):
        return SuperStream.from_json(text)
    return HashRing.from_json(text) if known.get("slots") is None else SlotTable.from_json(text)


def _nested_map(known: Mapping[str, Any]) -> NestedMap:
    """Return the map of an exchange with those behind it and before it."""
    nested = known["nested"]
    behind, sources = ([_nested_map(each) for each in nested[part]] for part in ("behind", "sources"))
    return NestedMap(
        ExchangeRef(nested["name"]),
        _own_map(json.dumps(known), known),
        nested["arguments"],
        {each.ref: each for each in behind},
        sources,
    )
