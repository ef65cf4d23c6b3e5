"""Exit codes, streams, help, and what a terminal shows."""

from __future__ import annotations

import fcntl
import io
import json
import os
import pty
import struct
import subprocess
import sys
import termios
from pathlib import Path

import pytest
from rich.cells import cell_len

from rabbit_chx.cli import main
from rabbit_chx.cli.app import app
from rabbit_chx.errors import RingSourceError
from rabbit_chx.routing import HashRing

PROGRAM = str(Path(sys.executable).with_name("rabbit-chx"))
BIND = ("--bind", "q1=1", "--bind", "q2=10")
COMMANDS = ("route", "simulate", "compare", "keys", "uniformity", "rules", "ring", "verify")


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
        (("route", "--ring", __file__, "k"), 2, "test_conventions.py: this is no ring"),
        (("route", "--bind", "q1", "k"), 2, "'q1' has no weight"),
        (("route", "--bind", "q1=0", "k"), 2, "at least 1"),
        (("route", "--bind", "q1=10001", "--release", "4.3.6", "k"), 2, "at most 10000"),
        (("route", *BIND, "--release", "3.7.7", "k"), 2, "3.7.7 has another algorithm"),
        (("route", *BIND, "--release", "3.8.9", "--store", "khepri", "k"), 2, "cannot have the store"),
        (("route", *BIND, "--store", "khepri", "k"), 2, "give the release too"),
        (("route", *BIND, "--type", "long", "5"), 2, "give --hash-header too"),
        (("route", *BIND, "--hash-header", "h", "--type", "long", "x"), 2, "'x' is no long"),
        (("route", *BIND, "--hash-header", "h", "--hash-property", "message_id", "x"), 2, "both given"),
        (("route", *BIND, "--hash-property", "app_id", "x"), 2, "cannot hash the property 'app_id'"),
        (("route", *BIND, "--hash-property", "timestamp", "x"), 2, "'x' is no timestamp"),
        (("route", *BIND, "--header", "h"), 2, "'h' has no value"),
        (("route", *BIND, "--property", "h"), 2, "'h' has no value"),
        (("route", *BIND, "--header", "h:decimal=1e5"), 2, "is no decimal"),
        (("route", *BIND, "--header", "h:decimal=1e-3000000"), 2, "is no decimal: write it out"),
        (("route", *BIND, "--header", "h:long=1_000"), 2, "'1_000' is no long"),
        (("route", *BIND, "--header", "h:long= 5"), 2, "' 5' is no long"),
        (("route", *BIND, "--header", "h:double=\u0661"), 2, "is no double"),
        (("route", *BIND, "--header", "h:array=" + "[" * 100_000), 2, "nested too deeply"),
        (("route", *BIND, "--header", 'h:table={"a": 1, "a": 2}'), 2, "a table has a name twice among a, a"),
        (("route", *BIND, "--header", "h:bool=yes"), 2, "'yes' is no bool"),
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
        (("keys", *BIND, "q1", "--pattern", "\udcff{n}"), 2, r"'\\udcff\{n\}' is no UTF-8"),
        (("route", *BIND, "\udcff"), 2, r"'\\udcff' is no UTF-8"),
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
    assert set(app.commands) == set(COMMANDS)


def test_without_click_it_names_the_extra(tmp_path: Path) -> None:
    code = "import sys; sys.modules['click'] = None; from rabbit_chx.cli import main; sys.exit(main(['-h']))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False, cwd=tmp_path
    )
    assert done.returncode == 70
    assert done.stderr == "rabbit-chx: the command line needs click: pip install 'rabbit-chx[cli]'\n"
    assert done.stdout == ""


def piped(arguments: list[str], text: bytes) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([PROGRAM, *arguments], input=text, capture_output=True, timeout=60, check=False)


