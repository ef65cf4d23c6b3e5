"""The broker made of values, as topology code calls a live one. It dies before an operation if it is told to."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

from definitions_file import EXPORTED
from model_broker import ModelBroker

from rabbit_chx.broker.applying import Applied, Permission, apply_plan
from rabbit_chx.broker.live_broker import APPLY_LOCK, Operation, QueueCounts, Shape, shape_fault
from rabbit_chx.broker.reading import read_topology
from rabbit_chx.errors import AccessRefusedError, NotFoundError, RabbitChxError
from rabbit_chx.routing import HashRing, Release
from rabbit_chx.topology import (
    BindingDefinition,
    LiveTopology,
    Plan,
    PolicyDefinition,
    QueueDefinition,
)
from rabbit_chx.topology.arguments import setting_of
from rabbit_chx.topology.objects import MARK
from rabbit_chx.topology.slots import HandOverMarker

_FLAG = {"khepri": "enabled", "mnesia": "disabled"}
_WITH_KHEPRI = (3, 13, 0)
_NODE = "rabbit@model"


class ClientKilledError(BaseException):
    """The client is no more. No handler of errors runs in a process that was killed."""


class ModelClient:
    """A client of a model: connection, management API and carrier in one.

    Args:
        model: the broker.
        dies_before: the number of the operation that it dies before; None: it lives.
        has_source: whether it reads rings.
        refuses: the operations that the broker refuses for a permission.
        messages: how many messages each queue has; nobody consumes them.
        observe: is called after each operation.
    """

    where, vhost = "amqp://model", "/"
    has_management = True
    not_compared = ""
    consumer_timeout_ms: int | None = None

    def __init__(
        self,
        model: ModelBroker,
        dies_before: int | None = None,
        *,
        has_source: bool = True,
        refuses: Callable[[Operation], bool] = lambda _: False,
        messages: int = 0,
        observe: Callable[[], None] = lambda: None,
    ) -> None:
        self._model, self._left, self._observe = model, dies_before, observe
        self.has_source, self._is_refused, self._messages = has_source, refuses, messages
        self.file_records: Mapping[str, Any] = {}
        self.lock_id = ""
        self.amqp = self.api = self.carrier = self

    def live(self) -> LiveTopology:
        """Return what is there."""
        return read_topology(self)

    def applied(self, plan: Plan, permission: Permission) -> Applied:
        """Apply a plan."""
        return apply_plan(plan, self, permission, lambda *_: None)

    def _count(self) -> None:
        if self._left == 0:
            raise ClientKilledError
        if self._left is not None:
            self._left -= 1

    # -- AMQP

    def perform(self, operation: Operation) -> None:
        """Perform an operation, unless it is about the lock.

        Raises:
            ClientKilledError: it dies before.
        """
        subject, model = operation.subject, self._model
        if isinstance(subject, QueueDefinition) and subject.name == APPLY_LOCK:
            return
        self._count()
        if self._is_refused(operation):
            raise AccessRefusedError("the permission is missing", reply_code=403)
        if isinstance(subject, BindingDefinition):
            binding = replace(subject, owner="ours")
            if (operation.action == "bind") != (binding in model.bindings):  # a broker accepts a repetition
                (model.bind if operation.action == "bind" else model.unbind)(binding)
        elif operation.action == "declare":
            if subject.name not in (
                model.queues if isinstance(subject, QueueDefinition) else model.exchanges
            ):
                model.create(subject)
        elif subject.name in (model.queues if isinstance(subject, QueueDefinition) else model.exchanges):
            model.delete(subject)
        self._observe()

    def perform_together(self, operations: Sequence[Operation]) -> bool:
        """Perform operations, and return whether none was refused."""
        try:
            for operation in operations:
                self.perform(operation)
        except RabbitChxError:
            return False
        return True

    frame_max = 131_072

    def check_sendable(self, operations: Sequence[Operation]) -> None:
        """A model takes anything."""

    def count(self, queue: str) -> QueueCounts:
        """Count the messages of a queue; it has no consumers."""
        return QueueCounts(self.messages_in(queue), 0)

    def messages_in(self, queue: str) -> int:
        """All queues have as many messages, except the mark."""
        return self._model.mark_messages if queue == MARK else self._messages

    def renew_mark(self, queue: QueueDefinition) -> None:
        """Declare the mark anew, with both messages, unless a policy limits them.

        Raises:
            ClientKilledError: it dies before.
        """
        self._count()
        if self._is_refused(Operation("declare", queue)):
            raise AccessRefusedError("the permission is missing", reply_code=403)
        limit = setting_of(queue, "x-max-length", self._model.policies.values())
        self._model.mark, self._model.mark_messages = queue, min(2, 2 if limit is None else limit)
        self._observe()

    def check_exchange(self, exchange: str) -> None:
        """All exchanges exist."""

    def check_lock_in(self, queues: Sequence[Mapping[str, Any]]) -> None:
        """There is one broker."""

    # -- rings and time

    def read_rings(self, exchanges: Sequence[str], release: Release) -> dict[str, HashRing]:
        """Return the rings that the model has."""
        rings = self._model.rings
        return {
            name: HashRing.from_buckets(rings[name].buckets, release, next_bucket=len(rings[name].buckets))
            for name in exchanges
            if name in rings
        }

    def sleep(self, seconds: float) -> None:
        """No time passes in a model."""

    # -- the carrier

    def move_messages(self, queue: str, exchange: str, limit: int) -> int:
        """All queues are empty."""
        raise NotImplementedError

    def send_marker(self, queue: str, marker: HandOverMarker) -> None:
        """There is no group."""
        raise NotImplementedError

    def wait_for_reply(
        self,
        marker: HandOverMarker,
        kind: Literal["flushed", "taken"],
        *,
        timeout_s: float,
        longest_s: float,
        queues: Sequence[str],
    ) -> bool:
        """There is no group."""
        raise NotImplementedError

    def close(self) -> None:
        """Close the carrier."""

    # -- the management API

    def overview(self) -> dict[str, Any]:
        """Return the overview."""
        return {"rabbitmq_version": self._model.release.version, "cluster_name": "rabbit@model"}

    def put(self, *path: str, body: object) -> None:
        """Set a policy.

        Raises:
            ClientKilledError: it dies before.
        """
        kind, _, name = path
        assert kind == "policies"
        assert isinstance(body, dict)
        self._count()
        self._model.policies[name] = PolicyDefinition(
            name, body["pattern"], body["apply-to"], body["definition"], body["priority"]
        )

    def delete(self, *path: str) -> None:
        """Delete a policy.

        Raises:
            ClientKilledError: it dies before.
            NotFoundError: it does not exist.
        """
        assert path[0] == "policies"
        self._count()
        if self._model.policies.pop(path[-1], None) is None:
            raise NotFoundError(f"there is no policy {path[-1]}", reply_code=404)

    def get(
        self,
        *path: str,
        query: Mapping[str, str] | None = None,
        fields: Mapping[str, Shape] | None = None,  # noqa: ARG002
    ) -> Any:
        """Return what is listed, or one object.

        Raises:
            NotFoundError: it does not exist.
        """
        kind, *names = path
        if kind == "exchanges" and names[2:]:  # its bindings
            return [entry for entry in self._listed("bindings") if entry["source"] == names[1]]
        if kind in ("exchanges", "queues", "policies") and names[1:]:
            found = [entry for entry in self._listed(kind) if entry["name"] == names[1]]
            if not found:
                raise NotFoundError(f"there is no {kind} {names[1]}", reply_code=404)
            return found[0]
        listed = self._listed(*path)
        return {"items": listed} if query and "page" in query else listed

    def get_list(
        self, *path: str, query: Mapping[str, str] | None = None, fields: Mapping[str, Shape]
    ) -> list[dict[str, Any]]:
        """Return what is listed, each entry with the fields that are asked for."""
        listed: list[dict[str, Any]] = self.get(*path, query=query, fields=fields)
        assert shape_fault(listed, [fields]) is None
        return listed

    def _listed(self, kind: str, *path: str) -> Any:
        model = self._model
        of_broker = {
            "feature-flags": [{"name": "khepri_db", "state": _FLAG[model.release.store]}]
            if model.release.numbers >= _WITH_KHEPRI
            else [],
            "nodes": [{"name": _NODE, "running": True, "uptime": 3_600_000}],
            "vhosts": {"name": "/"},
            "overview": self.overview(),
        }
        if kind in of_broker:
            return of_broker[kind]
        objects: dict[str, Iterable[Any]] = {
            "exchanges": model.exchanges.values(),
            "queues": (*model.queues.values(), *([] if model.mark is None else [model.mark])),
            "policies": model.policies.values(),
            "bindings": model.bindings,
        }
        listed = [{**EXPORTED[kind](each), "vhost": "/"} for each in objects.get(kind, ())]
        if kind == "queues":
            return [
                {
                    "exclusive": False,
                    "node": _NODE,
                    **entry,
                    "messages": self.messages_in(entry["name"]),
                    "messages_ready": self.messages_in(entry["name"]),
                    "consumers": 0,
                    **({"messages_persistent": model.persistent} if entry["name"] == MARK else {}),
                }
                for entry in listed
            ]
        if kind == "bindings":
            listed = [{**entry, "properties_key": entry["routing_key"]} for entry in listed]
            return [entry for entry in listed if path[1:] in ((), _path(entry))]
        return listed


def _path(binding: dict[str, Any]) -> tuple[str, ...]:
    """Return the path of the bindings between two objects, as the management API has it."""
    return "e", binding["source"], binding["destination_type"][0], binding["destination"]
