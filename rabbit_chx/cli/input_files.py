"""Keys and rings from a file or from stdin."""

from __future__ import annotations

import codecs
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import click

from rabbit_chx.cli.stderr import say
from rabbit_chx.errors import InputError
from rabbit_chx.rendering import sign_of_life
from rabbit_chx.routing import HashedOn, HashRing

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from io import BufferedReader

__all__ = ["RingInput", "claim_stdin", "file_name", "read_batches", "read_keys", "read_ring"]

_CHUNK_BYTES = 1 << 16
_STDIN = "-"
_NOT_LINES = {
    b"PAR1": "a Parquet file",
    b"ARROW1": "an Arrow file",
    b"\x1f\x8b": "compressed by gzip",
    b"\x28\xb5\x2f\xfd": "compressed by zstd",
    b"PK\x03\x04": "a zip file, as spreadsheets are",
}
_COLUMNS = (".csv", ".tsv")


@dataclass(frozen=True, slots=True)
class RingInput:
    """A ring, and what came with it.

    Attributes:
        ring: it.
        arguments: those of its exchange that decide what is hashed; None where they are not known.
    """

    ring: HashRing
    arguments: Mapping[str, str] | None = None


def read_ring(path: str) -> RingInput:
    """The ring in a file that `ring show` or `HashRing.to_json` wrote; ``-`` is stdin.

    Raises:
        InputError: the file cannot be read, or holds no ring.
    """
    if path == _STDIN:
        claim_stdin("the ring")
    try:
        with _opened(path) as file:
            text = file.read()
    except OSError as error:
        raise InputError(f"the ring file {file_name(path)} cannot be read: {error.strerror}") from None
    try:
        ring = HashRing.from_json(text)
        document = json.loads(text)
        arguments = document.get("arguments")
        if arguments is not None:
            HashedOn.from_arguments(arguments)
    except InputError as error:
        raise InputError(f"{file_name(path)}: {error}") from None
    if "arguments" in document and arguments is None:
        say(
            f"{file_name(path)} does not say what the exchange hashes, as it was read without the management API: "
            "without --hash-header or --hash-property it is taken for the routing key"
        )
    return RingInput(ring, arguments)


def claim_stdin(what: str) -> None:
    """Notes who reads stdin in this run.

    Raises:
        InputError: somebody does already.
    """
    context = click.get_current_context(silent=True)
    if context is not None and (other := context.find_root().meta.setdefault(__name__, what)) != what:
        raise InputError(f"stdin is to be {other} and {what} at once: give one of them as a file")


def read_keys(path: str) -> list[str]:
    """All keys of a file.

    Raises:
        InputError: as in `read_batches`, or there are none.
    """
    if path == _STDIN:
        claim_stdin("the keys")
    elif path.lower().endswith(_COLUMNS):
        say(
            f"{path} is read as lines: each is a key as it is there, with all its columns, the first line too; to route "
            "one column, cut it out first"
        )
    with sign_of_life(f"reading {file_name(path)}"):
        keys = [key for _, batch in read_batches(path) for key in batch]
    if not keys:
        raise InputError(f"{file_name(path)} has no lines, and so no keys: give at least one")
    return keys


def read_batches(path: str) -> Iterator[tuple[int, list[str]]]:
    """The lines of a UTF-8 file without their ends, as they come: what is there already makes a batch.

    An empty line is an empty key. A byte order mark at the beginning is left out.

    Args:
        path: of the file; ``-`` is stdin.

    Yields:
        The number of a batch's first line, from 1 on, and its lines.

    Raises:
        InputError: the file cannot be read, or is no UTF-8; the lines before that come first.
    """
    number = 1
    try:
        with _opened(path) as file:
            for lines in _batches(file):
                if number == 1:
                    _refuse_what_has_no_lines(lines[0], path)
                keys, bad = _decoded(lines)
                if keys:
                    yield number, keys
                if bad:
                    at = number + len(keys)
                    raise InputError(f"line {at} of {file_name(path)} is no UTF-8: convert the file first")
                number += len(keys)
    except OSError as error:
        raise InputError(f"the key file {file_name(path)} cannot be read: {error.strerror}") from None


def file_name(path: str) -> str:
    """As errors name it."""
    return "stdin" if path == _STDIN else path


def _opened(path: str) -> BufferedReader | BinaryIO:
    if path != _STDIN:
        return Path(path).open("rb")
    if sys.stdin is None:  # so Python starts where it is closed
        raise InputError("stdin is closed: pipe keys into it, or give a file")
    return sys.stdin.buffer


def _refuse_what_has_no_lines(beginning: bytes, path: str) -> None:
    for mark, what in _NOT_LINES.items():
        if beginning.startswith(mark):
            raise InputError(f"{file_name(path)} is {what}: give the keys as plain text, one on each line")


def _batches(file: BufferedReader | BinaryIO) -> Iterator[list[bytes]]:
    """As many whole lines as can be read without waiting for more."""
    begun: list[bytes] = []
    mark = codecs.BOM_UTF8
    while chunk := file.read1(_CHUNK_BYTES):  # type: ignore[union-attr]  # stdin's buffer has it too
        head, newline, rest = chunk.rpartition(b"\n")
        if newline:
            yield b"".join([*begun, head]).removeprefix(mark).split(b"\n")
            begun, mark = [], b""
        if rest:
            begun.append(rest)
    if last := b"".join(begun).removeprefix(mark):
        yield [last]


def _decoded(lines: list[bytes]) -> tuple[list[str], bool]:
    """The lines as text up to one that is none, and whether there is one."""
    keys: list[str] = []
    try:
        for line in lines:
            keys.append(line.removesuffix(b"\r").decode())  # noqa: PERF401  # those before a bad one are kept
    except UnicodeDecodeError:
        return keys, True
    return keys, False
