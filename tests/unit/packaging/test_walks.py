"""How often a value changes file on its way through the code, as docs/architecture.md tells it."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from scripted_node import ScriptedLog, chunks_of
from scripted_peer import Peer, ack

from rabbit_chx import ConsistentHashExchange, HashRing, Publisher, StreamReader
from rabbit_chx.routing.jump import opened

ROOT = Path(__file__).resolve().parents[3]
RING = HashRing.from_bindings([("q1", 1), ("q2", 10)])
EXCHANGE = ConsistentHashExchange("x", RING)
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")


def files_of(work: Callable[[], object], *, first_calls: bool = False) -> list[str]:
    """The files whose functions ran, in order, without repetitions of the same file; by each call, or the first of each function."""
    files: list[str] = []
    seen = set()

    def note(frame: FrameType, event: str, _: Any) -> None:
        path = Path(frame.f_code.co_filename)
        if event == "call" and path.is_relative_to(ROOT / "rabbit_chx") and "<" not in frame.f_code.co_name:
            name = str(path.relative_to(ROOT))
            if files[-1:] != [name] and not (first_calls and frame.f_code in seen):
                files.append(name)
            seen.add(frame.f_code)

    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
    return files


def told(heading: str) -> list[str]:
    """The files that the page links in one of its walks, in its order."""
    section = PAGE.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    return [f"rabbit_chx/{file}" for file in re.findall(r"\(\.\./rabbit_chx/([\w/]+\.py)\)", section)]


@pytest.fixture
def publisher() -> Iterator[Publisher]:
    with Peer(ack) as peer, Publisher(peer.settings, "x") as publisher:
        publisher.publish_many(["warm"], [b"w"])
        yield publisher


def test_a_key_changes_file_three_times(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(opened, RING.bucket_count, raising=False)  # other tests may have filled the table
    files = files_of(lambda: RING.destination_for("a key that no other test asks for"))
    assert len(files) - 1 <= 3
    assert list(dict.fromkeys(files)) == told("The way of a key")[:4]


def test_a_routed_key_changes_file_ten_times_at_most() -> None:
    EXCHANGE.route("warm")
    assert len(files_of(lambda: EXCHANGE.route("user-42"))) - 1 <= 10


def test_a_published_row_changes_file_23_times_at_most(publisher: Publisher) -> None:
    """The shortest of twenty, since an ack may need several polls. The guard against other threads is one of the changes."""
    walks = [files_of(lambda: publisher.publish_many(["k"], [b"b"])) for _ in range(20)]
    files = min(walks, key=len)
    assert len(files) - 1 <= 23
    assert set(told("The way of a published row")) <= set(files)


def test_a_stream_that_is_read_changes_file_56_times_at_most() -> None:
    """By the first call of each function, with connecting; a replica is asked over a second connection."""

    def read() -> None:
        with StreamReader(node.settings, "s") as reader:
            assert sum(batch.num_rows for batch in reader) == 20

    with ScriptedLog(chunks_of(2)) as node:
        read()
        assert len(files_of(read, first_calls=True)) - 1 <= 56


def test_every_path_on_the_page_leads_somewhere() -> None:
    links = re.findall(r"\]\(\.\./([^)#]+)\)", PAGE)
    assert len(links) > 50
    assert [link for link in links if not (ROOT / link).exists()] == []
