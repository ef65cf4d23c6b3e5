"""Topology files of the command line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

QUEUE = '[[queues]]\nname = "jobs"\n'
RING = '{"exchanges": [{"name": "x", "type": "x-consistent-hash"}], "bindings": [{"source": "x", "destination": "q", "destination_type": "queue", "routing_key": "1"}], "queues": [{"name": "q"}]}'


def test_stdin_is_read(ran: Callable[..., tuple[int, str, str]], stdin: Callable[[str], None]) -> None:
    stdin(QUEUE)
    code, out, errors = ran("topology", "export", "--from", "-")
    assert (code, errors) == (0, "")
    assert out.endswith(f"\n\n{QUEUE}")


def test_a_byte_order_mark_is_skipped(ran: Callable[..., tuple[int, str, str]], tmp_path: Path) -> None:
    for text in (QUEUE, RING):
        path = tmp_path / "file"
        path.write_text("\ufeff" + text)
        assert ran("topology", "export", "--from", str(path))[0] == 0


def test_bytes_that_are_not_text_are_named(ran: Callable[..., tuple[int, str, str]], tmp_path: Path) -> None:
    path = tmp_path / "topology.toml"
    path.write_bytes(b'[[queues]]\nname = "\xff"')
    code, _, errors = ran("topology", "export", "--from", str(path))
    assert code == 2
    assert f"line 2 of {path} is not UTF-8" in errors
