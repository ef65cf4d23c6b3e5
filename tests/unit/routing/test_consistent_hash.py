"""Which destination an x-consistent-hash exchange gives a message, by release."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import aio_pika
import pika
import pytest

from rabbit_chx.amqp import AmqpField
from rabbit_chx.errors import ChannelClosedError, InputError, NotDeterminedError, RowError
from rabbit_chx.routing import ConsistentHashExchange, HashRing, Release

OLD, CRASHING, NEW = Release("3.12.14"), Release("3.13.6"), Release("4.3.6")
COUNTS = (2, 3, 10, 28, 100, 1000)
LONGSTR_A = AmqpField("longstr", "a")

# What Erlang/OTP 25 answered: phash2 of the term, and its bucket for each of the counts.
VECTORS = {
    "<<>>": (13708901, (0, 0, 9, 18, 45, 161)),
    '<<"a">>': (112802447, (1, 1, 6, 15, 47, 47)),
    '<<"key-1">>': (5452885, (1, 1, 1, 27, 64, 935)),
    '<<"0123456789ab">>': (115360506, (1, 1, 5, 5, 5, 563)),
    '<<"0123456789abc">>': (67923675, (1, 2, 7, 18, 58, 836)),
    '<<"é"/utf8>>': (87215157, (1, 1, 8, 17, 90, 543)),
    "undefined": (45914356, (1, 1, 1, 1, 39, 491)),
    "true": (506293, (0, 0, 0, 16, 34, 393)),
    "false": (7111573, (0, 0, 8, 12, 44, 709)),
    '{longstr,<<"a">>}': (65711459, (1, 2, 4, 4, 48, 121)),
    "{longstr,<<>>}": (116351706, (1, 1, 1, 22, 31, 204)),
    "{signedint,5}": (40839585, (1, 1, 7, 7, 7, 796)),
    "{signedint,-5}": (39932925, (0, 0, 9, 9, 93, 171)),
    "{long,5}": (129380108, (1, 2, 2, 20, 20, 833)),
    "{long,134217728}": (117666136, (1, 2, 2, 26, 92, 958)),
    "{long,-134217729}": (132651809, (1, 1, 1, 18, 18, 293)),
    "{long,9223372036854775807}": (120433834, (1, 2, 3, 23, 53, 768)),
    "{long,-9223372036854775808}": (112631110, (1, 1, 1, 27, 94, 115)),
    "{byte,-1}": (63183907, (0, 0, 0, 12, 12, 12)),
    "{bool,true}": (32030443, (0, 0, 4, 4, 4, 885)),
    "{bool,false}": (54145719, (1, 2, 2, 27, 27, 676)),
    "{double,1.5}": (115320697, (1, 1, 9, 11, 79, 730)),
    "{float,1.5}": (89550739, (1, 1, 3, 3, 90, 641)),
    "1.5": (10380315, (0, 0, 0, 0, 86, 366)),
    "0.0": (20875736, (0, 0, 0, 0, 0, 873)),
    "{decimal,{2,314}}": (113508173, (0, 0, 3, 3, 98, 259)),
    "{2,314}": (28881931, (1, 1, 8, 27, 27, 435)),
    "{timestamp,1700000000}": (59280699, (1, 1, 3, 3, 57, 306)),
    '<<"1700000000">>': (71065017, (1, 1, 5, 13, 45, 576)),
    "{void,undefined}": (27077197, (0, 0, 0, 0, 41, 588)),
    '{array,[{longstr,<<"a">>}]}': (130437836, (0, 2, 6, 24, 96, 593)),
    "{array,[]}": (86211673, (0, 0, 6, 12, 28, 238)),
    "{table,[]}": (80606520, (0, 0, 0, 11, 44, 974)),
    '{table,[{<<"k">>,longstr,<<"v">>}]}': (95356243, (1, 1, 1, 25, 57, 642)),
    '[{<<"k">>,longstr,<<"v">>}]': (37084577, (0, 0, 3, 3, 92, 326)),
    '[{longstr,<<"a">>},{signedint,5}]': (65711459, (1, 2, 4, 4, 48, 121)),
    '{binary,<<"a">>}': (92089052, (0, 0, 5, 12, 12, 223)),
    "5": (None, (0, 2, 4, 22, 65, 125)),
    "2097157": (None, (0, 2, 4, 22, 65, 125)),
    "-5": (None, (0, 2, 2, 2, 69, 69)),
    "0": (None, (0, 0, 4, 19, 47, 807)),
    "134217728": (None, (0, 0, 4, 19, 47, 807)),
    "-9223372036854775808": (None, (0, 0, 4, 19, 47, 807)),
    "-1": (None, (0, 2, 6, 13, 74, 220)),
    "9223372036854775807": (None, (0, 2, 6, 13, 74, 220)),
    "1700000000000": (None, (1, 1, 5, 23, 77, 255)),
}
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


def ring(buckets: int, release: Release) -> HashRing:
    return HashRing.from_buckets([f"b{n}" for n in range(buckets)], release)


def by_header(release: Release, buckets: int = 1000, name: str = "t") -> ConsistentHashExchange:
    return ConsistentHashExchange("x", ring(buckets, release), {"hash-header": name})


def basic_properties(**properties: Any) -> pika.BasicProperties:
    return pika.BasicProperties(**properties)


def answers(exchange: ConsistentHashExchange, **message: Any) -> tuple[Any, ...]:
    explained = exchange.explain("k", **message)
    assert explained.destination == exchange.route("k", **message)
    return explained.term, explained.phash2, explained.destination


@pytest.mark.parametrize("buckets", COUNTS)
@pytest.mark.parametrize(("field", "old", "new"), HEADERS, ids=lambda value: str(value)[:30])
def test_headers_as_the_broker_hashes_them(field: Any, old: str, new: str, buckets: int) -> None:
    for release, term in ((OLD, old), (NEW, new)):
        if not term:
            continue
        hashed, by_count = VECTORS[term]
        bucket = f"b{by_count[COUNTS.index(buckets)]}"
        found = answers(by_header(release, buckets), headers={"t": AmqpField(*field)})
        assert found == (term, hashed, bucket)


def test_every_vector_is_used() -> None:
    of_headers = {term for _, *terms in HEADERS for term in terms}
    assert set(VECTORS) - of_headers == {'<<"1700000000">>'}  # the property timestamp, below


@pytest.mark.parametrize("release", [OLD, NEW])
@pytest.mark.parametrize("headers", [None, {}, {"T": "a"}, [("u", 1)]])
def test_a_missing_header_is_the_atom_undefined(release: Release, headers: Any) -> None:
    assert answers(by_header(release), headers=headers) == ("undefined", 45914356, "b491")


def test_a_missing_header_crashes_3_13_0_to_3_13_6() -> None:
    for buckets in (1, 10):
        with pytest.raises(
            ChannelClosedError, match=r"the header 't' is missing: RabbitMQ 3\.13\.6"
        ) as error:
            by_header(CRASHING, buckets).route("k")
        assert error.value.reply_code == 541
    assert by_header(CRASHING, 0).route("k") is None
    assert by_header(Release("3.13.7")).route("k") == "b491"


@pytest.mark.parametrize("value", [[], {}])
@pytest.mark.parametrize("version", ["3.13.0", "4.0.5", "4.3.4"])
def test_an_empty_array_or_table_crashes_3_13_0_to_4_3_4(version: str, value: Any) -> None:
    with pytest.raises(ChannelClosedError, match="is an empty array or table"):
        by_header(Release(version)).route("k", {"t": value})
    assert by_header(Release(version), 1).route("k", {"t": value}) == "b0"
    explained = by_header(Release("4.3.5")).explain("k", {"t": value})
    assert (explained.term, explained.phash2, explained.seed) == ("[]", 113427502, 113427502 % 2**21)


def test_of_a_header_given_twice_the_first_or_the_last_counts() -> None:
    pairs = [("t", "a"), ("u", 1), ("t", "key-1")]
    assert answers(by_header(OLD), headers=pairs)[0] == '{longstr,<<"a">>}'
    assert answers(by_header(NEW), headers=pairs)[0] == '<<"key-1">>'


def test_the_client_decides_what_a_bare_int_is() -> None:
    assert answers(by_header(OLD), headers={"t": 5})[0] == "{signedint,5}"
    assert answers(by_header(OLD), headers={"t": 5}, client="aio-pika")[0] == "{byte,5}"
    with pytest.raises(InputError, match=r"cannot send 1\.5"):
        by_header(NEW).route("k", {"t": 1.5})
    assert answers(by_header(NEW), headers={"t": 1.5}, client="aio-pika")[0] == "1.5"


def test_the_header_s_name_may_be_any_text() -> None:
    exchange = ConsistentHashExchange("x", ring(1000, NEW), {"hash-header": AmqpField("longstr", "é")})
    assert exchange.route("k", {"é": "a"}) == exchange.route("k", [(b"\xc3\xa9", "a")]) == "b47"
    assert by_header(NEW, name="").route("k", {"": "a"}) == "b47"


def test_aio_pika_cuts_long_names_so_the_header_is_missing() -> None:
    exchange = by_header(NEW, name="n" * 129)
    assert exchange.route("k", {"n" * 129: "a"}) == "b47"
    assert exchange.route("k", {"n" * 129: "a"}, client="aio-pika") == "b491"


@pytest.mark.parametrize("release", [OLD, CRASHING, NEW])
def test_the_routing_key_counts_and_cc_and_bcc_do_not(release: Release) -> None:
    exchange = ConsistentHashExchange("x", ring(1000, release))
    assert exchange.route("a") == exchange.route(b"a") == "b47"
    assert exchange.route("a", {"t": "z"}, cc=["b"], bcc=[b"c"]) == "b47"
    assert exchange.route("a", {"CC": ["b"], "BCC": ["c"]}) == "b47"
    assert exchange.route() == "b161"
    assert exchange.explain("5").term == '<<"5">>'


@pytest.mark.parametrize("release", [OLD, CRASHING, NEW])
@pytest.mark.parametrize("name", ["message_id", "correlation_id"])
def test_ids(release: Release, name: str) -> None:
    exchange = ConsistentHashExchange("x", ring(1000, release), {"hash-property": name})
    for properties in ({name: "a"}, {name: b"a", "timestamp": 5}, basic_properties(**{name: "a"})):
        assert answers(exchange, properties=properties) == ('<<"a">>', 112802447, "b47")
    for missing in (None, {}, {name: None}, pika.BasicProperties(headers={"t": 1})):
        assert answers(exchange, properties=missing) == ("undefined", 45914356, "b491")
    assert answers(exchange, properties={name: ""})[0] == "<<>>"
    if name == "correlation_id":
        assert answers(exchange, properties={name: ""}, client="aio-pika")[0] == "undefined"


@pytest.mark.parametrize("properties", [None, {"message_id": ""}, {"correlation_id": "a"}])
def test_aio_pika_makes_up_message_ids(properties: dict[str, str] | None) -> None:
    exchange = ConsistentHashExchange("x", ring(1000, NEW), {"hash-property": "message_id"})
    with pytest.raises(NotDeterminedError, match="aio-pika gives a message without message_id a random one"):
        exchange.route(properties=properties, client="aio-pika")
    with pytest.raises(RowError, match="a random one"):
        exchange.indices([""], client="aio-pika")


def test_aio_pika_ends_with_the_year_9999() -> None:
    exchange = ConsistentHashExchange("x", ring(1000, NEW), {"hash-property": "timestamp"})
    last = 253_402_300_799
    assert answers(exchange, properties={"timestamp": last}, client="aio-pika")[0] == f'<<"{last}">>'
    with pytest.raises(InputError, match="9999"):
        exchange.route(properties={"timestamp": last + 1}, client="aio-pika")


@pytest.mark.parametrize("release", [OLD, CRASHING, NEW])
def test_timestamps_are_their_digits(release: Release) -> None:
    exchange = ConsistentHashExchange("x", ring(1000, release), {"hash-property": "timestamp"})
    for properties in ({"timestamp": 1_700_000_000}, pika.BasicProperties(timestamp=1_700_000_000)):
        assert answers(exchange, properties=properties) == ('<<"1700000000">>', *_vector('<<"1700000000">>'))
    assert answers(exchange)[0] == "undefined"


def _vector(term: str) -> tuple[int | None, str]:
    hashed, by_count = VECTORS[term]
    return hashed, f"b{by_count[-1]}"


def test_headers_in_the_properties_count() -> None:
    exchange = by_header(NEW)
    assert exchange.route("k", properties=pika.BasicProperties(headers={"t": "a"})) == "b47"
    assert exchange.route("k", properties={"headers": {"t": "a"}}) == "b47"
    assert exchange.route("k", {"t": "a"}, pika.BasicProperties(message_id="m")) == "b47"


@pytest.mark.parametrize(
    "message",
    [
        {"headers": {"t": "a"}, "properties": pika.BasicProperties(headers={"u": "a"})},
        {"headers": {"CC": ["a"]}, "cc": ["b"]},
        {"headers": {"BCC": ["a"]}, "bcc": ["b"]},
        {"properties": pika.BasicProperties(headers={"CC": ["a"]}), "cc": ["b"]},
        {"cc": "b"},
        {"cc": None},
        {"bcc": [5]},
        {"cc": ["c" * 256]},
        {"headers": "t"},
        {"headers": {"t": object()}},
        {"headers": {"n" * 256: 1}},
        {"properties": {"mesage_id": "a"}},
        {"properties": "message_id"},
        {"properties": {"message_id": 5}},
        {"properties": {"message_id": "m" * 256}},
        {"properties": {"message_id": "\ud800"}, "client": "aio-pika"},
        {"properties": {"timestamp": 2**40}, "client": "aio-pika"},
        {"properties": {"timestamp": float("nan")}, "client": "aio-pika"},
        {"properties": {"timestamp": timedelta(1)}, "client": "aio-pika"},
        {"properties": {"timestamp": "5"}, "client": "aio-pika"},
        {"properties": {"timestamp": -1}},
        {"properties": {"timestamp": 2**64}},
        {"properties": {"timestamp": True}},
        {"properties": {"timestamp": 1.5}},
        {"client": "kombu"},
        {"client": ["pika"]},
        {"routing_key": "k" * 256},
        {"routing_key": 5},
        {"routing_key": "\ud800"},
    ],
    ids=lambda value: str(value)[:40],
)
def test_what_cannot_be_sent_is_refused(message: dict[str, Any]) -> None:
    exchange = ConsistentHashExchange("x", ring(10, NEW))
    with pytest.raises(InputError):
        exchange.route(**{"routing_key": "k", **message})


AIO_PIKA_PROPERTIES: list[Any] = [
    *({name: value} for name in ("message_id", "correlation_id") for value in ("a", "", b"a", b"", 5, 0, 1.5, True)),
    *({"timestamp": value} for value in (0, True, 5, 1.5, 0.9999999, 0.9999994, 5.9999996, -0.5, 2**37, 1e11)),
    {"timestamp": datetime(2023, 11, 14, 22, 13, 20, 999_999, tzinfo=UTC)},
    {"timestamp": 2**40}, {"timestamp": 1e12}, {"timestamp": -1}, {"timestamp": float("inf")}, {"timestamp": "5"},
]  # fmt: skip


@pytest.mark.parametrize("properties", AIO_PIKA_PROPERTIES, ids=str)
def test_properties_are_what_aio_pika_sends(properties: dict[str, Any]) -> None:
    ((name, value),) = properties.items()
    exchange = ConsistentHashExchange("x", ring(1000, NEW), {"hash-property": name})
    try:
        sent = pika.BasicProperties()
        sent.decode(aio_pika.Message(b"", **properties).properties.marshal())
    except Exception:  # noqa: BLE001 - the library raises whatever it meets
        with pytest.raises(InputError):
            exchange.route("k", properties=properties, client="aio-pika")
        return
    if name == "message_id" and sent.message_id is None:  # its channel then makes one up
        with pytest.raises(NotDeterminedError):
            exchange.route("k", properties=properties, client="aio-pika")
    else:
        expected = exchange.route("k", properties=sent)
        assert exchange.route("k", properties=properties, client="aio-pika") == expected
        values: Any = [value]
        assert exchange.ring.destinations[exchange.indices(values, client="aio-pika")[0]] == expected


@pytest.mark.parametrize("name", ["CC", "BCC"])
@pytest.mark.parametrize(("value", "type_"), [("a", "longstr"), (None, "void"), ({}, "table")])
def test_cc_that_is_no_array_closes_the_channel(name: str, value: Any, type_: str) -> None:
    exchange = ConsistentHashExchange("x", ring(0, NEW))
    with pytest.raises(ChannelClosedError, match=f"the header {name} is a {type_}") as error:
        exchange.route("k", {name: value})
    assert error.value.reply_code == 406


def test_cc_can_be_hashed_and_bcc_cannot() -> None:
    assert answers(by_header(OLD, name="CC"), cc=["a"])[0] == '{array,[{longstr,<<"a">>}]}'
    assert answers(by_header(OLD, name="BCC"), bcc=["a"])[0] == "undefined"


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
        ("hash-header", "no table"),
        (5, "no table"),
        (["hash-header"], "no pair of name and value"),
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
    with pytest.raises(InputError, match="is no ring: give a HashRing"):
        ConsistentHashExchange("x", no_ring)


def test_other_arguments_do_not_matter() -> None:
    arguments = {"alternate-exchange": "ae", "x-anything": 1.5}
    assert str(ConsistentHashExchange("x", ring(1, NEW), arguments).hashed_on) == "routing-key"
    assert str(by_header(NEW).hashed_on) == "header 't'"


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
