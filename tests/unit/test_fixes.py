"""Texts with commands and arguments: the library speaks Python, and the command line replaces the words."""

from __future__ import annotations

import ast
import copy
import pickle
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import rabbit_chx
import spark_connector
from rabbit_chx.cli.printed import in_words
from rabbit_chx.errors import InputError, PlanRefusedError
from rabbit_chx.fixes import Argument, CommandLine, Fix, joined

_REPAIR = CommandLine(
    "ring repair", "plan(repair_target(live, 'my x'), live)", ("my x",), (Argument("file", "a b"),)
)
_FIX = Fix("run: ", _REPAIR, "; or allow it with ", Argument("allow_moved", 0.25))
_COMMAND = re.compile(r"rabbit-chx [a-z]")
_FLAG = re.compile(r"(?<![\w-])--[a-z][a-z-]+")
#: The command line, and what belongs to other command lines: options of pytest, and commands of the broker.
_SPEAKS = ("rabbit_chx/cli/", "rabbit_chx/testing/")
_BROKERS_OWN = re.compile(r"rabbitmqctl [^;`]*")


def texts(path: Path) -> Iterator[str]:
    """Yield the texts of a file, except docstrings and the examples of help. A value in a text is a brace pair."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    skipped = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    skipped |= {
        id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values
    }
    skipped |= {
        id(part)
        for node in ast.walk(tree)
        if isinstance(node, ast.keyword) and node.arg in ("example", "epilog")
        for part in ast.walk(node)
    }
    for node in ast.walk(tree):
        if id(node) in skipped:
            continue
        if isinstance(node, ast.JoinedStr):
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def test_no_text_contains_a_command_and_none_outside_the_command_line_an_option() -> None:
    packages = [
        Path(package.__file__).parent for package in (rabbit_chx, spark_connector) if package.__file__
    ]
    assert len(packages) == 2
    found = [
        f"{name}: {text}"
        for package in packages
        for path in sorted(package.rglob("*.py"))
        for name in [path.relative_to(package.parent).as_posix()]
        for text in texts(path)
        if _COMMAND.search(text)
        or (not name.startswith(_SPEAKS) and _FLAG.search(_BROKERS_OWN.sub("", text)))
    ]
    assert found == []


def test_a_fix_is_a_text_in_the_words_of_python() -> None:
    assert _FIX == "run: plan(repair_target(live, 'my x'), live); or allow it with allow_moved=0.25"
    assert str(InputError(_FIX)) == _FIX
    assert str(Argument("hand_over", "parked")) == "hand_over='parked'"
    assert str(Argument("allow_loss")) == "allow_loss=True"


def test_the_command_line_has_its_own_words() -> None:
    says = "run: rabbit-chx ring repair 'my x' --file 'a b'; or allow it with --allow-moved 0.25"
    assert in_words(_FIX) == says
    assert in_words(Fix("first: ", _FIX, ".")) == f"first: {says}."
    assert in_words(joined("; ", ["no", _FIX])) == f"no; {says}"
    assert in_words("plain") == "plain"
    output = Fix(CommandLine("topology export", "to_toml()", output="the x.toml"))
    assert in_words(output) == "rabbit-chx topology export > 'the x.toml'"
    assert in_words(_FIX.with_option(Argument("vhost", "my v"))) == says.replace(
        "a b'", "a b' --vhost 'my v'"
    )
    assert joined("; ", []) == ""


@pytest.mark.parametrize("error", [InputError(_FIX), PlanRefusedError(Fix("refused: ", _FIX), [])])
def test_an_error_keeps_the_words_of_its_message(error: Exception) -> None:
    for other in (error, copy.deepcopy(error), pickle.loads(pickle.dumps(error))):  # noqa: S301  # our own
        assert "rabbit-chx ring repair" in in_words(str(other))
        assert str(other) == str(error)
