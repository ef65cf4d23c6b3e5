"""The program of tests/vectors/README.md gives the answers of the Erlang VM and of the broker."""

from __future__ import annotations

import gzip
import json
from typing import Any

import pytest
from blocks import ROOT, python_blocks

VECTORS = ROOT / "tests" / "vectors"


MODEL: dict[str, Any] = {}
(PROGRAM,) = python_blocks("tests/vectors/README.md")
exec(compile(PROGRAM, "README.md", "exec"), MODEL)  # noqa: S102  # that is what is tested


def binaries(rows: list[dict[str, Any]], field: str) -> list[tuple[bytes, dict[str, Any]]]:
    return [(bytes.fromhex(row[field]["hex"]), row) for row in rows if row[field]["t"] == "bin"]


def test_hashes_and_buckets_are_those_of_the_vm() -> None:
    terms = binaries(json.loads((VECTORS / "phash2.json").read_text())["terms"], "term")
    assert len(terms) > 100
    assert [MODEL["phash2"](key) for key, _ in terms] == [row["h27"] for _, row in terms]
    jumps = json.loads((VECTORS / "jump.json").read_text())
    keys = binaries(jumps["keys"], "key")
    assert len(keys) > 50
    for key, row in keys:
        assert [MODEL["bucket"](key, n) for n in jumps["ns"]] == row["b"]


@pytest.mark.parametrize("version", ["3.10.8", "4.3.6"])
def test_the_queues_are_those_of_the_broker(version: str) -> None:
    recorded = json.loads(gzip.decompress((VECTORS / f"routes-{version}.json.gz").read_bytes()))
    (example,) = (scenario for scenario in recorded["scenarios"] if scenario["name"] == "example")
    ring = [queue for queue, count in example["ring"] for _ in range(count)]
    routed = [ring[MODEL["bucket"](b"%d" % number, len(ring))] for number in range(2_000)]
    assert routed == [example["destinations"][int(letter)] for letter in example["found"][:2_000]]
