"""Every example of docs/reference/commands that needs no broker is run as it is written, and prints what the page says.

Those of a block ``console live`` need a broker: test_cli_live.py runs them.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from blocks import COMMAND_PAGES, console_examples, page, run_command
from output_schemas import FORMATS
from tables import commands, page_of

from rabbit_chx.cli import app as app_module
from rabbit_chx.cli.app import CODES

TEXT = "".join(map(page, COMMAND_PAGES))
EXAMPLES = console_examples(TEXT)
COMMANDS = [name for name, _ in commands()]


@pytest.mark.parametrize(("command", "printed"), EXAMPLES, ids=[command[:70] for command, _ in EXAMPLES])
def test_the_example_prints_the_output_of_the_page(command: str, printed: str, tmp_path: Path) -> None:
    done = run_command(command, 60, tmp_path)
    assert done.stdout.decode() == printed
    assert done.stderr == b""


def test_each_command_has_a_page_that_the_index_names() -> None:
    index = page("docs/reference/commands/README.md")
    assert [name for name in COMMANDS if f"]({page_of(name)})" not in index] == []


@pytest.mark.parametrize("name", COMMANDS)
def test_each_command_has_an_example_on_its_page(name: str) -> None:
    file = page_of(name).partition("#")[0]
    text = page(f"docs/reference/commands/{file}").partition(f"\n## {name}\n")[2].partition("\n## ")[0]
    examples = console_examples(text) + console_examples(text, "console live")
    assert any(f"rabbit-chx {name}" in command for command, _ in examples)


def test_each_format_of_json_has_a_schema() -> None:
    package = Path(app_module.__file__).parents[1]
    sources = "".join(file.read_text() for file in package.rglob("*.py"))
    declared = r'(?:Document|Batch)\(\s*"([a-z-]+)"'
    assert set(re.findall(declared, sources)) == set(FORMATS)


def test_every_exit_code_is_on_the_page() -> None:
    table = TEXT[TEXT.index("## Exit codes") : TEXT.index("## The ring")]
    codes = re.findall(r"^\| (\d+) \|", table, re.MULTILINE)
    assert codes == re.findall(r"^(\d+) ", str(app_module.__doc__), re.MULTILINE)
    assert {str(code) for _, code in CODES} < set(codes)
