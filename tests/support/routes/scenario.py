"""A scenario as a value: an exchange, what is done to its bindings, and the messages that follow."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias

from rabbit_chx.amqp.fields import Client, HeaderTable, Sender, table_for
from rabbit_chx.errors import NotDeterminedError
from rabbit_chx.routing import ConsistentHashExchange, Destination, HashRing, ModulusHashExchange, Release
from rabbit_chx.routing.message import property_bytes, property_seconds
from routes import amqp10

CHX = "x-consistent-hash"
MODULUS = "x-modulus-hash"
MAX_CODE_POINTS = 0x110000
SURROGATES = range(0xD800, 0xE000)


@dataclass(frozen=True, slots=True)
class Step:
    """One thing that is done.

    Attributes:
        verb: ``bind``, ``unbind``, ``delete`` (the queue or exchange), or ``leave`` (a connection is closed, and its
            temporary queues go with it).
        destination: None for ``leave``.
        key: the binding key; the connection's name for ``leave``.
    """

    verb: Literal["bind", "unbind", "delete", "leave"]
    destination: Destination | None
    key: str = ""


@dataclass(frozen=True, slots=True)
class Temporary:
    """A queue that goes with a connection.

    Attributes:
        kind: ``exclusive``, or ``auto-delete`` with a consumer on that connection.
        connection: its name.
    """

    kind: Literal["exclusive", "auto-delete"]
    connection: str


@dataclass(frozen=True, slots=True)
class Keys:
    """Routing keys by their rule.

    Attributes:
        rule: ``decimal``: "0", "1" and so on; ``prefixed``: the prefix before these; ``planes``: such a number after a
            character, the characters being spread over all planes of Unicode; ``long``: the number, with zeros before
            it up to 255 bytes.
        count: how many.
        prefix: of the rule ``prefixed``.
    """

    rule: Literal["decimal", "prefixed", "planes", "long"]
    count: int
    prefix: str = ""

    def listed(self) -> list[str]:
        """All of them, in order."""
        if self.rule == "planes":
            return [_character(number) + str(number) for number in range(self.count)]
        if self.rule == "long":
            return [str(number).zfill(255) for number in range(self.count)]
        return [f"{self.prefix}{number}" for number in range(self.count)]


def _character(number: int) -> str:
    code = number * 7919 % MAX_CODE_POINTS
    return chr(code - len(SURROGATES) if code in SURROGATES else code)


@dataclass(frozen=True, slots=True)
class Message:
    """One message, as it is given to a client.

    Attributes:
        key: the routing key.
        headers: with bare Python values, or pairs of the wire where it was recorded.
        properties: of those that an exchange can hash.
        client: who publishes it; RabbitMQ's own for Python stands for ``amqp-1.0``.
        cc: the annotation x-cc of AMQP 1.0.
    """

    key: str = "k"
    headers: Any = None
    properties: Mapping[str, Any] = field(default_factory=dict)
    client: Sender = "pika"
    cc: tuple[str, ...] = ()

    def on_the_wire(self) -> Message:
        """The same message with the header table and the properties that the client sends."""
        if self.client == "amqp-1.0":
            return replace(self, **amqp10.on_the_wire(self))
        headers: HeaderTable | None = None if self.headers is None else table_for(self.headers, self.client)
        client: Client = self.client
        read = {"timestamp": lambda value: property_seconds(value, client)}
        sent = {
            name: read.get(name, lambda value, name=name: _text(property_bytes(name, value, client)))(value)
            for name, value in self.properties.items()
        }
        return Message(self.key, headers, {n: v for n, v in sent.items() if v is not None}, self.client)


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode()


Messages: TypeAlias = Keys | tuple[Message, ...]


@dataclass(frozen=True, slots=True)
class Scenario:
    """An exchange and all that happens to it.

    Attributes:
        name: of the scenario, and of its exchange.
        steps: in order, each after the one before it was answered.
        messages: what is published at the end.
        type: of the exchange.
        arguments: of the exchange.
        temporary: the queues that are not durable.
        since: the first version of brokers that it is for.
    """

    name: str
    steps: tuple[Step, ...]
    messages: Messages
    type: str = CHX
    arguments: Mapping[str, str] = field(default_factory=dict)
    temporary: Mapping[str, Temporary] = field(default_factory=dict)
    since: tuple[int, int, int] = (0, 0, 0)

    @property
    def destinations(self) -> tuple[Destination, ...]:
        """Every destination that a step names, in that order."""
        return tuple(dict.fromkeys(step.destination for step in self.steps if step.destination is not None))

    @property
    def message_count(self) -> int:
        """How many messages are published."""
        return self.messages.count if isinstance(self.messages, Keys) else len(self.messages)


def replay(scenario: Scenario, release: Release) -> HashRing | None:
    """The ring after the steps, by the mirror alone; None where it says that the outcome is not determined."""
    ring = HashRing.from_bindings([], release)
    try:
        for step in scenario.steps:
            ring = _after(ring, step, scenario.temporary)
    except NotDeterminedError:
        return None
    return ring


def _after(ring: HashRing, step: Step, temporary: Mapping[str, Temporary]) -> HashRing:
    if step.destination is None:
        for queue, how in temporary.items():
            if how.connection == step.key:
                ring = ring.delete_destination(queue)
        return ring
    if step.verb == "bind":
        return ring.bind(step.destination, step.key)
    if step.verb == "unbind":
        return ring.unbind(step.destination, step.key, missing_ok=True)
    return ring.delete_destination(step.destination)


def predict(scenario: Scenario, ring: HashRing | None, release: Release) -> list[Destination | None]:
    """The destination of every message, by the mirror.

    Args:
        scenario: whose messages.
        ring: of an x-consistent-hash exchange; None for x-modulus-hash.
        release: whose rules x-modulus-hash follows; a ring has its own.
    """
    exchange: ModulusHashExchange | ConsistentHashExchange
    if ring is None:
        exchange = ModulusHashExchange(scenario.name, _bindings(scenario), release)
    else:
        exchange = ConsistentHashExchange(scenario.name, ring, scenario.arguments)
    messages = scenario.messages
    if not isinstance(messages, Keys):
        return [exchange.route(m.key, m.headers, m.properties, cc=m.cc, client=m.client) for m in messages]
    if ring is None or not ring.bucket_count:
        return [exchange.route(key) for key in messages.listed()]
    places = (*ring.destinations, None)  # a hole has the index -1
    return [places[index] for index in ring.indices(messages.listed()).tolist()]


def _bindings(scenario: Scenario) -> list[tuple[Destination, str]]:
    """Those that stand after the steps, without a ring."""
    standing: dict[tuple[Destination, str], None] = {}
    for step in scenario.steps:
        assert step.destination is not None
        if step.verb == "bind":
            standing[step.destination, step.key] = None
        elif step.verb == "unbind":
            standing.pop((step.destination, step.key), None)
        else:
            standing = {binding: None for binding in standing if binding[0] != step.destination}
    return list(standing)


def without_trailing_holes(ring: HashRing) -> tuple[Destination | None, ...]:
    """The buckets as the recorded routes have them, which lack holes at the end."""
    buckets = ring.buckets
    while buckets and buckets[-1] is None:
        buckets = buckets[:-1]
    return buckets
