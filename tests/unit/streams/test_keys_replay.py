"""What `replay` refuses before it connects, and which stream it takes for a key."""

from __future__ import annotations

from collections import Counter
from contextlib import nullcontext
from datetime import datetime
from typing import Any

import pyarrow as pa
import pytest

from rabbit_chx import replay
from rabbit_chx.errors import EmptyRingError, InputError
from rabbit_chx.routing import ExchangeRef, HashRing, ModulusHashExchange, Release, SuperStream
from rabbit_chx.streams import keys as keys_module
from rabbit_chx.streams.keys import keys_by_stream

RING = HashRing.from_bindings([("s0", 1), ("s1", 1)])
MODULUS = ModulusHashExchange("x", [("s0", ""), ("s1", "")])
NOBODY = "rabbitmq-stream://127.0.0.1:1"
KEYS = [b"a", b"b", b"c", b"d", b"e"]


@pytest.mark.parametrize(
    ("keys", "arguments", "message"),
    [
        ([], {"ring": RING}, "there is no key"),
        (["k"], {}, "pass one of ring and super_stream"),
        (["k"], {"ring": RING, "super_stream": "s"}, "pass one of ring and super_stream"),
        (["k"], {"ring": "orders"}, "'orders' is not a ring"),
        (
            ["k"],
            {"ring": ModulusHashExchange("bills", [("s0", ""), ("s1", "")], Release("4.0.5", "khepri"))},
            r"on RabbitMQ 4.0.5 .khepri. bindings are in an order that cannot be computed.*pass the value of Broker\.exchange",
        ),
        (["k"], {"ring": HashRing.from_bindings([("s0", 1)], provenance="assumed")}, "is assumed"),
        (["k"], {"ring": HashRing.from_buckets([None, "s0"])}, "the key b'k' is routed to no destination"),
        (
            ["k"],
            {"ring": HashRing.from_buckets([ExchangeRef("x")])},
            "is routed to exchange x, which is not a stream",
        ),
        (["k"], {"ring": RING, "include": ["nothing"]}, "no further column 'nothing'"),
        (
            ["k"],
            {"ring": RING, "filter_value": "eu"},
            "filter_value is 'eu': pass 'key', or a function of the key",
        ),
        ([7], {"ring": RING}, "a key"),
        ("k", {"ring": HashRing.from_bindings([])}, None),
        ("k", {"ring": RING, "since": datetime(2026, 1, 1)}, "has no time zone"),  # noqa: DTZ001
        ("k", {"ring": RING, "until": datetime(2026, 1, 1)}, "has no time zone"),  # noqa: DTZ001
    ],
)
def test_what_cannot_be_replayed_is_refused_at_once(
    keys: Any, arguments: dict[str, Any], message: str | None
) -> None:
    with pytest.raises(InputError if message else EmptyRingError, match=message):
        replay(NOBODY, keys, **arguments)


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


def test_what_was_read_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    columns: dict[str, Any] = {
        "offset": pa.array([0, 1, 2, 3], pa.int64()),
        "timestamp": pa.array([0] * 4, pa.timestamp("us", "UTC")),
        "key": pa.array([b"a", b"a", b"b", None], pa.binary()),
        "value": pa.array([b"0", b"1", b"2", b"3"], pa.binary()),
        "exchange": pa.array(["orders", "other", "orders", "orders"]),
    }
    batch = pa.record_batch(columns)

    class Reader(list[pa.RecordBatch]):
        """Returns two batches of the 20 rows of its chunks."""

        rows_read = 20

    def reader(*_: object, **__: object) -> Any:
        return nullcontext(Reader([batch, batch]))

    monkeypatch.setattr(keys_module, "StreamReader", reader)
    counts = Counter[str]()
    given = replay(NOBODY, "a", ring=HashRing.from_bindings([("s0", 1)]), exchange="orders", counts=counts)
    assert [each["value"].to_pylist() for each in given] == [[b"0"], [b"0"]]
    assert counts == {"read": 20, "other_exchange": 2, "delivered": 2}
