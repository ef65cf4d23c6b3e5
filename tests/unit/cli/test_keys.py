"""Keys that land on a queue."""

from __future__ import annotations

import pytest
from command_line import BIND, Answer

MODULUS = ("--exchange-type", "x-modulus-hash", "--bind", "q1=1", "--bind", "q2=1", "--bind", "q3=1")
STREAM = ("--exchange-type", "super-stream/rstream", "--bind", "s-0=0", "--bind", "s-1=1")


@pytest.mark.parametrize(
    ("given", "wanted", "kind"),
    [(BIND, "q1", "ring"), (MODULUS, "q2", "modulus"), (STREAM, "s-1", "super_stream")],
)
def test_keys_reach_their_destination(answer: Answer, given: tuple[str, ...], wanted: str, kind: str) -> None:
    document = answer("keys", *given, wanted, "--count", "20", "--pattern", "a key {n}")
    assert len(document["keys"]) == 20
    routed = answer("route", *given, *document["keys"])
    assert {row["destination"] for row in routed["answers"]} == {wanted}
    assert document[kind] == routed[kind]
    assert (document["ring"] is None) is (kind != "ring")
