"""A slot table as JSON text: that of its ring, and which queue has which slot.

::

    {
      "format": "rabbit-chx/ring",                 and all that a ring has, see ring_json
      ...
      "slots": {"events.slot.00": "events.1", "events.slot.01": null}     null is a slot without a queue
    }

What reads rings alone reads the ring of such a text. An exchange of the ring that is not among the slots is no slot.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from rabbit_chx.errors import InputError

_SLOTS = "slots"


def dumps(ring_json: str, queues: Mapping[str, str | None]) -> str:
    """Return the JSON text of a table, on one line.

    Args:
        ring_json: the JSON text of its ring.
        queues: the queue of each slot, by its name; None for a slot without one.
    """
    return json.dumps({**json.loads(ring_json), _SLOTS: dict(queues)})


def has_slots(text: str | bytes) -> bool:
    """Return whether a JSON text says which queue has which slot.

    Args:
        text: the text; what is no JSON has no slots.
    """
    return _document(text).get(_SLOTS) is not None


def loads(text: str | bytes) -> dict[str, str | None]:
    """Read the queue of each slot, by its name; None for a slot without one.

    Args:
        text: what `dumps` made.

    Raises:
        InputError: the text has no slots, or they are no names.
    """
    queues = _document(text).get(_SLOTS)
    if queues is None:
        raise InputError("this is a ring without slots: read it with HashRing.from_json")
    if not isinstance(queues, dict) or not all(
        queue is None or isinstance(queue, str) for queue in queues.values()
    ):
        raise InputError("the table's slots are no queue by slot: write it again with to_json")
    return queues


def _document(text: str | bytes) -> dict[str, Any]:
    try:
        document = json.loads(text)
    except (ValueError, TypeError, RecursionError):
        return {}
    return document if isinstance(document, dict) else {}
