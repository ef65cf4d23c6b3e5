"""What `replay` refuses before it connects, and which stream it takes for a key."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pyarrow as pa
import pytest

from rabbit_chx import replay
from rabbit_chx.errors import EmptyRingError, InputError
from rabbit_chx.routing import ExchangeRef, HashRing, SuperStream
from rabbit_chx.streams.replaying import keys_by_stream

RING = HashRing.from_bindings([("s0", 1), ("s1", 1)])
NOBODY = "rabbitmq-stream://127.0.0.1:1"
KEYS = [b"a", b"b", b"c", b"d", b"e"]


@pytest.mark.parametrize(
    ("keys", "arguments", "message"),
    [
        ([], {"ring": RING}, "there is no key"),
        (["k"], {}, "give one of ring and super_stream"),
        (["k"], {"ring": RING, "super_stream": "s"}, "give one of ring and super_stream"),
        (["k"], {"ring": "orders"}, "'orders' is no ring"),
        (["k"], {"ring": HashRing.from_bindings([("s0", 1)], provenance="assumed")}, "is assumed"),
        (["k"], {"ring": HashRing.from_buckets([None, "s0"])}, "the key b'k' goes to no destination"),
        (
            ["k"],
            {"ring": HashRing.from_buckets([ExchangeRef("x")])},
            "goes to exchange x, which is no stream",
        ),
        (["k"], {"ring": RING, "include": ["nothing"]}, "no further column 'nothing'"),
        ([7], {"ring": RING}, "a key"),
    ],
)
def test_what_cannot_be_replayed_is_refused_at_once(
    keys: Any, arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        replay(NOBODY, keys, **arguments)


def test_a_ring_without_buckets_has_no_stream() -> None:
    with pytest.raises(EmptyRingError):
        replay(NOBODY, "k", ring=HashRing.from_bindings([]))


def test_a_time_without_a_zone_is_refused() -> None:
    for name in ("since", "until"):
        with pytest.raises(InputError, match="has no time zone"):
            replay(NOBODY, "k", ring=RING, **{name: datetime(2026, 1, 1)})  # type: ignore[arg-type]  # noqa: DTZ001


@pytest.mark.parametrize("placing", [RING, SuperStream(["s0", "s1"])])
def test_each_key_is_looked_for_where_it_belongs(placing: HashRing | SuperStream) -> None:
    of = placing.partition_for if isinstance(placing, SuperStream) else placing.destination_for
    expected: dict[Any, list[bytes]] = {}
    for key in KEYS:
        expected.setdefault(of(key), []).append(key)
    found = keys_by_stream(placing, pa.array(KEYS, pa.binary()))
    assert {stream: keys.to_pylist() for stream, keys in found.items()} == expected
    assert len(found) == 2
