"""Messages over AMQP 1.0, published and consumed by RabbitMQ's own client for Python.

They are consumed that way, too: over AMQP 0-9-1 some of them cannot be (tests/parity/test_amqp10.py).
"""

from __future__ import annotations

import gc
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any
from urllib.parse import quote
from uuid import UUID

from rabbit_chx.amqp import Amqp10Value
from rabbit_chx.amqp.amqp10_values import id_for, named_values
from rabbit_chx.testing import skip_unless_ci

if TYPE_CHECKING:  # which imports this
    from routes.scenario import Message

#: With so few routing keys each has a link of its own, with the key in its target; else the key is in `to`.
MAX_LINKS = 60
ARRIVAL_TIMEOUT_S = 30


def on_the_wire(message: Message) -> dict[str, Any]:
    """Application properties and properties as the client sends them."""
    read: dict[str, Callable[[Any], Any]] = {
        "creation_time": lambda milliseconds: Amqp10Value("timestamp", milliseconds),
        "message_annotations": named_values,
    }
    properties = {
        name: read.get(name, lambda value, name=name: id_for(name, value))(value)
        for name, value in message.properties.items()
    }
    return {"headers": named_values(message.headers or {}), "properties": properties}


@contextmanager
def _collecting() -> Iterator[None]:
    """Collect the garbage afterwards: the client leaves it some sockets, of which pytest would complain later."""
    try:
        yield
    finally:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            gc.collect()


@_collecting()
def publish(url: str, exchange: str, messages: Iterable[tuple[int, Message]]) -> int:
    """Publish them, each with its number as its body, and return how many came back as unroutable."""
    client, proton = _client(), _client(".qpid.proton.utils")
    numbered = list(messages)
    few = len({message.key for _, message in numbered}) <= MAX_LINKS
    environment = client.Environment(uri=url)
    connection = environment.connection()
    connection.dial()
    returned = 0
    try:
        publishers: dict[str, Any] = {}
        for number, message in numbered:
            address = _address(exchange, message.key)
            target = address if few else ""
            if target not in publishers:
                publishers[target] = connection.publisher(target)
            sent = _built(message, str(number).encode())
            if not few:
                sent.address = address
            try:
                publishers[target].publish(sent)
            except proton.SendException:  # released: nothing takes it
                returned += 1
    finally:
        environment.close()
    return returned


@_collecting()
def consume(url: str, counts: Mapping[str, int]) -> list[tuple[str, int]]:
    """Take so many messages out of each queue: the queue and the number of each message."""
    connection = _client(".qpid.proton.utils").BlockingConnection(url, timeout=ARRIVAL_TIMEOUT_S)
    found = []
    try:
        for queue, count in counts.items():
            # Each call of receive asks for one message. With credit at the begin it would ask for a second one, out of the order of others.
            receiver = connection.create_receiver(f"/queues/{quote(queue, safe='')}", credit=0)
            for _ in range(count):
                message = receiver.receive(timeout=ARRIVAL_TIMEOUT_S)  # its body is a view, and goes with it
                found.append((queue, int(bytes(message.body))))
                receiver.accept()
            receiver.close()
    finally:
        connection.close()
    return found


def _client(module: str = "") -> Any:
    """A module of the client, which is not there unless its group of dependencies was installed."""
    try:
        return import_module(f"rabbitmq_amqp_python_client{module}")
    except ImportError as error:
        skip_unless_ci(f"{error}: pip install --group parity, which needs a C compiler")


def _address(exchange: str, key: str) -> str:
    """Not by the client's AddressHelper, which writes the code points of symbols and emoji as if they were bytes."""
    return f"/exchanges/{quote(exchange, safe='')}/{quote(key, safe='')}"


def _built(message: Message, body: bytes) -> Any:
    client = _client()
    built = client.Message(body=body)
    if message.headers:
        built.application_properties = {name: _python(value) for name, value in message.headers.items()}
    annotations = {
        client.symbol(name): _python(value)
        for name, value in message.properties.get("message_annotations", {}).items()
    }
    if message.cc:
        annotations[client.symbol("x-cc")] = list(message.cc)
    built.annotations = annotations or None
    for name, value in message.properties.items():
        if name == "message_annotations":
            continue
        if name == "creation_time":
            # The client takes seconds, and cuts the milliseconds off towards zero.
            built.creation_time = (value + (0.5 if value > 0 else -0.5)) / 1000
        else:
            setattr(built, {"message_id": "id"}.get(name, name), value)
    return built


def _python(value: Any) -> Any:
    """What the client sends as that type; a bare value as it is."""
    if not isinstance(value, Amqp10Value):
        return value
    proton = _client(".qpid.proton")
    made: dict[str, Callable[[Any], Any]] = {
        "uuid": lambda data: UUID(bytes=data),
        "string": bytes.decode,
        "symbol": lambda data: proton.symbol(data.decode()),
        "char": lambda code: proton.char(chr(code)),
        "int": proton.int32,
        "float": proton.float32,
        "decimal32": lambda _: proton.decimal32(7),
        "decimal64": lambda _: proton.decimal64(7),
        "decimal128": lambda _: proton.decimal128(bytes(16)),
        "list": lambda _: ["a", 5],
        "map": lambda _: {"a": 5},
        "array": lambda _: proton.Array(proton.UNDESCRIBED, proton.Data.INT, 1, 2),
    }
    plain = {"null", "boolean", "long", "double", "binary"}
    if value.type in plain:
        return value.value
    return (made.get(value.type) or getattr(proton, value.type))(value.value)
