"""Topologies from a file or from stdin: TOML, or a definitions file of RabbitMQ."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from rabbit_chx.cli.input_files import claim_stdin, file_name
from rabbit_chx.cli.stderr import say
from rabbit_chx.errors import InputError, TopologyError
from rabbit_chx.topology import Topology

__all__ = ["TopologyInput", "read_topology"]

_STDIN = "-"


@dataclass(frozen=True, slots=True)
class TopologyInput:
    """A topology as it was given.

    Attributes:
        topology: what the file says.
        text: the file's text, as it is.
        path: the file's path; ``-`` is stdin.
        is_definitions: whether it is a definitions file of RabbitMQ; else it is TOML.
    """

    topology: Topology
    text: str
    path: str
    is_definitions: bool = False

    @property
    def name(self) -> str:
        """The file's name for messages."""
        return file_name(self.path)


def read_topology(path: str, vhost: str = "/") -> TopologyInput:
    """Read a topology, and say on stderr what is doubtful in it.

    Args:
        path: the file; ``-`` is stdin.
        vhost: the vhost to read, if the file is a definitions file with several.

    Raises:
        InputError: the file cannot be read, or says nothing at all.
        TopologyError: it has mistakes; all of them are in the error.
    """
    if path == _STDIN:
        claim_stdin("the topology")
    name = file_name(path)
    text = _text_of(path, name)
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
        topology = _from_definitions(text, name, vhost)
    for sentence in topology.misspellings:
        say(f"{name}: {sentence}")
    return TopologyInput(topology, text, path, is_definitions)


def _from_definitions(text: str, name: str, vhost: str) -> Topology:
    try:
        topology = Topology.from_definitions(text.removeprefix("\ufeff"), vhost)
    except TopologyError as error:
        raise TopologyError(error.problems, file=name) from None
    for line in topology.left_out:
        say(f"{name}, left out: {line}")
    if hashed := [one.name for one in topology.exchanges if one.ring]:
        say(
            f"{name} is a definitions file, which does not tell the order of a ring: that of {', '.join(hashed)} is "
            "assumed as the bindings are listed"
        )
    return topology


def _text_of(path: str, name: str) -> str:
    try:
        if path != _STDIN:
            content = Path(path).read_bytes()
        elif sys.stdin is None:  # Python sets None where the stream is closed
            raise InputError("stdin is closed: pipe a topology into it, or give a file")
        else:
            content = sys.stdin.buffer.read()
    except OSError as error:
        raise InputError(f"the topology file {name} cannot be read: {error.strerror}") from None
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise InputError(f"line {line} of {name} is not UTF-8: a topology file is") from None
