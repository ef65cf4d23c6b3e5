"""All pairs of the options of commands: of two that are accepted alone, both are accepted, or one sentence refuses and names both."""

from __future__ import annotations

import shutil
from itertools import combinations
from pathlib import Path

import pytest
from command_line import Ran
from modelled_commands import ModelledCommands
from slot_files import live_of
from tables import commands

from rabbit_chx import Topology

FILES = Path(__file__).with_name("transcripts") / "files"
BROKER = ("--url", "amqp://model", "--management-url", "http://model:15672", "--ring-via", "")
#: A command line of each command that is done, and a value of each of its options.
LINES: dict[str, tuple[tuple[str, ...], dict[str, tuple[str, ...]]]] = {
    "plan": (
        ("turned-slots.toml", *BROKER),
        {"--allow": ("delete",), "--plan-out": ("out.json",), "--all": ()},
    ),
    "apply": (
        ("turned-slots.toml", *BROKER, "--yes"),
        {
            "--allow": ("delete",), "--yes": (), "--drain": ("1",),
            "--hand-over": ("parked",), "--no-record": (), "--all": (), "--verbose": (),
        },
    ),
    "arrange": (
        ("slots-of-two.toml", *BROKER),
        {"--write": (), "--keys": ("user-{1..9}",), "--target": ("1.5",), "--weight": ("q1=2",)},
    ),
    "export": ((*BROKER,), {"--from": ("turned-slots.toml",)}),
    "repair": (
        ("events", *BROKER, "--yes"),
        {"--allow": ("delete",), "--dry-run": (), "--yes": (), "--no-record": ()},
    ),
    "check": (
        ("turned-slots.toml", *BROKER),
        {
            "--offline": (), "--release": ("4.3",), "--all-vhosts": (), "--ignore": ("order",), "--trace": ("1",), "--yes": (),
        },
    ),
    "route": (
        ("q1=1,q2=1", "k"),
        {
            "--reaching": ("q1",), "--release": ("4.3",), "--assume": (), "--hash-header": ("h",), "--hash-property": ("message_id",),
            "--header": ("h=1",), "--property": ("message_id=1",), "--routing": ("hash",), "--keys": ("k{1..9}",), "--explain": (),
        },
    ),
    "compare": (
        ("q1=1,q2=1",),
        {
            "--add": ("q3=1",), "--remove": ("q1",), "--to": ("q1=1",), "--to-release": ("3.8",), "--release": ("4.3",), "--assume": (),
            "--hash-header": ("h",), "--keys": ("k{1..9}",),
        },
    ),
}  # fmt: skip
#: What the line of a command needs for an option: other words, or none, in the place of one; "+" adds some.
NEEDS: dict[tuple[str, str], dict[str, tuple[str, ...]]] = {
    ("route", "--keys"): {"k": ()},
    ("route", "--routing"): {"q1=1,q2=1": ("super-stream:q1,q2",)},
    ("compare", "--hash-header"): {"+": ("--keys", "k{1..9}")},
    ("arrange", "--target"): {"+": ("--keys", "user-{1..9}")},
    ("arrange", "--weight"): {"+": ("--keys", "user-{1..9}")},
    ("check", "--offline"): dict.fromkeys(BROKER, ()),
    ("check", "--release"): dict.fromkeys(BROKER, ()) | {"+": ("--offline",)},
    ("repair", "--dry-run"): {"--yes": ()},
    ("check", "--all-vhosts"): {"turned-slots.toml": ()},
    ("check", "--trace"): {"turned-slots.toml": ("events",)},
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

    def refused(*given: str, other: str = "") -> str:
        file = "slots-of-two.toml" if name == "arrange" else "turned-slots.toml"
        modelled.holds(live_of(Topology.from_toml(Path(file).read_text())))
        code, _, said = ran(*line_of(name, *given, other=other))
        return said if code == 2 else ""

    assert (refused(first), refused(second)) == ("", "")
    said = refused(first, second)
    # What one of the two needs, as the RING of a super stream, may be what refuses the other.
    if said and not (refused(first, other=second) or refused(second, other=first)):
        assert first.strip("-") in said, said
        assert second.strip("-") in said, said


def test_each_option_of_a_command_has_a_value_here() -> None:
    shared = {"Broker", "Output", "Variable", "Streams"}
    for name, context in commands():
        if name in LINES:
            own = {
                max(option.opts, key=len)
                for option in context.command.get_params(context)
                if getattr(option, "section", "Output") not in shared and option.param_type_name == "option"
            }
            assert own - {"--plan", "--checksum", "--observed", "--waited"} <= LINES[name][1].keys(), name
