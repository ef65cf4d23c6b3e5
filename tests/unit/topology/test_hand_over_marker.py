"""Markers of a hand-over, as headers and back."""

from __future__ import annotations

from typing import Any

import pytest

from rabbit_chx.errors import InputError
from rabbit_chx.topology.hand_over_marker import HandOverMarker

_FLUSH = HandOverMarker("flush", "events.slot.07", "9f2c", "events.park")


def test_a_marker_is_parsed_from_its_headers() -> None:
    headers = _FLUSH.headers()
    assert headers == {
        "x-rabbit-chx-hand-over": {
            "kind": "flush", "slot": "events.slot.07", "id": "9f2c", "park": "events.park",
        }
    }  # fmt: skip
    assert HandOverMarker.from_headers({"tenant": 5, **headers}) == _FLUSH


def test_a_reply_is_of_the_same_hand_over() -> None:
    assert _FLUSH.reply("flushed") == HandOverMarker("flushed", "events.slot.07", "9f2c", "events.park")


@pytest.mark.parametrize(
    "headers",
    [
        None,
        {},
        {"tenant": "a"},
        {"x-rabbit-chx-hand-over": "flush"},
        {"x-rabbit-chx-hand-over": {"kind": "flush"}},
        {"x-rabbit-chx-hand-over": {"kind": "stop", "slot": "s", "id": "1", "park": "p"}},
        {"x-rabbit-chx-hand-over": {"kind": "end", "slot": "s", "id": 1, "park": "p"}},
        {"x-rabbit-chx-hand-over": {"kind": ["end"], "slot": "s", "id": "1", "park": "p"}},
    ],
)
def test_a_message_of_another_writer_is_not_a_marker(headers: dict[str, Any] | None) -> None:
    assert HandOverMarker.from_headers(headers) is None


@pytest.mark.parametrize("field", ["kind", "slot", "id", "park"])
def test_a_marker_is_of_text(field: str) -> None:
    fields: Any = {"kind": "end", "slot": "s", "id": "1", "park": "p", field: 5}
    with pytest.raises(InputError, match=f"the {field} of a hand-over marker is 5"):
        HandOverMarker(**fields)


def test_there_is_no_other_kind() -> None:
    kind: Any = "stop"
    with pytest.raises(InputError, match="'stop': pass one of flush, begin, end, flushed, taken"):
        HandOverMarker(kind, "s", "1", "p")
