"""Rows that other clients wrote through real brokers, as they were recorded."""

from __future__ import annotations

import json

import pytest
from stream_writers import CORPUS, found, recorded


@pytest.mark.parametrize("client", json.loads(CORPUS.read_text())["clients"])
def test_the_rows_of_other_clients(client: str) -> None:
    sent, chunks = recorded(client)
    assert found(chunks, sent) == sent
