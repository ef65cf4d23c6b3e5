"""Each command in a text of the product exists, with its options; so does an option that a text names without a command."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from tables import commands

ROOT = Path(__file__).resolve().parents[3]
#: The options of each command, by the name of their Python argument.
OPTIONS = {
    name: {text.lstrip("-").replace("-", "_") for option in context.command.params for text in option.opts}
    for name, context in commands()
}
#: The commands of a `command_text` whose command is an argument of the function around it.
BY_ARGUMENT = ("record", "verify")
#: An option between backticks, or alone in its text.
OPTION = re.compile(r"(?:`|^)--([a-z][a-z-]+)(?: ([a-z]+))?")
#: Arguments of commands that a text names without the command: all that print it have the option.
ALONE = {
    "management_url": OPTIONS.keys() - {"completion"},
    "ring_via": OPTIONS.keys() - {"completion"},
    "output": OPTIONS.keys() - {"completion", "ui"},
    "vhost": OPTIONS.keys() - {"completion"},
    "allow_delete": {"plan", "apply", "repair"},
    "allow_loss": {"plan", "apply", "repair"},
    "allow_moved": {"plan", "apply", "repair"},
    "allow_unlink": {"plan", "apply", "repair"},
    "allow_vhost": {"plan", "apply", "repair"},
    "all": {"plan", "apply"},
    "drain": {"apply"},  # the text says "of apply"
    "hand_over": {"apply"},
    "no_record": {"apply"},  # the text says "of an apply"
    "set": {"apply", "arrange", "check", "compare", "export", "plan", "route", "ui"},  # all that read a file
    "wait_drained": {"apply"},  # the text says "of apply"
}


def option_of(argument: str) -> str:
    return "allow" if argument.startswith("allow_") else argument


def trees() -> Iterator[tuple[str, ast.Module]]:
    for path in sorted((ROOT / "rabbit_chx").rglob("*.py")):
        yield path.relative_to(ROOT).as_posix(), ast.parse(path.read_text(encoding="utf-8"))


def texts(nodes: Iterable[ast.AST]) -> list[str]:
    return [str(node.value) for node in nodes if isinstance(node, ast.Constant)]


def commands_in(tree: ast.Module) -> Iterator[ast.Call]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "command_text":
            yield node


def test_each_command_in_a_text_exists_with_its_options() -> None:
    found = 0
    for file, tree in trees():
        for call in commands_in(tree):
            names = texts(call.args[:1]) or BY_ARGUMENT
            given = {text[2:].replace("-", "_") for text in texts(call.args[1:]) if text.startswith("--")}
            found += 1
            for name in names:
                assert name in OPTIONS, (file, call.lineno)
                assert given <= OPTIONS[name], (file, call.lineno)
    assert found > 20


def test_an_option_without_its_command_is_one_of_each_command_that_prints_it() -> None:
    named: dict[str, str] = {}
    for file, tree in trees():
        if file.startswith(("rabbit_chx/cli/", "rabbit_chx/ui/", "rabbit_chx/testing/")):
            continue  # they name options of the command itself
        expressions = [node.value for node in ast.walk(tree) if isinstance(node, ast.Expr)]
        docstrings = [node for node in expressions if isinstance(node, ast.Constant)]
        inside = {id(node) for outer in (*commands_in(tree), *docstrings) for node in ast.walk(outer)}
        for text in texts(node for node in ast.walk(tree) if id(node) not in inside):
            for option, value in OPTION.findall(text):
                name = option.replace("-", "_")
                named[f"allow_{value}" if name == "allow" else name] = file
    assert named.keys() == ALONE.keys(), named
    for argument, printing in ALONE.items():
        assert all(option_of(argument) in OPTIONS[command] for command in printing), argument


def test_what_commands_share_of_a_broker_each_has() -> None:
    """A finding of several vhosts adds ``--vhost`` to each of its commands."""
    assert [name for name, options in OPTIONS.items() if "vhost" not in options] == ["completion"]
