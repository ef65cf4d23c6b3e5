"""Batches that wait for their next attempt."""

from __future__ import annotations

from rabbit_chx.publishing.delivery import RefusedBatches, Sent
from rabbit_chx.publishing.encoder import Rows


def batch(body: bytes, due: float, rows: int = 1) -> Sent:
    return Sent(Rows([b"k"] * rows, [body] * rows), 1, due)


def test_what_is_due_is_taken_once_and_oldest_first() -> None:
    refused = RefusedBatches()
    first, late, second = batch(b"a", 5), batch(b"b", 7), batch(b"c", 4)
    for sent in (first, late, second):
        refused.add(sent)
    assert refused.take_due(3.9) == []
    assert refused.take_due(5) == [first, second]
    assert refused.take_due(6.9) == []
    assert refused.take_due(7) == [late]
    assert refused.take_due(100) == []


def test_it_counts_rows_and_the_bytes_of_their_bodies() -> None:
    refused = RefusedBatches()
    assert (refused.rows, refused.body_bytes) == (0, 0)
    refused.add(batch(b"four", 5, rows=3))
    refused.add(batch(b"a", 6))
    assert (refused.rows, refused.body_bytes) == (4, 13)
    refused.take_due(5)
    assert (refused.rows, refused.body_bytes) == (1, 1)
    assert [sent.due for sent in refused.take_all()] == [6]
    assert (refused.rows, refused.body_bytes) == (0, 0)


def test_the_wait_is_that_for_the_first() -> None:
    refused = RefusedBatches()
    refused.add(batch(b"a", 9))
    refused.add(batch(b"b", 7))
    assert refused.seconds_left(4) == 3
    assert refused.seconds_left(8) == 0
