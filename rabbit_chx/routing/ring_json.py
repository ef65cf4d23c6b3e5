"""A ring as JSON text.

::

    {
      "format": "rabbit-chx/ring",
      "format_version": 1,
      "release": {"version": "4.3.6", "store": "khepri", "store_known": true},
      "provenance": "read",                                 read, replayed or assumed
      "buckets": ["q1", {"exchange": "slot-7"}, null],      text is a queue, null a hole
      "bindings": [["q1", "1"], [{"exchange": "slot-7"}, "1"]],     in bind order; null where not known
      "next_bucket": 3                                      in a ring that was read with it; null where holes at
    }                                                       the end may be missing
"""

from __future__ import annotations

import json
from typing import Any

from rabbit_chx.errors import InputError
from rabbit_chx.routing.bindings import Binding, Destination, ExchangeRef, Place, check_destination, weight_of
from rabbit_chx.routing.release import Release
from rabbit_chx.routing.ring_state import PROVENANCES, RingState

_FORMAT = "rabbit-chx/ring"
_FORMAT_VERSION = 1


def dumps(state: RingState) -> str:
    """Return the JSON text of a ring, on one line."""
    buckets, release, provenance, bindings, end_known = state
    ring: dict[str, Any] = {
        "format": _FORMAT,
        "format_version": _FORMAT_VERSION,
        "release": {
            "version": release.version,
            "store": release.store,
            "store_known": release.store_known,
        },
        "provenance": provenance,
        "buckets": [_written(bucket) for bucket in buckets],
        "bindings": bindings if bindings is None else [[_written(name), key] for name, key in bindings],
    }
    if end_known != _end_is_known_by(provenance):
        ring["next_bucket"] = len(buckets) if end_known else None
    return json.dumps(ring)


def loads(text: str | bytes) -> RingState:
    """Read the JSON text of a ring.

    Args:
        text: what `dumps` made.

    Raises:
        InputError: the text is not a ring's, or is of a later format.
    """
    try:
        ring = json.loads(text)
    except (ValueError, TypeError, RecursionError) as error:
        raise InputError(f"this is no ring: {error}; give the text that to_json made") from None
    if not isinstance(ring, dict) or ring.get("format") != _FORMAT:
        raise InputError(f"this JSON is no ring: it lacks the format {_FORMAT!r}; give what to_json made")
    if ring.get("format_version") != _FORMAT_VERSION:
        raise InputError(
            f"the ring has format version {ring.get('format_version')!r}, this library reads "
            f"{_FORMAT_VERSION}: use the library that wrote it, or a newer one"
        )
    try:
        release = ring["release"]
        if ring["provenance"] not in PROVENANCES:
            raise InputError(f"the ring's provenance {ring['provenance']!r} is none of {PROVENANCES}")
        if not isinstance(ring["buckets"], list):
            raise InputError("the ring's buckets are no list: write it again with to_json")
        size = len(ring["buckets"])
        next_bucket = ring.get("next_bucket", size if _end_is_known_by(ring["provenance"]) else None)
        if next_bucket not in (None, size):
            raise InputError(
                f"the ring has {size} buckets, and its next bucket is {next_bucket!r:.40}: holes at the "
                "end are missing; write it again with to_json"
            )
        return RingState(
            tuple(None if bucket is None else _read(bucket) for bucket in ring["buckets"]),
            Release(release["version"], release["store"] if release["store_known"] else None),
            ring["provenance"],
            None if ring["bindings"] is None else tuple(map(_read_binding, ring["bindings"])),
            next_bucket is not None,
        )
    except (KeyError, TypeError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"the ring's JSON is damaged ({error!r}): write it again with to_json") from None


def _end_is_known_by(provenance: str) -> bool:
    """Return whether the end of a ring is known where the JSON says nothing else."""
    return provenance != "read"


def _written(destination: Place) -> str | dict[str, str] | None:
    return {"exchange": destination.name} if isinstance(destination, ExchangeRef) else destination


def _read(written: Any) -> Destination:  # noqa: ANN401 - JSON
    return ExchangeRef(written["exchange"]) if isinstance(written, dict) else check_destination(written)


def _read_binding(written: Any) -> Binding:  # noqa: ANN401 - JSON
    name, key = written
    destination = _read(name)
    if not isinstance(key, str):
        raise InputError(f"the binding {written!r} has no text as its key: write it again with to_json")
    weight_of(destination, key)
    return destination, key
