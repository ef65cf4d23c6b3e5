"""Where the next bucket goes: old releases leave holes at the end of a ring, which not every reading tells."""

from __future__ import annotations

import json
import pickle
from typing import Any

import pytest

from rabbit_chx.errors import InputError
from rabbit_chx.routing import HashRing, Release

OLD = Release("3.8.9")

#: What 3.8.9 has after bind a 1, b 1, b 5, unbind b 1: {0: a}, and 6 as the number of the next bucket.
REPLAYED = HashRing.from_bindings([("a", 1), ("b", 1), ("b", 5)], OLD).unbind("b", 1)
READ = HashRing.from_buckets(["a"], OLD, next_bucket=6)
READ_IN_PART = HashRing.from_buckets(["a"], OLD)


def test_holes_at_the_end_count_for_the_next_bucket() -> None:
    assert READ == REPLAYED
    after = READ.bind("c", 2)
    assert after == REPLAYED.bind("c", 2)
    assert after.buckets == ("a", None, None, None, None, None, "c", "c")
    assert after.provenance == "replayed"


def test_a_bind_is_assumed_where_holes_at_the_end_may_be_missing() -> None:
    after = READ_IN_PART.bind("c", 2)
    assert (after.buckets, after.provenance) == (("a", "c", "c"), "assumed")
    assert READ_IN_PART.unbind("a", 1).provenance == "replayed"  # its answers need no end
    assert READ_IN_PART.unbind("a", 1).bind("c", 2).provenance == "assumed"
    assert READ_IN_PART.delete_exchange().bind("c", 2).provenance == "replayed"


def test_releases_that_leave_holes_are_those_before_3_9_21_and_3_10_6() -> None:
    for version in ("3.8.35", "3.9.20", "3.10.5"):
        assert HashRing.from_buckets(["a"], Release(version)).bind("c").provenance == "assumed"
    for version in ("3.9.21", "3.10.6", "3.11.0", "4.3.6"):
        assert HashRing.from_buckets(["a"], Release(version)).bind("c").provenance == "replayed"


@pytest.mark.parametrize("ring", [REPLAYED, READ, READ_IN_PART, READ_IN_PART.unbind("a", 1)])
def test_json_and_pickle_keep_what_is_known_of_the_end(ring: HashRing) -> None:
    for copy in (HashRing.from_json(ring.to_json()), pickle.loads(pickle.dumps(ring))):  # noqa: S301
        assert (copy, copy.provenance, copy.end_known) == (ring, ring.provenance, ring.end_known)
        assert copy.bind("c", 2).provenance == ring.bind("c", 2).provenance


def test_json_has_the_number_of_the_next_bucket_where_it_was_read() -> None:
    assert json.loads(READ.to_json())["next_bucket"] == 6
    assert "next_bucket" not in json.loads(READ_IN_PART.to_json())
    assert "next_bucket" not in json.loads(REPLAYED.to_json())


@pytest.mark.parametrize("number", [0, 5, 7, "6", True])
def test_json_that_contradicts_itself_is_refused(number: object) -> None:
    with pytest.raises(InputError, match="the ring has 6 buckets, and its next bucket is"):
        HashRing.from_json(json.dumps(json.loads(READ.to_json()) | {"next_bucket": number}))


@pytest.mark.parametrize("number", [0, -1, 10_000_001])
def test_a_next_bucket_that_cannot_be_is_refused(number: Any) -> None:
    with pytest.raises(InputError, match="the next bucket of a ring of 1 buckets is"):
        HashRing.from_buckets(["a"], OLD, next_bucket=number)
