"""Each command in a text of the product exists, with its options; so does an option that a text names without a command."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from tables import commands

ROOT = Path(__file__).resolve().parents[3]
#: The options of each command, by the name of their Python argument.
OPTIONS = {
    name: {text.lstrip("-").replace("-", "_") for option in context.command.params for text in option.opts}
    for name, context in commands()
}
#: What makes a command of its first argument.
MAKERS = {"CommandLine", "to_type"}
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
    "allowed_host": {"ui"},
    "routing": {"route"},
    "set": {"apply", "arrange", "check", "compare", "export", "plan", "route", "ui"},  # all that read a file
    "wait_drained": {"apply"},  # the text says "of apply"
}


def option_of(argument: str) -> str:
    return "allow" if argument.startswith("allow_") else argument


def calls() -> Iterator[tuple[str, ast.Call]]:
    for path in sorted((ROOT / "rabbit_chx").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                yield f"{path.relative_to(ROOT)}:{node.lineno}", node


def texts(nodes: list[ast.expr]) -> list[str]:
    return [str(node.value) for node in nodes if isinstance(node, ast.Constant)]


def test_each_command_in_a_text_exists_with_its_options() -> None:
    found = 0
    for where, call in calls():
        name = getattr(call.func, "id", "")
        if name not in MAKERS or not texts(call.args[:1]):  # `to_type` makes a CommandLine of its arguments
            continue
        (command,) = texts(call.args[:1])
        inner = [
            argument
            for node in ast.walk(call)
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Argument"
            for argument in texts(node.args[:1])
        ]
        named = [keyword.arg for keyword in call.keywords if keyword.arg] if name == "to_type" else []
        found += 1
        assert command in OPTIONS, where
        assert {option_of(argument) for argument in (*inner, *named)} <= OPTIONS[command], where
    assert found > 20


def test_an_option_without_its_command_is_one_of_each_command_that_prints_it() -> None:
    named = {
        argument: where
        for where, call in calls()
        if getattr(call.func, "id", "") == "Argument"
        for argument in texts(call.args[:1])
    }
    inside = {"ignore", "observed", "trace", "write"}  # only within a command
    assert named.keys() - inside == ALONE.keys(), named
    for argument, printing in ALONE.items():
        assert all(option_of(argument) in OPTIONS[command] for command in printing), argument


def test_what_commands_share_of_a_broker_each_has() -> None:
    """A finding of several vhosts adds ``--vhost`` to each of its commands."""
    assert [name for name, options in OPTIONS.items() if "vhost" not in options] == ["completion"]
