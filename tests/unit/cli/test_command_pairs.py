"""All pairs of the options of commands: of two that are accepted alone, both are accepted, or one sentence refuses and names both."""

from __future__ import annotations

import ast
import json
import re
import shutil
from itertools import chain, combinations
from pathlib import Path

import pytest
from command_line import Ran
from modelled_commands import ModelledCommands
from slot_files import live_of
from tables import commands

from rabbit_chx import Topology, cli
from rabbit_chx.cli.command import Command
from rabbit_chx.topology import LiveTopology

FILES = Path(__file__).with_name("transcripts") / "files"
BROKER = ("--url", "amqp://model", "--management-url", "http://model:15672", "--ring-via", "")
#: A command line of each command that is done, and a value of each of its options.
LINES: dict[str, tuple[tuple[str, ...], dict[str, tuple[str, ...]]]] = {
    "plan": (
        ("turned-slots.toml", *BROKER),
        {"--allow": ("delete",), "--plan-out": ("out.json",), "--all": (), "--keys": ("user-{1..9}",)},
    ),
    "apply": (
        ("turned-slots.toml", *BROKER, "--yes"),
        {
            "--allow": ("delete",), "--yes": (), "--drain": ("1",),
            "--hand-over": ("parked",), "--no-record": (), "--all": (), "--verbose": (), "--checksum": ("CHECKSUM",),
            "--plan": ("planned.json",), "--wait-drained": ("9",),
        },
    ),
    "arrange": (
        ("slots-of-two.toml", *BROKER),
        {"--write": ()},
    ),
    "export": ((), {"--from": ("turned-slots.toml",)}),
    "show": (
        ("events", *BROKER),
        {
            "--all-vhosts": (), "--consumers": (), "--keys": ("user-{1..9}",), "--journal": ("j",), "--stream-group": ("g",),
            "--address": ("a:1=b:2",),
        },
    ),
    "record": (
        ("x", *BROKER),
        {
            "--all": (), "--from": ("shown.json",), "--observed": ("observed.csv",), "--waited": ("1",), "--yes": (),
            "--trace": ("1",),
        },
    ),
    "verify": (
        ("events", *BROKER),
        {
            "--keys": ("user-{1..9}",), "--trace": ("1",), "--yes": (), "--observed": ("observed.csv",), "--waited": ("1",),
        },
    ),
    "repair": (
        ("events", *BROKER, "--yes"),
        {"--allow": ("delete",), "--dry-run": (), "--yes": (), "--no-record": ()},
    ),
    "check": (
        ("turned-slots.toml", *BROKER),
        {
            "--offline": (), "--release": ("4.3",), "--all-vhosts": (), "--ignore": ("order",), "--yes": (), "--without": ("consumers",),
        },
    ),
    "route": (
        ("q1=1,q2=1", "k"),
        {
            "--reaching": ("q1",), "--release": ("4.3",), "--hash-header": ("h",), "--hash-property": ("message_id",),
            "--header": ("h=1",), "--property": ("message_id=1",), "--routing": ("hash",), "--keys": ("k{1..9}",), "--explain": (),
        },
    ),
    "compare": (
        ("q1=1,q2=1",),
        {
            "--add": ("q3=1",), "--remove": ("q1",), "--to": ("q1=1",), "--to-release": ("3.10",), "--release": ("4.3",),
            "--hash-header": ("h",), "--keys": ("k{1..9}",), "--allow": ("moved=0.1",),
        },
    ),
}  # fmt: skip
#: What the line of a command needs for an option: other words, or none, in the place of one; "+" adds some.
NEEDS: dict[tuple[str, str], dict[str, tuple[str, ...]]] = {
    ("route", "--keys"): {"k": ()},
    ("route", "--routing"): {"q1=1,q2=1": ("super-stream:q1,q2",)},
    ("compare", "--hash-header"): {"+": ("--keys", "k{1..9}")},
    ("compare", "--allow"): {"+": ("--add", "q9=1")},
    ("check", "--offline"): dict.fromkeys(BROKER, ()),
    ("check", "--release"): dict.fromkeys(BROKER, ()) | {"+": ("--offline",)},
    ("repair", "--dry-run"): {"--yes": ()},
    ("apply", "--checksum"): {"--yes": ()},
    ("apply", "--plan"): {"--yes": ()},
    ("show", "--all-vhosts"): {"events": ()},
    ("show", "--journal"): {"+": ("--consumers",)},
    ("show", "--stream-group"): {"+": ("--consumers",)},
    ("show", "--address"): {"+": ("--stream-group", "g", "--consumers")},
    ("record", "--all"): {"x": ()},
    ("record", "--waited"): {"+": ("--observed", "observed.csv")},
    ("verify", "--waited"): {"+": ("--observed", "observed.csv")},
    ("check", "--all-vhosts"): {"turned-slots.toml": ()},
}


