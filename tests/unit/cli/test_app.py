"""Exit codes, errors and help."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import click
import pytest
from command_line import BIND, PROGRAM

from rabbit_chx.cli import main
from rabbit_chx.cli.app import app
from rabbit_chx.errors import RingSourceError

COMMANDS = (
    "route",
    "simulate",
    "compare",
    "group",
    "keys",
    "rehearse",
    "uniformity",
    "rules",
    "ring",
    "shards",
    "slots",
    "topology",
    "verify",
)


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("nonsense",), 2, "No such command 'nonsense'"),
        (
            ("route", *BIND, "--nonsense", "k"),
            2,
            r"No such option:? '?--nonsense.*\(see rabbit-chx route -h\)",
        ),
        (("route", *BIND), 2, "nothing to route"),
        (("route", "k"), 2, "there is no ring"),
        (("route", *BIND, "--ring", "f", "k"), 2, "the ring is given twice"),
        (("route", "--ring", "/no/such/file", "k"), 2, "/no/such/file cannot be read"),
        (("route", "--ring", __file__, "k"), 2, "test_app.py: this is no ring"),
        (("route", "--bind", "q1", "k"), 2, "'q1' has no weight"),
        (("route", "--bind", "q1=0", "k"), 2, "at least 1"),
        (("route", "--bind", "q1=10001", "--release", "4.3.6", "k"), 2, "at most 10000"),
        (("route", *BIND, "--release", "3.7.7", "k"), 2, "3.7.7 has another algorithm"),
        (("route", *BIND, "--release", "3.8.9", "--store", "khepri", "k"), 2, "cannot have the store"),
        (("route", *BIND, "--store", "khepri", "k"), 2, "give the release too"),
        (("route", *BIND, "--type", "long", "5"), 2, "give --hash-header too"),
        (("route", *BIND, "--hash-header", "h", "--type", "long", "x"), 2, "'x' is not a valid long"),
        (("route", *BIND, "--hash-header", "h", "--hash-property", "message_id", "x"), 2, "both given"),
        (("route", *BIND, "--hash-property", "app_id", "x"), 2, "cannot hash the property 'app_id'"),
        (("route", *BIND, "--hash-property", "timestamp", "x"), 2, "'x' is not a valid timestamp"),
        (("route", *BIND, "--header", "h"), 2, "'h' has no value"),
        (("route", *BIND, "--property", "h"), 2, "'h' has no value"),
        (("route", *BIND, "--header", "h:decimal=1e5"), 2, "is not a valid decimal"),
        (("route", *BIND, "--header", "h:decimal=1e-3000000"), 2, "is not a valid decimal: write it out"),
        (("route", *BIND, "--header", "h:long=1_000"), 2, "'1_000' is not a valid long"),
        (("route", *BIND, "--header", "h:long= 5"), 2, "' 5' is not a valid long"),
        (("route", *BIND, "--header", "h:double=\u0661"), 2, "is not a valid double"),
        (("route", *BIND, "--header", "h:array=" + "[" * 100_000), 2, "nested too deeply"),
        (("route", *BIND, "--header", 'h:table={"a": 1, "a": 2}'), 2, "a table has a name twice among a, a"),
        (("route", *BIND, "--header", "h:bool=yes"), 2, "'yes' is not a valid bool"),
        (("route", *BIND, "--header", "h:array=[1.5]"), 2, "pika"),
        (("simulate", *BIND, "--unbind", "q9"), 2, "q9 has no bucket: the ring has q1, q2"),
        (("simulate", *BIND, "--unbind", "q9=1"), 2, "q9 has no bucket"),
        (("simulate", *BIND, "--unbind", "x\x1b[31m"), 2, r"x\\x1b\[31m has no bucket"),
        (("simulate", *BIND, "--count", "3"), 2, "--count 3 says .*give --pattern too"),
        (
            ("simulate", *BIND, "--keys", "f", "--count", "3"),
            2,
            "--count 3 says .*give --pattern, and no --keys",
        ),
        (("route", *BIND, "--release", "4.9", "k"), 2, "'4.9' is no RabbitMQ series known here"),
        (("simulate", *BIND, "--heaviest", "3"), 2, "--heaviest 3 .*give --keys or --pattern"),
        (("simulate", *BIND, "--keys", os.devnull), 2, "has no lines, and so no keys"),
        (("compare", *BIND, "--to-bind", "a=1", "--show", "3"), 2, "--show 3 .*give --keys or --pattern"),
        (("keys", "--bind", "exchange:a=1", "a"), 2, "a has no bucket: the ring has exchange:a; give"),
        (("keys", *BIND, "q1", "--pattern", "\udcff{n}"), 2, r"'\\udcff\{n\}' is not UTF-8"),
        (("route", *BIND, "\udcff"), 2, r"'\\udcff' is not UTF-8"),
        (("route", *BIND, "--property", "message_id=a", "--property", "message_id=b"), 2, "given twice"),
        (
            ("route", *BIND, "--hash-header", "h", "--type", "long", "--header", "h=5"),
            2,
            "write --header NAME:long=VALUE",
        ),
        (("simulate", *BIND, "--keys", "f", "--pattern", "{n}"), 2, "the sample is given twice"),
        (("simulate", *BIND, "--pattern", "k"), 2, "one key only"),
        (("simulate", *BIND, "--keys", "/no/such/file"), 2, "key file /no/such/file cannot be read"),
        (("compare", *BIND), 2, "nothing to compare with"),
        (
            ("compare", *BIND, "--release", "3.12.0", "--to-release", "4.3.6", "--hash-header", "h"),
            2,
            "give a sample",
        ),
        (("keys", *BIND, "q9"), 2, "q9 has no bucket"),
        (("keys", *BIND, "q1", "--tries", "3"), 70, "3 keys in a row"),
        (
            ("ring", "show", "x", "--url", "amqp://127.0.0.1:1", "--ring-via", "false"),
            69,
            "nobody answers there",
        ),
        (
            ("route", *BIND, "--release", "3.13.2", "--hash-header", "h", "--header", "x=1"),
            77,
            "3.13.2 crashes",
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
    with pytest.raises(AssertionError, match=message):
        raise AssertionError(found.err)


@pytest.mark.parametrize("group", [[], ["ring"]])
def test_a_group_without_a_command_shows_its_help(
    capsys: pytest.CaptureFixture[str], group: list[str]
) -> None:
    assert main([*group, "--help"]) == 0
    shown = capsys.readouterr().out
    assert main(group) == 2
    found = capsys.readouterr()
    assert (found.out, found.err) == ("", shown)
    assert len(shown.splitlines()) > 8


def test_a_ring_that_was_not_read_is_no_refusal_of_the_broker(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RingSourceError("the ring was not read")

    monkeypatch.setattr(app, "main", fail)
    assert main(["ring"]) == 70
    assert capsys.readouterr().err == "rabbit-chx: the ring was not read\n"


def test_a_bug_is_told_without_a_stack(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app, "main", lambda *_, **__: 1 / 0)
    assert main(["route"]) == 70
    assert "this is a bug in rabbit-chx" in capsys.readouterr().err


def test_version_and_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    version = capsys.readouterr().out
    assert version.startswith("rabbit-chx 0.")
    assert main(["-V"]) == 0
    assert capsys.readouterr().out == version
    assert main(["-h"]) == 0
    assert "Exit codes: 0 done" in capsys.readouterr().out
    for command in COMMANDS:
        assert main([command, "-h"]) == 0
        assert f"Example: rabbit-chx {command}" in capsys.readouterr().out
    assert set(app.list_commands(click.Context(app))) == set(COMMANDS)


def test_without_click_it_names_the_extra(tmp_path: Path) -> None:
    code = "import sys; sys.modules['click'] = None; from rabbit_chx.cli import main; sys.exit(main(['-h']))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False, cwd=tmp_path
    )
    assert done.returncode == 70
    assert done.stderr == "rabbit-chx: the command line needs click: pip install 'rabbit-chx[cli]'\n"
    assert done.stdout == ""


def test_a_newer_release_is_one_line_on_stderr_whatever_python_does_with_warnings() -> None:
    done = subprocess.run(
        [PROGRAM, "route", *BIND, "--release", "9.9.9", "k"],
        env={**os.environ, "PYTHONWARNINGS": "error"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
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
