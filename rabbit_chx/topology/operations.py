"""The AMQP operations of a change, and the errors for those that the broker refuses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from rabbit_chx.amqp import names
from rabbit_chx.amqp.replies import error_for
from rabbit_chx.errors import AccessRefusedError, InputError, RabbitChxError
from rabbit_chx.routing import ExchangeRef
from rabbit_chx.topology.changes import PlannedChange
from rabbit_chx.topology.objects import (
    BindingDefinition,
    ExchangeDefinition,
    PolicyDefinition,
    QueueDefinition,
)

_ACCESS_REFUSED = 403

#: The objects that AMQP handles. Policies need the management API.
AmqpObject: TypeAlias = ExchangeDefinition | QueueDefinition | BindingDefinition


@dataclass(frozen=True, slots=True)
class Operation:
    """One AMQP method.

    Attributes:
        action: bindings are bound and unbound, other objects declared and deleted.
        if_unused: True: the broker refuses a deletion while the object has bindings or consumers.
        if_empty: True: the broker refuses the deletion of a queue with messages. It checks both conditions for classic queues only.
    """

    action: Literal["declare", "delete", "bind", "unbind"]
    subject: AmqpObject
    if_unused: bool = False
    if_empty: bool = False


@dataclass(frozen=True, slots=True)
class QueueCounts:
    """The number of ready messages and the number of consumers of a queue."""

    messages: int
    consumers: int


def operations_of(change: PlannedChange, *, allow_loss: bool) -> tuple[Operation, ...]:
    """Return the operations of a change, in order; empty for a policy. `allow_loss` permits deleting queues with messages or consumers."""
    live, wanted = change.live, change.wanted
    if isinstance(change.subject, BindingDefinition):
        return (Operation("unbind" if change.action == "unbind" else "bind", change.subject),)
    operations = []
    if isinstance(live, ExchangeDefinition):
        operations.append(Operation("delete", live, if_unused=True))
    if isinstance(live, QueueDefinition):
        # The broker refuses the conditions for quorum queues and streams (540 NOT_IMPLEMENTED).
        is_checked = live.type == "classic" and not allow_loss
        operations.append(Operation("delete", live, if_unused=is_checked, if_empty=is_checked))
    if wanted is not None and not isinstance(wanted, PolicyDefinition):
        operations.append(Operation("declare", wanted))
    return tuple(operations)


def is_repeatable(change: PlannedChange) -> bool:
    """Return True if the broker ignores a repetition of a change."""
    return change.action in ("create", "bind") and change.kind != "policy"


def check_declared_name(name: str, kind: str) -> None:
    """Refuse names that do not reach the broker unchanged.

    RabbitMQ removes CR and LF from names (rabbitmq-server v4.3.6, rabbit_channel.erl, ``strip_cr_lf/1``). pika then waits without limit for
    an answer with the requested name.

    Raises:
        InputError: the name is empty, longer than 255 bytes, or has a line break.
    """
    names.check_name(name, kind)
    if "\r" in name or "\n" in name:
        raise InputError(f"the {kind} name {name!r} has a line break, which RabbitMQ drops: remove it")


def refused(where: str, operation: Operation, reply_code: int, reply_text: str) -> RabbitChxError:
    """Return the error for an operation that the broker refused, with the broker's reply text."""
    exchange, queue = _ends(operation.subject)
    error = error_for(reply_code, reply_text, where=where, exchange=exchange, queue=queue)
    if reply_code != _ACCESS_REFUSED:
        return error
    return AccessRefusedError(
        f"{error}; for this the user needs {_permissions(operation.subject)}",
        exchange=exchange,
        queue=queue,
        reply_code=reply_code,
    )


def _ends(subject: AmqpObject) -> tuple[str | None, str | None]:
    if isinstance(subject, BindingDefinition):
        place = subject.destination
        return subject.source, None if isinstance(place, ExchangeRef) else place
    return (subject.name, None) if isinstance(subject, ExchangeDefinition) else (None, subject.name)


def _permissions(subject: AmqpObject) -> str:
    """Return the permissions that an operation needs, in words. Before 4.0 the broker does not name the missing one."""
    if isinstance(subject, BindingDefinition):
        place = subject.destination
        written = f"exchange {place.name}" if isinstance(place, ExchangeRef) else f"queue {place}"
        return f"write on {written} and read on exchange {subject.source}"
    is_exchange = isinstance(subject, ExchangeDefinition)
    needed = f"configure on {'exchange' if is_exchange else 'queue'} {subject.name}"
    publishes_to = subject.arguments.get("alternate-exchange" if is_exchange else "x-dead-letter-exchange")
    return f"{needed}, read on it, and write on exchange {publishes_to}" if publishes_to else needed
