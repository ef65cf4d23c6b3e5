"""What files and stdin hold: lines of keys, rings, topologies."""

from __future__ import annotations

import codecs
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, NamedTuple

import click

from rabbit_chx.cli.stderr import say
from rabbit_chx.errors import InputError, TopologyError
from rabbit_chx.rendering import sign_of_life

if TYPE_CHECKING:
    from io import BufferedReader

    from rabbit_chx.topology import Topology

STDIN = "-"
_CHUNK_BYTES = 1 << 16
_NOT_LINES = {
    b"PAR1": "a Parquet file",
    b"ARROW1": "an Arrow file",
    b"\x1f\x8b": "compressed by gzip",
    b"\x28\xb5\x2f\xfd": "compressed by zstd",
    b"PK\x03\x04": "a zip file, as spreadsheets are",
}
_COLUMNS = (".csv", ".tsv")
_MOST_LEFT_OUT = 5


class TopologyInput(NamedTuple):
    """A topology as it was given.

    Attributes:
        topology: what the file says.
        text: the file's text, as it is.
        name: the file's name for messages.
        is_definitions: whether it is a definitions file of RabbitMQ; else it is TOML.
    """

    topology: Topology
    text: str
    name: str
    is_definitions: bool


def read_topology(path: str, vhost: str = "/") -> TopologyInput:
    """Read a topology, and say on stderr what is doubtful in it.

    Args:
        path: the file, TOML or a definitions file of RabbitMQ; ``-`` is stdin.
        vhost: the vhost to read, if the file is a definitions file with several.

    Raises:
        InputError: the file cannot be read, or says nothing at all.
        TopologyError: it has mistakes; all of them are in the error.
    """
    from rabbit_chx.topology import Topology

    name, content = file_name(path), read_whole(path, "topology")
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise InputError(f"line {line} of {name} is not UTF-8: a topology file is") from None
    is_definitions = text.lstrip("\ufeff \t\r\n").startswith("{")  # no TOML text does
    if not is_definitions:
        topology = Topology.from_toml(text, file=name)
        if not any(
            (topology.exchanges, topology.queues, topology.bindings, topology.policies, topology.owns)
        ):
            raise InputError(
                f"{name} says nothing: give a file that has exchanges, queues, bindings or policies"
            )
    else:
        try:
            topology = Topology.from_definitions(text.removeprefix("\ufeff"), vhost)
        except TopologyError as error:
            raise TopologyError(error.problems, file=name) from None
        for line_out in topology.left_out[:_MOST_LEFT_OUT]:
            say(f"{name}, left out: {line_out}")
        if len(topology.left_out) > _MOST_LEFT_OUT:
            say(f"{name}, left out: {len(topology.left_out) - _MOST_LEFT_OUT:,} more")
        if hashed := [exchange.name for exchange in topology.exchanges if exchange.ring]:
            say(
                f"{name} is a definitions file, which does not tell the order of a ring: that of {', '.join(hashed)} is "
                "assumed as the bindings are listed"
            )
    for sentence in topology.misspellings:
        say(f"{name}: {sentence}")
    return TopologyInput(topology, text, name, is_definitions)


def read_whole(path: str, what: str) -> bytes:
    """Read a whole file.

    Args:
        path: the file; ``-`` is stdin.
        what: what it holds, such as ``ring``.

    Raises:
        InputError: the file cannot be read.
    """
    if path == STDIN:
        claim_stdin(f"the {what}")
    try:
        with _opened(path, what) as file:
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
    if path == STDIN:
        claim_stdin("the keys")
    if path.lower().endswith(_COLUMNS):
        say(
            f"{path} is read as lines: each is a key as it is there, with all its columns, the first line too; to route "
            "one column, cut it out first"
        )
    number = 1
    try:
        with _opened(path, "keys") as file:
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
    return "stdin" if path == STDIN else path


def _opened(path: str, what: str) -> BufferedReader | BinaryIO:
    if path != STDIN:
        return Path(path).open("rb")
    if sys.stdin is None:  # Python sets None where the stream is closed
        pipe = "keys" if what != "topology" else "a topology"
        raise InputError(f"stdin is closed: pipe {pipe} into it, or give a file")
    if sys.stdin.closed:  # whoever reads it whole closes it
        raise InputError(f"stdin cannot be the {what} twice: give one of them as a file")
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
