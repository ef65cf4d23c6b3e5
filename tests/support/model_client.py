"""Carries out sequences on the broker made of values, and dies before an operation if it is told to."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from model_broker import ModelBroker

from rabbit_chx.broker import Buckets
from rabbit_chx.drive import drive
from rabbit_chx.routing import Destination, ExchangeRef
from rabbit_chx.topology import BindingDefinition, ExchangeDefinition, PolicyDefinition, QueueDefinition
from rabbit_chx.topology.arguments import plain
from rabbit_chx.topology.operations import (
    ApiRequest,
    ExchangeBind,
    ExchangeDeclare,
    ExchangeDelete,
    Operation,
    QueueBind,
    QueueCounts,
    QueueDeclare,
    QueueDelete,
    QueueUnbind,
)
from rabbit_chx.topology.reading import APPLY_LOCK
from rabbit_chx.topology.steps import Pipeline, RingRequest, SendingCheck


class ClientKilledError(BaseException):
    """The client is no more. No handler of errors runs in a process that was killed."""


class ModelClient:
    """A client of a model.

    Args:
        model: the broker.
        dies_before: the number of the operation that it dies before; None: it lives.
    """

    def __init__(self, model: ModelBroker, dies_before: int | None = None) -> None:
        self._model, self._left = model, dies_before

    def run(self, sequence: Generator[Any, Any, Any]) -> Any:
        """Carry out a sequence.

        Raises:
            ClientKilledError: it died on the way.
        """
        return drive(sequence, self._do)

    def _do(self, step: Any) -> Any:
        if isinstance(step, ApiRequest):
            return self._listed(step) if step.method == "GET" else self._policy(step)
        if isinstance(step, RingRequest):
            rings = self._model.rings
            return {
                name: Buckets(rings[name].buckets, len(rings[name].buckets))
                for name in step.exchanges
                if name in rings
            }
        if isinstance(step, SendingCheck):
            return None
        if not isinstance(step, Pipeline):
            return self._perform(step)
        for operation in step.operations:
            self._perform(operation)
        return None

    def _count(self) -> None:
        if self._left == 0:
            raise ClientKilledError
        if self._left is not None:
            self._left -= 1

    def _perform(self, operation: Operation) -> QueueCounts | None:
        if getattr(operation, "passive", False):
            return QueueCounts(0, 0)
        if getattr(operation, "queue", None) == APPLY_LOCK:
            return QueueCounts(0, 0)
        self._count()
        model = self._model
        if isinstance(operation, QueueDeclare):
            model.create(
                QueueDefinition(
                    operation.queue, "classic", operation.durable, operation.exclusive, operation.auto_delete,
                    operation.arguments or {},
                )
            )  # fmt: skip
        elif isinstance(operation, ExchangeDeclare):
            model.create(
                ExchangeDefinition(
                    operation.exchange, operation.type, operation.durable, operation.auto_delete,
                    operation.internal, operation.arguments or {},
                )
            )  # fmt: skip
        elif isinstance(operation, QueueDelete):
            if operation.queue in model.queues:
                model.delete(model.queues[operation.queue])
        elif isinstance(operation, ExchangeDelete):
            if operation.exchange in model.exchanges:
                model.delete(model.exchanges[operation.exchange])
        else:
            place: Destination = (
                operation.queue
                if isinstance(operation, (QueueBind, QueueUnbind))
                else ExchangeRef(operation.destination)
            )
            binding = BindingDefinition(
                operation.exchange, place, operation.binding_key, operation.arguments or {}
            )
            bind = isinstance(operation, (QueueBind, ExchangeBind))
            (model.bind if bind else model.unbind)(binding)
        return QueueCounts(0, 0) if isinstance(operation, QueueDeclare) else None

    def _policy(self, step: ApiRequest) -> None:
        assert step.path[0] == "policies"
        self._count()
        name, body = step.path[-1], step.body
        if step.method == "DELETE":
            self._model.policies.pop(name)
        else:
            assert isinstance(body, dict)
            self._model.policies[name] = PolicyDefinition(
                name, body["pattern"], body["apply-to"], body["definition"], body["priority"]
            )

    def _listed(self, step: ApiRequest) -> Any:
        model = self._model
        flags = ("name", "durable", "auto_delete")
        if step.path[0] == "overview":
            return {"rabbitmq_version": model.release.version, "cluster_name": "rabbit@model"}
        if step.path[0] == "exchanges":
            return [
                {
                    **{name: getattr(exchange, name) for name in (*flags, "type", "internal")},
                    "arguments": plain(exchange.arguments),
                }
                for exchange in model.exchanges.values()
            ]
        if step.path[0] == "queues":
            return [
                {
                    **{name: getattr(queue, name) for name in (*flags, "exclusive")},
                    "arguments": plain(queue.declared_arguments),
                }
                for queue in model.queues.values()
            ]
        if step.path[0] == "policies":
            return [
                {
                    "name": policy.name, "pattern": policy.pattern, "apply-to": policy.apply_to, "priority": policy.priority,
                    "definition": plain(policy.definition),
                }
                for policy in model.policies.values()
            ]  # fmt: skip
        if step.path[0] == "bindings":
            return [
                self._binding(binding)
                for binding in model.bindings
                if step.path[2:] in ((), self._path(binding))
            ]
        return []

    @staticmethod
    def _path(binding: BindingDefinition) -> tuple[str, ...]:
        to_exchange = isinstance(binding.destination, ExchangeRef)
        return (
            "e",
            binding.source,
            "e" if to_exchange else "q",
            str(getattr(binding.destination, "name", binding.destination)),
        )

    def _binding(self, binding: BindingDefinition) -> dict[str, Any]:
        *_, kind, destination = self._path(binding)
        return {
            "source": binding.source, "destination": destination, "destination_type": {"e": "exchange", "q": "queue"}[kind],
            "routing_key": binding.routing_key, "arguments": plain(binding.arguments), "properties_key": binding.routing_key,
        }  # fmt: skip
