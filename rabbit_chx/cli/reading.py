"""Keys from a file or from stdin, one on each line."""

from __future__ import annotations

import codecs
import sys
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from rabbit_chx.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from io import BufferedReader

__all__ = ["read_batches", "read_keys"]

CHUNK_BYTES = 1 << 16
STDIN = "-"


def read_keys(path: str) -> list[str]:
    """All keys of a file.

    Raises:
        InputError: as in `read_batches`, or there are none.
    """
    keys = [key for _, batch in read_batches(path) for key in batch]
    if not keys:
        raise InputError(f"{_name(path)} has no lines, and so no keys: give at least one")
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
                keys, bad = _decoded(lines)
                if keys:
                    yield number, keys
                if bad:
                    at = number + len(keys)
                    raise InputError(f"line {at} of {_name(path)} is no UTF-8: convert the file first")
                number += len(keys)
    except OSError as error:
        raise InputError(f"the key file {_name(path)} cannot be read: {error.strerror}") from None


def _name(path: str) -> str:
    return "stdin" if path == STDIN else path


def _opened(path: str) -> BufferedReader | BinaryIO:
    if path != STDIN:
        return Path(path).open("rb")
    if sys.stdin is None:  # so Python starts where it is closed
        raise InputError("stdin is closed: pipe keys into it, or give a file")
    return sys.stdin.buffer


def _batches(file: BufferedReader | BinaryIO) -> Iterator[list[bytes]]:
    """As many whole lines as can be read without waiting for more."""
    begun: list[bytes] = []
    mark = codecs.BOM_UTF8
    while chunk := file.read1(CHUNK_BYTES):  # type: ignore[union-attr]  # stdin's buffer has it too
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
