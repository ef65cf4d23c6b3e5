"""The program of tests/vectors/README.md gives the answers of the Erlang VM and of the broker."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from typing import Any

import pytest
from blocks import ROOT, python_blocks

VECTORS = ROOT / "tests" / "vectors"


@pytest.fixture(scope="module")
def model() -> dict[str, Callable[..., int]]:
    names: dict[str, Any] = {}
    (program,) = python_blocks("tests/vectors/README.md")
    exec(compile(program, "README.md", "exec"), names)  # noqa: S102  # that is what is tested
    return names


def binaries(rows: list[dict[str, Any]], field: str) -> list[tuple[bytes, dict[str, Any]]]:
    return [(bytes.fromhex(row[field]["hex"]), row) for row in rows if row[field]["t"] == "bin"]


def test_phash2_is_that_of_the_vm(model: dict[str, Callable[..., int]]) -> None:
    rows = binaries(json.loads((VECTORS / "phash2.json").read_text())["terms"], "term")
    assert len(rows) > 100
    assert [model["phash2"](key) for key, _ in rows] == [row["h27"] for _, row in rows]


def test_the_buckets_are_those_of_the_vm(model: dict[str, Callable[..., int]]) -> None:
    vectors = json.loads((VECTORS / "jump.json").read_text())
    rows = binaries(vectors["keys"], "key")
    assert len(rows) > 50
    for key, row in rows:
        assert [model["bucket"](key, n) for n in vectors["ns"]] == row["b"]


@pytest.mark.parametrize("version", ["3.8.9", "4.3.6"])
def test_the_queues_are_those_of_the_broker(model: dict[str, Callable[..., int]], version: str) -> None:
    recorded = json.loads(gzip.decompress((VECTORS / f"routes-{version}.json.gz").read_bytes()))
    (example,) = (scenario for scenario in recorded["scenarios"] if scenario["name"] == "example")
    ring = [queue for queue, count in example["ring"] for _ in range(count)]
    routed = [ring[model["bucket"](b"%d" % number, len(ring))] for number in range(2_000)]
    assert routed == [example["destinations"][int(letter)] for letter in example["found"][:2_000]]
