"""Commands in texts: quoted for a shell, found again, and completed with options."""

from __future__ import annotations

import copy
import pickle
import shlex

import pytest

from rabbit_chx.errors import InputError, PlanRefusedError
from rabbit_chx.text import (
    COMMAND,
    apply_text,
    command_text,
    exchange_argument,
    first_command,
    in_vhost,
    with_options,
)

OPTIONS = [("--url", "amqp://host/a b"), ("--vhost", "it's")]
ADDED = "--url 'amqp://host/a b' --vhost 'it'\"'\"'s'"
FIX = f"run: {command_text('compare', 'my x', '--to', 'a b')}; or allow it with `--allow moved=0.25` (`allow_moved=0.25`)"


def completed(text: str) -> str:
    return with_options(text, lambda _: OPTIONS)


def test_a_command_stands_between_backticks_as_a_shell_reads_it() -> None:
    assert command_text("compare", "my x", "--to", "a b") == "`rabbit-chx compare 'my x' --to 'a b'`"
    assert command_text("export", "x", output="the x.toml") == "`rabbit-chx export x > 'the x.toml'`"
    assert apply_text("the x.toml") == "`rabbit-chx apply 'the x.toml'` (`Broker.apply(plan(wanted, live))`)"


@pytest.mark.parametrize("name", ["o", "a b", "it's", "a`b", 'a"b`c', "'`'", "a;b > c", "{1..3}", "$x"])
def test_a_command_is_found_with_any_name_in_it(name: str) -> None:
    text = f"say `this`: {command_text('show', name)} (`show(name)`), and {command_text('check', name)}."
    assert [shlex.split(found[1]) for found in COMMAND.finditer(text)] == [
        ["rabbit-chx", "show", name],
        ["rabbit-chx", "check", name],
    ]
    assert first_command(text) == f"rabbit-chx show {shlex.quote(name)}"
    options = [(option, value) for option, value in OPTIONS]
    for found in COMMAND.finditer(completed(text)):
        assert shlex.split(found[1])[3:] == [word for option in options for word in option]


def test_each_command_of_a_text_gets_the_options() -> None:
    assert completed(FIX) == FIX.replace("--to 'a b'", f"--to 'a b' {ADDED}")
    twice = f"{command_text('check', 'x')} and {command_text('show', 'x')}"
    assert completed(twice) == f"`rabbit-chx check x {ADDED}` and `rabbit-chx show x {ADDED}`"
    assert completed("rabbit-chx record x --trace 10") == f"rabbit-chx record x --trace 10 {ADDED}"
    for text in ("plain", "a sentence (see rabbit-chx apply -h)", "the command `rabbitmqctl status`", ""):
        assert completed(text) == text


def test_options_stand_before_the_file_that_gets_the_output() -> None:
    assert completed(command_text("export", "x", output="the x.toml")) == (
        f"`rabbit-chx export x {ADDED} > 'the x.toml'`"
    )


def test_an_option_that_a_command_has_is_not_repeated() -> None:
    text = in_vhost(command_text("check", "x"), "prod")
    assert text == "`rabbit-chx check x --vhost prod`"
    assert completed(text) == "`rabbit-chx check x --vhost prod --url 'amqp://host/a b'`"


def test_a_text_without_commands_has_no_first_one() -> None:
    assert first_command("allow it with `--allow delete` (`allow_delete=True`)") is None


@pytest.mark.parametrize("name", ["o", "x/y", "a:b", "a b"])
def test_a_name_that_is_read_as_an_exchange_stays(name: str) -> None:
    assert exchange_argument(name) == name


@pytest.mark.parametrize("error", [InputError(FIX), PlanRefusedError(f"refused: {FIX}", [])])
def test_an_error_keeps_the_commands_of_its_message(error: Exception) -> None:
    for other in (error, copy.deepcopy(error), pickle.loads(pickle.dumps(error))):  # noqa: S301  # our own
        assert first_command(str(other)) == "rabbit-chx compare 'my x' --to 'a b'"
        assert str(other) == str(error)
