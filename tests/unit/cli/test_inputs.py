"""Files of rings and of keys."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from command_line import RING

from rabbit_chx.routing import HashRing, Release


def test_a_ring_file_keeps_its_provenance_and_its_holes(answer: Callable[..., Any], tmp_path: Path) -> None:
    ring = HashRing.from_buckets(["q1", None, "q2"], Release("3.8.9"))
    path = shown_ring(tmp_path / "ring.json", {}, ring)
    document = answer("route", "--ring", path, "k1", "k2", "k3", "k4")
    assert document["ring"]["provenance"] == "read"
    assert [row["destination"] for row in document["answers"]] == [
        ring.destination_for(key) for key in ("k1", "k2", "k3", "k4")
    ]
    assert answer("route", "--ring", path, "--release", "4.3.6", "k")["ring"]["provenance"] == "assumed"


def shown_ring(path: Path, arguments: Mapping[str, Any] | None, ring: HashRing = RING) -> str:
    """A file as `ring show --output json` writes it."""
    path.write_text(json.dumps(json.loads(ring.to_json()) | {"arguments": arguments}))
    return str(path)
