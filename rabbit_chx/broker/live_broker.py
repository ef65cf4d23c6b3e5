"""The operations on a live broker, the errors for those that it refuses, and the interfaces that `rabbit_chx.broker` implements.

Every call blocks.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

from rabbit_chx.amqp.frames import error_for
from rabbit_chx.checks import check_name, is_finite
from rabbit_chx.errors import AccessRefusedError, InputError, PlanOutdatedError, RabbitChxError
from rabbit_chx.routing import ExchangeRef, HashRing, Release
from rabbit_chx.topology.objects import (
    BindingDefinition,
    ExchangeDefinition,
    PolicyDefinition,
    QueueDefinition,
)
from rabbit_chx.topology.schema import PlannedChange

if TYPE_CHECKING:
    from rabbit_chx.records.ring_records import RingRecord
    from rabbit_chx.topology.slots import HandOverMarker

#: The exclusive queue of a connection that applies a plan, which is not part of a topology, and its argument, a random text.
APPLY_LOCK = "rabbit-chx.apply"
LOCK_ID = "x-rabbit-chx-lock"
#: The status of a fault in the management plugin.
PLUGIN_FAILED = 500
_ACCESS_REFUSED = 403
#: JSON can write half of a surrogate pair, which no text has.
_HALF_PAIR = re.compile("[\ud800-\udfff]")
_KINDS = {
    str: "a text",
    int: "an integer",
    float: "a number",
    bool: "true or false",
    dict: "an object",
    list: "a list",
}

#: The shape of a JSON value: a type, the fields of an object, or a list with the shape of its entries. A field whose name ends with ``?`` may
#: be missing or null; ``dict`` is any object; ``float`` is any number.
Shape: TypeAlias = "type | Mapping[str, Shape] | list[Shape]"
#: The objects that AMQP handles. Policies need the management API.
AmqpObject: TypeAlias = ExchangeDefinition | QueueDefinition | BindingDefinition


class LockedError(PlanOutdatedError):
    """Another connection holds the lock, which the broker deletes when that connection closes."""

    def __init__(self, where: str) -> None:
        super().__init__(
            f"{where}: another connection applies a plan or stores the order of rings, and holds the exclusive queue {APPLY_LOCK}: wait until "
            "it is done, or close it, and try again"
        )


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
    live = change.live
    wanted = change.wanted
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
    check_name(name, kind)
    if "\r" in name or "\n" in name:
        raise InputError(f"the {kind} name {name!r} has a line break, which RabbitMQ drops: remove it")


def make_refusal(where: str, operation: Operation, reply_code: int, reply_text: str) -> RabbitChxError:
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
    needed = f"configure on {subject.kind} {subject.name}"
    target = _publishes_to(subject)
    return f"{needed}, read on it, and write on exchange {target}" if target else needed


def _publishes_to(subject: ExchangeDefinition | QueueDefinition) -> str | None:
    """Return the exchange that takes what an exchange does not route, or what a queue drops."""
    if isinstance(subject, ExchangeDefinition):
        return subject.alternate
    target = subject.arguments.get("x-dead-letter-exchange")
    return target if isinstance(target, str) else None


def shape_fault(value: Any, shape: Shape) -> tuple[str, str, str] | None:
    """Return the place of the first value that has another shape, such as ``[3].arguments``, what it is and what it should be.

    The value itself, of a foreign server, may be a secret.
    """
    if isinstance(shape, type):
        return None if _is_of(value, shape) else ("", _kind(value), _KINDS[shape])
    container = list if isinstance(shape, list) else dict
    if not isinstance(value, container):
        return "", _kind(value), _KINDS[container]
    for place, there, inner in _inside(value, shape):
        if fault := shape_fault(there, inner):
            return f"{place}{fault[0]}", *fault[1:]
    return None


def _kind(value: object) -> str:
    if isinstance(value, str) and _HALF_PAIR.search(value):
        return "a text with half of a surrogate pair"
    return _KINDS.get(type(value), "null")


def _is_of(value: object, type_: type) -> bool:
    if type_ is dict:
        return isinstance(value, dict) or value == []  # older releases write an empty table as a list
    if type_ is str:
        return isinstance(value, str) and not _HALF_PAIR.search(value)
    if type_ is float:
        return is_finite(value) and abs(value) <= sys.float_info.max
    return type(value) is type_


def _inside(value: Any, shape: Mapping[str, Shape] | list[Shape]) -> Iterator[tuple[str, Any, Shape]]:
    """Yield the place, the value and the shape of each value inside; a field that may be missing, and is, is left out."""
    if isinstance(shape, list):
        for number, entry in enumerate(value):
            yield f"[{number}]", entry, shape[0]
        return
    for name, inner in shape.items():
        key = name.removesuffix("?")
        there = value.get(key)
        if there is not None or key == name:
            yield f".{key}", there, inner


class ManagementApi(Protocol):
    """Requests below ``/api`` of the management plugin. A path is a sequence of unquoted segments."""

    def get(
        self, *path: str, query: Mapping[str, str] | None = None, fields: Mapping[str, Shape] | None = None
    ) -> Any:  # JSON
        """Return an object that has these fields with these shapes; None: any answer is accepted. Other shapes are refused."""

    def get_list(
        self, *path: str, query: Mapping[str, str] | None = None, fields: Mapping[str, Shape]
    ) -> list[dict[str, Any]]:
        """Return a list of objects, each of which has these fields with these shapes."""

    def put(self, *path: str, body: object) -> None:
        """Create or update an object."""

    def delete(self, *path: str) -> None:
        """Delete an object."""


class AmqpChannel(Protocol):
    """Operations over one channel. An error of the broker names the object and the missing permission."""

    @property
    def frame_max(self) -> int:
        """The largest frame that the broker takes, in bytes."""

    def perform(self, operation: Operation) -> None:
        """Perform an operation, and wait for the answer."""

    def perform_together(self, operations: Sequence[Operation]) -> bool:
        """Perform operations in order, and wait only for the last answer.

        Return False if the broker refused one of them. It does not report which one; earlier operations are done.
        """

    def check_sendable(self, operations: Sequence[Operation]) -> None:
        """Refuse arguments that the client cannot send. Nothing is sent."""

    def count(self, queue: str) -> QueueCounts:
        """Return the counts of a queue, by a passive declaration."""

    def check_exchange(self, exchange: str) -> None:
        """Check that an exchange exists, of any type, by a passive declaration."""

    def renew_mark(self, queue: QueueDefinition) -> None:
        """Delete a queue and declare it again, with one persistent and one transient message. A user without the permission to publish is refused first."""


class MessageCarrier(Protocol):
    """A second connection that moves messages and sends the markers of a hand-over."""

    def move_messages(self, queue: str, exchange: str, limit: int) -> int:
        """Publish the first messages of a queue to an exchange, with all their properties, and return their number.

        Each message is removed only after the broker has confirmed its copy. So a crash may duplicate a message, but does not lose one. The
        number is less than `limit` if the queue has no more messages.
        """

    def send_marker(self, queue: str, marker: HandOverMarker) -> None:
        """Send a marker to a queue, with a confirm. Replies are sent to a queue of the carrier."""

    def wait_for_reply(
        self,
        marker: HandOverMarker,
        kind: Literal["flushed", "taken"],
        *,
        timeout_s: float,
        longest_s: float,
        queues: Sequence[str],
    ) -> bool:
        """Wait for the reply to a marker, and return True if it arrived in time.

        Args:
            marker: the marker.
            kind: the kind of the reply.
            timeout_s: the largest time in seconds without progress. The time starts again when one of the queues gets shorter.
            longest_s: the largest time in seconds in total.
            queues: the queues that are read before the reply arrives.
        """

    def close(self) -> None:
        """Close the connection, if there is one."""


class LiveBroker(Protocol):
    """A live broker: its AMQP connection, and the other ways to it, each of which is refused if it is that of another broker.

    Attributes:
        where: its AMQP address without password, for errors.
        vhost: the vhost of the connection.
        has_management: True if a management API is configured.
        has_source: True if a ring source is configured that reads rings.
        file_records: the records of rings in files, by their exchanges; they count beside those of the broker.
        lock_id: the argument of the lock that this connection holds, which the other ways must show; empty without a lock.
    """

    where: str
    vhost: str
    has_management: bool
    has_source: bool
    file_records: Mapping[str, RingRecord]
    lock_id: str

    @property
    def amqp(self) -> AmqpChannel:
        """The AMQP connection."""

    @property
    def carrier(self) -> MessageCarrier:
        """The second connection, which is opened on first use."""

    @property
    def api(self) -> ManagementApi:
        """The management API. Raises ManagementNeededError if it is not configured."""

    def overview(self) -> dict[str, Any]:
        """Return the overview of the management API: at least ``rabbitmq_version``."""

    def check_lock_in(self, queues: Sequence[Mapping[str, Any]]) -> None:
        """Refuse the queues that the management API lists if they lack the lock."""

    def read_rings(self, exchanges: Sequence[str], release: Release) -> Mapping[str, HashRing]:
        """Read rings by the ring source. Exchanges that do not exist or have another type are not in the mapping."""

    @property
    def consumer_timeout_ms(self) -> int | None:
        """The default consumer timeout of the broker, as the last `read_rings` found it; None if it is not known."""

    def sleep(self, seconds: float) -> None:
        """Wait."""


def try_count(amqp: AmqpChannel, queue: str) -> QueueCounts | None:
    """Return the counts of a queue; None if the broker refuses, for example because the queue does not exist or its node is down.

    Raises:
        UnreachableError: the connection is closed, or the broker does not answer.
    """
    try:
        return amqp.count(queue)
    except RabbitChxError as error:
        if error.reply_code is None:
            raise
        return None