def test_stdin_is_streamed_as_lines_and_as_documents() -> None:
    ring = HashRing.from_bindings([("q1", 1), ("q2", 10)])
    keys = [f"user {n}" for n in range(25_000)]
    text = "\n".join(keys).encode()
    expected = [(key, ring.destination_for(key)) for key in keys]
    done = piped(["route", *BIND, "-"], text)
    assert [tuple(line.split("\t")) for line in done.stdout.decode().splitlines()] == expected
    done = piped(["route", *BIND, "-", "--output", "json"], text)
    documents = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(row["key"], row["destination"]) for row in documents] == expected
    assert (done.returncode, done.stderr) == (0, b"")


def test_a_line_is_answered_before_the_next_one_comes() -> None:
    with subprocess.Popen(
        [PROGRAM, "route", *BIND, "-"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for key in (b"a", b"b"):
            process.stdin.write(key + b"\n")
            process.stdin.flush()
            assert process.stdout.readline().startswith(key + b"\t")
        process.stdin.write(b"c")
        process.stdin.close()
        assert process.stdout.read().startswith(b"c\t")
        assert process.wait(60) == 0


@pytest.mark.parametrize(
    ("options", "bad", "message"),
    [
        (("--hash-header", "t", "--type", "long"), b"x", b"'x' is no long"),
        (("--hash-header", "t", "--type", "long", "--explain"), b"x", b"'x' is no long"),
        ((), b"5" * 256, b"AMQP carries at most 255"),
    ],
)
def test_keys_before_a_bad_one_are_answered_and_its_line_is_named(
    options: tuple[str, ...], bad: bytes, message: bytes
) -> None:
    done = piped(["route", *BIND, *options, "-"], b"1\n2\n" + bad + b"\n4\n")
    assert done.returncode == 2
    assert [line.split(b"\t")[0] for line in done.stdout.splitlines()] == [b"1", b"2"]
    assert done.stderr.startswith(b"rabbit-chx: line 3 of stdin: ")
    assert message in done.stderr


def test_a_byte_order_mark_is_no_part_of_the_first_key() -> None:
    done = piped(["route", *BIND, "-"], b"\xef\xbb\xbfa\r\n\xef\xbb\xbfb\n")
    assert [line.split("\t")[0] for line in done.stdout.decode().splitlines()] == ["a", "\\ufeffb"]


def test_lines_longer_than_what_is_read_at_once() -> None:
    value = "x" * 200_000
    done = piped(["route", *BIND, "--hash-header", "h", "-"], f"{value}\nshort".encode())
    assert [line.split("\t")[0] for line in done.stdout.decode().splitlines()] == [value, "short"]


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("rabbit-chx route --bind q=1 - <&-", "stdin is closed"),
        ("rabbit-chx route --bind q=1 k >&-", "stdout is closed"),
    ],
)
def test_a_closed_stream_is_said(command: str, message: str) -> None:
    path = f"{Path(PROGRAM).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-c", command],
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr.startswith(f"rabbit-chx: {message}")
    assert done.stderr.count("\n") == 1


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


def test_keys_found_before_the_search_ends_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["keys", "--bind", "q1=1", "--bind", "q2=500", "q1", "--count", "50", "--tries", "900"]
    assert main(arguments) == 3
    found = capsys.readouterr()
    assert found.out == "canary-462\n"
    assert found.err.startswith("rabbit-chx: not all of 50 keys are found: 900 keys in a row")
    assert main([*arguments, "--output", "json"]) == 3
    assert json.loads(capsys.readouterr().out)["keys"] == ["canary-462"]


def test_json_is_json_where_the_output_lacks_a_character() -> None:
    done = subprocess.run(
        [PROGRAM, "route", "--bind", "é😀=1", "é", "--output", "json"],
        capture_output=True,
        timeout=60,
        check=True,
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
    )
    assert json.loads(done.stdout)["answers"] == [{"key": "é", "destination": "é😀"}]


def test_stdin_is_explained_too() -> None:
    done = piped(["route", *BIND, "-", "--explain", "--output", "json"], b"a\n\n")
    assert [json.loads(line)["term"] for line in done.stdout.splitlines()] == ['<<"a">>', "<<>>"]
    line = piped(["route", *BIND, "-", "--explain"], b"a\n").stdout.decode()
    assert line.split("\t")[:4] == ["a", "q2", "routing-key", '<<"a">>']


