"""Stable ids: the same for the same rows, and never shared by two."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rabbit_chx.errors import InputError, RowError
from rabbit_chx.publishing import stable_ids

TEXTS = st.sampled_from([b"", b"a", b"b", b"ab", b"\0"])
ROWS = st.lists(st.tuples(TEXTS, TEXTS), max_size=12)


def ids_of(rows: Sequence[tuple[Any, Any]], write: str = "w") -> list[str]:
    return stable_ids(write, [key for key, _ in rows], [body for _, body in rows])


@given(ROWS, st.randoms())
def test_no_two_rows_share_an_id_and_their_order_does_not_matter(
    rows: list[tuple[bytes, bytes]], chance: Any
) -> None:
    ids = ids_of(rows)
    assert len(set(ids)) == len(rows)
    assert not set(ids) & set(ids_of(rows, "another write"))
    other = list(rows)
    chance.shuffle(other)
    assert sorted(zip(rows, ids, strict=True)) == sorted(zip(other, ids_of(other), strict=True))


def test_ids_are_the_same_in_another_process_and_in_every_release() -> None:
    """Who compares ids of last year's run needs that."""
    assert ids_of([("k", "b"), ("k", "b"), ("k", "c")]) == [
        "dbb8bb5563ea4bcb03a81ad5edc9c847",
        "dbb8bb5563ea4bcb03a81ad5edc9c847-1",
        "fc7532a579431e4991fbbfe20bbac53f",
    ]


def test_text_is_its_bytes_and_any_column_will_do() -> None:
    expected = stable_ids("w", ["ü"], ["b"])
    bodies: Any = pa.array(["b"])
    assert stable_ids("w", ("ü".encode(),), bodies) == expected
    assert stable_ids("w", {"ü": 1}.keys(), [b"b"]) == expected


def test_what_no_ids_can_be_made_of() -> None:
    with pytest.raises(InputError, match="keys can be read only once"):
        stable_ids("w", (key for key in "ab"), ["b", "b"])
    with pytest.raises(InputError, match="write is '': pass a name"):
        stable_ids("", ["k"], ["b"])
    with pytest.raises(InputError, match="2 keys and 1 body:"):
        stable_ids("w", ["k", "k"], ["b"])
    with pytest.raises(RowError, match="row 1: the body is missing"):
        stable_ids("w", ["k", "k"], ["b", None])  # type: ignore[list-item]
