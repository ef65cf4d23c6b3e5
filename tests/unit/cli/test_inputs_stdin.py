"""Keys and rings from stdin."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from command_line import BIND, PROGRAM, RING

if TYPE_CHECKING:
    Ran = Callable[..., tuple[int, str, str]]
    Stdin = Callable[[str | bytes], None]


def test_a_ring_may_come_from_stdin(ran: Ran, stdin: Stdin) -> None:
    stdin(RING.to_json())
    code, out, errors = ran("route", "--ring", "-", "k", "-o", "json")
    assert json.loads(out)["answers"] == [{"key": "k", "destination": RING.destination_for("k")}]
    assert code == 0
    assert errors.startswith(
        "rabbit-chx: stdin does not contain the arguments of the exchange, so the routing key is assumed"
    )
    stdin("no ring")
    assert "stdin: this is not a ring" in ran("route", "--ring", "-", "k")[2]


@pytest.mark.parametrize(
    "arguments",
    [
        ("route", "--ring", "-", "-"),
        ("simulate", "--ring", "-", "--keys", "-"),
        ("compare", "--ring", "-", "--to-bind", "q=1", "--keys", "-"),
    ],
)
def test_stdin_is_not_for_two(ran: Ran, stdin: Stdin, arguments: tuple[str, ...]) -> None:
    stdin(RING.to_json())
    code, _, errors = ran(*arguments)
    assert code == 2
    assert "stdin cannot be both the ring and the keys: pass one of them as a file" in errors


def test_stdin_cannot_be_given_twice(ran: Ran, stdin: Stdin) -> None:
    stdin(RING.to_json())
    code, out, errors = ran("compare", "--ring", "-", "--to-ring", "-")
    assert (code, out) == (2, "")
    assert errors == "rabbit-chx: stdin cannot be the ring twice: pass one of them as a file\n"


def test_stdin_is_streamed_as_lines_and_as_documents(ran: Ran, stdin: Stdin) -> None:
    keys = [f"user {n}" for n in range(25_000)]
    expected = [(key, RING.destination_for(key)) for key in keys]
    stdin("\n".join(keys))
    _, out, _ = ran("route", *BIND, "-")
    assert [tuple(line.split("\t")) for line in out.splitlines()] == expected
    stdin("\n".join(keys))
    code, out, errors = ran("route", *BIND, "-", "--output", "json")
    documents = [json.loads(line) for line in out.splitlines()]
    assert [(row["key"], row["destination"]) for row in documents] == expected
    assert (code, errors) == (0, "")


def test_a_line_is_answered_before_the_next_one_arrives() -> None:
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
        (("--hash-header", "t:long"), "x", "'x' is not a valid long"),
        (("--hash-header", "t:long", "--explain"), "x", "'x' is not a valid long"),
        ((), "5" * 256, "AMQP carries at most 255"),
    ],
)
def test_keys_before_a_bad_one_are_answered_and_its_line_is_named(
    ran: Ran, stdin: Stdin, options: tuple[str, ...], bad: str, message: str
) -> None:
    stdin(f"1\n2\n{bad}\n4\n")
    code, out, errors = ran("route", *BIND, *options, "-")
    assert code == 2
    assert [line.split("\t")[0] for line in out.splitlines()] == ["1", "2"]
    assert errors.startswith("rabbit-chx: line 3 of stdin: ")
    assert message in errors


def test_a_byte_order_mark_is_not_part_of_the_first_key(ran: Ran, stdin: Stdin) -> None:
    stdin(b"\xef\xbb\xbfa\r\n\xef\xbb\xbfb\n")
    assert [line.split("\t")[0] for line in ran("route", *BIND, "-")[1].splitlines()] == ["a", "\\ufeffb"]


def test_lines_longer_than_what_is_read_at_once(ran: Ran, stdin: Stdin) -> None:
    value = "x" * 200_000
    stdin(f"{value}\nshort")
    _, out, _ = ran("route", *BIND, "--hash-header", "h", "-")
    assert [line.split("\t")[0] for line in out.splitlines()] == [value, "short"]


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("rabbit-chx route --bind q=1 - <&-", "stdin is closed"),
        ("rabbit-chx route --bind q=1 k >&-", "stdout is closed"),
    ],
)
def test_a_closed_stream_is_reported(command: str, message: str) -> None:
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


def test_stdin_is_explained_too(ran: Ran, stdin: Stdin) -> None:
    stdin("a\n\n")
    _, out, _ = ran("route", *BIND, "-", "--explain", "--output", "json")
    assert [json.loads(line)["term"] for line in out.splitlines()] == ['<<"a">>', "<<>>"]
    stdin("a\n")
    line = ran("route", *BIND, "-", "--explain")[1]
    assert line.split("\t")[:4] == ["a", "q2", "routing-key", '<<"a">>']


def test_a_line_that_is_not_text_is_named(ran: Ran, stdin: Stdin) -> None:
    stdin(b"a\n\xff\n")
    code, _, errors = ran("route", *BIND, "-")
    assert (code, errors) == (2, "rabbit-chx: line 2 of stdin is not UTF-8: convert the file first\n")


def test_a_value_that_the_broker_would_close_for_ends_the_stream(ran: Ran, stdin: Stdin) -> None:
    stdin('["a"]\n[]\n')
    code, out, errors = ran("route", *BIND, "--hash-header", "h:array", "--release", "3.13.7", "-")
    assert code == 77
    assert out.startswith('["a"]\tq')
    assert errors.count("\n") == 1
