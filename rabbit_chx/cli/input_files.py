"""Keys and rings from a file or from stdin."""

from __future__ import annotations

import codecs
import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import click

from rabbit_chx.cli.stderr import say
from rabbit_chx.errors import InputError
from rabbit_chx.rendering import sign_of_life
from rabbit_chx.routing import HashedOn, KeyMap, key_map_from_json

if TYPE_CHECKING:
    from io import BufferedReader

    from rabbit_chx.analysis import ModuloMap

__all__ = ["RingInput", "claim_stdin", "file_name", "read_batches", "read_keys", "read_ring", "read_whole"]

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
    """A ring as it was given, with the arguments of its exchange.

    Attributes:
        ring: the ring, or the table of its slots.
        arguments: the exchange's arguments that decide what is hashed; None where they are not known.
        doubt: why they are not known, as the beginning of a sentence; empty where the caller knows them.
        modulo: the exchange, if it is one of type ``x-modulus-hash`` or a super stream, without a ring; `ring` is empty then.
    """

    ring: KeyMap
    arguments: Mapping[str, str] | None = None
    doubt: str = ""
    modulo: ModuloMap | None = None


def read_ring(path: str) -> RingInput:
    """Read a ring from a file that `ring show`, `HashRing.to_json` or `SlotTable.to_json` wrote.

    Args:
        path: the file; ``-`` is stdin.

    Raises:
        InputError: the file cannot be read, or does not contain a ring.
    """
    text = read_whole(path, "ring")
    try:
        ring = key_map_from_json(text)
        document = json.loads(text)
        arguments = document.get("arguments")
        if arguments is not None:
            HashedOn.from_arguments(arguments)
    except InputError as error:
        raise InputError(f"{file_name(path)}: {error}") from None
    why = ", as it was read without the management API" if "arguments" in document else ""
    return RingInput(ring, arguments, f"{file_name(path)} does not say what the exchange hashes{why}")


def read_whole(path: str, what: str) -> bytes:
    """Read a whole file.

    Args:
        path: the file; ``-`` is stdin.
        what: what it holds, such as ``ring``.

    Raises:
        InputError: the file cannot be read.
    """
    if path == _STDIN:
        claim_stdin(f"the {what}")
    try:
        with _opened(path) as file:
            return file.read()
    except OSError as error:
        raise InputError(f"the {what} file {file_name(path)} cannot be read: {error.strerror}") from None


def claim_stdin(what: str) -> None:
    """Note what stdin is read for in this run.

    Args:
        what: what is read, such as ``the keys``.

    Raises:
        InputError: stdin is already read for something else.
    """
    context = click.get_current_context(silent=True)
    if context is not None and (other := context.find_root().meta.setdefault(__name__, what)) != what:
        raise InputError(f"stdin cannot be both {other} and {what}: give one of them as a file")


def read_keys(path: str) -> list[str]:
    """Read all keys of a file, one on each line.

    Args:
        path: the file; ``-`` is stdin.

    Raises:
        InputError: the file cannot be read, is not UTF-8, or has no lines.
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
    """Read the lines of a UTF-8 file without their line ends; a batch is what can be read without waiting.

    An empty line is an empty key. A byte order mark at the beginning is skipped.

    Args:
        path: the file; ``-`` is stdin.

    Yields:
        The number of a batch's first line, from 1 on, and its lines.

    Raises:
        InputError: the file cannot be read, or a line is not UTF-8; the lines before it are yielded first.
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
                    raise InputError(f"line {at} of {file_name(path)} is not UTF-8: convert the file first")
                number += len(keys)
    except OSError as error:
        raise InputError(f"the key file {file_name(path)} cannot be read: {error.strerror}") from None


def file_name(path: str) -> str:
    """Return the file's name for messages."""
    return "stdin" if path == _STDIN else path


def _opened(path: str) -> BufferedReader | BinaryIO:
    if path != _STDIN:
        return Path(path).open("rb")
    if sys.stdin is None:  # Python sets None where the stream is closed
        raise InputError("stdin is closed: pipe keys into it, or give a file")
    return sys.stdin.buffer


def _refuse_what_has_no_lines(beginning: bytes, path: str) -> None:
    for mark, what in _NOT_LINES.items():
        if beginning.startswith(mark):
            raise InputError(f"{file_name(path)} is {what}: give the keys as plain text, one on each line")


def _batches(file: BufferedReader | BinaryIO) -> Iterator[list[bytes]]:
    """Yield as many whole lines as can be read without waiting for more."""
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
    """Return the lines as text up to the first that is not UTF-8, and whether there is such a line."""
    keys: list[str] = []
    try:
        for line in lines:
            keys.append(line.removesuffix(b"\r").decode())  # noqa: PERF401  # those before a bad one are kept
    except UnicodeDecodeError:
        return keys, True
    return keys, False
