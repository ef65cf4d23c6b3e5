"""Topology files of the command line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

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


def test_all_mistakes_are_said_each_on_a_line(
    ran: Callable[..., tuple[int, str, str]], stdin: Callable[[str], None]
) -> None:
    stdin('[[queues]]\nname = 5\ntype = "quroum"\n')
    code, out, errors = ran("topology", "export", "--from", "-")
    assert (code, out) == (2, "")
    first, *others = errors.splitlines()
    assert first == "rabbit-chx: stdin has 2 mistakes:"
    assert [line.partition(":")[0] for line in others] == [
        "  line 2, queues[0].name = 5",
        '  line 3, queues[0].type = "quroum"',
    ]


def test_a_name_that_is_probably_misspelled_is_said(
    ran: Callable[..., tuple[int, str, str]], stdin: Callable[[str], None]
) -> None:
    stdin(QUEUE + "arguments = { x-max-lenght = 5 }\n")
    assert "stdin: queue jobs has the argument x-max-lenght, which RabbitMQ ignores: did you mean x-max-length?" in (
        ran("topology", "export", "--from", "-")[2]
    )  # fmt: skip


def test_the_order_of_a_definitions_file_is_assumed(
    ran: Callable[..., tuple[int, str, str]], stdin: Callable[[str], None]
) -> None:
    stdin(RING)
    code, out, errors = ran("topology", "export", "--from", "-")
    assert code == 0
    assert errors == (
        "rabbit-chx: stdin is a definitions file, which does not contain the order of a ring: that of x is assumed as the "
        "bindings are listed\n"
    )
    assert 'ring = [{ queue = "q", weight = 1 }]' in out


@pytest.mark.parametrize(
    ("content", "words"),
    [(b'[[queues]]\nname = "\xff"', "line 2 of {} is not UTF-8"), (None, "the topology file {} cannot be read: No such")],
)  # fmt: skip
def test_what_cannot_be_read_is_named(
    ran: Callable[..., tuple[int, str, str]], tmp_path: Path, content: bytes | None, words: str
) -> None:
    path = tmp_path / "topology.toml"
    if content is not None:
        path.write_bytes(content)
    code, _, errors = ran("topology", "export", "--from", str(path))
    assert code == 2
    assert words.format(path) in errors
