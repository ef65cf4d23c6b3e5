"""Exchanges that hash a message: their arguments, routes and refusals."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pika
import pyarrow as pa
import pytest
from hash_exchanges import CRASHING, NEW, OLD, answers, by_header, ring

from rabbit_chx.amqp import AmqpField
from rabbit_chx.erlang import phash2
from rabbit_chx.errors import ChannelClosedError, EmptyRingError, InputError, NotDeterminedError, RowError
from rabbit_chx.routing import ConsistentHashExchange, ExchangeRef, HashRing, ModulusHashExchange, Release

LONGSTR_A = AmqpField("longstr", "a")

#: The term that an old and a new release hash; empty where another row has it. The recorded routes have their hashes.
HEADERS: list[tuple[Any, str, str]] = [
    (("longstr", ""), "{longstr,<<>>}", "<<>>"),
    (("longstr", "a"), '{longstr,<<"a">>}', '<<"a">>'),
    (("longstr", "key-1"), "", '<<"key-1">>'),
    (("longstr", "0123456789ab"), "", '<<"0123456789ab">>'),
    (("longstr", "0123456789abc"), "", '<<"0123456789abc">>'),
    (("longstr", "é"), "", '<<"é"/utf8>>'),
    (("binary", b"a"), '{binary,<<"a">>}', '<<"a">>'),
    (("signedint", 5), "{signedint,5}", "5"),
    (("signedint", -5), "{signedint,-5}", "-5"),
    (("signedint", 2097157), "", "2097157"),
    (("unsignedbyte", 5), "", "5"),
    (("short", -5), "", "-5"),
    (("unsignedshort", 5), "", "5"),
    (("unsignedint", 5), "", "5"),
    (("long", 5), "{long,5}", "5"),
    (("long", 0), "", "0"),
    (("long", 2**27), "{long,134217728}", "134217728"),
    (("long", -(2**27) - 1), "{long,-134217729}", ""),
    (("long", 2**63 - 1), "{long,9223372036854775807}", "9223372036854775807"),
    (("long", -(2**63)), "{long,-9223372036854775808}", "-9223372036854775808"),
    (("byte", -1), "{byte,-1}", "-1"),
    (("bool", True), "{bool,true}", "true"),
    (("bool", False), "{bool,false}", "false"),
    (("double", 1.5), "{double,1.5}", "1.5"),
    (("float", 1.5), "{float,1.5}", "1.5"),
    (("double", 0.0), "", "0.0"),
    (("decimal", (2, 314)), "{decimal,{2,314}}", "{2,314}"),
    (("timestamp", 1_700_000_000), "{timestamp,1700000000}", "1700000000000"),
    (("void", None), "{void,undefined}", "undefined"),
    (("array", [LONGSTR_A]), '{array,[{longstr,<<"a">>}]}', ""),
    (("array", [LONGSTR_A, AmqpField("signedint", 5)]), "", '[{longstr,<<"a">>},{signedint,5}]'),
    (("array", []), "{array,[]}", ""),
    (("table", {}), "{table,[]}", ""),
    (("table", {"k": AmqpField("longstr", "v")}), '{table,[{<<"k">>,longstr,<<"v">>}]}', '[{<<"k">>,longstr,<<"v">>}]'),
]  # fmt: skip


@pytest.mark.parametrize(("field", "old", "new"), HEADERS, ids=lambda value: str(value)[:30])
def test_headers_as_the_broker_hashes_them(field: Any, old: str, new: str) -> None:
    for release, term in ((OLD, old), (NEW, new)):
        if not term:
            continue
        found = by_header(release).explain("k", {"t": AmqpField(*field)})
        assert found.term == term
        if re.fullmatch("-?[0-9]+", term):
            assert (found.phash2, found.seed) == (None, int(term) % 2**21)
        else:
            assert found.phash2 is not None
            assert found.seed == found.phash2 % 2**21


@pytest.mark.parametrize("value", [[], {}])
@pytest.mark.parametrize("version", ["3.13.0", "4.0.5", "4.3.4"])
def test_an_empty_array_or_table_crashes_3_13_0_to_4_3_4(version: str, value: Any) -> None:
    with pytest.raises(ChannelClosedError, match="is an empty array or table"):
        by_header(Release(version)).route("k", {"t": value})
    assert by_header(Release(version), 1).route("k", {"t": value}) == "b0"
    explained = by_header(Release("4.3.5")).explain("k", {"t": value})
    assert (explained.term, explained.phash2, explained.seed) == ("[]", 113427502, 113427502 % 2**21)


@pytest.mark.parametrize("release", [OLD, CRASHING, NEW])
def test_the_routing_key_counts_and_cc_and_bcc_do_not(release: Release) -> None:
    exchange = ConsistentHashExchange("x", ring(1000, release))
    assert exchange.route("a") == exchange.route(b"a") == "b47"
    assert exchange.route("a", {"t": "z"}, cc=["b"], bcc=[b"c"]) == "b47"
    assert exchange.route("a", {"CC": ["b"], "BCC": ["c"]}) == "b47"
    assert exchange.route() == "b161"
    assert exchange.explain("5").term == '<<"5">>'


@pytest.mark.parametrize("release", [OLD, CRASHING, NEW])
def test_timestamps_are_their_digits(release: Release) -> None:
    exchange = ConsistentHashExchange("x", ring(1000, release), {"hash-property": "timestamp"})
    for properties in ({"timestamp": 1_700_000_000}, pika.BasicProperties(timestamp=1_700_000_000)):
        assert answers(exchange, properties=properties) == ('<<"1700000000">>', 71065017, "b576")
    assert answers(exchange)[0] == "undefined"


@pytest.mark.parametrize("release", [OLD, NEW])
def test_headers_are_as_deep_as_python_follows(release: Release) -> None:
    exchange, value = by_header(release), AmqpField("array", [1])
    depths = {True: 0, False: 0}
    for depth in range(600):
        value = AmqpField("array", [value])
        if depth % 10:
            continue
        try:
            exchange.route("k", {"t": value})
            exchange.explain("k", {"t": value})
            exchange.indices([value])
        except InputError as error:
            assert "nested too deep" in str(error)  # noqa: PT017 - how deep is Python's to say
            depths[False] += 1
        else:
            depths[True] += 1
    assert depths[True] >= 10
    assert depths[False]


@pytest.mark.parametrize("no_ring", [None, ["q1"], "q1"])
def test_an_exchange_has_a_ring(no_ring: Any) -> None:
    with pytest.raises(InputError, match="is not a ring: pass a HashRing"):
        ConsistentHashExchange("x", no_ring)


def test_explanations() -> None:
    explained = by_header(NEW, 100).explain("k", {"t": 5})
    assert explained.walk == (0, 2, 4, 22, 29, 39, 65)
    assert (explained.bucket, explained.buckets, explained.seed, explained.phash2) == (65, 100, 5, None)
    assert (explained.destination, explained.reason, explained.provenance) == ("b65", None, "read")
    assert explained.release == NEW
    assert "the integer itself is the seed" in (explained.rule or "")
    assert "jump_consistent_hash/2" in (explained.source or "")

    typed = by_header(OLD).explain("k", {"t": 5})
    assert "with its wire type" in (typed.rule or "")


def test_explanations_of_messages_that_go_nowhere() -> None:
    empty = by_header(NEW, 0).explain("k", {"t": "a"})
    assert (empty.destination, empty.bucket, empty.term, empty.walk, empty.buckets) == (
        None,
        None,
        None,
        (),
        0,
    )
    assert empty.reason == "the ring has no buckets: nothing is bound to the exchange"

    hole = ConsistentHashExchange("x", HashRing.from_buckets([None, "q1", "q2"], NEW))
    key = next(key for key in map(str, range(100)) if hole.ring.destination_for(key) is None)
    explained = hole.explain(key)
    assert (explained.destination, explained.buckets) == (None, 2)
    assert explained.reason == "bucket 0 is a hole in the ring"
    assert hole.route(key) is None


def test_with_one_bucket_nothing_is_hashed() -> None:
    explained = by_header(NEW, 1).explain("k", {"t": "a"})
    assert (explained.destination, explained.seed, explained.phash2, explained.walk) == (
        "b0",
        None,
        None,
        (0,),
    )


@pytest.mark.parametrize(
    ("field", "text"),
    [
        (AmqpField("longstr", 'a\\b"c'), '<<"a\\\\b\\"c">>'),
        (AmqpField("longstr", "\n"), "<<10>>"),
        (AmqpField("binary", b"\0\xff"), "<<0,255>>"),
        (AmqpField("double", 1e-5), "1.0e-5"),
        (AmqpField("double", 1.5e-10), "1.5e-10"),
        (AmqpField("double", 1e20), "1.0e20"),
        (AmqpField("double", -2.0), "-2.0"),
    ],
)
def test_terms_are_shown_as_erlang_writes_them(field: AmqpField, text: str) -> None:
    assert by_header(NEW).explain("k", {"t": field}).term == text


def test_an_exchange_is_a_value() -> None:
    assert by_header(NEW) == by_header(NEW) != by_header(OLD)
    assert len({by_header(NEW), by_header(NEW)}) == 1


MNESIA, KHEPRI, NEW = Release("4.2.9", "mnesia"), Release("4.2.9", "khepri"), Release("4.3.6")
BINDINGS: list[Any] = [("q1", "9"), ("q2", "10"), ("q3", "é"), (ExchangeRef("z"), "10"), ("q1", 5)]


@pytest.mark.parametrize(
    ("release", "order"),
    [
        (Release("3.8.0"), (ExchangeRef("z"), "q2", "q1", "q1", "q3")),
        (MNESIA, (ExchangeRef("z"), "q2", "q1", "q1", "q3")),
        (NEW, (ExchangeRef("z"), "q1", "q1", "q2", "q3")),
        (None, (ExchangeRef("z"), "q1", "q1", "q2", "q3")),
    ],
)
def test_the_order_of_bindings(release: Release | None, order: tuple[Any, ...]) -> None:
    x = ModulusHashExchange("m", [*BINDINGS, ("q1", "5")], release)
    assert x.destinations == order
    for key in ("a", "b", "c", "d", "e"):
        assert x.route(key) == order[phash2([key]) % 5]


def test_names_stand_by_their_bytes() -> None:
    names = ["é", "a", "Z", "ab", "\U0001f600", "\uffff"]
    x = ModulusHashExchange("m", [(name, "1") for name in names], NEW)
    assert x.destinations == ("Z", "a", "ab", "é", "\uffff", "\U0001f600")


def test_all_routing_keys_are_hashed() -> None:
    x = ModulusHashExchange("m", [(f"q{n:03}", "1") for n in range(1000)], NEW)
    assert x.route("a") == f"q{53691870 % 1000}"
    expected = f"q{3094894 % 1000}"
    assert x.route("a", cc=["b"]) == x.route("a", bcc=["b"]) == x.route("a", {"CC": ["b"]}) == expected
    assert x.route("a", properties=pika.BasicProperties(headers={"BCC": ["b"]})) == expected
    assert x.route("a", cc=["b"], bcc=["c"]) == f"q{phash2(['a', 'b', 'c']) % 1000:03}"
    assert x.route("a", {"CC": ["b", b"binary", 5]}) == expected


X_JSON = ModulusHashExchange("m", [("q", "")], NEW, "read").to_json()


@pytest.mark.parametrize("release", [NEW, MNESIA, KHEPRI])
def test_a_modulus_exchange_is_the_same_after_json(release: Release) -> None:
    x = ModulusHashExchange("m", [*BINDINGS, ("q1", "5")], release, "read")
    read = ModulusHashExchange.from_json(x.to_json())
    assert (read, read.provenance) == (x, x.provenance)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "is not an x-modulus-hash exchange"),
        ("[]", "is not an x-modulus-hash exchange"),
        ('{"format": "rabbit-chx/ring", "format_version": 1}', "its format is not 'rabbit-chx/modulus'"),
        (X_JSON.replace('"read"', '"guessed"'), "the provenance is 'guessed'"),
        (X_JSON.replace("4.3.6", "4"), "is not a RabbitMQ version"),
    ],
)
def test_json_that_is_not_a_modulus_exchange(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        ModulusHashExchange.from_json(text)


def test_the_destination_of_a_key_of_a_modulus_exchange() -> None:
    x = ModulusHashExchange("m", BINDINGS, NEW)
    assert [x.destination_for(key) for key in "abc"] == [x.route(key) for key in "abc"]
    assert x.destination_for(b"a") == x.route(b"a")
    with pytest.raises(EmptyRingError, match="'m' has no bindings"):
        ModulusHashExchange("m", []).destination_for("a")


def test_nothing_bound() -> None:
    assert ModulusHashExchange("m", []).route("a") is None
    assert ModulusHashExchange("m", [], KHEPRI).route("a") is None


def test_where_the_order_is_not_known() -> None:
    with pytest.raises(
        NotDeterminedError, match=r"x-modulus-hash 'm' on RabbitMQ 4\.2\.9 \(khepri\)"
    ) as error:
        ModulusHashExchange("m", BINDINGS, KHEPRI).route("a")
    assert error.value.exchange == "m"
    assert ModulusHashExchange("m", [("q1", "1"), ("q1", "2")], KHEPRI).route("a") == "q1"


@pytest.mark.parametrize(
    "bindings", [["q1"], [("q1",)], [(5, "1")], [("", "1")], [("q1", "k" * 256)], ["ab"]]
)
def test_an_invalid_binding_is_refused(bindings: Any) -> None:
    with pytest.raises(InputError):
        ModulusHashExchange("m", bindings)


@pytest.mark.parametrize("key", [b"2", None, 1.5, True])
def test_a_binding_key_is_an_int_or_text(key: Any) -> None:
    with pytest.raises(InputError, match="neither int nor text"):
        ModulusHashExchange("m", [("q1", key), ("q2", "a")], MNESIA)


@pytest.mark.parametrize("bindings", [None, 5, "ab"])
def test_bindings_are_a_list(bindings: Any) -> None:
    with pytest.raises(InputError, match="is not a list: pass"):
        ModulusHashExchange("m", bindings)


def test_a_release_is_a_release() -> None:
    release: Any = "4.3.6"
    with pytest.raises(InputError, match="pass a Release"):
        ModulusHashExchange("m", [], release)


def test_messages_are_checked_as_everywhere() -> None:
    x = ModulusHashExchange("m", [])
    with pytest.raises(InputError, match="CC is given twice"):
        x.route("a", {"CC": []}, cc=["b"])
    with pytest.raises(ChannelClosedError):
        x.route("a", {"CC": "b"})


@pytest.mark.parametrize("name", ["CC", "BCC"])
def test_of_two_headers_with_routes_the_first_counts(name: str) -> None:
    """``rabbit_misc:table_lookup/2`` in ``rabbit_basic:header_routes/1`` finds the first."""
    x = ModulusHashExchange("mod", [(f"q{n}", "1") for n in range(50)])
    first, second = (AmqpField("array", [AmqpField("longstr", key)]) for key in ("b", "c"))
    assert x.route("a", cc=["b"]) != x.route("a", cc=["c"])
    assert x.route("a", [(name, first), (name, second)]) == x.route("a", cc=["b"])
    assert x.route("a", [(name, second), (name, first)]) == x.route("a", cc=["c"])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"hash-header": "a", "hash-property": "message_id"}, "both given"),
        ({"hash-property": "app_id"}, "cannot hash the property 'app_id'"),
        ({"hash-property": ""}, "cannot hash the property ''"),
        ({"hash-header": b"a"}, "hash-header is a binary"),
        ({"hash-header": 5}, "hash-header is a signedint"),
        ({"hash-header": None}, "hash-header is a void"),
        ({"hash-property": AmqpField("binary", "message_id")}, "hash-property is a binary"),
        ({"hash-header": "a", "hash-property": None}, "hash-property is a void"),
        ({"hash-header": 1.5}, "cannot send 1.5"),
        ({"hash-header": "a", b"hash-header": "a"}, "hash-header is given twice"),
        ([("hash-header", "a"), ("hash-property", "timestamp")], "both given"),
        ({"hash_header": "a"}, "'hash_header' .*did you mean 'hash-header'"),
        ({"hashHeader": "a"}, "did you mean 'hash-header'"),
        ({"HASH-PROPERTY": "timestamp"}, "did you mean 'hash-property'"),
        ([(b"x-hash-header", "a")], "did you mean 'hash-header'"),
        ({"hash-headers": "a"}, "did you mean 'hash-header'"),
        ("hash-header", "not a table"),
        (5, "not a table"),
        (["hash-header"], "not a pair of name and value"),
        ({5: "a"}, "the name of an argument is 5"),
    ],
)
def test_arguments_that_the_broker_refuses(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        ConsistentHashExchange("x", ring(1, NEW), arguments)


@pytest.mark.parametrize(
    "arguments",
    [
        {b"hash-header": "t"},
        [("hash-header", "t")],
        [("x-other", 5), (b"hash-header", "t"), ("header", 1), ("hash-on", 1)],
    ],
)
def test_arguments_are_pairs_and_their_names_text_or_bytes(arguments: Any) -> None:
    assert ConsistentHashExchange("x", ring(1, NEW), arguments).hashed_on == by_header(NEW).hashed_on


def test_other_arguments_do_not_matter() -> None:
    arguments = {"alternate-exchange": "ae", "x-anything": 1.5}
    assert str(ConsistentHashExchange("x", ring(1, NEW), arguments).hashed_on) == "routing-key"
    assert str(by_header(NEW).hashed_on) == "header 't'"


MANY = [f"key {n}" * (n % 9) for n in range(500)] + ["é", ""]


@pytest.mark.parametrize(
    "as_array", [list, np.array, pa.array, lambda keys: pa.chunked_array([keys[:7], keys[7:]])]
)
def test_many_keys_of_a_modulus_exchange_reach_the_destinations_of_single_ones(as_array: Any) -> None:
    x = ModulusHashExchange("m", [("q2", "a"), ("q1", "b"), ("q2", "c"), (ExchangeRef("e"), "d")], NEW)
    assert x.destinations == (ExchangeRef("e"), "q1", "q2", "q2")
    indices = x.indices(as_array(MANY))

    assert [x.destinations[index] for index in indices] == [x.route(key) for key in MANY]
    assert set(indices.tolist()) == {0, 1, 2}  # 3 is q2 again
    assert x.shares() == {ExchangeRef("e"): 0.25, "q1": 0.25, "q2": 0.5}


def test_shares_of_a_modulus_exchange_count_every_hash() -> None:
    shares = ModulusHashExchange("m", [(f"q{n}", "") for n in range(3)], NEW).shares()

    assert [share * 2**27 for share in shares.values()] == [44_739_243, 44_739_243, 44_739_242]
    assert ModulusHashExchange("m", []).shares() == {}


def test_keys_that_no_modulus_exchange_hashes_are_refused() -> None:
    x = ModulusHashExchange("m", BINDINGS, NEW)
    with pytest.raises(RowError, match="position 1"):
        x.indices(["a", "b" * 256])
    with pytest.raises(RowError, match="position 0 is null"):
        x.indices([None])
    with pytest.raises(EmptyRingError, match="'m' has no bindings"):
        ModulusHashExchange("m", []).indices(["a"])
    with pytest.raises(NotDeterminedError):
        ModulusHashExchange("m", BINDINGS, KHEPRI).indices(["a"])


def test_the_provenance_of_bindings_is_that_of_their_list_unless_their_order_is_not_known() -> None:
    assert ModulusHashExchange("m", BINDINGS, NEW).provenance == "replayed"
    assert ModulusHashExchange("m", BINDINGS, NEW, "read").provenance == "read"
    assert ModulusHashExchange("m", BINDINGS, MNESIA, "read").provenance == "read"
    assert ModulusHashExchange("m", BINDINGS, KHEPRI, "read").provenance == "assumed"
    assert ModulusHashExchange("m", BINDINGS, NEW) == ModulusHashExchange("m", BINDINGS, NEW, "read")
    with pytest.raises(InputError, match="the provenance is 'seen'"):
        ModulusHashExchange("m", BINDINGS, NEW, "seen")  # type: ignore[arg-type]
