"""Operations on a broker over AMQP and their order. No I/O, so that every client can run them.

A sequence is a generator. It yields an operation, and gets None, or the :class:`Refusal` that the broker
answered. At the end it returns or raises. An adapter for a client performs one operation at a time.
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
    "check_declared_name",
    "check_exchange",
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
    """Declare an exchange; a passive one asks only whether an exchange of that name exists, of any type."""

    exchange: str
    type: str = CHX
    durable: bool = True
    arguments: Arguments | None = None
    passive: bool = False


@dataclass(frozen=True, slots=True)
class QueueDeclare:
    """Declare a queue; a passive one asks only whether a queue of that name exists."""

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
    """The broker closed the channel or the connection in place of an answer."""

    reply_code: int
    reply_text: str


_T = TypeVar("_T")
OperationSequence: TypeAlias = Generator[Operation, Refusal | None, _T]


def check_declared_name(name: str, kind: str) -> None:
    """Refuse names that do not reach the broker unchanged.

    RabbitMQ removes CR and LF from names (rabbitmq-server v4.3.6, rabbit_channel.erl, ``strip_cr_lf/1``).
    pika then waits for ever for an answer with the name that it asked for.

    Args:
        name: the name.
        kind: ``exchange`` or ``queue``, for errors.

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
    """Find what is missing of an exchange and its queues; change nothing.

    What exists is declared once more. The broker accepts that for an equal one and refuses it for a different
    one.

    Args:
        where: the broker's address without password, for errors.
        exchange: the exchange as it should be.
        queues: the queues as they should be.
        bindings: bindings whose destination exchanges must exist.

    Returns:
        The declarations of what does not exist.

    Raises:
        RabbitChxError: the broker refuses an operation; see :func:`refused`.
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
    """Perform one operation after the other.

    Args:
        where: the broker's address without password, for errors.
        operations: the operations, in order.

    Raises:
        RabbitChxError: the broker refuses an operation; see :func:`refused`.
    """
    for operation in operations:
        _accept(where, operation, (yield operation))


def declare_ring(
    where: str,
    exchange: ExchangeDeclare,
    queues: Iterable[QueueDeclare],
    bindings: Iterable[QueueBind | ExchangeBind],
) -> OperationSequence[None]:
    """Check everything, then create what is missing and make all bindings in the given order.

    Args:
        where: the broker's address without password, for errors.
        exchange: the exchange as it should be.
        queues: the queues as they should be.
        bindings: the bindings, in bind order.

    Raises:
        RabbitChxError: the broker refuses an operation; see :func:`refused`.
    """
    bindings = tuple(bindings)
    missing = yield from look_at(where, exchange, queues, bindings)
    yield from perform(where, (*missing, *bindings))


def check_exchange(where: str, exchange: str) -> OperationSequence[None]:
    """Check that an exchange exists, of any type.

    Args:
        where: the broker's address without password, for errors.
        exchange: the exchange's name.

    Raises:
        NotFoundError: there is no such exchange.
    """
    operation = ExchangeDeclare(exchange, passive=True)
    _accept(where, operation, (yield operation))


def _accept(where: str, operation: Operation, refusal: Refusal | None) -> None:
    if refusal is not None:
        raise refused(where, operation, refusal)


def refused(where: str, operation: Operation, refusal: Refusal) -> RabbitChxError:
    """Return the error for an operation that the broker refused; its message has the broker's own words.

    Args:
        where: the broker's address without password.
        operation: the operation.
        refusal: the broker's answer.
    """
    exchange = None if isinstance(operation, QueueDeclare) else operation.exchange
    queue = operation.queue if isinstance(operation, QueueDeclare | QueueBind) else None
    return error_for(refusal.reply_code, refusal.reply_text, where=where, exchange=exchange, queue=queue)
