"""Where keys and whole messages go."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from command_line import BIND, RING

from rabbit_chx.amqp.fields import AmqpField
from rabbit_chx.routing import (
    ConsistentHashExchange,
    ExchangeRef,
    HashRing,
    ModulusHashExchange,
    Release,
    SuperStream,
)


def test_route_agrees_with_the_ring(answer: Callable[..., Any]) -> None:
    keys = [f"user-{n}" for n in range(50)]
    document = answer("route", *BIND, "--release", "4.0.5", *keys)
    assert document["answers"] == [{"key": key, "destination": RING.destination_for(key)} for key in keys]
    assert document["ring"] == {
        "release": {"version": "4.0.5", "store": "mnesia", "store_known": False},
        "provenance": "replayed",
        "buckets": 11,
        "destinations": ["q1", "q2"],
    }


def test_a_name_may_hold_an_equals_sign_and_a_destination_may_be_an_exchange(
    answer: Callable[..., Any],
) -> None:
    bindings = ("--bind", "a=b=2", "--bind", "exchange:slot=+3")
    document = answer("route", *bindings, *(str(n) for n in range(20)))
    ring = HashRing.from_bindings([("a=b", 2), (ExchangeRef("slot"), "+3")])
    places = {"a=b": "a=b", ExchangeRef("slot"): {"exchange": "slot"}}
    assert [row["destination"] for row in document["answers"]] == [
        places[ring.destination_for(str(n)) or ""] for n in range(20)
    ]


def test_a_route_has_these_fields_and_no_others(answer: Callable[..., Any]) -> None:
    (plain,) = answer("route", *BIND, "k")["answers"]
    assert plain == {"key": "k", "destination": "q2"}
    (row,) = answer("route", *BIND, "k", "--explain")["answers"]
    why = ConsistentHashExchange("x", RING).explain("k")
    assert row == {
        "key": "k",
        "destination": why.destination,
        "hashed_on": "routing-key",
        "term": '<<"k">>',
        "phash2": why.phash2,
        "seed": why.seed,
        "walk": list(why.walk),
        "bucket": why.bucket,
        "buckets": 11,
        "reason": None,
        "rule": why.rule,
        "source": why.source,
    }


def test_explain_carries_the_whole_explanation(answer: Callable[..., Any]) -> None:
    ring = RING.with_release(Release("3.12.14"))
    (row,) = answer(
        *(
            "route",
            *BIND,
            "--release",
            "3.12.14",
            "--hash-header",
            "tenant:long",
            "5",
            "--explain",
        )
    )["answers"]
    why = ConsistentHashExchange("x", ring, {"hash-header": "tenant"}).explain(
        headers={"tenant": AmqpField("long", 5)}
    )
    assert (row["term"], row["phash2"], row["seed"]) == ("{long,5}", why.phash2, why.seed)
    assert (row["walk"], row["bucket"], row["buckets"]) == (list(why.walk), why.bucket, 11)
    assert (row["rule"], row["source"], row["destination"]) == (why.rule, why.source, why.destination)


@pytest.mark.parametrize(
    ("typed", "headers"),
    [
        ("tenant=a=b", {"tenant": "a=b"}),
        ("tenant:nonsense:longstr=a", {"tenant:nonsense": "a"}),
        ("tenant:long=5", {"tenant": ("long", 5)}),
        ("tenant:bool=true", {"tenant": ("bool", True)}),
        ("tenant:double=1.5", {"tenant": ("double", 1.5)}),
        ("tenant:decimal=3.14", {"tenant": ("decimal", (2, 314))}),
        ("tenant:timestamp=1700000000", {"tenant": ("timestamp", 1_700_000_000)}),
        ("tenant:void=", {"tenant": ("void", None)}),
        ('tenant:array=["a", 1]', {"tenant": ("array", ["a", 1])}),
        ('tenant:table={"k": {"n": 1}}', {"tenant": ("table", {"k": {"n": 1}})}),
    ],
)
def test_a_whole_message_may_have_typed_headers(
    answer: Callable[..., Any], typed: str, headers: dict[str, Any]
) -> None:
    fields = {
        name: AmqpField(*value) if isinstance(value, tuple) else value for name, value in headers.items()
    }
    exchange = ConsistentHashExchange("x", RING, {"hash-header": "tenant"})
    (row,) = answer("route", *BIND, "--hash-header", "tenant", "--header", typed, "key", "--explain")[
        "answers"
    ]
    why = exchange.explain(routing_key="key", headers=fields)
    assert (row["term"], row["destination"]) == (why.term, why.destination)


def test_a_property_routes_as_its_value(answer: Callable[..., Any]) -> None:
    for name, value in (("message_id", "m=1"), ("timestamp", "1700000000")):
        arguments = ("--hash-property", name, "--property", f"{name}={value}")
        (row,) = answer("route", *BIND, *arguments)["answers"]
        assert row == {"key": "", "destination": RING.destination_for(value)}
        (row,) = answer("route", *BIND, "--hash-property", name, value)["answers"]
        assert row["destination"] == RING.destination_for(value)


MODULUS = ("--exchange-type", "x-modulus-hash", "--bind", "q1=9", "--bind", "q2=10")
PARTITIONS = ("--bind", "s-1=1", "--bind", "s-0=0")
STREAM = ("--exchange-type", "super-stream", *PARTITIONS)


def test_a_modulus_hash_exchange_routes_by_its_bindings_and_release(
    answer: Callable[..., Any], shown: Callable[..., str]
) -> None:
    found = []
    for release in (Release("4.0.5", "mnesia"), Release("4.3.6")):
        exchange = ModulusHashExchange("x", [("q1", "9"), ("q2", "10")], release)
        document = answer("route", *MODULUS, "--release", f"{release.version}/{release.store}", *"abcdef")
        found.append([answer["destination"] for answer in document["answers"]])
        assert found[-1] == list(map(exchange.route, "abcdef"))
    assert found[0] != found[1]
    assert shown("route", *MODULUS, "a").endswith(
        "exchange: x-modulus-hash, replayed from the bindings; rules of 4.3.6 (khepri); 2 bindings\n"
    )


def test_a_super_stream_routes_by_its_partitions_and_client(
    answer: Callable[..., Any], shown: Callable[..., str]
) -> None:
    stream = SuperStream(["s-1", "s-0"], ["1", "0"])
    document = answer("route", "--exchange-type", "super-stream/rstream", *PARTITIONS, "a", "b")
    assert document["super_stream"]["partitions"] == ["s-1", "s-0"]
    assert [answer["destination"] for answer in document["answers"]] == [
        stream.partition_for(key, "rstream") for key in "ab"
    ]
    assert "hashed by the clients for Java" in shown("route", *STREAM, "a")


@pytest.mark.parametrize("asked", [(), ("--explain",), ("--header", "h=v")])
def test_keys_of_a_file_are_answered_as_those_of_stdin(
    ran: Callable[..., tuple[int, str, str]],
    stdin: Callable[[str], None],
    tmp_path: Path,
    asked: tuple[str, ...],
) -> None:
    path = tmp_path / "keys.txt"
    path.write_text("k1\nk2\n\nk3")
    for output in ("table", "json"):
        options = ("--bind", "q1=1", "--bind", "q2=10", *asked, "--output", output)
        stdin(path.read_text())
        of_stdin = ran("route", *options, "-")
        assert ran("route", *options, "--keys", str(path)) == of_stdin
        assert of_stdin[1].count("\n") == 4
    path.write_text("k1\n" + "k" * 256)
    code, out, errors = ran("route", "--bind", "q1=1", "--keys", str(path))
    assert (code, out) == (2, "k1\tq1\n")
    assert errors.startswith(f"rabbit-chx: line 2 of {path}: ")
