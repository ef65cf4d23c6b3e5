"""Printed commands: what the program prints is the command to run, with every broker option that was given."""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator
from contextvars import copy_context
from pathlib import Path
from typing import Any

import click
import pytest
from advice import advice_of, each_printed_text
from command_line import Ran
from few_seeds import few_seeds
from modelled_commands import ModelledCommands
from slot_files import live_of
from stored_scenarios import read_scenarios

import rabbit_chx
from rabbit_chx import Topology
from rabbit_chx.cli.app import app
from rabbit_chx.cli.command import (
    remember_options,
    with_own_options,
    without_passwords,
)
from rabbit_chx.cli.ring_argument import parse_ring
from rabbit_chx.text import COMMAND, command_text, exchange_argument
from rabbit_chx.topology import check

#: Commands about rings whose order nobody knows.
OF_UNKNOWN_ORDER = [
    ["show", "o"],
    ["check"],
    ["check", "FILE"],
    ["plan", "FILE"],
    ["apply", "FILE", "--yes"],
    ["apply", "FILE", "--yes", "--no-record"],
    ["arrange", "FILE"],
    ["export"],
    ["record", "o"],
    ["record", "--all"],
    ["repair", "o", "--yes"],
]
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


def calls(name: str) -> Iterator[tuple[str, ast.Call]]:
    """Yield each call of a function in the code, with its file."""
    for path in sorted(PACKAGE.rglob("*.py")):
        text = path.read_text()
        if f"{name}(" not in text:  # a whole package takes seconds to parse, in each process
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == name:
                yield path.name, node


#: What is a command in a function of which the command is an argument.
BY_ARGUMENT = ("record", "verify")


def commands() -> Iterator[tuple[str, list[str], list[ast.expr]]]:
    """Yield each command that the code puts into a text, as words and as it is written: ``a b`` is an argument, and 1 the value of an option."""
    for file, call in calls("command_text"):
        verb, *written = call.args
        words: list[str] = []
        for argument in written:
            if isinstance(argument, ast.Constant):
                words.append(str(argument.value))
            elif not isinstance(argument, ast.Starred):
                words.append("1" if words and words[-1].startswith("--") else "a b")
        names = (str(verb.value),) if isinstance(verb, ast.Constant) else BY_ARGUMENT
        for name in names:
            yield file, [name, *words], written


PRINTED = list(commands())


def parsed(words: list[str]) -> click.Context:
    """Parse a command line as far as its command, and return that context."""
    context = app.make_context("rabbit-chx", [], resilient_parsing=True)
    while isinstance(context.command, click.Group):
        command = context.command.get_command(context, words.pop(0))
        assert command is not None
        context = click.Context(command, parent=context, resilient_parsing=True)
    context.command.parse_args(context, words)
    return context


def options_of(context: click.Context) -> set[str]:
    return {name for parameter in context.command.params for name in parameter.opts}


@pytest.fixture
def given_options() -> Iterator[None]:
    """A command line with broker options."""
    remember_options(parsed(["show", *(word for option in OPTIONS for word in option)]))
    yield
    remember_options(None)


@pytest.mark.usefixtures("given_options")
@pytest.mark.parametrize(
    "words", [words for _, words, _ in PRINTED], ids=[f"{file}-{n}" for n, (file, _, _) in enumerate(PRINTED)]
)
def test_every_command_of_a_text_is_one_with_all_broker_options(words: list[str]) -> None:
    text = with_own_options(f"run: {command_text(*words)}; then")
    assert (text[:17], text[-7:]) == ("run: `rabbit-chx ", "`; then")
    context = parsed(shlex.split(text[17:-7]))
    for option, value in OPTIONS:
        assert context.params[option[2:].replace("-", "_")] == value, text
    assert {word for word in words if word.startswith("--")} <= options_of(context)


def test_the_search_for_commands_finds_them() -> None:
    files = {"text.py", "refusals.py", "plan.py", "upgrade.py", "arrange.py", "live_rings.py"}
    assert files <= {file for file, _, _ in PRINTED}
    assert len(PRINTED) > 20


#: Names of exchanges that look like other arguments.
LIKE_OTHERS = [
    "orders.json", "o.TOML", "a=b", "a=1", "ring:a=1", "x/y.toml#z", "/Events/Metrics", "./o", "super-stream:x", "modulus:q=a", "exchange:o", "-", "-#o", "--help",
]  # fmt: skip
#: What makes an exchange an argument, in the code.
EXCHANGES = re.compile(r"exchange_argument\(.*\)|\*map\(exchange_argument, .*\)|as_exchange|'EXCHANGE'")


