"""What StreamPublisher refuses before anything is sent."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from stream_publishers import RING, ROWS, Broker, publish, publish_rows, publisher

from rabbit_chx.connection.usage_guard import FINALIZER_S
from rabbit_chx.errors import InputError, NotFoundError
from rabbit_chx.routing import ExchangeRef, HashRing, ModulusHashExchange


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ({"stream": "s", "super_stream": "x"}, "pass one of stream, super_stream and ring"),
        ({"stream": b"s"}, "b's' names no stream"),
        ({"stream": ""}, "'' names no stream"),
        ({"stream": "\ud800"}, "the stream name .* half of a surrogate pair"),
        ({"super_stream": 5}, "5 names no super stream"),
        ({"stream": "s", "exchange": "e" * 256}, "the exchange .* has 256 bytes"),
        ({"stream": "s", "name": ""}, "name is ''"),
        ({"stream": "s", "name": 5}, "name is 5"),
        ({"stream": "s", "name": "\ud800"}, "name .* half of a surrogate pair"),
        ({"stream": "s", "name": "n" * 231}, "1 to 230 bytes"),
        ({"stream": "s", "window": 0}, "window is 0"),
        ({"filter_value": "region"}, "filter_value is 'region': pass 'key', or a function"),
        ({"stream": "s", "create": -1}, "create is -1"),
        ({"stream": "s", "create": 2}, "create is 2: pass 1 for a stream"),
        ({"ring": RING, "exchange": "x", "create": 1}, "`Broker.declare` creates those of a ring"),
        ({"stream": "s", "confirm_timeout_s": 0}, "confirm_timeout_s is 0"),
        ({"ring": RING}, "a ring does not contain the name of its exchange"),
        ({"ring": "orders", "exchange": "x"}, "is not a ring"),
        (
            {"ring": ModulusHashExchange("x", [("s", "")]), "exchange": "x"},
            "the ring is replayed, .*: pass the value of Broker.exchange",
        ),
        (
            {"ring": ModulusHashExchange("x", [("s", "1"), ("s", "2")], provenance="read"), "exchange": "x"},
            "stream 's' is bound 2 times",
        ),
        ({"ring": HashRing.from_bindings([("s", 1)]), "exchange": "x"}, "the ring is replayed"),
        ({"ring": HashRing.from_buckets([]), "exchange": "x"}, "no destinations"),
        ({"ring": HashRing.from_buckets(["s", ExchangeRef("e")]), "exchange": "x"}, "is not a stream"),
        ({"ring": HashRing.from_buckets(["s", "queue"]), "exchange": "x"}, "must be a stream"),
        ({"url": []}, "no URL"),
        ({"url": b"x"}, "the url is a bytes"),
        ({"url": [5]}, "the url is a list"),
        ({"stream": "t"}, r"find the nodes of stream .t..*does not exist"),
    ],
)
def test_what_cannot_be_published_to_is_refused(broker: Broker, how: dict[str, Any], words: str) -> None:
    with pytest.raises(NotFoundError if how.get("stream") == "t" else InputError, match=words):
        publisher(**how)
    assert not broker.rows["s"].log


@pytest.mark.parametrize(
    ("ids", "words"),
    [
        (None, "a name and ids belong together"),
        ([1], "2 keys and 1 ids"),
        ([], "2 keys and 0 ids"),
        (np.array([]), "2 keys and 0 ids"),
        ([2, 2], "row 1 has id 2, and the row before it 2"),
        (5, "ids is 5: pass one whole number for each key"),
        (np.array(5), "ids is .*5.*: pass one whole number for each key"),
        ([0, 1], "row 0 has the id 0"),
        (np.array([1, 2**63], np.uint64), "row 1 has the id 9223372036854775808"),
        ([1, 2**63], "row 1 has the id 9223372036854775808"),
        ([1, 2**70], "row 1 has the id 1180591620717411303424"),
        ([1.0, 2.0], "row 0 has the id 1.0"),
        (np.array([1.0, 2.0]), "row 0 has the id 1.0"),
        (["1", "2"], "row 0 has the id '1'"),
        ([True, False], "row 0 has the id True"),
        ([1, None], "row 1 has the id None"),
        (pa.array([1, None]), "row 1 has the id None"),
        (pa.chunked_array([[1], [None]]), "row 1 has the id None"),
        (np.array([1, 2], object), "the ids are of type object"),
    ],
)
def test_invalid_ids_are_refused_before_any_row_is_sent(broker: Broker, ids: Any, words: str) -> None:
    with publisher(name="load") as made, pytest.raises(InputError, match=words):
        made.publish_many(["k", "k"], ["b", "b"], ids=ids)
    assert not broker.rows["s"].log


@pytest.mark.parametrize(
    ("keys", "bodies", "how", "words"),
    [
        (["k", "k"], ["b"], {}, "2 keys and 1 body:"),
        (["k", None], ["b", "b"], {}, "row 1 of keys is null"),
        (["k", "k"], pa.array([None, "b"]), {}, "row 0 of bodies is null"),
        (["k", 5], ["b", "b"], {}, "row 1 of keys is 5: pass str or bytes"),
        (pa.array([4, 5]), ["b", "b"], {}, "row 0 of keys is of type int64: pass str or bytes"),
        ("key", ["b"], {}, "keys is a single str"),
        (["\ud800"], ["b"], {}, "row 0 of keys .* half of a surrogate pair"),
        (
            [f"k{n}" for n in range(100)],
            ["b"] * 100,
            {"ring": HashRing.from_buckets(["s", None, "s", "s"]), "exchange": "x"},
            "has no stream for the key",
        ),
    ],
)
def test_rows_that_cannot_be_published_are_refused_before_any_is_sent(
    broker: Broker, keys: Any, bodies: Any, how: dict[str, Any], words: str
) -> None:
    with publisher(**how) as made, pytest.raises(InputError, match=words):
        made.publish_many(keys, bodies)
    assert not broker.rows["s"].log


def test_ids_without_a_name_are_refused(broker: Broker) -> None:
    with publisher() as made, pytest.raises(InputError, match="a name and ids belong together"):
        made.publish_many(["k"], ["b"], ids=[1])
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
