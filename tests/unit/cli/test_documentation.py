"""Every example in docs/cli.md and the README is run as it is written, and has to print what stands there.

Those of a block ``console live`` need a broker: tests/broker/test_live_documentation.py runs them.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from rabbit_chx.cli import app as app_module
from rabbit_chx.cli.app import CODES, app

ROOT = Path(__file__).resolve().parents[3]
TEXT = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```console\n(.*?)^```$", TEXT + README, re.DOTALL | re.MULTILINE)
#: ``$ command`` and what it prints; a command goes on behind a backslash.
EXAMPLES = [
    example
    for block in BLOCKS
    for example in re.findall(r"^\$ ((?:.*\\\n)*.*)\n((?:(?!\$ ).*\n)*)", block, re.MULTILINE)
]


@pytest.mark.parametrize(("command", "printed"), EXAMPLES, ids=[command[:70] for command, _ in EXAMPLES])
def test_the_example_prints_what_the_page_says(command: str, printed: str, tmp_path: Path) -> None:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-c", command],
        cwd=tmp_path,
        env={**os.environ, "PATH": path, "PYTHONIOENCODING": "utf-8"},
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert done.stdout.decode() == printed
    assert done.stderr == b""


def test_each_command_has_an_example_for_people_and_one_for_programs() -> None:
    commands = [command for command, _ in EXAMPLES]
    for block in re.findall(r"^```console live\n(.*?)^```$", TEXT, re.DOTALL | re.MULTILINE):
        commands += re.findall(r"^\$ (.*)$", block, re.MULTILINE)
    for name in app.commands:
        of_this = [command for command in commands if f"rabbit-chx {name}" in command]
        assert any("--output json" in command for command in of_this)
        assert any("--output json" not in command for command in of_this)


def test_every_exit_code_is_on_the_page() -> None:
    table = TEXT[TEXT.index("**Exit codes.**") : TEXT.index("**The ring.**")]
    codes = re.findall(r"^\| (\d+) \|", table, re.MULTILINE)
    assert codes == re.findall(r"^(\d+) ", str(app_module.__doc__), re.MULTILINE)
    assert {str(code) for _, code in CODES} < set(codes)


def test_every_option_is_on_the_page() -> None:
    subcommands = [one for group in app.commands.values() for one in getattr(group, "commands", {}).values()]
    for command in [*app.commands.values(), *subcommands]:
        for parameter in command.params:
            for option in parameter.opts:
                assert not option.startswith("--") or f"`{option}" in TEXT or f" {option} " in TEXT, option
