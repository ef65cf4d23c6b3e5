"""The tables of arguments and settings against a broker: each name, each type of queue, good and bad values."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, cast

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import ChannelClosedByBroker, ConnectionClosedByBroker

from rabbit_chx.broker import pika_parameters
from rabbit_chx.broker.management import Management
from rabbit_chx.errors import RabbitChxError
from rabbit_chx.routing.message import HASH_PROPERTIES
from rabbit_chx.topology import ExchangeDefinition, PolicyDefinition, QueueDefinition
from rabbit_chx.topology.objects.argument_table import plain
from rabbit_chx.topology.objects.objects import QUEUE_TYPES
from rabbit_chx.topology.rules.arguments import (
    POLICY_KEYS,
    QUEUE_ARGUMENTS,
    declaration_faults,
    fields_for,
    find_ignored_arguments,
)
from tests.parity.conftest import Rabbit

pytestmark = pytest.mark.docker

#: Values for each name: each type of value, and the borders that several names have.
COMMON: tuple[Any, ...] = (
    -1, 0, 1, 2, 255, 256, 3_000_000_001, 315_360_000_001, 2**63 - 1, True, "", "x", "1", None, {}, ["a"],
)  # fmt: skip
WORDS = (
    "drop-head", "reject-publish", "reject-publish-dlx", "at-most-once", "at-least-once", "default", "lazy", "client-local", "balanced",
    "least-leaders", "random", "min-masters", "all", "failed", "returned", "disabled", "amq.direct", "Lazy", "drop_head",
)  # fmt: skip
AGES = (
    "7D", "1Y", "1M", "24h", "1m", "1s", "0D", "1d", "1w", "07D", "1 D", " 1D", "-1D", "1.5h", "1DD", "1D\n", "D", "\u0661D",
)  # fmt: skip
WORDY = ("overflow", "strategy", "mode", "locator", "retry-type", "exchange")
#: More values for the arguments and settings whose names contain one of these.
SPECIAL: dict[str, tuple[Any, ...]] = {
    "max-age": AGES,
    "filter-size": (15, 16, 254),
    "segment-size": (3_000_000_000,),
    "ttl": (315_360_000_000,),
    "expires": (315_360_000_000,),
    **dict.fromkeys(WORDY, WORDS),
}


def values_of(name: str) -> tuple[Any, ...]:
    return (*COMMON, *(value for part, values in SPECIAL.items() if part in name for value in values))


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


@pytest.mark.parametrize("type_", QUEUE_TYPES)
def test_arguments_of_queues_are_refused_where_the_broker_refuses_them(rabbit: Rabbit, type_: str) -> None:
    wrong: list[tuple[str, Any, bool]] = []
    cases = [(name, value) for name in (*QUEUE_ARGUMENTS, "x-unknown") for value in values_of(name)]
    # A queue that expires in 2 ms may be gone before the broker has declared it.
    cases = [
        (name, value)
        for name, value in cases
        if name != "x-expires" or value in (0, -1) or type(value) is not int
    ]
    cases.append(("x-expires", 60_000))
    with declaring(rabbit) as declarer:
        for name, value in cases:
            queue = queue_of(type_, name, value)
            accepted = is_declared(declarer, queue)
            # What has no effect is not checked either.
            is_ignored = any(found == name for found, _, _ in find_ignored_arguments(queue, rabbit.release))
            faults = declaration_faults(queue, rabbit.release)
            if accepted is bool(faults) or (is_ignored and any(name in found.field for found in faults)):
                wrong.append((name, value, accepted))
    assert wrong == []


@pytest.mark.parametrize("type_", ["direct", "fanout", "topic", "headers", "x-consistent-hash"])
def test_arguments_of_exchanges_are_refused_where_the_broker_refuses_them(rabbit: Rabbit, type_: str) -> None:
    wrong: list[tuple[str, Any, bool]] = []
    values: tuple[Any, ...] = (5, True, "", "x", None, [], {}, ["a"], *HASH_PROPERTIES, "app_id")
    tables: list[dict[str, Any]] = [
        {name: value}
        for name in ("alternate-exchange", "hash-header", "hash-property", "x-unknown")
        for value in values
    ]
    tables.append({"hash-header": "a", "hash-property": "message_id"})
    with declaring(rabbit) as declarer:
        for table in tables:

            def declare(channel: BlockingChannel, table: Mapping[str, Any] = table) -> None:
                channel.exchange_declare("arguments", cast("Any", type_), durable=True, arguments=dict(table))

            accepted = declarer.accepts(declare)
            if accepted:
                declarer.channel.exchange_delete("arguments")
            exchange = ExchangeDefinition("arguments", type_, arguments=table)
            if accepted is bool(declaration_faults(exchange, rabbit.release)):
                wrong.append((json.dumps(table), None, accepted))
    assert wrong == []


SETTINGS: tuple[dict[str, Any], ...] = (
    {},
    {"routing-key": "1", "shards-per-node": 1},
    {"routing-key": "1"},
    {"dead-letter-routing-key": "k"},
    {"max-length": 1, "expires": 0},
)
#: Settings of plugins, and those that need others: their values are not checked here.
UNCHECKED = ("ha-", "federation-", "shards-per-node", "routing-key")
PATTERNS = (
    "", "^a", ".*", "a++", "(?>a)", r"\p{L}", "[[:alpha:]]", r"\Qa\E", "(?i)a", r"^o\..*$",
    "(", ")", "[", "*", "?a", "+", "a|*", "\\", "a\\", "[z", "(a", "a{2,1}", "(?#",
)  # fmt: skip


def is_set(api: Management, policy: PolicyDefinition) -> bool:
    body = {
        "pattern": policy.pattern,
        "definition": plain(policy.definition),
        "apply-to": policy.apply_to,
        "priority": 0,
    }
    try:
        api.put("policies", "/", policy.name, body=body)
    except RabbitChxError:
        return False
    return True


def test_settings_of_policies_are_refused_where_the_broker_refuses_them(rabbit: Rabbit) -> None:
    assert rabbit.broker.management_url is not None
    api = Management(rabbit.broker.management_url)
    names = [name for name in POLICY_KEYS if not name.startswith(UNCHECKED)]
    policies = [
        PolicyDefinition("p", "^none$", definition={name: value})
        for name in names
        for value in values_of(name)
    ]
    policies += [PolicyDefinition("p", "^none$", definition=settings) for settings in SETTINGS]
    policies += [PolicyDefinition("p", pattern, definition={"max-length": 1}) for pattern in PATTERNS]
    wrong = [
        (policy.pattern, policy.definition, accepted)
        for policy in policies
        if (accepted := is_set(api, policy)) is bool(declaration_faults(policy, rabbit.release))
    ]
    assert wrong == []


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
            valid = [queue for queue in queues if not declaration_faults(queue, rabbit.release)]
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
