"""Rings, releases and keys as they are given on the command line, and what is said of them."""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING, Any

import pytest

from rabbit_chx.cli import main
from rabbit_chx.routing import HashRing, Release

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

RING = HashRing.from_bindings([("q1", 1), ("q2", 10)])
BIND = ("--bind", "q1=1", "--bind", "q2=10")
IGNORES = "changes nothing: RabbitMQ 4.3.6 ignores a second binding of q1"


@pytest.fixture
def ran(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Runs a command; exit code, stdout, stderr."""

    def run(*arguments: str) -> tuple[int, str, str]:
        code = main(arguments)
        found = capsys.readouterr()
        return code, found.out, found.err

    return run


@pytest.fixture
def stdin(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Gives stdin a text."""

    def give(text: str) -> None:
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text.encode())))

    return give


def shown_ring(path: Path, arguments: Mapping[str, Any] | None, ring: HashRing = RING) -> str:
    """A file as `ring show --output json` writes it."""
    path.write_text(json.dumps(json.loads(ring.to_json()) | {"arguments": arguments}))
    return str(path)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("route", "--bind", "q1=1", "--bind", "q1=2", "k"), f"the binding q1=2 {IGNORES}"),
        (("simulate", *BIND, "--add", "q1=2"), f"the binding q1=2 {IGNORES}"),
        (("simulate", *BIND, "--add", "q3=1", "--add", "q3=2"), "RabbitMQ 4.3.6 ignores a second binding of q3"),
        (("compare", *BIND, "--to-bind", "q1=1", "--to-bind", "q1=2"), f"the binding q1=2 {IGNORES}"),
        (
            ("route", "--bind", "q1=1", "--bind", "q1=1", "--release", "3.8.9", "k"),
            "q1=1 is given twice: for the broker it is one",
        ),
    ],
)  # fmt: skip
def test_a_binding_that_the_broker_ignores_is_said(
    ran: Callable[..., tuple[int, str, str]], arguments: tuple[str, ...], words: str
) -> None:
    _, _, errors = ran(*arguments)
    assert words in errors
    assert errors.count("\n") == 1


def test_a_release_that_adds_a_second_binding_has_nothing_to_say(
    ran: Callable[..., tuple[int, str, str]],
) -> None:
    bindings = ("--bind", "q1=1", "--bind", "q1=2", "--release", "3.8.9")
    assert ran("simulate", *bindings, "--unbind", "q1=1", "--add", "q1=5")[2] == ""
    assert ran("simulate", *bindings, "--add", "q1=5")[2] == ""


def test_a_series_is_its_newest_patch_and_that_is_said(ran: Callable[..., tuple[int, str, str]]) -> None:
    for series in ("3.8", "4.3"):
        newest = Release.newest_of(series).version
        code, out, errors = ran("route", *BIND, "--release", series, "k", "--output", "json")
        assert json.loads(out)["ring"]["release"]["version"] == newest
        assert (code, errors) == (
            0,
            f"rabbit-chx: release {series} is taken as {newest}, the newest of that series that is known here\n",
        )
    code, out, errors = ran("compare", *BIND, "--release", "3.12.14", "--to-release", "4.3", "-o", "json")
    assert json.loads(out)["after"]["release"]["version"] == Release.newest_of("4.3").version
    assert errors.count("\n") == 1
    assert ran("rules", "--release", "9.9")[0] == 2


def test_a_ring_may_come_from_stdin(
    ran: Callable[..., tuple[int, str, str]], stdin: Callable[[str], None]
) -> None:
    stdin(RING.to_json())
    code, out, errors = ran("route", "--ring", "-", "k", "-o", "json")
    assert json.loads(out)["answers"] == [{"key": "k", "destination": RING.destination_for("k")}]
    assert (code, errors) == (0, "")
    stdin("no ring")
    assert "stdin: this is no ring" in ran("route", "--ring", "-", "k")[2]


@pytest.mark.parametrize(
    "arguments",
    [
        ("route", "--ring", "-", "-"),
        ("simulate", "--ring", "-", "--keys", "-"),
        ("compare", "--ring", "-", "--to-bind", "q=1", "--keys", "-"),
    ],
)
def test_stdin_is_not_for_two(
    ran: Callable[..., tuple[int, str, str]], stdin: Callable[[str], None], arguments: tuple[str, ...]
) -> None:
    stdin(RING.to_json())
    code, _, errors = ran(*arguments)
    assert code == 2
    assert "stdin is to be the ring and the keys at once: give one of them as a file" in errors


@pytest.mark.parametrize(
    ("arguments", "options"),
    [
        ({"hash-header": "tenant"}, ("--hash-header", "tenant")),
        ({"hash-property": "message_id"}, ("--hash-property", "message_id")),
    ],
)
def test_a_shown_ring_brings_what_its_exchange_hashes(
    ran: Callable[..., tuple[int, str, str]],
    tmp_path: Path,
    arguments: Mapping[str, str],
    options: tuple[str, ...],
) -> None:
    old = RING.with_release(Release("3.12.14"))  # a header is hashed with its type there, so answers differ
    path = shown_ring(tmp_path / "r", arguments, old)
    keys = [f"k{n}" for n in range(40)]
    (name, value), *_ = arguments.items()
    code, out, errors = ran("route", "--ring", path, *keys)
    assert (code, out) == ran("route", "--ring", path, *options, *keys)[:2]
    assert f"the exchange of this ring hashes {name} {value!r}" in errors
    for other in (("--hash-header", "x"), ("--hash-property", "correlation_id")):
        code, _, errors = ran("route", "--ring", path, *other, "k")
        assert code == 2
        assert f"the exchange of this ring hashes {name} {value!r}, not {other[0][2:]} {other[1]!r}" in errors


