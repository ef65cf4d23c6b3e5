"""What `replay` refuses before it connects, and which stream it takes for a key."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pyarrow as pa
import pytest

from rabbit_chx import replay
from rabbit_chx.errors import EmptyRingError, InputError
from rabbit_chx.routing import ExchangeRef, HashRing, ModulusHashExchange, Release, SuperStream
from rabbit_chx.streams.keys import keys_by_stream

RING = HashRing.from_bindings([("s0", 1), ("s1", 1)])
MODULUS = ModulusHashExchange("x", [("s0", ""), ("s1", "")])
NOBODY = "rabbitmq-stream://127.0.0.1:1"
KEYS = [b"a", b"b", b"c", b"d", b"e"]


@pytest.mark.parametrize(
    ("ring", "arguments", "message"),
    [
        (RING, {"keys": []}, "there is no key"),
        (RING, {"super_stream": "s"}, "pass one of ring and super_stream"),
        (
            ModulusHashExchange("bills", [("s0", ""), ("s1", "")], Release("4.0.5", "khepri")),
            {},
            r"on RabbitMQ 4.0.5 .khepri. bindings are in an order that cannot be computed.*pass the value of Broker\.exchange",
        ),
        (HashRing.from_bindings([("s0", 1)], provenance="assumed"), {}, "is assumed"),
        (HashRing.from_buckets([None, "s0"]), {}, "the key b'k' is routed to no destination"),
        (HashRing.from_buckets([ExchangeRef("x")]), {}, "is routed to exchange x, which is not a stream"),
        (HashRing.from_bindings([]), {}, None),
        (RING, {"include": ["nothing"]}, "no further column 'nothing'"),
        (RING, {"filter_value": "eu"}, "filter_value is 'eu': pass 'key', or a function of the key"),
        (RING, {"keys": [7]}, "a key"),
        *((RING, {name: datetime(2026, 1, 1)}, "has no time zone") for name in ("since", "until")),  # noqa: DTZ001
    ],
)
def test_what_cannot_be_replayed_is_refused_at_once(
    ring: Any, arguments: dict[str, Any], message: str | None
) -> None:
    with pytest.raises(InputError if message else EmptyRingError, match=message):
        replay(NOBODY, **{"keys": "k", "ring": ring} | arguments)


@pytest.mark.parametrize("placing", [RING, SuperStream(["s0", "s1"]), MODULUS])
def test_each_key_is_looked_for_where_it_belongs(
    placing: HashRing | SuperStream | ModulusHashExchange,
) -> None:
    of = placing.partition_for if isinstance(placing, SuperStream) else placing.destination_for
    expected: dict[Any, list[bytes]] = {}
    for key in KEYS:
        expected.setdefault(of(key), []).append(key)
    found = keys_by_stream(placing, pa.array(KEYS, pa.binary()))
    assert {stream: keys.to_pylist() for stream, keys in found.items()} == expected
    assert len(found) == 2
