"""Offsets of a query: the same places are the same text, which Spark compares."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest

from rabbit_chx.errors import RabbitChxError
from rabbit_chx.streams import Fingerprint
from spark_connector.reading.micro_batches import Place, anchor, is_anchor, offset_of, places_in

PLACES = {"b": Place(9, Fingerprint(7, 1, 2)), "a": Place(3)}
TEXT = '{"streams": {"a": {"next": 3}, "b": {"chunk": 7, "crc": 2, "epoch": 1, "next": 9}}}'


def test_places_are_a_text_and_back() -> None:
    assert json.dumps(offset_of(PLACES)) == TEXT
    assert places_in(json.loads(TEXT)) == PLACES
    assert json.dumps(offset_of(places_in(json.loads(TEXT)))) == TEXT
    assert not is_anchor(offset_of(PLACES))


def test_where_a_query_begins() -> None:
    assert anchor("latest") == {"anchor": "latest"}
    assert anchor(datetime(2026, 1, 31, tzinfo=UTC)) == {"anchor": "2026-01-31T00:00:00+00:00"}
    assert json.dumps(anchor({"b": 1, "a": -2})) == '{"anchor": {"a": -2, "b": 1}}'
    assert is_anchor(anchor("latest"))


@pytest.mark.parametrize("offset", [{}, {"streams": 5}, {"streams": {"a": {}}}, {"orders": {"0": 5}}])
def test_offsets_of_others_are_refused(offset: dict[str, object]) -> None:
    with pytest.raises(RabbitChxError, match="which is none of format"):
        places_in(offset)
