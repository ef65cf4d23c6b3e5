"""Where keys go; whole messages are in the transcripts."""

from __future__ import annotations

from command_line import BIND, RING, Answer

from rabbit_chx.routing import (
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
