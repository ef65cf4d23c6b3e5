"""Exports of real brokers, mutated: a topology, or a list of mistakes.

`exports/` has what RabbitMQ 3.10.8 and 4.3.6 wrote of one topology, as a whole and of its vhost; password hashes are left out.
"""

from __future__ import annotations

import copy
import json
import random
from contextlib import suppress
from typing import Any

import pytest
from blocks import ROOT
from definitions_file import definitions_file
from fuzzing import Mutator, bounded_memory, fuzzed

from rabbit_chx import Topology
from rabbit_chx.errors import TopologyError

# A mutated release may be one that is to come, which is taken with a warning.
pytestmark = pytest.mark.filterwarnings("ignore:RabbitMQ .* is newer than the rules known here")

EXPORTS = [path.read_text() for path in sorted((ROOT / "tests/fuzz/exports").glob("*.json"))]
TOKENS = (
    *'[]{}:,"\\\n\0\ufeffé',
    *("null", "true", "NaN", "1e999", "-1", '"vhost":', '"\\ud800"', "[" * 3_000, "9" * 5_000),
)
ODD: tuple[Any, ...] = (
    *(None, True, -1, 0, 1.5, float("nan"), float("inf"), 1 << 70, [], {}, [[]], {"a": {}}, ["x"]),
    *("", "x" * 300, "\ud800", "\0", "größe", "/", "other/vhost", "queue", "exchange", "x-consistent-hash"),
    *("amq.topic", "[", "4.3.6", "3.10"),
)


def places(value: Any) -> list[tuple[Any, Any]]:
    """Each container within a value, with each of its keys."""
    found: list[tuple[Any, Any]] = []
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        found += [(value, key), *places(inner)]
    return found


def changed(chance: random.Random) -> str:
    """A document of which some values are others, gone, twice or elsewhere."""
    document = json.loads(chance.choice(EXPORTS))
    there = places(document)
    for _ in range(chance.randint(1, 5)):
        (container, key), (other, there_key) = chance.choices(there, k=2)
        with suppress(LookupError):  # what an earlier change has taken away
            match chance.randrange(5):
                case 0:
                    container.pop(key)
                case 1:
                    container[key] = copy.deepcopy(other[there_key])
                case 2 if isinstance(container, list):
                    container.append(copy.deepcopy(container[key]))
                case 3 if isinstance(container, dict):
                    container[chance.choice(("name", "vhost", "arguments", "type", "x"))] = chance.choice(ODD)
                case _:
                    container[key] = chance.choice(ODD)
    return json.dumps(document)


def check(text: str | bytes) -> None:
    try:
        topology = Topology.from_definitions(text)
    except TopologyError as error:
        check_error(error)
        return
    assert Topology.from_definitions(definitions_file(topology)).queues == topology.queues


def check_error(error: TopologyError) -> None:
    assert error.problems
    assert len(str(error)) < 4_000 * len(error.problems)


MUTATOR = Mutator(EXPORTS, TOKENS, lambda chance: chr(chance.randrange(0x3000)))
test_a_changed_document_is_read_or_refused = fuzzed(changed, each=4)(check)
test_a_changed_text_is_read_or_refused = fuzzed(lambda chance: MUTATOR.mutated(chance, most=3), each=4)(check)


@pytest.mark.parametrize("text", EXPORTS)
def test_what_brokers_write_is_read(text: str) -> None:
    assert Topology.from_definitions(text).ring("orders").provenance is None


@pytest.mark.parametrize(
    "text", ["[" * 100_000, '{"queues":' * 50_000, b"\xff\xfe{}", b"\x00", "9" * 5_000, '{"queues": NaN}']
)
def test_an_invalid_document_is_refused(text: str | bytes) -> None:
    with bounded_memory(), pytest.raises(TopologyError):
        Topology.from_definitions(text)


@pytest.mark.parametrize(
    "text",
    [
        '{"queues": [{"name": "q", "vhost": []}]}',
        '{"vhosts": [{"name": {}}], "queues": [{"name": "q", "vhost": "/"}]}',
        '{"queues": [{"name": "q", "vhost": "/", "arguments": {"x-queue-type": []}}]}',
    ],
)
def test_each_text_that_once_failed_is_read_or_refused(text: str) -> None:
    check(text)