def test_a_line_that_is_no_text_is_named() -> None:
    done = piped(["route", *BIND, "-"], b"a\n\xff\n")
    assert (done.returncode, done.stderr) == (
        2,
        b"rabbit-chx: line 2 of stdin is no UTF-8: convert the file first\n",
    )


def test_a_value_that_the_broker_would_close_for_ends_the_stream() -> None:
    options = ["--hash-header", "h", "--type", "array", "--release", "3.13.7"]
    done = piped(["route", *BIND, *options, "-"], b'["a"]\n[]\n')
    assert done.returncode == 77
    assert done.stdout.startswith(b'["a"]\tq')
    assert done.stderr.count(b"\n") == 1


def test_nobody_reading_is_no_error() -> None:
    read, write = os.pipe()
    os.close(read)
    with subprocess.Popen(
        [PROGRAM, "route", *BIND, "k"], stdout=write, stderr=subprocess.PIPE, close_fds=True
    ) as process:
        os.close(write)
        _, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (141, b"")


def test_names_do_not_drive_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["route", "--bind", "q\x1b[2J=1", "k\x07\n"]) == 0
    out = capsys.readouterr().out
    assert "q\\x1b[2J" in out
    assert "k\\x07\\n" in out
    assert main(["route", "--bind", "q[red]=1", "k"]) == 0
    assert "q[red]" in capsys.readouterr().out


def test_a_character_that_the_terminal_lacks_is_escaped() -> None:
    done = subprocess.run(
        [PROGRAM, "keys", "--bind", "é=1", "é", "--pattern", "é{n}"],
        capture_output=True,
        timeout=60,
        check=True,
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
    )
    assert done.stdout == b"\\xe90\n"


def test_columns_stay_straight_where_a_character_is_escaped() -> None:
    done = subprocess.run(
        [PROGRAM, "route", "--bind", "é=1", "ü", "plain"],
        capture_output=True,
        timeout=60,
        check=True,
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
    )
    head, line, *rows = done.stdout.decode("ascii").splitlines()[:4]
    assert head.index("destination") == rows[0].index("\\xe9") == rows[1].index("\\xe9")
    assert set(line) == {" ", "-"}
    assert rows[0].startswith(" \\xfc ")


def on_terminal(columns: int, *arguments: str) -> list[str]:
    """The lines that a terminal of so many columns is given."""
    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    environment = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    with subprocess.Popen(
        [PROGRAM, *arguments], stdout=follower, stdin=subprocess.DEVNULL, env=environment
    ) as process:
        os.close(follower)
        seen = io.BytesIO()
        while True:
            try:
                data = os.read(leader, 65536)
            except OSError:  # how Linux says that the other end is closed
                break
            if not data:
                break
            seen.write(data)
        assert process.wait(60) in (0, 1)
    os.close(leader)
    return seen.getvalue().decode().splitlines()


MANY = [part for n in range(10) for part in ("--bind", f"a.queue.with.a.long.name.{n}=1")]


@pytest.mark.parametrize(
    "arguments",
    [
        ["route", *MANY, "k" * 120, "--explain"],
        ["route", *MANY, *(f"{'k' * 60}-{n}" for n in range(3))],
        ["simulate", *MANY, "--unbind", "a.queue.with.a.long.name.0", "--pattern", "{n}", "--count", "999"],
        ["compare", *MANY, "--to-bind", "other=1", "--pattern", "tenant-{n}", "--count", "999"],
        ["uniformity", "--count", "1000", "--pattern", "{n}"],
    ],
)
def test_eighty_columns_are_enough(arguments: list[str]) -> None:
    lines = on_terminal(80, *arguments)
    wide = [line for line in lines if cell_len(line) > 80 and "k" * 70 not in line]
    assert wide == []
    assert len(lines) > 5
    assert not any("…" in line for line in lines)
