"""The commands about a topology file on the shop, and the file of what is there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from shop import Shop

from rabbit_chx.cli import main

#: What `shop` has already, as a file.
SHOP = """
[[exchanges]]
name = "orders"
type = "x-consistent-hash"
ring = [
    { queue = "q3", weight = 2 },    # the third
    { queue = "q1", weight = 10 },
    { queue = "q2" },
    { exchange = "slot", weight = 3 },
]
[[exchanges]]
name = "slot"
type = "fanout"
internal = true
[[queues]]
name = "q{1..4}"
[[bindings]]
source = "slot"
queue = "q4"
routing_key = "q4"
"""
WITHOUT_Q3 = SHOP.replace('    { queue = "q3", weight = 2 },    # the third\n', "")


class Topologies:
    """Runs a command on the shop, with a file."""

    def __init__(self, shop: Shop, path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.shop = shop
        self.path = path
        self._capsys = capsys

    @property
    def options(self) -> list[str]:
        """The options that name the broker."""
        return [*self.shop.live, *self.shop.via]

    def run(self, command: str, *arguments: str, code: int = 0) -> tuple[str, str]:
        """Run a command, expect an exit code, give stdout and stderr."""
        group = ["topology"] if command == "check" else []
        found = main([*group, command, *self.options, *arguments])
        said = self._capsys.readouterr()
        assert found == code, said
        return said.out, said.err

    def document(self, command: str, *arguments: str, code: int = 0) -> Any:
        """Run a command with ``--output json``, pass the document."""
        return json.loads(self.run(command, *arguments, "--output", "json", code=code)[0])

    def file(self, text: str) -> str:
        """Write the file, and pass its path."""
        self.path.write_text(text, newline="")
        return str(self.path)