def is_of_exchanges(words: list[str]) -> bool:
    """Return whether the arguments of a command are exchanges."""
    taken = [each for each in parsed(words[:1]).command.params if isinstance(each, click.Argument)]
    metavars = [str(each.make_metavar(parsed(words[:1]))) for each in taken]
    return "EXCHANGE" in "".join(metavars) and "--offline" not in words


def test_every_command_about_an_exchange_takes_any_name() -> None:
    of_exchanges = 0
    for file, words, written in PRINTED:
        if not is_of_exchanges(words):
            continue
        texts = [ast.unparse(each) for each in written]
        arguments = [
            text
            for before, text in zip(["", *texts], texts, strict=False)
            if not before.startswith("'--") and not text.startswith(("'--", "*options"))
        ]
        of_exchanges += len(arguments)
        assert [text for text in arguments if not EXCHANGES.fullmatch(text)] == [], (file, words)
    assert of_exchanges > 8


@pytest.mark.parametrize("name", [*LIKE_OTHERS, "a b", "o", "x/y", "a:b"])
def test_an_exchange_as_an_argument_is_read_as_that_exchange(name: str) -> None:
    for verb in {words[0] for _, words, _ in PRINTED if is_of_exchanges(words)}:
        context = parsed([verb, exchange_argument(name)])
        taken = next(each for each in context.command.params if isinstance(each, click.Argument))
        found = context.params[str(taken.name)]
        (exchange,) = found if isinstance(found, tuple) else [found]
        reads_itself = verb in ("check", "show")  # which of its arguments are exchanges
        assert exchange == (exchange_argument(name) if reads_itself else name), verb
    ring = parse_ring(exchange_argument(name))
    assert (ring.is_live, ring.exchange) == (True, name)
    assert (exchange_argument(name) == name) is (name not in LIKE_OTHERS)


#: The commands that print what a check finds.
CHECKING = ("check", "repair")


def foreign_options(fix: str) -> set[str]:
    """Return the options in a remedy that its commands lack, or without a command one that prints findings of a check."""
    found: set[str] = set()
    for advice in advice_of(fix).values():
        names = CHECKING if advice.is_option else advice.words[:1]
        for name in names:
            found |= advice.options - options_of(parsed([name]))
    return found


def test_each_option_in_a_remedy_of_a_check_is_one_of_its_command() -> None:
    scenarios = read_scenarios(Path(__file__).parents[1] / "checking" / "checks.toml")
    with few_seeds():
        found = [
            finding
            for live, wanted, options in scenarios.values()
            for finding in check(live, wanted, exchange=options.get("exchange")).findings
        ]
    assert found
    assert {option for finding in found for option in foreign_options(finding.fix)} == set()


def test_an_option_that_a_command_lacks_is_noticed() -> None:
    assert foreign_options("leave it out with `--ignore order` (`ignore='order'`)") == {"--ignore"}


@pytest.mark.usefixtures("given_options")
def test_an_option_that_a_command_names_is_not_repeated() -> None:
    checks = f"{command_text('check', 'o', '--vhost', 'prod')}; {command_text('check', 'p')}"
    first, second = (command[1] for command in COMMAND.finditer(with_own_options(checks)))
    assert (first.count("--vhost"), "--vhost prod" in first) == (1, True)
    assert parsed(shlex.split(second)[1:]).params["vhost"] == "it's"


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


def planned(modelled: ModelledCommands, ran: Ran, *options: str, file: str = FILE) -> tuple[str, str]:
    modelled.holds(Topology())
    code, out, errors = ran("plan", modelled.arguments("plan", file)[1], *options)
    assert code == 1, (out, errors)
    return out, errors


