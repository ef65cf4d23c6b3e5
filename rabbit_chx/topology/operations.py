"""Operations on a broker over AMQP, as values, and the errors for those that it refuses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias, assert_never

from rabbit_chx.amqp import names
from rabbit_chx.amqp.replies import error_for
from rabbit_chx.errors import AccessRefusedError, InputError, RabbitChxError

__all__ = [
    "CHX",
    "ExchangeBind",
    "ExchangeDeclare",
    "ExchangeDelete",
    "ExchangeUnbind",
    "Operation",
    "QueueBind",
    "QueueCounts",
    "QueueDeclare",
    "QueueDelete",
    "QueueUnbind",
    "Refusal",
    "check_declared_name",
    "refused",
]

CHX = "x-consistent-hash"
_ACCESS_REFUSED = 403

Arguments: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ExchangeDeclare:
    """Declare an exchange; a passive one asks only whether an exchange of that name exists, of any type."""

    exchange: str
    type: str = CHX
    durable: bool = True
    arguments: Arguments | None = None
    passive: bool = False
    auto_delete: bool = False
    internal: bool = False


@dataclass(frozen=True, slots=True)
class QueueDeclare:
    """Declare a queue; a passive one asks only whether a queue of that name exists, and what is in it.

    The answer to it is a `QueueCounts`.
    """

    queue: str
    durable: bool = True
    arguments: Arguments | None = None
    passive: bool = False
    exclusive: bool = False
    auto_delete: bool = False


@dataclass(frozen=True, slots=True)
class QueueBind:
    """Bind a queue to an exchange."""

    queue: str
    exchange: str
    binding_key: str
    arguments: Arguments | None = None


@dataclass(frozen=True, slots=True)
class ExchangeBind:
    """Bind an exchange as the destination of another."""

    destination: str
    exchange: str
    binding_key: str
    arguments: Arguments | None = None


@dataclass(frozen=True, slots=True)
class QueueUnbind:
    """Take a binding of a queue away. Without such a binding nothing happens."""

    queue: str
    exchange: str
    binding_key: str
    arguments: Arguments | None = None


@dataclass(frozen=True, slots=True)
class ExchangeUnbind:
    """Take a binding of an exchange as a destination away. Without such a binding nothing happens."""

    destination: str
    exchange: str
    binding_key: str
    arguments: Arguments | None = None


@dataclass(frozen=True, slots=True)
class QueueDelete:
    """Delete a queue. The broker checks the conditions for classic queues only."""

    queue: str
    if_unused: bool = False
    if_empty: bool = False


@dataclass(frozen=True, slots=True)
class ExchangeDelete:
    """Delete an exchange; with `if_unused` the broker refuses while something is bound to it."""

    exchange: str
    if_unused: bool = False


Operation: TypeAlias = (
    ExchangeDeclare
    | QueueDeclare
    | QueueBind
    | ExchangeBind
    | QueueUnbind
    | ExchangeUnbind
    | QueueDelete
    | ExchangeDelete
)


@dataclass(frozen=True, slots=True)
class QueueCounts:
    """What is in a queue.

    Attributes:
        messages: how many messages are ready for delivery.
        consumers: how many consumers the queue has.
    """

    messages: int
    consumers: int


@dataclass(frozen=True, slots=True)
class Refusal:
    """The broker closed the channel or the connection in place of an answer."""

    reply_code: int
    reply_text: str


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


def refused(where: str, operation: Operation, refusal: Refusal) -> RabbitChxError:
    """Return the error for an operation that the broker refused; its message has the broker's own words.

    Args:
        where: the broker's address without password.
        operation: the operation.
        refusal: the broker's answer.
    """
    exchange, queue = getattr(operation, "exchange", None), getattr(operation, "queue", None)
    error = error_for(refusal.reply_code, refusal.reply_text, where=where, exchange=exchange, queue=queue)
    if refusal.reply_code != _ACCESS_REFUSED or getattr(operation, "passive", False):
        return error
    return AccessRefusedError(
        f"{error}; for this the user needs {_needed(operation)}",
        exchange=exchange,
        queue=queue,
        reply_code=refusal.reply_code,
    )


def _needed(operation: Operation) -> str:
    """Return the permissions that an operation needs, in words. Before 4.0 the broker does not say which one lacks."""
    match operation:
        case ExchangeDeclare(exchange=name):
            other = (operation.arguments or {}).get("alternate-exchange")
            needs = f", read on it, and write on exchange {other}" if other else ""
            return f"configure on exchange {name}{needs}"
        case QueueDeclare(queue=name):
            other = (operation.arguments or {}).get("x-dead-letter-exchange")
            needs = f", read on it, and write on exchange {other}" if other else ""
            return f"configure on queue {name}{needs}"
        case QueueBind(queue=name) | QueueUnbind(queue=name):
            return f"write on queue {name} and read on exchange {operation.exchange}"
        case ExchangeBind(destination=name) | ExchangeUnbind(destination=name):
            return f"write on exchange {name} and read on exchange {operation.exchange}"
        case QueueDelete(queue=name):
            return f"configure on queue {name}"
        case ExchangeDelete(exchange=name):
            return f"configure on exchange {name}"
        case _:
            assert_never(operation)
