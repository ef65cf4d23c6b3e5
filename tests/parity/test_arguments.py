"""The table of arguments against a broker: each name, each type of queue, good and bad values."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import ChannelClosedByBroker, ConnectionClosedByBroker

from rabbit_chx.broker import pika_parameters
from rabbit_chx.topology import QueueDefinition
from rabbit_chx.topology.arguments import (
    QUEUE_ARGUMENTS,
    fields_for,
    find_ignored_arguments,
)
from rabbit_chx.topology.objects import QUEUE_TYPES
from tests.parity.conftest import Rabbit

pytestmark = pytest.mark.docker

WORDY = ("overflow", "strategy", "mode", "locator", "retry-type", "exchange")


class Declarer:
    """Declares on one channel, which is opened again after a refusal."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._connect()

    def _connect(self) -> None:
        self.connection = pika.BlockingConnection(pika_parameters(f"{url_without_heartbeat(self._url)}"))
        self.channel: BlockingChannel = self.connection.channel()

    def accepts(self, declare: Callable[[BlockingChannel], object]) -> bool:
        """Return whether the broker accepts a declaration: it closes the channel, or the connection where it crashes."""
        try:
            declare(self.channel)
        except ChannelClosedByBroker:
            self.channel = self.connection.channel()
            return False
        except ConnectionClosedByBroker:
            self._connect()
            return False
        return True


def url_without_heartbeat(url: str) -> str:
    return f"{url}?heartbeat=0"


@contextmanager
def declaring(rabbit: Rabbit) -> Iterator[Declarer]:
    declarer = Declarer(rabbit.broker.url)
    try:
        yield declarer
    finally:
        declarer.connection.close()


def queue_of(type_: str, name: str, value: Any) -> QueueDefinition:
    arguments = {name: value}
    if name == "x-dead-letter-routing-key":
        arguments["x-dead-letter-exchange"] = "amq.direct"
    return QueueDefinition("arguments", type_, arguments=arguments)


def is_declared(declarer: Declarer, queue: QueueDefinition) -> bool:
    arguments = queue.declared_arguments.plain()

    def declare(channel: BlockingChannel) -> None:
        channel.queue_declare(queue.name, durable=True, arguments=arguments)

    accepted = declarer.accepts(declare)
    if accepted:
        declarer.channel.queue_delete(queue.name)
    return accepted


#: Pairs of values are compared for the arguments that the broker compares in any release, and for one that none knows.
_ABSENT = object()
PAIRED: tuple[Any, ...] = (_ABSENT, 2, 255, 100_000_000, True, False, "", "x", ["a"], {"a": 1}, None)
PAIRED_WORDS = (
    "drop-head", "reject-publish", "default", "lazy", "random", "balanced", "at-most-once", "at-least-once",
)  # fmt: skip
PAIRED_AGES = (
    _ABSENT,
    "7D",
    "07D",
    "1D",
    "24h",
    "1440m",
    "86400s",
    "1Y",
    "365D",
    "12M",
    "1M",
    "30D",
    "1D\n",
    "1D\nx",
)


@pytest.mark.parametrize("type_", QUEUE_TYPES)
def test_equal_arguments(rabbit: Rabbit, type_: str) -> None:
    """Two declarations differ for us as they do for the broker, which refuses the second one (406) if they differ."""
    wrong: list[tuple[str, Any, Any, bool]] = []
    with declaring(rabbit) as declarer:
        for name in (*QUEUE_ARGUMENTS, "x-unknown"):
            values = PAIRED_AGES if name == "x-max-age" else PAIRED
            if any(part in name for part in WORDY):
                values += PAIRED_WORDS
            if name == "x-expires":
                values = (
                    _ABSENT,
                    100_000_000,
                    200_000_000,
                )  # a smaller one deletes the queue between two declarations
            queues = [
                QueueDefinition("arguments", type_) if value is _ABSENT else queue_of(type_, name, value)
                for value in values
            ]
            valid = [queue for queue in queues if is_declared(declarer, queue)]
            for number, first in enumerate(valid):
                declarer.channel.queue_declare(
                    first.name, durable=True, arguments=first.declared_arguments.plain()
                )
                for second in valid[number:]:
                    table = second.declared_arguments.plain()

                    def declare(channel: BlockingChannel, table: Mapping[str, Any] = table) -> None:
                        channel.queue_declare("arguments", durable=True, arguments=dict(table))

                    accepted = declarer.accepts(declare)
                    if accepted is bool(fields_for(first, second, rabbit.release)):
                        wrong.append((name, first.arguments, second.arguments, accepted))
                declarer.channel.queue_delete("arguments")
    # The broker does not compare the size that a quorum queue grows to, although it has an effect.
    assert [case for case in wrong if case[0] != "x-quorum-target-group-size"] == []


@pytest.mark.parametrize("type_", QUEUE_TYPES)
def test_an_argument_that_the_broker_refuses_has_an_effect_there(rabbit: Rabbit, type_: str) -> None:
    """So it is not said to be ignored. Some values of each are refused; which, only the broker knows."""
    wrong = []
    with declaring(rabbit) as declarer:
        for name in (*QUEUE_ARGUMENTS, "x-unknown"):
            for value in ("x", -1, True, 1 << 62):
                queue = queue_of(type_, name, value)
                is_ignored = bool(find_ignored_arguments(queue, rabbit.release))
                if is_ignored and not is_declared(declarer, queue):
                    wrong.append((name, value))
    assert wrong == []