def test_a_printed_command_has_no_password_and_takes_it_from_the_environment(
    modelled: ModelledCommands, ran: Ran, monkeypatch: pytest.MonkeyPatch
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
    who = (settings.username, settings.password.reveal())
    assert (*who, settings.host, settings.port) == ("u", "s3cret", "model", 5673)
    assert (settings.vhost, management.password.reveal()) == ("dev", "s3cret")
    assert "docker exec r" in repr(source)


@pytest.mark.parametrize(
    "known", ["amqp://v:s3cret@model", "amqp://u:s3cret@other", "amqp://u:s3cret@model:5673", "x", ""]
)
def test_the_password_of_another_url_is_not_taken(
    modelled: ModelledCommands, ran: Ran, monkeypatch: pytest.MonkeyPatch, known: str
) -> None:
    monkeypatch.setenv("AMQP_URL", known)
    seen = brokers_opened(monkeypatch)
    planned(modelled, ran, "--url", "amqp://u@model", "--ring-via", "env")
    assert seen[0][0].password.reveal() == "guest"


def test_options_of_the_environment_are_not_repeated(
    modelled: ModelledCommands, ran: Ran, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AMQP_URL", "amqp://model")
    monkeypatch.setenv("RABBIT_CHX_RING_VIA", "env")
    out, errors = planned(modelled, ran, "--vhost", "dev", "--management-url", "http://model", "--wait", "0")
    assert re.search(r"apply \S+ --vhost dev --management-url http://model --wait 0\n", out)
    assert errors == ""


def test_a_command_that_reads_the_file_has_its_values_of_variables(
    modelled: ModelledCommands, ran: Ran
) -> None:
    file = FILE.replace('name = "o"\ntype', 'name = "${name}"\ntype')
    url = ["--url", "amqp://model", "--management-url", "http://model", "--ring-via", "env"]
    given = ["--set", "name=a b"]
    out, _ = planned(modelled, ran, *url, *given, file=file)
    (command,) = re.findall(r"Apply it with: rabbit-chx (.*)", out)
    assert shlex.split(command)[-2:] == ["--set", "name=a b"]
    assert ran(*shlex.split(command), "--yes")[0] == 0
    assert ran("check", modelled.arguments("check", file)[1], *url, *given)[0] == 0


def test_options_are_those_of_the_command_that_runs(ran: Ran) -> None:
    of_file, check = command_text("plan", "f"), command_text("check", "o")
    given = parsed(["plan", "t.toml", "--vhost", "v", "--set", "name=a b"])
    context = copy_context()
    context.run(remember_options, given)
    words = "`rabbit-chx plan f --vhost v --set 'name=a b'`"
    assert context.run(with_own_options, of_file) == words
    assert context.run(with_own_options, check) == "`rabbit-chx check o --vhost v`"
    assert ran("check", "o", "--url", "amqp://127.0.0.1:1")[0] == 69
    assert with_own_options(check) == check


@pytest.mark.parametrize("command", OF_UNKNOWN_ORDER, ids=" ".join)
@pytest.mark.parametrize("has_slots", [False, True])
def test_no_message_advises_what_this_user_cannot_run_or_what_has_just_been_refused(
    ran: Ran, tmp_path: Path, modelled: ModelledCommands, command: list[str], *, has_slots: bool
) -> None:
    """The user has a management URL, and neither rabbitmqctl nor a record. Consumers do not see the buckets of a slot."""
    live = FILE
    if has_slots:
        live = live.replace(
            'ring = [{ queue = "q1" }, { queue = "q2" }]', 'slots = 4\nmembers = [{ queue = "q{1..2}" }]'
        )
    modelled.holds(live_of(Topology.from_toml(live)))
    modelled.has_source = False
    file = tmp_path / "o.toml"
    file.write_text(live.replace('{ queue = "q1" }, { queue = "q2" }', '{ queue = "q2" }, { queue = "q1" }'))
    typed = [str(file) if word == "FILE" else word for word in command]
    options = ["--url", "amqp://model", "--management-url", "http://model:15672"]
    texts: list[str] = []
    with each_printed_text(texts.append):
        code, out, errors = ran(*typed, *options)
    assert code in (0, 1, 2, 3, 4), errors
    said = " ".join(f"{out} {errors}".split())
    for advised in advice_of("\n".join(texts)).values():
        words = advised.words
        if words[0] not in ("record", "repair", "apply", "arrange", "plan"):
            continue
        assert list(words[: len(typed)]) != typed or {"--allow", "--observed", "--trace"} & {*words}, (
            said,
            "what was typed",
        )
        if words[0] == "record":
            assert {"--observed", "--ring-via", "--from", "--trace"} & {*words}, said
            assert not (has_slots and "--observed" in words), said
    if code in (2, 3) and command[0] in ("record", "check"):
        assert "--ring-via" in said
        assert ("record o --observed FILE" in said) is (not has_slots), said
