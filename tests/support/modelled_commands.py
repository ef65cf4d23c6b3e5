"""Commands on a broker made of values, which answers at each address that a command asks: AMQP, the management API, rabbitmqctl.

It is a fake, to script what a broker does not do at will: messages wait in a parking queue when a command begins, or something is
refused in the middle of a plan. It shows what a command asks and returns. What a plan does on a real broker is in tests/broker.
"""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from model_broker import ModelBroker
from model_client import ModelClient
from slot_files import NEWEST

from rabbit_chx import Topology
from rabbit_chx.broker.live_broker import Operation, QueueCounts, make_refusal
from rabbit_chx.cli.broker_options import BrokerAddresses
from rabbit_chx.topology import LiveTopology, QueueDefinition
from rabbit_chx.topology.objects import MARK

_OPTIONS = ("--url", "amqp://model", "--management-url", "http://model:15672", "--ring-via", "")


class ModelledCommands:
    """Runs commands against a model.

    Args:
        path: where the topology file is written.
        monkeypatch: puts the model in the place of a connection.

    Attributes:
        model: the broker.
        messages: how many messages its queues have.
        refuses: the queues that nobody may declare.
        opened: how often a command has connected.
        has_source: whether rabbitmqctl reads its rings.
    """

    def __init__(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.model = ModelBroker(NEWEST)
        self.messages: dict[str, int] = {}
        self.refuses: set[str] = set()
        self.opened, self.has_source = 0, True
        self._path = path

        def connected(*_: object) -> _Client:
            self.opened += 1
            return _Client(self)

        monkeypatch.setattr("rabbit_chx.broker.facade._Connected", connected)
        monkeypatch.setattr(BrokerAddresses, "management", connected)
        monkeypatch.setattr("rabbit_chx.broker.facade.is_traced", lambda *_: False)
        monkeypatch.setattr("rabbit_chx.broker.facade.trace", lambda *_: [("a key", ())])

    def holds(self, topology: Topology | LiveTopology) -> None:
        """Let the broker have what a topology says, and nothing else."""
        self.model = ModelBroker.holding(topology, NEWEST)

    def of_broker(self, *command: str) -> tuple[str, ...]:
        """Return the command line of a command that asks the broker."""
        return (*command, *_OPTIONS)

    def arguments(self, command: str, text: str, *options: str) -> tuple[str, ...]:
        """Write a file, and return the command line of a command about it."""
        self._path.write_text(text)
        return (command, str(self._path), *_OPTIONS, *options)


class _Client(ModelClient):
    def __init__(self, commands: ModelledCommands) -> None:
        super().__init__(commands.model, has_source=commands.has_source)
        self._commands = commands

    def move_messages(self, queue: str, exchange: str, limit: int) -> int:  # noqa: ARG002  # all of them
        return self._commands.messages.pop(queue, 0)

    def messages_in(self, queue: str) -> int:
        return super().messages_in(queue) if queue == MARK else self._commands.messages.get(queue, 0)

    def count(self, queue: str) -> QueueCounts:
        self._refuse(queue)
        return super().count(queue)

    def perform(self, operation: Operation) -> None:
        subject = operation.subject
        if operation.action == "declare" and isinstance(subject, QueueDefinition):
            self._refuse(subject.name)
            if subject.name in self._model.queues:  # a second time, as a broker allows
                return
        super().perform(operation)

    def _refuse(self, queue: str) -> None:
        if queue in self._commands.refuses:
            text = f"ACCESS_REFUSED - access to queue '{queue}' refused"
            raise make_refusal(self.where, Operation("declare", QueueDefinition(queue)), 403, text)


class Stream(io.StringIO):
    """A stream that says whether it is a terminal."""

    def __init__(self, text: str = "", *, terminal: bool) -> None:
        super().__init__(text)
        self._terminal = terminal

    def isatty(self) -> bool:
        return self._terminal
