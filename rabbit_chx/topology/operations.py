"""What is asked of a broker, as values: operations over AMQP, and requests to the management API.

Here are the operations of each change of a plan, and the errors for those that the broker refuses.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from rabbit_chx.amqp import names
from rabbit_chx.amqp.replies import error_for
from rabbit_chx.errors import AccessRefusedError, InputError, RabbitChxError
from rabbit_chx.routing import ExchangeRef
from rabbit_chx.topology.arguments import plain
from rabbit_chx.topology.changes import PlannedChange
from rabbit_chx.topology.objects import (
    BindingDefinition,
    ExchangeDefinition,
    PolicyDefinition,
    QueueDefinition,
)

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
class ApiRequest:
    """A request to the management API. The answer is the decoded JSON.

    Attributes:
        method: GET, PUT or DELETE.
        path: the segments of the path below ``/api``, not yet quoted.
        query: the parameters behind the question mark.
        body: what to send as JSON; None for no body.
        listed: whether the answer is a list of objects, and not a single object.
        fields: the fields that the object has, or each one of the list, and their types; None: any answer will do.
    """

    method: str
    path: tuple[str, ...]
    query: Mapping[str, str] | None = None
    body: object = None
    listed: bool = field(default=False, compare=False)
    fields: Mapping[str, type] | None = field(default=None, compare=False)

    def fits(self, answer: object) -> bool:
        """Return whether an answer has the shape that is asked for."""
        if self.fields is None:
            return True
        entries = answer if self.listed else [answer]
        return isinstance(entries, list) and all(
            isinstance(entry, dict)
            and all(isinstance(entry.get(name), kind) for name, kind in self.fields.items())
            for entry in entries
        )

    @property
    def wanted_shape(self) -> str:
        """The shape that is asked for, in words."""
        what = "a list of objects" if self.listed else "an object"
        return f"{what} with {', '.join(self.fields)}" if self.fields else what


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

    Raises:
        InputError: the name is empty, longer than 255 bytes, or has a line break.
    """
    names.check_name(name, kind)
    if "\r" in name or "\n" in name:
        raise InputError(f"the {kind} name {name!r} has a line break, which RabbitMQ drops: remove it")


def refused(where: str, operation: Operation, refusal: Refusal) -> RabbitChxError:
    """Return the error for an operation that the broker refused; its message has the broker's own words."""
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


#: The permissions that each operation needs. Before 4.0 the broker does not say which one is missing.
_RIGHTS: dict[type, str] = {
    ExchangeDeclare: "configure on exchange {0.exchange}",
    ExchangeDelete: "configure on exchange {0.exchange}",
    ExchangeBind: "write on exchange {0.destination} and read on exchange {0.exchange}",
    ExchangeUnbind: "write on exchange {0.destination} and read on exchange {0.exchange}",
    QueueDeclare: "configure on queue {0.queue}",
    QueueDelete: "configure on queue {0.queue}",
    QueueBind: "write on queue {0.queue} and read on exchange {0.exchange}",
    QueueUnbind: "write on queue {0.queue} and read on exchange {0.exchange}",
}
#: The argument of a declaration that names the exchange to which what is declared publishes.
_PUBLISHES_TO = {ExchangeDeclare: "alternate-exchange", QueueDeclare: "x-dead-letter-exchange"}


def _needed(operation: Operation) -> str:
    """Return the permissions that an operation needs, in words."""
    needed = _RIGHTS[type(operation)].format(operation)
    argument = _PUBLISHES_TO.get(type(operation))
    if argument and (exchange := (getattr(operation, "arguments", None) or {}).get(argument)):
        return f"{needed}, read on it, and write on exchange {exchange}"
    return needed


def is_repeatable(change: PlannedChange) -> bool:
    """Return whether a change may be done a second time: the broker then ignores it."""
    return change.action in ("create", "bind") and change.kind != "policy"


def steps_of(change: PlannedChange, vhost: str, *, allow_loss: bool) -> tuple[Operation | ApiRequest, ...]:
    """Return the operations of a change, in order. Changes of policies are requests to the management API.

    Args:
        change: the change.
        vhost: the vhost.
        allow_loss: whether a queue may be deleted that has messages or consumers.
    """
    live, wanted, subject = change.live, change.wanted, change.subject
    if isinstance(subject, PolicyDefinition):
        return (_policy_request(subject, vhost, deleted=wanted is None),)
    if isinstance(subject, BindingDefinition):
        return (_bind(subject, unbind=change.action == "unbind"),)
    steps: list[Operation] = []
    match live:
        case ExchangeDefinition(name):
            steps.append(ExchangeDelete(name, if_unused=True))
        case QueueDefinition(name):
            # The broker refuses the conditions for quorum queues and streams (540 NOT_IMPLEMENTED).
            checked = live.type == "classic" and not allow_loss
            steps.append(QueueDelete(name, if_unused=checked, if_empty=checked))
    match wanted:
        case ExchangeDefinition(name, kind, durable):
            arguments, auto_delete = plain(wanted.arguments), wanted.auto_delete
            steps.append(
                ExchangeDeclare(
                    name, kind, durable, arguments, auto_delete=auto_delete, internal=wanted.internal
                )
            )
        case QueueDefinition(name):
            arguments, auto_delete = plain(wanted.declared_arguments), wanted.auto_delete
            steps.append(
                QueueDeclare(
                    name, wanted.durable, arguments, exclusive=wanted.exclusive, auto_delete=auto_delete
                )
            )
    return tuple(steps)


def _bind(binding: BindingDefinition, *, unbind: bool) -> Operation:
    place, arguments = binding.destination, plain(binding.arguments)
    if isinstance(place, ExchangeRef):
        operation = ExchangeUnbind if unbind else ExchangeBind
        return operation(place.name, binding.source, binding.routing_key, arguments)
    of_queue = QueueUnbind if unbind else QueueBind
    return of_queue(place, binding.source, binding.routing_key, arguments)


def _policy_request(policy: PolicyDefinition, vhost: str, *, deleted: bool) -> ApiRequest:
    path = ("policies", vhost, policy.name)
    if deleted:
        return ApiRequest("DELETE", path)
    body = {
        "pattern": policy.pattern,
        "apply-to": policy.apply_to,
        "definition": plain(policy.definition),
        "priority": policy.priority,
    }
    return ApiRequest("PUT", path, body=body)
