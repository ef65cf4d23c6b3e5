"""Where keys and whole messages go."""

from __future__ import annotations

from typing import Any

import pytest
from command_line import BIND, RING, Answer

from rabbit_chx.amqp.fields import AmqpField
from rabbit_chx.routing import (
    ConsistentHashExchange,
    ExchangeRef,
    HashRing,
)


def test_route_agrees_with_the_ring(answer: Answer) -> None:
    keys = [f"user-{n}" for n in range(50)]
    document = answer("route", *BIND, "--release", "4.0.5", *keys)
    assert document["answers"] == [{"key": key, "destination": RING.destination_for(key)} for key in keys]
    assert document["ring"] == {
        "release": {"version": "4.0.5", "store": "mnesia", "store_known": False},
        "provenance": "replayed",
        "buckets": 11,
        "destinations": ["q1", "q2"],
    }


def test_a_name_may_hold_an_equals_sign_and_a_destination_may_be_an_exchange(answer: Answer) -> None:
    bindings = ("--bind", "a=b=2", "--bind", "exchange:slot=+3")
    document = answer("route", *bindings, *(str(n) for n in range(20)))
    ring = HashRing.from_bindings([("a=b", 2), (ExchangeRef("slot"), "+3")])
    places = {"a=b": "a=b", ExchangeRef("slot"): {"exchange": "slot"}}
    assert [row["destination"] for row in document["answers"]] == [
        places[ring.destination_for(str(n)) or ""] for n in range(20)
    ]


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
def test_a_whole_message_may_have_typed_headers(answer: Answer, typed: str, headers: dict[str, Any]) -> None:
    fields = {
        name: AmqpField(*value) if isinstance(value, tuple) else value for name, value in headers.items()
    }
    exchange = ConsistentHashExchange("x", RING, {"hash-header": "tenant"})
    (row,) = answer("route", *BIND, "--hash-header", "tenant", "--header", typed, "key", "--explain")[
        "answers"
    ]
    why = exchange.explain(routing_key="key", headers=fields)
    assert (row["term"], row["destination"]) == (why.term, why.destination)
