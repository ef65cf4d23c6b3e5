"""The texts that the product prints, raises and logs: short, and what is to be typed is between backticks.

Every string constant counts that is no docstring. What an option means is a docstring, too: `option(...)` and the help of commands have no
limit of length.
"""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
FILES = sorted(
    path
    for room in ("rabbit_chx", "spark_connector", "pyspark_rabbitmq")
    for path in (ROOT / room).rglob("*.py")
)
MOST_WORDS = 40
COMMAND = re.compile(r"rabbit-chx [a-z]")
#: An option that is neither between backticks nor the beginning of the text.
OPTION = re.compile(r"(?<![\w`-])(?<!^)--[a-z][a-z-]+")
#: The command line, and what belongs to other command lines: options of pytest, and commands of the broker.
SPEAKS = ("rabbit_chx/cli/", "rabbit_chx/ui/", "rabbit_chx/testing/")
#: What is made, and the page that names what is gone.
NOT_OURS = {"CHANGELOG.md", "build", "dist", "PKG-INFO"}
HIDDEN = {".ci", ".github"}
#: Commands that are gone; as an expression that git grep does not find here.
GONE = "rabbit-chx (topology|ring|slots|shards|group|stream|simulate|keys) |topology (plan|apply|arrange|export)[`']|slots[ ]balance"
BROKERS_OWN = re.compile(r"rabbitmqctl [^;`]*")


def text_of(node: ast.AST) -> str:
    """The text of a string, with {} for each value in it; empty for anything else."""
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=parts):
            return "".join(text_of(part) or "{}" for part in parts)
    return ""


def texts(node: ast.AST, kind: str = "message") -> Iterator[tuple[int, str, str]]:
    """Yield the line of each string that is no docstring, its text, and its kind: a message, a help text or an example."""
    if text := text_of(node):
        yield getattr(node, "lineno", 0), text, kind
        return
    for child in ast.iter_child_nodes(node):
        match child:
            case ast.Expr(value=ast.Constant()):
                continue
            case ast.Call(func=ast.Name(id=name)) if name in {"option", "Program"}:
                yield from texts(child, "help")
            case ast.keyword(arg="help"):
                yield from texts(child, "help")
            case ast.keyword(arg="example" | "epilog"):
                yield from texts(child, "example")
            case _:
                yield from texts(child, kind)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_messages_are_short_and_what_is_to_be_typed_is_between_backticks(path: Path) -> None:
    """`command_text` writes commands. Outside of the command line an option is between backticks, and Python's argument behind it, or it is a value."""
    found = list(texts(ast.parse(path.read_text(encoding="utf-8"))))
    assert [
        (line, text) for line, text, kind in found if kind == "message" and len(text.split()) > MOST_WORDS
    ] == []
    shown = [(line, text) for line, text, kind in found if kind != "example"]
    assert [(line, text) for line, text in shown if COMMAND.search(text)] == []
    if not path.relative_to(ROOT).as_posix().startswith(SPEAKS):
        assert [(line, text) for line, text in shown if OPTION.search(BROKERS_OWN.sub("", text))] == []


def test_only_the_changelog_names_commands_of_groups_that_are_gone() -> None:
    # Not the index of git, which a source distribution does not have; nor what is not of the project, such as .venv.
    names = [
        path.name for path in ROOT.iterdir() if not path.name.startswith(".") and path.name not in NOT_OURS
    ]
    command = ["git", "grep", "--no-index", "-InE", GONE, "--", *names]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, check=False)
    assert (ran.returncode, ran.stdout.decode()) == (1, "")
