"""Printed commands: what the program prints is the command to run, with every broker option that was given."""

from __future__ import annotations

import ast
import json
import re
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from modelled_commands import ModelledCommands

import rabbit_chx
from rabbit_chx import Topology
from rabbit_chx.cli.app import COMMANDS, app
from rabbit_chx.cli.printed import complete_commands, without_passwords

PACKAGE = Path(rabbit_chx.__file__).parent
OPTIONS = [
    ("--url", "amqp://host/a b"),
    ("--vhost", "it's"),
    ("--management-url", "http://m"),
    ("--ring-via", "docker exec r;,`"),
]
FILE = """
[[exchanges]]
name = "o"
type = "x-consistent-hash"
ring = [{ queue = "q1" }, { queue = "q2" }]
[[queues]]
name = "q{1..2}"
"""


def messages() -> Iterator[tuple[str, str]]:
    """Yield each text of the code with a command in it, with its file. A value in the text is a file with a blank in its name."""
    for path in sorted(
        set(PACKAGE.rglob("*.py")) - {PACKAGE / "cli/printed.py", PACKAGE / "rendering/output.py"}
    ):
        tree = ast.parse(path.read_text())
        skipped = {
            id(inner)
            for node in ast.walk(tree)
            if (isinstance(node, ast.keyword) and node.arg in ("example", "epilog"))
            or isinstance(node, ast.Expr)
            for inner in ast.walk(node)
            if isinstance(node, ast.keyword) or (isinstance(inner, ast.Constant) and inner is node.value)
        }
        parts = {
            id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values
        }
        for node in ast.walk(tree):
            if id(node) in skipped or id(node) in parts:
                continue
            text = ""
            if isinstance(node, ast.JoinedStr):
                text = "".join(
                    str(part.value) if isinstance(part, ast.Constant) else "'a b'" for part in node.values
                )
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                text = node.value
            if "rabbit-chx " in text:
                yield path.name, text


MESSAGES = list(messages())


def parsed(words: list[str]) -> click.Context:
    """Parse a command line as far as its command, and return that context."""
    context = app.make_context("rabbit-chx", [], resilient_parsing=True)
    while isinstance(context.command, click.Group):
        command = context.command.get_command(context, words.pop(0))
        assert command is not None
        context = click.Context(command, parent=context, resilient_parsing=True)
    context.command.parse_args(context, words)
    return context


def test_there_are_messages_with_commands() -> None:
    assert {"check_rings.py", "plan.py", "verify.py", "upgrade.py", "slots.py", "arrange.py"} <= {
        name for name, _ in MESSAGES
    }


@pytest.mark.parametrize(
    ("name", "text"), MESSAGES, ids=[f"{name}-{n}" for n, (name, _) in enumerate(MESSAGES)]
)
def test_every_command_of_a_message_is_one_with_all_broker_options(name: str, text: str) -> None:
    completed = complete_commands(text, OPTIONS)
    rest, count = completed, 0
    while "rabbit-chx " in rest:
        rest = rest[rest.index("rabbit-chx ") + len("rabbit-chx ") :]
        # A command ends where the text goes on: the longest beginning that a shell understands, and that has all options.
        ends = [at for at in range(len(rest), 0, -1) if rest[:at].endswith(shlex.quote(OPTIONS[-1][1]))]
        context = parsed(shlex.split(rest[: ends[-1]]))
        for option, value in OPTIONS:
            assert context.params[option[2:].replace("-", "_")] == value, (name, completed)
        rest, count = rest[ends[-1] :], count + 1
        assert re.match(r"$|[;`)]|, ", rest), (name, rest)
    assert count == text.count("rabbit-chx ") > 0
    assert complete_commands(completed, OPTIONS) == completed


@pytest.mark.parametrize(
    "command", [name for commands in COMMANDS.values() for name in commands if name != "completion"]
)
def test_each_command_is_recognised(command: str) -> None:
    text = f"run: rabbit-chx {command} 'a; b' c,d --output json; then"
    assert (
        complete_commands(text, [("--vhost", "dev")])
        == f"run: rabbit-chx {command} 'a; b' c,d --output json --vhost dev; then"
    )


@pytest.mark.parametrize(
    "text", ["a bug in rabbit-chx, please", "rabbit-chx completion bash", "rabbit-chx/plan", "rabbit-chx 0.1"]
)
def test_other_text_is_unchanged(text: str) -> None:
    assert complete_commands(text, OPTIONS) == text


def test_an_option_that_a_command_names_is_not_repeated() -> None:
    text = "rabbit-chx ring check o --vhost dev; rabbit-chx ring check p"
    assert complete_commands(text, [("--vhost", "prod")]) == f"{text} --vhost prod"


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("amqp://u:secret@h:1/v", "amqp://u@h:1/v"),
        ("amqp://u:@h", "amqp://u@h"),
        ("amqp://:secret@h", "amqp://@h"),
        ("amqp://h/v", "amqp://h/v"),
        (
            "amqps://u:a%40b@h/v?keyfile=k&password=secret&verify=verify_peer",
            "amqps://u@h/v?keyfile=k&verify=verify_peer",
        ),
        ("https://h?keyfile=k&password=secret", "https://h?keyfile=k"),
        ("http://u:secret@[::1]:15672/p", "http://u@[::1]:15672/p"),
        ("amqp://u:sec/ret@h", "URL"),
        ("amqp://u:sec@ret@h", "URL"),
    ],
)
def test_a_url_is_shown_without_passwords(url: str, shown: str) -> None:
    assert without_passwords(url) == shown


