"""The name that rows have in streams stands for all that says which row a number is."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from pyspark.sql.types import StructType
from spark_messages import SCHEMA, schema_of

from rabbit_chx.amqp.settings import parse_uri
from rabbit_chx.connection.failures import vhost_error
from rabbit_chx.errors import (
    BrokerRefusedError,
    ConnectionLostError,
    InputError,
    MismatchError,
    RabbitChxError,
)
from rabbit_chx.routing import ExchangeRef, HashRing, ModulusHashExchange, Release, SlotTable, SuperStream
from rabbit_chx.routing.key_map import KeyMap
from rabbit_chx.streams.rows import ROW_BITS, check_stream_ring
from spark_connector.options.write_options import WriteOptions, check_mode
from spark_connector.writing import stream_layout
from spark_connector.writing.stream_layout import (
    StreamLayout,
    check_end,
    check_version,
    plan_layout,
)

URL = {"url": "amqp://h", "superStream": "s"}
ONCE = {**URL, "delivery": "exactly-once"}
NAMED = {**ONCE, "appId": "load", "version": "1"}
RING = HashRing.from_buckets(["s0", "s1", "s1"])


def digest(placing: KeyMap, schema: StructType = SCHEMA) -> str:
    return StreamLayout.of(placing, schema).digest


def test_another_layout_has_another_name() -> None:
    slots = [ExchangeRef(name) for name in "abc"]
    layouts: list[KeyMap] = [
        RING,
        HashRing.from_buckets(["s0", "s0", "s1"]),
        HashRing.from_buckets(["s1", "s0", "s0"]),
        SuperStream(["s0", "s1"]),
        ModulusHashExchange("x", [("s0", ""), ("s1", "")], None, "read"),
        SuperStream(["s1", "s0"]),
        SuperStream(["s0", "s1", "s2"]),
        *(
            SlotTable(HashRing.from_buckets(slots), dict(zip(slots, owners, strict=True)))
            for owners in (("s0", "s1", "s0"), ("s0", "s1", "s1"), ("s1", "s0", "s0"))
        ),
    ]
    names = {digest(placing) for placing in layouts} | {digest(RING, schema_of("key string, value binary"))}
    assert len(names) == len(layouts) + 1


def test_what_does_not_move_rows_does_not_change_the_name() -> None:
    upgraded = HashRing.from_buckets(["s0", "s1", "s1"], release=Release("4.0.5"))
    assert digest(upgraded) == digest(RING)
    assert digest(RING, schema_of("VALUE string, Key string, ignored int")) == digest(RING)
    assert StreamLayout.of(RING, SCHEMA).name("load") == f"load/{digest(RING)}"
    assert StreamLayout.of(RING, SCHEMA).streams == ("s0", "s1")


TWICE = ModulusHashExchange("x", [("s0", "a"), ("s0", "b")], None, "read")


@pytest.mark.parametrize(
    ("placing", "words"),
    [
        (HashRing.from_bindings([("s0", 1)]), "the ring is replayed, .*: pass Broker a ring_source"),
        (HashRing.from_buckets(["s0", ExchangeRef("audit")]), "exchange audit of the ring is not a stream"),
        (ModulusHashExchange("x", [("s0", "")]), r"replayed, .*: pass the value of Broker\.exchange"),
        (TWICE, "stream 's0' is bound 2 times: unbind all but one"),
        (SuperStream(["s0"]), "is not a ring: pass a HashRing"),
    ],
)
def test_a_ring_by_which_rows_must_not_be_placed_is_refused(placing: KeyMap, words: str) -> None:
    with pytest.raises(InputError, match=words):
        check_stream_ring(placing)


def test_the_last_id_of_a_stream_has_to_be_that_of_this_version() -> None:
    check_version("s", 7, 0)
    check_version("s", 7, (7 << ROW_BITS) + 99)
    with pytest.raises(InputError, match="stream 's' has rows of version 8 already"):
        check_version("s", 7, (8 << ROW_BITS) + 1)
    check_end("s", "load/x", 7, 5, (7 << ROW_BITS) + 5)
    check_end("s", "load/x", 7, 0, 0)
    forgotten = "has confirmed 5 rows of version 7 .* no longer has all of them"
    for last_id, words in (
        (0, forgotten),
        ((6 << ROW_BITS) + 99, forgotten),
        ((7 << ROW_BITS) + 4, forgotten),
        ((7 << ROW_BITS) + 6, "has 6 rows of version 7 of 'load/x', and this run gives 5"),
        ((8 << ROW_BITS) + 1, "got rows of version 8 of 'load/x' meanwhile"),
    ):
        with pytest.raises(MismatchError, match=words):
            check_end("s", "load/x", 7, 5, last_id)


def test_a_batch_has_a_name_and_a_version_and_a_query_has_its_own() -> None:
    for streaming, given, words in (
        (True, {"onStaleVersion": "skip"}, "'onStaleVersion' is 'skip', which is for batch writes"),
        (True, {"version": "1"}, "option 'version' is for batch writes"),
        (False, {}, "option 'appId' is missing"),
        (False, {"appId": "load"}, "option 'version' is missing"),
        (False, {"version": "1"}, "option 'appId' is missing"),
    ):
        with pytest.raises(InputError, match=words):
            check_mode(WriteOptions.parse({**ONCE, **given}), streaming=streaming)
    check_mode(WriteOptions.parse(ONCE), streaming=True)
    check_mode(WriteOptions.parse(URL), streaming=False)


def scripted(monkeypatch: pytest.MonkeyPatch, last_id: int = 0, frame_max: int = 4_096) -> None:
    """Let each connection answer for a super stream of two partitions whose last id is `last_id`."""
    answers: dict[str, Any] = {
        "partitions": lambda _name: ("s0", "s1"),
        "metadata": lambda _streams: None,
        "binding_keys": lambda _name, streams: tuple(map(str, range(len(streams)))),
        "publisher_sequence": lambda _name, _stream: last_id,
        "query_offset": lambda _name, _stream: None,
        "close": lambda: None,
        "frame_max": frame_max,
    }
    monkeypatch.setattr(stream_layout, "open_any", lambda _settings: SimpleNamespace(**answers))


def test_names_are_counted_in_each_stream_of_a_write(monkeypatch: pytest.MonkeyPatch) -> None:
    counted: list[tuple[str, str]] = []
    scripted(monkeypatch)
    monkeypatch.setattr(stream_layout, "check_references", lambda _, __, *what: counted.append(what))
    options = WriteOptions.parse({**NAMED, "managementUrl": "http://h:15672"})
    name = plan_layout(options, SCHEMA).name("load")
    assert counted == [("s0", name), ("s1", name)]


@pytest.mark.parametrize(("agreed", "bound"), [(4_096, 4_096), (0, 1 << 20)])
def test_the_largest_frame_is_that_of_the_broker(
    monkeypatch: pytest.MonkeyPatch, agreed: int, bound: int
) -> None:
    scripted(monkeypatch, frame_max=agreed)
    assert plan_layout(WriteOptions.parse(NAMED), SCHEMA).frame_max == bound


def test_a_stale_version_is_refused_unless_it_is_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    scripted(monkeypatch, last_id=(2 << ROW_BITS) + 1)
    with pytest.raises(InputError, match="stream 's0' has rows of version 2 already"):
        plan_layout(WriteOptions.parse(NAMED), SCHEMA)
    plan_layout(WriteOptions.parse({**NAMED, "onStaleVersion": "skip"}), SCHEMA)


def test_a_password_that_only_the_executors_have_is_refused() -> None:
    options = WriteOptions.parse({**NAMED, "passwordEnv": "NOT_SET_HERE"})
    with pytest.raises(InputError, match="the driver asks for the streams first, and needs the password: "):
        plan_layout(options, SCHEMA)


@pytest.mark.parametrize(("error", "calls"), [(MismatchError, 1), (InputError, 1), (ConnectionLostError, 2)])
def test_only_a_lost_connection_is_tried_again(
    monkeypatch: pytest.MonkeyPatch, error: type[RabbitChxError], calls: int
) -> None:
    monkeypatch.setattr(stream_layout, "_PAUSE_S", 0.001)
    ask = Mock(side_effect=[error("once"), None])
    with nullcontext() if calls > 1 else pytest.raises(error):
        stream_layout.call_with_retry(ask, 60.0)
    assert ask.call_count == calls


def test_a_limit_of_connections_is_waited_for_and_told(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The stream protocol does not name it: it refuses the vhost, which the driver has opened before."""
    monkeypatch.setattr(stream_layout, "_PAUSE_S", 0.001)
    refused = vhost_error(parse_uri("amqp://h"), "code 12, vhost access failure")
    ask = Mock(side_effect=[refused, refused, None])
    stream_layout.call_with_retry(ask, 60.0)
    (line,) = [record.getMessage() for record in caplog.records]
    assert "the limits of connections; trying again for 60 s" in line
    with pytest.raises(BrokerRefusedError):
        stream_layout.call_with_retry(Mock(side_effect=refused), 0.0)
