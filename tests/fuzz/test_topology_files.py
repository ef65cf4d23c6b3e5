"""Topology files, mutated: a topology that can be written again, or a list of mistakes with their lines."""

from __future__ import annotations

import pytest
from blocks import ROOT
from fuzzing import Mutator, any_letter, bounded_memory, fuzzed

from rabbit_chx import Topology
from rabbit_chx.errors import TopologyError

FILES = [path.read_text() for path in sorted((ROOT / "tests/fuzz/topologies").glob("*.toml"))]
TOKENS = (
    *"[]{}=,.\"'\\#\n\r\t\0\ufeff\x7f\ud800",
    *("[[exchanges]]\n", "[[queues]]\n", "[exchanges]\n", "name = ", "weight = ", "ring = ", "owns = "),
    *("{1..3}", "{1..99999999999}", "{a..b}", "{3..1}", "{", "true", "nan", "inf"),
    *("-0", "0x1F", "1e999", "1979-05-27T07:32:00Z", "07:32:00", "[[]]", "{}", "-1"),
    *('"""', "'''", "\\u0000", "\\uD800", "slots = 99999999"),
    *("9" * 5_000, "[" * 3_000, "x" * 300),
)


MUTATOR = Mutator(FILES, TOKENS, any_letter)


@fuzzed(lambda chance: MUTATOR.mutated(chance, most=4))
def test_a_file_is_read_or_refused(text: str) -> None:
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
