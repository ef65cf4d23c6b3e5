"""Markers of a hand-over, as headers and back. The members of a group are known by their consumer tags."""

from __future__ import annotations

from typing import Any

import pytest

from rabbit_chx.errors import InputError
from rabbit_chx.topology.slots import HandOverMarker, make_consumer_tag, parse_member

_FLUSH = HandOverMarker("flush", "events.slot.07", "9f2c", "events.park")


def test_a_marker_is_parsed_from_its_headers_and_a_reply_is_of_the_same_hand_over() -> None:
    headers = _FLUSH.headers()
    assert headers == {
        "x-rabbit-chx-hand-over": {
            "kind": "flush", "slot": "events.slot.07", "id": "9f2c", "park": "events.park",
        }
    }  # fmt: skip
    assert HandOverMarker.from_headers({"tenant": 5, **headers}) == _FLUSH
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


@pytest.mark.parametrize(
    ("field", "value", "says"),
    [
        *((field, 5, f"the {field} of a hand-over marker is 5") for field in ("kind", "slot", "id", "park")),
        ("kind", "stop", "'stop': pass one of flush, begin, end, flushed, taken"),
    ],
)
def test_a_marker_of_other_values_is_refused(field: str, value: Any, says: str) -> None:
    fields: Any = {"kind": "end", "slot": "s", "id": "1", "park": "p", field: value}
    with pytest.raises(InputError, match=says):
        HandOverMarker(**fields)


def test_another_tag_names_no_member() -> None:
    for tag in ("rabbit-chx.group.", "rabbit-chx.group.pod", "amq.ctag-5f"):
        assert parse_member(tag) is None


@pytest.mark.parametrize("member", ["pod-7", "host.example.com-12", "two\nlines"])
def test_a_tag_is_new_and_names_its_member(member: str) -> None:
    first, second = make_consumer_tag(member), make_consumer_tag(member)
    assert first != second
    assert first.startswith(f"rabbit-chx.group.{member}.")
    assert parse_member(first) == parse_member(second) == member