def line_of(name: str, *given: str, other: str = "") -> list[str]:
    """Return the command line with some options, and what each of them needs; `other` is one that is left out, but for what it needs."""
    line, options = LINES[name]
    words = [word for word in line if word not in given]
    for option in (*given, other):
        needs = NEEDS.get((name, option), {})
        words = [new for word in words for new in needs.get(word, (word,))]
        added = needs.get("+", ())
        words += added if not {*added[:1]} & {*given, *words} else ()
    return [name, *words, *(word for option in given for word in (option, *options[option]))]


def pairs() -> list[tuple[str, str, str]]:
    return [(name, *pair) for name, (_, options) in LINES.items() for pair in combinations(options, 2)]


def _write_what_lines_read(ran: Ran, live: LiveTopology) -> None:
    """Write the files that the broker determines: its ring, the keys that it gets, and the plan of the file."""
    (exchange,) = (exchange.name for exchange in live.exchanges if exchange.type == "x-consistent-hash")
    _, shown, _ = ran("show", exchange, *BROKER, "-o", "json")
    Path("shown.json").write_text(shown)
    rows = [f"k{n},{live.key_map(exchange).destination_for(f'k{n}')}" for n in range(200)]
    Path("observed.csv").write_text("\n".join(["key,queue", *rows]))
    _, planned, _ = ran("plan", "turned-slots.toml", *BROKER, "-o", "json")
    Path("planned.json").write_text(planned)
    LINES["apply"][1]["--checksum"] = (json.loads(planned)["checksum"],)


