"""What files and stdin hold: rings and topologies. Keys are in `key_files`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, NamedTuple

import click

from rabbit_chx.cli.command import say
from rabbit_chx.errors import InputError, TopologyError

if TYPE_CHECKING:
    from io import BufferedReader

    from rabbit_chx.topology import Topology

STDIN = "-"
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


def read_topology(path: str, vhost: str = "/", content: bytes | None = None) -> TopologyInput:
    """Read a topology, and write what is doubtful in it to stderr.

    Args:
        path: the file, TOML or a definitions file of RabbitMQ; ``-`` is stdin.
        vhost: the vhost to read, if the file is a definitions file with several.
        content: the content of the file, if it is already read.

    Raises:
        InputError: the file cannot be read, or says nothing at all.
        TopologyError: it has mistakes; all of them are in the error.
    """
    from rabbit_chx.topology import Topology

    name = file_name(path)
    if content is None:
        content = read_whole(path, "topology")
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise InputError(f"line {line} of {name} is not UTF-8: a topology file is") from None
    is_definitions = text.lstrip("\ufeff \t\r\n").startswith("{")  # no TOML text does
    if not is_definitions:
        topology = Topology.from_toml(text, file=name)
        said = (topology.exchanges, topology.queues, topology.bindings, topology.policies, topology.owns)
        if not any((*said, topology.cluster)):  # the export of an empty vhost says its cluster alone
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
        with opened(path, what) as file:
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


def file_name(path: str) -> str:
    """Return the file's name for messages."""
    return "stdin" if path == STDIN else path


def opened(path: str, what: str) -> BufferedReader | BinaryIO:
    """Open a file, or stdin for ``-``."""
    if path != STDIN:
        return Path(path).open("rb")
    if sys.stdin is None:  # Python sets None where the stream is closed
        pipe = "keys" if what != "topology" else "a topology"
        raise InputError(f"stdin is closed: pipe {pipe} into it, or give a file")
    if sys.stdin.closed:  # whoever reads it whole closes it
        raise InputError(f"stdin cannot be the {what} twice: give one of them as a file")
    return sys.stdin.buffer
