"""Exit codes, errors and help."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from unittest.mock import Mock

import click
import pytest
from command_line import BIND, PROGRAM, ended

from rabbit_chx.cli import main
from rabbit_chx.cli.app import COMMANDS as LISTED
from rabbit_chx.cli.app import _code_of, app
from rabbit_chx.errors import AccessRefusedError, BrokerRefusedError, RingSourceError
from rabbit_chx.version import missing_extra

COMMANDS = {name.split()[0] for names in LISTED.values() for name in names}


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("route", *BIND, "--header", "h:array=" + "[" * 100_000), 2, "nested too deeply"),
        (("compare", *BIND, "--remove", "x\x1b[31m"), 2, r"x\\x1b\[31m does not have a bucket"),
        (("compare", *BIND, "--keys", "\udcff{1..2}"), 2, r"'\\udcff\{1..2\}' is not UTF-8"),
        (("route", *BIND, "\udcff"), 2, r"'\\udcff' is not UTF-8"),
        (
            ("show", "x", "--url", "amqp://127.0.0.1:1", "--ring-via", "false"),
            69,
            "no server answers there",
        ),
    ],
)
def test_an_error_is_one_line_on_stderr_and_a_code(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], code: int, message: str
) -> None:
    assert main(arguments) == code
    found = capsys.readouterr()
    assert found.out == ""
    assert found.err.startswith("rabbit-chx: ")
    assert found.err.count("\n") == 1
    assert re.search(message, found.err)


def test_the_program_without_a_command_shows_its_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    shown = capsys.readouterr().out
    assert main([]) == 2
    found = capsys.readouterr()
    assert (found.out, found.err) == ("", shown)


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (RingSourceError("the ring was not read"), "rabbit-chx: the ring was not read\n"),
        (ZeroDivisionError(), "this is a bug in rabbit-chx"),
    ],
)
def test_a_bug_and_a_ring_that_was_not_read_are_no_refusals_and_have_no_stack_trace(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, error: Exception, says: str
) -> None:
    monkeypatch.setattr(app, "main", Mock(side_effect=error))
    assert main(["route"]) == 70
    said = capsys.readouterr().err
    assert (says in said, "Traceback" in said) == (True, False)


@pytest.mark.parametrize(("asked", "answer"), [("sh", "plain,show\n"), ("nothing", "\n")])
def test_a_shell_that_asks_for_completions_gets_them_and_no_message(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, asked: str, answer: str
) -> None:
    asks = {"_RABBIT_CHX_COMPLETE": "bash_complete", "COMP_WORDS": f"rabbit-chx {asked}", "COMP_CWORD": "1"}
    for name, value in asks.items():
        monkeypatch.setenv(name, value)
    assert main([]) == 0
    found = capsys.readouterr()
    assert (found.out, found.err) == (answer, "")


def test_version_and_help_are_shown_for_each_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    version = capsys.readouterr().out
    assert version.startswith("rabbit-chx 0.")
    assert main(["-V"]) == 0
    assert capsys.readouterr().out == version
    assert main(["-h"]) == 0
    assert "Exit codes: 0 done" in capsys.readouterr().out
    for name in COMMANDS - {"completion"}:
        assert main([name, "-h"]) == 0
        assert f"Example:\n  rabbit-chx {name}" in capsys.readouterr().out
    assert set(app.list_commands(click.Context(app))) == COMMANDS


@pytest.mark.parametrize(
    "command", [name for commands in LISTED.values() for name in commands if name != "completion"]
)
def test_the_help_of_a_command_is_short_and_the_whole_help_has_all_options(
    command: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert main([*command.split(), "--help"]) == 0
    short = capsys.readouterr().out
    assert main([*command.split(), "--help-all"]) == 0
    whole = capsys.readouterr().out
    assert max(map(len, short.splitlines())) <= 80
    options = set(re.findall(r"^  (?:-\w, )?(--[a-z-]+)", whole, re.MULTILINE))
    assert {"--help", "--help-all"} | ({"--output"} if command != "ui" else set()) <= options
    shown = set(re.findall(r"^  (?:-\w, )?(--[a-z-]+)", short, re.MULTILINE))
    assert shown < options
    assert command == "ui" or "[table|json|markdown" in whole
    # The example is one command, whose lines a shell joins.
    example = short.partition("Example:\n")[2].partition("\n\n")[0].removesuffix("\n")
    printed = ended("sh", "-c", f"printf '%s\\n' {example.partition(' > ')[0].strip()}")
    assert printed.stderr == ""
    assert printed.stdout.splitlines()[: 1 + len(command.split())] == ["rabbit-chx", *command.split()]


@pytest.mark.parametrize(
    ("module", "arguments", "says"),
    [
        ("click", ("-h",), missing_extra("the command line", "click", "cli")),
        ("numpy", ("compare", *BIND), "this needs numpy, which is not installed: pip install numpy"),
        ("jinja2", ("compare", *BIND, "-o", "html"), missing_extra("a page in HTML", "jinja2", "cli")),
    ],
)
def test_what_needs_a_missing_package_names_it(module: str, arguments: tuple[str, ...], says: object) -> None:
    code = "import sys; sys.modules[sys.argv[1]] = None; from rabbit_chx.cli import main; sys.exit(main(sys.argv[2:]))"
    done = ended(sys.executable, "-c", code, module, *arguments)
    assert (done.returncode, done.stdout, done.stderr) == (70, "", f"rabbit-chx: {says}\n")


def test_a_newer_release_is_one_line_on_stderr_whatever_python_does_with_warnings() -> None:
    done = ended(PROGRAM, "route", *BIND, "--release", "9.9.9", "k", PYTHONWARNINGS="error")
    assert done.returncode == 0
    assert done.stderr.startswith("rabbit-chx: RabbitMQ 9.9.9 is newer than the rules known here")
    assert done.stderr.count("\n") == 1


def test_nobody_reading_is_no_error() -> None:
    read, write = os.pipe()
    os.close(read)
    with subprocess.Popen(
        [PROGRAM, "route", *BIND, "k"], stdout=write, stderr=subprocess.PIPE, close_fds=True
    ) as process:
        os.close(write)
        _, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (141, b"")


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (BrokerRefusedError("no JSON"), 70),
        (BrokerRefusedError("a page of another server", reply_code=404), 70),
        (BrokerRefusedError("precondition failed", reply_code=400), 77),
        (AccessRefusedError("no permission"), 77),
    ],
)
def test_an_answer_that_is_none_of_the_management_api_is_no_refusal(
    error: BrokerRefusedError, code: int
) -> None:
    assert _code_of(error) == code
