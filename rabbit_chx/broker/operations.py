"""What is asked of a broker over AMQP, and in which order: without I/O, so that every client can run it.

A sequence is a generator: it yields an operation, is sent None or the :class:`Refusal` that the broker answered
with, and returns or raises at the end. An adapter for a client performs one operation at a time.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias, TypeVar

from rabbit_chx.amqp import names
from rabbit_chx.amqp.replies import error_for
from rabbit_chx.errors import InputError, RabbitChxError

__all__ = [
    "CHX",
    "ExchangeBind",
    "ExchangeDeclare",
    "Operation",
    "OperationSequence",
    "QueueBind",
    "QueueDeclare",
    "Refusal",
    "check_exchange",
    "check_name",
    "declare_ring",
    "look_at",
    "perform",
    "refused",
]

CHX = "x-consistent-hash"
_NOT_FOUND = 404

Arguments: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ExchangeDeclare:
    """Declare an exchange; passive: only ask whether it is there, of whatever type."""

    exchange: str
    type: str = CHX
    durable: bool = True
    arguments: Arguments | None = None
    passive: bool = False


@dataclass(frozen=True, slots=True)
class QueueDeclare:
    """Declare a queue; passive: only ask whether it is there."""

    queue: str
    durable: bool = True
    arguments: Arguments | None = None
    passive: bool = False


@dataclass(frozen=True, slots=True)
class QueueBind:
    """Bind a queue to an exchange and wait until the broker has done it."""

    queue: str
    exchange: str
    binding_key: str


@dataclass(frozen=True, slots=True)
class ExchangeBind:
    """Bind an exchange as the destination of another and wait until the broker has done it."""

    destination: str
    exchange: str
    binding_key: str


Operation: TypeAlias = ExchangeDeclare | QueueDeclare | QueueBind | ExchangeBind


@dataclass(frozen=True, slots=True)
class Refusal:
    """The broker closed the channel or the connection instead of doing it."""

    reply_code: int
    reply_text: str


_T = TypeVar("_T")
OperationSequence: TypeAlias = Generator[Operation, Refusal | None, _T]


def check_name(kind: str, name: str) -> None:
    """Refuse names that do not reach the broker as they are.

    RabbitMQ removes CR and LF from names (rabbitmq-server v4.3.6, rabbit_channel.erl, ``strip_cr_lf/1``); pika then
    waits for ever for an answer that bears the name it asked for.

    Raises:
        InputError: the name is empty, longer than 255 bytes, or has a line break.
    """
    names.check_name(name, kind)
    if "\r" in name or "\n" in name:
        raise InputError(f"the {kind} name {name!r} has a line break, which RabbitMQ drops: remove it")


def look_at(
    where: str,
    exchange: ExchangeDeclare,
    queues: Iterable[QueueDeclare],
    bindings: Iterable[QueueBind | ExchangeBind],
) -> OperationSequence[tuple[ExchangeDeclare | QueueDeclare, ...]]:
    """What is missing of an exchange and its queues; nothing is changed.

    What exists is compared by declaring it once more, which changes nothing on an equal one and is refused on another.

    Args:
        where: the broker's address without password, for errors.
        exchange: what it should be.
        queues: what they should be.
        bindings: whose destination exchanges must be there.

    Raises:
        RabbitChxError: what the broker refused, by :func:`refused`.
    """
    missing: list[ExchangeDeclare | QueueDeclare] = []
    things: tuple[ExchangeDeclare | QueueDeclare, ...] = (exchange, *queues)
    for wanted in things:
        refusal = yield replace(wanted, passive=True)
        if refusal is not None and refusal.reply_code == _NOT_FOUND:
            missing.append(wanted)
            continue
        _accept(where, wanted, refusal)
        _accept(where, wanted, (yield wanted))
    for name in dict.fromkeys(b.destination for b in bindings if isinstance(b, ExchangeBind)):
        yield from check_exchange(where, name)
    return tuple(missing)


def perform(where: str, operations: Iterable[Operation]) -> OperationSequence[None]:
    """One operation after the other.

    Raises:
        RabbitChxError: what the broker refused, by :func:`refused`.
    """
    for operation in operations:
        _accept(where, operation, (yield operation))


def declare_ring(
    where: str,
    exchange: ExchangeDeclare,
    queues: Iterable[QueueDeclare],
    bindings: Iterable[QueueBind | ExchangeBind],
) -> OperationSequence[None]:
    """Look at everything, then create what is missing, and bind all in the given order; see `look_at`."""
    bindings = tuple(bindings)
    missing = yield from look_at(where, exchange, queues, bindings)
    yield from perform(where, (*missing, *bindings))


def check_exchange(where: str, exchange: str) -> OperationSequence[None]:
    """Ask whether an exchange is there, of whatever type.

    Raises:
        NotFoundError: it is not.
    """
    operation = ExchangeDeclare(exchange, passive=True)
    _accept(where, operation, (yield operation))


def _accept(where: str, operation: Operation, refusal: Refusal | None) -> None:
    if refusal is not None:
        raise refused(where, operation, refusal)


def refused(where: str, operation: Operation, refusal: Refusal) -> RabbitChxError:
    """The error for an operation that the broker refused; its message has the broker's own words."""
    exchange = None if isinstance(operation, QueueDeclare) else operation.exchange
    queue = operation.queue if isinstance(operation, QueueDeclare | QueueBind) else None
    return error_for(refusal.reply_code, refusal.reply_text, where=where, exchange=exchange, queue=queue)