def brokers_opened(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """Return a list that gets the arguments of each `Broker`."""
    seen: list[tuple[Any, ...]] = []
    broker = rabbit_chx.broker.Broker

    def noted(*given: Any) -> Any:
        seen.append(given)
        return broker(*given)

    monkeypatch.setattr("rabbit_chx.broker.Broker", noted)
    return seen


def planned(
    modelled: ModelledCommands, ran: Callable[..., tuple[int, str, str]], *options: str
) -> tuple[str, str]:
    modelled.holds(Topology())
    code, out, errors = ran("topology", "plan", modelled.arguments("plan", FILE)[2], *options)
    assert code == 1, (out, errors)
    return out, errors


def test_a_printed_command_has_no_password_and_takes_it_from_the_environment(
    modelled: ModelledCommands, ran: Callable[..., tuple[int, str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    urls = (
        "--url",
        "amqp://u:s3cret@model:5673/dev?heartbeat=9",
        "--management-url",
        "http://u:s3cret@model:15672",
    )
    out, errors = planned(modelled, ran, *urls, "--ring-via", "docker exec r")
    (command,) = re.findall(r"Apply it with: rabbit-chx (.*)", out)
    assert "s3cret" not in out + errors
    assert "into $AMQP_URL for --url and $RABBIT_CHX_MANAGEMENT_URL for --management-url" in errors
    monkeypatch.setenv("AMQP_URL", "amqp://u:s3cret@model:5673/other?heartbeat=9")
    monkeypatch.setenv("RABBIT_CHX_MANAGEMENT_URL", "http://u:s3cret@model:15672/")
    seen = brokers_opened(monkeypatch)
    assert ran(*shlex.split(command), "--yes")[0] == 0
    ((settings, management, source),) = seen
    assert (settings.username, settings.password.reveal(), settings.host, settings.port) == (
        "u",
        "s3cret",
        "model",
        5673,
    )
    assert (settings.vhost, management.password.reveal()) == ("dev", "s3cret")
    assert "docker exec r" in repr(source)


@pytest.mark.parametrize(
    "known", ["amqp://v:s3cret@model", "amqp://u:s3cret@other", "amqp://u:s3cret@model:5673", "x", ""]
)
def test_the_password_of_another_url_is_not_taken(
    modelled: ModelledCommands,
    ran: Callable[..., tuple[int, str, str]],
    monkeypatch: pytest.MonkeyPatch,
    known: str,
) -> None:
    monkeypatch.setenv("AMQP_URL", known)
    seen = brokers_opened(monkeypatch)
    planned(modelled, ran, "--url", "amqp://u@model", "--ring-via", "env")
    assert seen[0][0].password.reveal() == "guest"


def test_options_of_the_environment_are_not_repeated(
    modelled: ModelledCommands, ran: Callable[..., tuple[int, str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AMQP_URL", "amqp://model")
    monkeypatch.setenv("RABBIT_CHX_RING_VIA", "env")
    out, errors = planned(modelled, ran, "--vhost", "dev", "--management-url", "http://model", "--wait", "0")
    assert re.search(r"topology apply \S+ --vhost dev --management-url http://model --wait 0\n", out)
    assert errors == ""


def test_a_plan_that_is_written_to_a_file_has_complete_commands(
    modelled: ModelledCommands, ran: Callable[..., tuple[int, str, str]], tmp_path: Path
) -> None:
    path = tmp_path / "plan.json"
    planned(
        modelled,
        ran,
        "--url",
        "amqp://model",
        "--management-url",
        "http://model",
        "--ring-via",
        "env",
        "--plan-out",
        str(path),
    )
    assert json.loads(path.read_text())["format"] == "rabbit-chx/plan"


def test_a_command_that_reads_the_file_has_its_values_of_variables(
    modelled: ModelledCommands, ran: Callable[..., tuple[int, str, str]], tmp_path: Path
) -> None:
    values = tmp_path / "my values.toml"
    values.write_text("weight = 2\n")
    file = FILE.replace('"q1" }', '"q1", weight = "${weight}" }') + '\n[variables]\nweight = 1\nname = "o"\n'
    modelled.holds(Topology())
    url = ["--url", "amqp://model", "--management-url", "http://model", "--ring-via", "env"]
    path = modelled.arguments("plan", file.replace('name = "o"\ntype', 'name = "${name}"\ntype'))[2]
    given = ["--values", str(values), "--set", "name=a b"]
    code, out, errors = ran("topology", "plan", path, *url, *given)
    assert code == 1, (out, errors)
    (command,) = re.findall(r"Apply it with: rabbit-chx (.*)", out)
    assert shlex.split(command)[-4:] == ["--set", "name=a b", "--values", str(values)]
    assert ran(*shlex.split(command), "--yes")[0] == 0
    assert ran("topology", "check", path, *url, *given)[0] == 0
    assert complete_commands("rabbit-chx ring repair o --file f").endswith(
        f"--set 'name=a b' --values '{values}'"
    )
    assert "--set" not in complete_commands("rabbit-chx ring check o")