@pytest.fixture
def in_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder with the files of `LINES`."""
    shutil.copytree(FILES, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)


@pytest.mark.usefixtures("in_files")
@pytest.mark.parametrize(("name", "first", "second"), pairs(), ids=lambda part: part)
def test_a_pair_is_accepted_or_both_are_named(
    name: str, first: str, second: str, ran: Ran, modelled: ModelledCommands
) -> None:

    file = {"arrange": "slots-of-two.toml", "record": "ring-of-two.toml"}.get(name, "turned-slots.toml")
    live = live_of(Topology.from_toml(Path(file).read_text()))
    modelled.holds(live)
    _write_what_lines_read(ran, live)

    def refused(*given: str, other: str = "") -> str:
        modelled.holds(live)
        code, _, said = ran(*line_of(name, *given, other=other))
        return said if code == 2 else ""

    assert (refused(first), refused(second)) == ("", "")
    said = refused(first, second)
    # What one of the two needs, as the RING of a super stream, may be what refuses the other.
    if said and not (refused(first, other=second) or refused(second, other=first)):
        assert first.strip("-") in said, said
        assert second.strip("-") in said, said


#: Lines on which an option has an effect, where that of `LINES` shows none: the line, and the value of the option.
EFFECTS: dict[tuple[str, str], tuple[tuple[str, ...], tuple[str, ...]]] = {
    ("route", "--hash-header"): (("q{1..50}=1", "7"), ("h:long",)),
    ("route", "--hash-property"): (("q{1..50}=1", "k"), ("timestamp",)),
    ("route", "--header"): (("q{1..50}=1", "k", "--hash-header", "h"), ("h=other",)),
    ("route", "--property"): (("q{1..50}=1", "k", "--hash-property", "message_id"), ("message_id=other",)),
    ("route", "--routing"): (("super-stream:q1,q2", "k"), ("rstream",)),
    ("compare", "--hash-header"): (("q{1..50}=1", "--keys", "{1..99}"), ("h:long",)),
}
#: Options whose effect needs queues with messages, many changes, a terminal, or a stream: the tests of their commands show it.
ELSEWHERE = {
    ("apply", "--drain"), ("apply", "--hand-over"), ("apply", "--allow"), ("apply", "--no-record"), ("apply", "--all"), ("apply", "--verbose"),
    ("repair", "--allow"), ("repair", "--no-record"), ("plan", "--allow"), ("plan", "--all"), ("check", "--waited"), ("check", "--yes"), ("record", "--waited"),
    ("record", "--from"), ("record", "--yes"), ("show", "--journal"), ("show", "--address"),
    ("plan", "--keys"), ("apply", "--wait-drained"), ("check", "--without"),
}  # fmt: skip


@pytest.mark.usefixtures("in_files")
@pytest.mark.parametrize(
    ("name", "option"),
    [
        (name, option)
        for name, (_, options) in LINES.items()
        for option in options
        if (name, option) not in ELSEWHERE and name != "verify"
    ],
    ids=lambda part: part,
)
def test_an_option_has_an_effect(name: str, option: str, ran: Ran, modelled: ModelledCommands) -> None:
    file = {"arrange": "slots-of-two.toml", "record": "ring-of-two.toml"}.get(name, "turned-slots.toml")
    live = live_of(Topology.from_toml(Path(file).read_text()))
    modelled.holds(live)
    _write_what_lines_read(ran, live)

    def result(line: list[str]) -> tuple[object, ...]:
        modelled.holds(live)
        done = ran(*line)
        return *done, {path.name: path.read_bytes() for path in Path().iterdir() if path.is_file()}

    if (name, option) in EFFECTS:
        line, value = EFFECTS[name, option]
        without = [name, *line]
        with_it = [*without, option, *value]
    else:
        with_it = line_of(name, option)
        without = [word for word in with_it if word not in (option, *LINES[name][1][option])]
    assert result(without) != result(with_it)


def test_each_option_of_a_command_has_a_value_here() -> None:
    shared = {"Broker", "Output", "Variable"}
    for name, context in commands():
        if name in LINES:
            own = {
                max(option.opts, key=len)
                for option in context.command.get_params(context)
                if getattr(option, "section", "Output") not in shared and option.param_type_name == "option"
            }
            assert own <= LINES[name][1].keys(), name
    assert LINES.keys() == {name for name, _ in commands()} - {
        "completion",
        "ui",
    }  # ui serves until it is ended: tests/broker/test_ui.py


def test_the_rules_of_a_command_name_its_options_and_arguments() -> None:
    for name, context in commands():
        if isinstance(command := context.command, Command):
            known = {text for option in command.params for text in option.opts if text.startswith("--")}
            known |= {
                argument.human_readable_name.strip("[].")
                for argument in command.params
                if argument.param_type_name == "argument"
            }
            rules = command.rules
            named = {*rules.needs, *rules.needs.values(), *chain(*rules.excludes), *rules.of_one}
            assert {text.partition(" ")[0] for text in named} <= known, name


def test_few_sentences_say_that_an_option_does_not_go_with_another() -> None:
    """The three of `Rules`, and those of what a RING or a file is, which no declaration of options knows."""
    sentences = set()
    for path in sorted(Path(cli.__path__[0]).glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "InputError" and node.args:
                text = ast.unparse(node.args[0])
                if re.search(r"--[a-z]|\{name\}", text) and re.search(
                    r"leave|exclude|no effect|applies to|instead of", text
                ):
                    sentences.add(text)
    assert len(sentences) <= 12, sentences
    assert len(sentences) >= 3
