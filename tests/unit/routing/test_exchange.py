"""Exchanges that hash a message: their arguments, routes and refusals."""

from __future__ import annotations

from typing import Any

import pytest
from hash_exchanges import CRASHING, NEW, OLD, by_header, ring

from rabbit_chx.amqp import AmqpField
from rabbit_chx.errors import ChannelClosedError, InputError
from rabbit_chx.routing import ConsistentHashExchange, HashRing, Release

LONGSTR_A = AmqpField("longstr", "a")

#: The term that an old and a new release hash. The recorded routes have the hashes of all types.
HEADERS: list[tuple[Any, str, str]] = [
    (("longstr", "é"), '{longstr,<<"é"/utf8>>}', '<<"é"/utf8>>'),
    (("longstr", 'a\\b"c'), '{longstr,<<"a\\\\b\\"c">>}', '<<"a\\\\b\\"c">>'),
    (("binary", b"\0\xff"), "{binary,<<0,255>>}", "<<0,255>>"),
    (("double", 1e-5), "{double,1.0e-5}", "1.0e-5"),
    (("double", 1e20), "{double,1.0e20}", "1.0e20"),
    (("decimal", (2, 314)), "{decimal,{2,314}}", "{2,314}"),
    (("timestamp", 1_700_000_000), "{timestamp,1700000000}", "1700000000000"),
    (("void", None), "{void,undefined}", "undefined"),
    (("array", [LONGSTR_A, AmqpField("signedint", 5)]), '{array,[{longstr,<<"a">>},{signedint,5}]}', '[{longstr,<<"a">>},{signedint,5}]'),
    (("table", {"k": AmqpField("longstr", "v")}), '{table,[{<<"k">>,longstr,<<"v">>}]}', '[{<<"k">>,longstr,<<"v">>}]'),
]  # fmt: skip


@pytest.mark.parametrize(("field", "old", "new"), HEADERS, ids=lambda value: str(value)[:30])
def test_headers_as_the_broker_hashes_them(field: Any, old: str, new: str) -> None:
    for release, term in ((OLD, old), (NEW, new)):
        found = by_header(release).explain("k", {"t": AmqpField(*field)})
        assert found.term == term
        if term.isdigit():
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


@pytest.mark.parametrize("release", [OLD, NEW])
def test_headers_are_as_deep_as_python_follows(release: Release) -> None:
    exchange, value = by_header(release), AmqpField("array", [1])
    for _ in range(100):
        value = AmqpField("array", [value])
    exchange.route("k", {"t": value})
    for _ in range(500):
        value = AmqpField("array", [value])
    asks: list[Any] = [exchange.route, exchange.explain]
    for ask in asks:
        with pytest.raises(InputError, match="nested too deep"):
            ask("k", {"t": value})
    with pytest.raises(InputError, match="nested too deep"):
        exchange.indices([value])


def test_an_explanation_has_the_walk_the_seed_and_the_rule() -> None:
    explained = by_header(NEW, 100).explain("k", {"t": 5})
    assert explained.walk == (0, 2, 4, 22, 29, 39, 65)
    assert (explained.bucket, explained.buckets, explained.seed, explained.phash2) == (65, 100, 5, None)
    assert (explained.destination, explained.reason, explained.provenance) == ("b65", None, "read")
    assert explained.release == NEW
    assert "the integer itself is the seed" in (explained.rule or "")
    assert "jump_consistent_hash/2" in (explained.source or "")

    assert "with its wire type" in (by_header(OLD).explain("k", {"t": 5}).rule or "")
    alone = by_header(NEW, 1).explain("k", {"t": "a"})  # with one bucket nothing is hashed
    assert (alone.destination, alone.seed, alone.phash2, alone.walk) == ("b0", None, None, (0,))


def test_an_explanation_says_why_a_message_goes_nowhere() -> None:
    empty = by_header(NEW, 0).explain("k", {"t": "a"})
    found = (empty.destination, empty.bucket, empty.term, empty.walk, empty.buckets)
    assert found == (None, None, None, (), 0)
    assert empty.reason == "the ring has no buckets: nothing is bound to the exchange"

    hole = ConsistentHashExchange("x", HashRing.from_buckets([None, "q1", "q2"], NEW))
    key = next(key for key in map(str, range(100)) if hole.ring.destination_for(key) is None)
    explained = hole.explain(key)
    assert (explained.destination, explained.buckets) == (None, 2)
    assert explained.reason == "bucket 0 is a hole in the ring"
    assert hole.route(key) is None


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"hash-header": "a", "hash-property": "message_id"}, "both given"),
        ({"hash-property": "app_id"}, "cannot hash the property 'app_id'"),
        ({"hash-header": b"a"}, "hash-header is a binary"),
        ({"hash-header": None}, "hash-header is a void"),
        ({"hash-property": AmqpField("binary", "message_id")}, "hash-property is a binary"),
        ({"hash-header": "a", "hash-property": None}, "hash-property is a void"),
        ({"hash-header": (1,)}, "cannot send"),
        ({"hash-header": "a", b"hash-header": "a"}, "hash-header is given twice"),
        ({"hash_header": "a"}, "'hash_header' .*did you mean 'hash-header'"),
        ({"hashHeader": "a"}, "did you mean 'hash-header'"),
        ({"HASH-PROPERTY": "timestamp"}, "did you mean 'hash-property'"),
        ([(b"x-hash-header", "a")], "did you mean 'hash-header'"),
        ({"hash-headers": "a"}, "did you mean 'hash-header'"),
        ("hash-header", "not a table"),
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
    hashed_on = ConsistentHashExchange("x", ring(1, NEW), arguments).hashed_on
    assert hashed_on == by_header(NEW).hashed_on
    assert str(hashed_on) == "header 't'"
    others = ConsistentHashExchange("x", ring(1, NEW), {"alternate-exchange": "ae", "x-anything": 1.5})
    assert str(others.hashed_on) == "routing-key"
