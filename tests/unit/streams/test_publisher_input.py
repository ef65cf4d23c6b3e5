"""What StreamPublisher refuses before anything is sent, and its end. `refusals.txt` has most of what it refuses."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from stream_publishers import RING, ROWS, Broker, publish, publish_rows, publisher

from rabbit_chx.connection.usage_guard import FINALIZER_S
from rabbit_chx.errors import InputError
from rabbit_chx.routing import ExchangeRef, HashRing, ModulusHashExchange
from rabbit_chx.streams.frames import Key


@pytest.mark.parametrize(
    ("ring", "how", "words"),
    [
        (RING, {"create": 1}, "`Broker.declare` creates those of a ring"),
        (RING, {"exchange": None}, "a ring does not contain the name of its exchange"),
        (
            ModulusHashExchange("x", [("s", "")]),
            {},
            "the ring is replayed, .*: pass the value of Broker.exchange",
        ),
        (
            ModulusHashExchange("x", [("s", "1"), ("s", "2")], provenance="read"),
            {},
            "stream 's' is bound 2 times",
        ),
        (HashRing.from_bindings([("s", 1)]), {}, "the ring is replayed"),
        (HashRing.from_buckets([]), {}, "no destinations"),
        (HashRing.from_buckets(["s", ExchangeRef("e")]), {}, "is not a stream"),
        (HashRing.from_buckets(["s", "queue"]), {}, "must be a stream"),
    ],
)
def test_a_ring_that_cannot_be_published_to_is_refused(
    broker: Broker, ring: Any, how: dict[str, Any], words: str
) -> None:
    with pytest.raises(InputError, match=words):
        publisher(ring=ring, **{"exchange": "x"} | how)
    assert not broker.rows["s"].log


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ({"ids": np.array([])}, "2 keys and 0 ids"),
        ({"ids": np.array(5)}, "ids is .*5.*: pass one whole number for each key"),
        ({"ids": np.array([1, 2**63], np.uint64)}, "row 1 has the id 9223372036854775808"),
        ({"ids": np.array([1.0, 2.0])}, "row 0 has the id 1.0"),
        *(
            ({"ids": ids}, "row 1 has the id None")
            for ids in (pa.array([1, None]), pa.chunked_array([[1], [None]]))
        ),
        ({"ids": np.array([1, 2], object)}, "the ids are of type object"),
        ({"bodies": pa.array([None, "b"])}, "row 0 of bodies is null"),
        ({"keys": pa.array([4, 5])}, "row 0 of keys is of type int64: pass str or bytes"),
        (
            {"filter_values": ["x" * 32_768, "b"]},
            "row 0 has a filter value of 32768 bytes: pass at most 32767",
        ),
        (
            {"filter_values": ["v" * 2_048] * 2},
            "row 0 has .* bytes of key, body and twice the filter value: at most",
        ),
    ],
)
def test_rows_that_cannot_be_published_are_refused_before_any_is_sent(
    broker: Broker, how: dict[str, Any], words: str
) -> None:
    broker.commands = list(Key)
    with publisher(name="load" if "ids" in how else None) as made, pytest.raises(InputError, match=words):
        made.publish_many(**{"keys": ["k", "k"], "bodies": ["b", "b"]} | how)
    ring = HashRing.from_buckets(["s", None, "s", "s"])
    with publisher(ring=ring, exchange="x") as made, pytest.raises(InputError, match="no stream for the key"):
        made.publish_many([f"k{n}" for n in range(100)], ["b"] * 100)
    assert not broker.rows["s"].log


@pytest.mark.parametrize("make", [list, np.array, pa.array, lambda _: pa.chunked_array([], pa.string())])
@pytest.mark.parametrize("name", ["load", None])
def test_no_rows_are_no_error(broker: Broker, make: Any, name: str | None) -> None:
    ids: Any = (list if make is pa.array else np.array)([]) if name else None
    with publisher(name=name) as made:
        assert made.publish_many(make([]), make([]), ids=ids).complete
        assert made.publish_many(make([]), [], ids=ids).complete
    assert not broker.writers


def test_a_closed_publisher_is_refused(broker: Broker) -> None:
    made = publisher(name="load")
    publish(made)
    made.close()
    made.close()
    with pytest.raises(InputError, match="is closed: open a new one"):
        publish(made, first=ROWS + 1)
    assert len(broker.rows["s"].log) == ROWS


def test_a_publisher_that_is_dropped_closes_its_connections_and_hardly_waits(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float] = []
    made = publisher(name="load")
    publish(made)
    close = made._writers[0].close

    def close_within(within_s: float) -> None:
        waits.append(within_s)
        close()

    monkeypatch.setattr(made._writers[0], "close", close_within)
    with pytest.warns(ResourceWarning, match="<StreamPublisher load, 1 streams> was not closed"):
        del made
    assert waits == [FINALIZER_S]
    assert broker.writers[-1].failure is not None
    publisher(name="load")  # without a connection it is dropped silently
    publish_rows()
    gc.collect()
