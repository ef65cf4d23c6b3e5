"""The files that a value passes on its way through the code are those of docs/contributing/architecture.md."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from amqp_broker import ack
from scripted_peer import Peer

from rabbit_chx import HashRing, Publisher
from rabbit_chx.routing.jump import opened

ROOT = Path(__file__).resolve().parents[3]
RING = HashRing.from_bindings([("q1", 1), ("q2", 10)])
PAGE = (ROOT / "docs" / "contributing" / "architecture.md").read_text(encoding="utf-8")


def files_of(work: Callable[[], object]) -> list[str]:
    """The files whose functions ran, in order, one after the other never the same."""
    files: list[str] = []
    rooms = (ROOT / "rabbit_chx", ROOT / "spark_connector")

    def note(frame: FrameType, event: str, _: Any) -> None:
        path = Path(frame.f_code.co_filename)
        if event != "call" or "<" in frame.f_code.co_name or not any(map(path.is_relative_to, rooms)):
            return
        name = str(path.relative_to(ROOT))
        if files[-1:] != [name]:
            files.append(name)

    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
    return files


def told(heading: str) -> list[str]:
    """The files that the page links in one of its walks, in its order."""
    section = PAGE.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    return [f"rabbit_chx/{file}" for file in re.findall(r"\(\.\./\.\./rabbit_chx/([\w/]+\.py)\)", section)]


@pytest.fixture
def publisher() -> Iterator[Publisher]:
    with Peer(ack) as peer, Publisher(peer.settings, "x") as publisher:
        publisher.publish_many(["warm"], [b"w"])
        yield publisher


def test_a_key_passes_the_files_of_the_page(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(opened, RING.bucket_count, raising=False)  # other tests may have filled the table
    files = files_of(lambda: RING.destination_for("a key that no other test asks for"))
    assert list(dict.fromkeys(files)) == told("Route a key")[:3]


def test_a_published_row_passes_the_files_of_the_page(publisher: Publisher) -> None:
    files = files_of(lambda: publisher.publish_many(["k"], [b"b"]))
    assert set(told("Publish a row")) <= set(files)
