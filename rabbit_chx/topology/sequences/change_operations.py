"""The changes of a plan as operations on a broker."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rabbit_chx.routing import ExchangeRef
from rabbit_chx.topology.objects import (
    BindingDefinition,
    ExchangeDefinition,
    PolicyDefinition,
    QueueDefinition,
    plain,
)
from rabbit_chx.topology.sequences.operations import (
    ExchangeBind,
    ExchangeDeclare,
    ExchangeDelete,
    ExchangeUnbind,
    QueueBind,
    QueueDeclare,
    QueueDelete,
    QueueUnbind,
)
from rabbit_chx.topology.sequences.steps import ApiRequest

if TYPE_CHECKING:
    from rabbit_chx.topology.changes import PlannedChange
    from rabbit_chx.topology.sequences.operations import Operation

__all__ = ["is_repeatable", "steps_of"]

#: These may be done again without an effect: a broker ignores what is there already.
_REPEATABLE = ("create", "bind")


def is_repeatable(change: PlannedChange) -> bool:
    """Return whether a change that is done already may be done once more, without any effect.

    Args:
        change: the change.
    """
    return change.action in _REPEATABLE and change.kind != "policy"


def steps_of(change: PlannedChange, vhost: str, *, allow_loss: bool) -> tuple[Operation | ApiRequest, ...]:
    """Return the operations of a change, in order. Changes of policies are requests to the management API.

    Args:
        change: the change.
        vhost: the vhost.
        allow_loss: whether a queue may be deleted that has messages or consumers.
    """
    live, wanted = change.live, change.wanted
    if isinstance(wanted, PolicyDefinition) or isinstance(live, PolicyDefinition):
        return (_policy_request(live, wanted, vhost),)  # type: ignore[arg-type]  # both are of one kind
    if isinstance(change.subject, BindingDefinition):
        return (_unbind(change.subject) if change.action == "unbind" else _bind(change.subject),)
    steps: list[Operation] = []
    if live is not None:
        steps.append(_delete(live, allow_loss=allow_loss))  # type: ignore[arg-type]  # no binding comes here
    if wanted is not None:
        steps.append(_declare(wanted))  # type: ignore[arg-type]
    return tuple(steps)


def _declare(one: ExchangeDefinition | QueueDefinition) -> Operation:
    if isinstance(one, ExchangeDefinition):
        return ExchangeDeclare(
            one.name,
            one.type,
            one.durable,
            plain(one.arguments),
            auto_delete=one.auto_delete,
            internal=one.internal,
        )
    return QueueDeclare(
        one.name,
        one.durable,
        plain(one.declared_arguments),
        exclusive=one.exclusive,
        auto_delete=one.auto_delete,
    )


def _delete(one: ExchangeDefinition | QueueDefinition, *, allow_loss: bool) -> Operation:
    if isinstance(one, ExchangeDefinition):
        return ExchangeDelete(one.name, if_unused=True)
    # The broker refuses the conditions for quorum queues and streams (540 NOT_IMPLEMENTED).
    checked = one.type == "classic" and not allow_loss
    return QueueDelete(one.name, if_unused=checked, if_empty=checked)


def _bind(one: BindingDefinition) -> Operation:
    if isinstance(one.destination, ExchangeRef):
        return ExchangeBind(one.destination.name, one.source, one.routing_key, plain(one.arguments))
    return QueueBind(one.destination, one.source, one.routing_key, plain(one.arguments))


def _unbind(one: BindingDefinition) -> Operation:
    if isinstance(one.destination, ExchangeRef):
        return ExchangeUnbind(one.destination.name, one.source, one.routing_key, plain(one.arguments))
    return QueueUnbind(one.destination, one.source, one.routing_key, plain(one.arguments))


def _policy_request(live: PolicyDefinition | None, wanted: PolicyDefinition | None, vhost: str) -> ApiRequest:
    if wanted is None:
        assert live is not None  # noqa: S101  # a change is of something
        return ApiRequest("DELETE", ("policies", vhost, live.name))
    body = {
        "pattern": wanted.pattern,
        "apply-to": wanted.apply_to,
        "definition": plain(wanted.definition),
        "priority": wanted.priority,
    }
    return ApiRequest("PUT", ("policies", vhost, wanted.name), body=body)
