"""The name that rows have in streams stands for all that says which row a number is."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace

import pytest
from pyspark.sql.types import BinaryType, IntegerType, StringType, StructType

from rabbit_chx.errors import ConnectionLostError, InputError, MismatchError, RabbitChxError
from rabbit_chx.routing import ExchangeRef, HashRing, ModulusHashExchange, Release, SlotTable, SuperStream
from rabbit_chx.routing.key_map import KeyMap
from rabbit_chx.streams.keys import check_stream_ring
from spark_connector.options.write_options import WriteOptions, check_mode
from spark_connector.writing import stream_layout
from spark_connector.writing.stream_layout import (
    ROW_BITS,
    StreamLayout,
    check_end,
    check_version,
    plan_layout,
)

SCHEMA = StructType().add("key", StringType()).add("value", StringType())
ONCE = {
    "url": "amqp://h",
    "superStream": "s",
    "delivery": "exactly-once",
    "appId": "load",
    "version": "1",
}
RING = HashRing.from_buckets(["s0", "s1", "s1"])


def digest(placing: KeyMap, schema: StructType = SCHEMA) -> str:
    return StreamLayout.of(placing, schema).digest


def test_another_layout_has_another_name() -> None:
    slots = HashRing.from_buckets([ExchangeRef(name) for name in "abc"])
    layouts = [
        digest(RING),
        digest(HashRing.from_buckets(["s0", "s0", "s1"])),
        digest(HashRing.from_buckets(["s1", "s0", "s0"])),
        digest(SuperStream(["s0", "s1"])),
        digest(ModulusHashExchange("x", [("s0", ""), ("s1", "")], None, "read")),
        digest(SuperStream(["s1", "s0"])),
        digest(SuperStream(["s0", "s1", "s2"])),
        *(
            digest(
                SlotTable(slots, {ExchangeRef("a"): first, ExchangeRef("b"): second, ExchangeRef("c"): third})
            )
            for first, second, third in (("s0", "s1", "s0"), ("s0", "s1", "s1"), ("s1", "s0", "s0"))
        ),
        digest(RING, StructType().add("key", StringType()).add("value", BinaryType())),
    ]
    assert len(set(layouts)) == len(layouts)


def test_what_does_not_move_rows_does_not_change_the_name() -> None:
    upgraded = HashRing.from_buckets(["s0", "s1", "s1"], release=Release("4.0.5"))
    assert digest(upgraded) == digest(RING)
    more = StructType().add("VALUE", StringType()).add("Key", StringType()).add("ignored", IntegerType())
    assert digest(RING, more) == digest(RING)
    assert StreamLayout.of(RING, SCHEMA).name("load") == f"load/{digest(RING)}"
    assert StreamLayout.of(RING, SCHEMA).streams == ("s0", "s1")


def test_a_ring_by_which_rows_must_not_be_placed() -> None:
    with pytest.raises(InputError, match=r"the ring is replayed, .*: pass Broker a ring_source"):
        check_stream_ring(HashRing.from_bindings([("s0", 1)]))
    with pytest.raises(InputError, match="exchange audit of the ring is not a stream"):
        check_stream_ring(HashRing.from_buckets(["s0", ExchangeRef("audit")]))
    with pytest.raises(InputError, match=r"the ring is replayed, .*: pass the value of Broker\.exchange"):
        check_stream_ring(ModulusHashExchange("x", [("s0", "")]))
    with pytest.raises(InputError, match="stream 's0' is bound 2 times: unbind all but one"):
        check_stream_ring(ModulusHashExchange("x", [("s0", "a"), ("s0", "b")], None, "read"))
    with pytest.raises(InputError, match="is not a ring: pass a HashRing"):
        check_stream_ring(SuperStream(["s0"]))


def test_the_last_id_of_a_stream_has_to_be_that_of_this_version() -> None:
    check_version("s", 7, 0)
    check_version("s", 7, (7 << ROW_BITS) + 99)
    with pytest.raises(InputError, match="stream 's' has rows of version 8 already"):
        check_version("s", 7, (8 << ROW_BITS) + 1)
    check_end("s", "load/x", 7, 5, (7 << ROW_BITS) + 5)
    check_end("s", "load/x", 7, 0, 0)
    for last_id in (0, (6 << ROW_BITS) + 99, (7 << ROW_BITS) + 4):
        with pytest.raises(
            MismatchError, match=r"has confirmed 5 rows of version 7 .* no longer has all of them"
        ):
            check_end("s", "load/x", 7, 5, last_id)
    with pytest.raises(MismatchError, match="has 6 rows of version 7 of 'load/x', and this run gives 5"):
        check_end("s", "load/x", 7, 5, (7 << ROW_BITS) + 6)
    with pytest.raises(MismatchError, match="got rows of version 8 of 'load/x' meanwhile"):
        check_end("s", "load/x", 7, 5, (8 << ROW_BITS) + 1)


def test_name_and_version_of_a_write() -> None:
    url = {"url": "amqp://h", "superStream": "s"}
    check_mode(WriteOptions.parse(url), streaming=False)
    once = {**url, "delivery": "exactly-once"}
    with pytest.raises(InputError, match="'onStaleVersion' is 'skip', which is for batch writes"):
        check_mode(WriteOptions.parse({**once, "onStaleVersion": "skip"}), streaming=True)
    check_mode(WriteOptions.parse(once), streaming=True)
    for given, missing in (({}, "appId"), ({"appId": "load"}, "version"), ({"version": "1"}, "appId")):
        with pytest.raises(InputError, match=f"option '{missing}' is missing"):
            check_mode(WriteOptions.parse({**once, **given}), streaming=False)
    with pytest.raises(InputError, match="option 'version' is for batch writes"):
        check_mode(WriteOptions.parse({**once, "version": "1"}), streaming=True)


def scripted(monkeypatch: pytest.MonkeyPatch, last_id: int = 0) -> None:
    """Let each connection answer for a super stream of two partitions whose last id is `last_id`."""
    answers = {
        "partitions": lambda _name: ("s0", "s1"),
        "metadata": lambda _streams: None,
        "binding_keys": lambda _name, streams: tuple(map(str, range(len(streams)))),
        "publisher_sequence": lambda _name, _stream: last_id,
        "close": lambda: None,
    }
    monkeypatch.setattr(stream_layout, "open_any", lambda _settings: SimpleNamespace(**answers))


def test_names_are_counted_in_each_stream_of_a_write(monkeypatch: pytest.MonkeyPatch) -> None:
    counted: list[tuple[str, str]] = []
    scripted(monkeypatch)
    monkeypatch.setattr(
        stream_layout, "check_references", lambda _url, _to, stream, name: counted.append((stream, name))
    )
    options = WriteOptions.parse({**ONCE, "managementUrl": "http://h:15672"})
    name = plan_layout(options, SCHEMA).name("load")
    assert counted == [("s0", name), ("s1", name)]


def test_a_stale_version_is_refused_before_the_write_unless_it_is_skipped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scripted(monkeypatch, last_id=(2 << ROW_BITS) + 1)
    with pytest.raises(InputError, match="stream 's0' has rows of version 2 already"):
        plan_layout(WriteOptions.parse(ONCE), SCHEMA)
    plan_layout(WriteOptions.parse({**ONCE, "onStaleVersion": "skip"}), SCHEMA)


@pytest.mark.parametrize(("error", "calls"), [(MismatchError, 1), (InputError, 1), (ConnectionLostError, 2)])
def test_only_what_another_attempt_may_mend_is_tried_again(
    monkeypatch: pytest.MonkeyPatch, error: type[RabbitChxError], calls: int
) -> None:
    monkeypatch.setattr(stream_layout, "_PAUSE_S", 0.001)
    attempts: list[int] = []

    def ask() -> None:
        attempts.append(1)
        if len(attempts) < 2:
            raise error("once")

    with nullcontext() if calls > 1 else pytest.raises(error):
        stream_layout.call_with_retry(ask, 60.0)
    assert len(attempts) == calls
