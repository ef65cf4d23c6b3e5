"""The line of a field is found where the file is written as usual, and never made up."""

from __future__ import annotations

import tomllib

import pytest

from rabbit_chx.topology.toml_file import line_of

TEXT = """cluster = "c"
# a comment
[[exchanges]]
name = "a"

[[exchanges]] # second
name = "b"
ring = [
    { queue = "q1" },
    { queue = "q2", weight = 0 },
]
owner = "x"

[exchanges.arguments]
hash-header = 5

[[ queues ]]
"name" = "q"
ring = [{ queue = "a" }, { queue = "b" }]
arguments.x = 5
"""


@pytest.mark.parametrize(
    ("path", "line"),
    [
        ("cluster", 1),
        ("max_share_moved", None),
        ("exchanges", 3),
        ("exchanges[0]", 3),
        ("exchanges[0].name", 4),
        ("exchanges[1].name", 7),
        ("exchanges[1].ring", 8),
        ("exchanges[1].ring[0].queue", 9),
        ("exchanges[1].ring[1].weight", 10),
        ("exchanges[1].owner", 12),
        ("exchanges[1].arguments.hash-header", 14),
        ("exchanges[1].durable", 6),
        ("queues[0].name", 18),
        ("queues[0].ring[1].queue", 19),
        ("queues[0].arguments.x", 20),
        ("policies[0].name", None),
        ("the text", None),
    ],
)
def test_a_field_has_its_line(path: str, line: int | None) -> None:
    assert line_of(path, TEXT.splitlines(), tomllib.loads(TEXT)) == line


def test_entries_without_headings_have_no_line() -> None:
    text = 'queues = [{ name = "a" }, { name = "b" }]'
    assert line_of("queues[1].name", text.splitlines(), tomllib.loads(text)) is None
    text = 'cluster = """\n[[queues]]\n"""\n[[queues]]\nname = "a"'
    assert line_of("queues[0].name", text.splitlines(), tomllib.loads(text)) is None