def test_a_ring_of_routing_keys_refuses_a_header(
    ran: Callable[..., tuple[int, str, str]], tmp_path: Path
) -> None:
    path = shown_ring(tmp_path / "r", {})
    assert ran("route", "--ring", path, "k")[::2] == (0, "")
    code, _, errors = ran("route", "--ring", path, "--hash-header", "h", "k")
    assert (code, "hashes routing key, not hash-header 'h'" in errors) == (2, True)


def test_the_type_of_a_header_that_the_ring_brings(
    ran: Callable[..., tuple[int, str, str]], tmp_path: Path
) -> None:
    path = shown_ring(tmp_path / "r", {"hash-header": "tenant"})
    assert "header 'tenant'" in ran("route", "--ring", path, "--type", "long", "5", "--explain")[1]


def test_a_ring_that_was_read_over_amqp_alone_says_so(
    ran: Callable[..., tuple[int, str, str]], tmp_path: Path
) -> None:
    path = shown_ring(tmp_path / "r", None)
    code, _, errors = ran("route", "--ring", path, "k")
    assert code == 0
    assert f"{path} does not say what the exchange hashes" in errors


def test_two_rings_that_hash_other_things_are_not_compared(
    ran: Callable[..., tuple[int, str, str]], tmp_path: Path
) -> None:
    one, other = shown_ring(tmp_path / "1", {"hash-header": "h"}), shown_ring(tmp_path / "2", {})
    code, _, errors = ran("compare", "--ring", one, "--to-ring", other)
    assert (code, "hash-header 'h', that of the other routing key" in errors) == (2, True)
    code, _, errors = ran("compare", *BIND, "--to-ring", one)
    assert (code, "the exchange of this ring hashes hash-header 'h'" in errors) == (0, True)


@pytest.mark.parametrize("arguments", [{"hash-header": 5}, {"hash-property": "app_id"}, "text"])
def test_damaged_arguments_of_a_ring_are_refused(
    ran: Callable[..., tuple[int, str, str]], tmp_path: Path, arguments: Any
) -> None:
    path = shown_ring(tmp_path / "r", arguments)
    code, _, errors = ran("route", "--ring", path, "k")
    assert code == 2
    assert errors.startswith(f"rabbit-chx: {path}: ")


@pytest.mark.parametrize(
    ("options", "lines", "says"),
    [
        ((), ["a"] * 20_000 + ["b", "x" * 300], "line 20002 of {path}: the routing key"),
        (
            ("--hash-header", "h", "--type", "long"),
            ["1", "2", "three"],
            "line 3 of {path}: 'three' is no long",
        ),
    ],
)
def test_a_key_that_cannot_be_sent_is_named_by_file_and_line(
    ran: Callable[..., tuple[int, str, str]],
    tmp_path: Path,
    options: tuple[str, ...],
    lines: list[str],
    says: str,
) -> None:
    path = tmp_path / "keys"
    path.write_text("\n".join(lines))
    for command in (("simulate", *BIND), ("compare", *BIND, "--to-bind", "q=1")):
        code, _, errors = ran(*command, *options, "--keys", str(path))
        assert code == 2
        assert errors.startswith(f"rabbit-chx: {says.format(path=path)}")


def test_a_key_of_a_pattern_that_cannot_be_sent_is_named(ran: Callable[..., tuple[int, str, str]]) -> None:
    code, _, errors = ran("simulate", *BIND, "--pattern", "x" * 254 + "{n}", "--count", "11")
    assert code == 2
    assert errors.startswith("rabbit-chx: key 'xxx")


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("k.parquet", b"PAR1\x15\x04", "k.parquet is a Parquet file: give the keys as plain text"),
        ("k.arrow", b"ARROW1\x00\x00", "k.arrow is an Arrow file"),
        ("k.gz", b"\x1f\x8b\x08\x00", "k.gz is compressed by gzip"),
        ("k.xlsx", b"PK\x03\x04\x14", "k.xlsx is a zip file"),
    ],
)
def test_a_file_that_holds_no_lines_is_refused_by_its_kind(
    ran: Callable[..., tuple[int, str, str]], tmp_path: Path, name: str, content: bytes, says: str
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    code, _, errors = ran("simulate", *BIND, "--keys", str(path))
    assert (code, says in errors) == (2, True)


def test_a_table_of_columns_is_read_as_lines_and_that_is_said(
    ran: Callable[..., tuple[int, str, str]], tmp_path: Path
) -> None:
    path = tmp_path / "keys.CSV"
    path.write_text("key,value\na,1\n")
    code, out, errors = ran("simulate", *BIND, "--keys", str(path), "-o", "json")
    assert (code, json.loads(out)["sample"]["keys"]) == (0, 2)
    assert errors.startswith(
        f"rabbit-chx: {path} is read as lines: each is a key as it is there, with all its columns"
    )


def test_a_count_alone_is_enough_where_there_is_a_pattern_by_default(
    ran: Callable[..., tuple[int, str, str]],
) -> None:
    few = ran("uniformity", "--count", "5000")
    assert few == ran("uniformity", "--pattern", "{n}", "--count", "5000")
    assert "5,000 keys" in few[1]


@pytest.mark.parametrize(
    ("command", "shown"),
    [("verify", "10,000"), ("simulate", "100,000"), ("compare", "100,000"), ("uniformity", "100,000")],
)
def test_the_help_says_how_many_keys_a_pattern_makes(
    ran: Callable[..., tuple[int, str, str]], command: str, shown: str
) -> None:
    words = " ".join(ran(command, "--help")[1].split())
    assert f"How many keys the pattern makes. [default: {shown}]" in words
