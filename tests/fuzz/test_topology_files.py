"""Topology files, mutated: a topology that can be written again, or a list of mistakes with their lines."""

from __future__ import annotations

import pytest
from fuzzing import Mutator, any_letter, bounded_memory, inputs, shares, told

from rabbit_chx import Topology
from rabbit_chx.errors import TopologyError

WHOLE = """
cluster = "rabbit@prod"
max_share_moved = 0.2
owns = ["orders*", "audit"]
[[exchanges]]
name = "orders"
type = "x-consistent-hash"
arguments = { hash-header = "tenant", alternate-exchange = "audit" }
ring = [{ queue = "orders.{1..3}" }, { queue = "größe", weight = 7 }, { exchange = "audit", weight = "007" }]
[[exchanges]]
name = "events"
type = "x-consistent-hash"
slots = 8
members = [{ queue = "events.{1..2}" }]
[[exchanges]]
name = "audit"
type = "headers"
durable = false
[[queues]]
name = "orders.{1..3}"
type = "quorum"
arguments = { x-dead-letter-exchange = "audit", x-max-length = 100_000 }
[[queues]]
name = 'größe'
[[queues]]
name = "events.{1..2}"
[[bindings]]
source = "audit"
queue = "orders.1"
routing_key = "a\\tb"
arguments = { x-match = "any", n = 5, deep = { list = [1, true, "x", 1.5] } }
[[super_streams]]
name = "rows"
binding_keys = ["a", "{1..3}"]
arguments = { x-max-age = "7D" }
[[policies]]
name = "limit"
pattern = "^orders"
apply_to = "queues"
priority = 3
definition = { max-length = 3 }
"""
SMALL = """
# orders.1 has two buckets.
[[exchanges]]
name = "orders"
type = "x-consistent-hash"
ring = [{ queue = "orders.1", weight = 2 }, { queue = "orders.{2..3}", weight = 1 }]

[[queues]]
name = "orders.{1..3}"
"""
TOKENS = (
    *"[]{}=,.\"'\\#\n\r\t\0\ufeff\x7f\ud800",
    *("[[exchanges]]\n", "[[queues]]\n", "[exchanges]\n", "name = ", "weight = ", "ring = ", "owns = "),
    *("{1..3}", "{1..99999999999}", "{a..b}", "{3..1}", "{", "true", "nan", "inf"),
    *("-0", "0x1F", "1e999", "1979-05-27T07:32:00Z", "07:32:00", "[[]]", "{}", "-1"),
    *('"""', "'''", "\\u0000", "\\uD800", "slots = 99999999"),
    *("9" * 5_000, "[" * 3_000, "x" * 300),
)


MUTATOR = Mutator([WHOLE, SMALL], TOKENS, any_letter)


def check(text: str) -> None:
    try:
        topology = Topology.from_toml(text)
    except TopologyError as error:
        check_error(error, text)
    else:
        assert Topology.from_toml(topology.to_toml()) == topology


def check_error(error: TopologyError, text: str) -> None:
    assert error.problems
    assert all(problem.message and problem.fix for problem in error.problems)
    lines = text.count("\n") + 1
    assert all(problem.line is None or 1 <= problem.line <= lines for problem in error.problems)
    assert len(str(error)) < (2_000 + 5 * len(text)) * len(error.problems)


@shares()
def test_a_file_is_read_or_refused(share: range) -> None:
    with bounded_memory():
        for chance in inputs(share):
            text = MUTATOR.mutated(chance, most=4)
            with told(text):
                check(text)


@pytest.mark.parametrize(
    "text",
    [
        "x = " + "[" * 5_000,
        "x = " + "[" * 200 + "]" * 200,
        "a" + ".a" * 5_000 + " = 1",
        "max_share_moved = " + "9" * 5_000,
        '[[queues]]\nname = "{1..99999999999}"',
    ],
    ids=["arrays not closed", "arrays", "dotted keys", "digits", "a range"],
)
def test_what_would_take_much_is_refused(text: str) -> None:
    with bounded_memory(), pytest.raises(TopologyError):
        Topology.from_toml(text)
