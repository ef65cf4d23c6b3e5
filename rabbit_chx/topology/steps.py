"""What a sequence asks of its client: operations over AMQP, requests to the management API, rings, and messages to carry.

A sequence is a generator without I/O. It yields a step and gets the answer to it, or the error. At the end it returns or
raises. `rabbit_chx.drive` carries it out.

A second connection carries messages: parked ones, and the markers of a hand-over, which go through the queues of a slot while it
changes hands and say up to where one queue is read. The one who moves the slot and the consumers of both queues know a marker by
its header. For anyone else it is an empty message.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, TypeAlias, TypeVar, get_args

from rabbit_chx.errors import InputError
from rabbit_chx.topology.operations import (
    ApiRequest,
    ExchangeBind,
    ExchangeDeclare,
    Operation,
    QueueBind,
    QueueCounts,
    QueueDeclare,
    Refusal,
    refused,
)

#: flush, begin and end are sent by the one who moves a slot; flushed and taken are replies of the consumers.
MarkerKind: TypeAlias = Literal["flush", "begin", "end", "flushed", "taken"]
_KINDS: tuple[MarkerKind, ...] = get_args(MarkerKind)
_FIELDS = ("kind", "slot", "id", "park")
_NOT_FOUND = 404


class CarrierStep:
    """A step for the second connection."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class MessageTransfer(CarrierStep):
    """Take messages out of a queue, from its head, and publish each to an exchange with all that it came with.

    Each is taken away only after the broker has confirmed its copy. So a message may be there twice after a crash, and none is lost.
    The answer is the number of messages. It is less than `limit` if the queue has no more.
    """

    queue: str
    exchange: str
    limit: int


@dataclass(frozen=True, slots=True)
class MarkerSending(CarrierStep):
    """Send a marker to a queue, confirmed. Replies come to a queue of the carrier. The answer is None."""

    queue: str
    marker: HandOverMarker


@dataclass(frozen=True, slots=True)
class MarkerReply(CarrierStep):
    """Wait for the reply to a marker. The answer is whether it came in time.

    Attributes:
        marker: the marker.
        kind: the reply.
        timeout_s: the most seconds in which nobody reads the queues. The time starts anew when one of them gets shorter.
        longest_s: the most seconds in all.
        queues: the queues that are read before the reply comes.
    """

    marker: HandOverMarker
    kind: Literal["flushed", "taken"]
    timeout_s: float
    longest_s: float
    queues: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Pause(CarrierStep):
    """Wait. The answer is None."""

    seconds: float


@dataclass(frozen=True, slots=True)
class CarrierEnd(CarrierStep):
    """Close the second connection, if there is one. The answer is None."""


@dataclass(frozen=True, slots=True)
class Access:
    """What a sequence can ask, and whom.

    Attributes:
        where: the broker's AMQP address without password, for errors.
        vhost: the vhost.
        has_management: whether the management API can be asked.
        has_source: whether there is a ring source.
    """

    where: str
    vhost: str
    has_management: bool = False
    has_source: bool = False


@dataclass(frozen=True, slots=True)
class Pipeline:
    """Operations over one channel, one after the other, of which only the last is waited for.

    The answer is None, or the `Refusal` of one of them. The answer does not tell which; those before it are done.
    """

    operations: tuple[Operation, ...]


@dataclass(frozen=True, slots=True)
class RingRequest:
    """A reading of the rings of ``x-consistent-hash`` exchanges. The answer is a mapping of names to ``Buckets``.

    An exchange that is not there, or of another type, is not in the mapping.
    """

    exchanges: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SendingCheck:
    """Whether the client can send the arguments of operations. Nothing is sent. The answer is None, or an InputError."""

    operations: tuple[Operation, ...]


SequenceStep: TypeAlias = Operation | Pipeline | SendingCheck | ApiRequest | RingRequest | CarrierStep

_T = TypeVar("_T")
#: A sequence that needs no more than AMQP.
OperationSequence: TypeAlias = Generator[Operation, Any, _T]
#: A sequence that needs no more than the management API.
ApiSequence: TypeAlias = Generator[ApiRequest, Any, _T]
Sequence: TypeAlias = Generator[SequenceStep, Any, _T]


def asked(where: str, operation: Operation) -> OperationSequence[QueueCounts | None]:
    """Perform one operation.

    Args:
        where: the broker's address without password, for errors.
        operation: the operation.

    Returns:
        What is in the queue, after a QueueDeclare.

    Raises:
        RabbitChxError: the broker refuses it; see :func:`refused`.
    """
    answer = yield operation
    if isinstance(answer, Refusal):
        raise refused(where, operation, answer)
    return answer if isinstance(answer, QueueCounts) else None


def performed(where: str, operations: Iterable[Operation]) -> OperationSequence[None]:
    """Perform one operation after the other.

    Args:
        where: the broker's address without password, for errors.
        operations: the operations, in order.

    Raises:
        RabbitChxError: the broker refuses one; see :func:`refused`.
    """
    for operation in operations:
        yield from asked(where, operation)


@dataclass(frozen=True, slots=True)
class HandOverMarker:
    """A marker.

    Attributes:
        kind: ``flush`` asks the consumer of the old queue to reply ``flushed`` when it has handled all that came before.
            ``begin`` asks the consumer of the new queue to read the parking queue up to ``end``, and to reply ``taken`` then.
        slot: the name of the slot exchange.
        id: tells this hand-over from others. Replies have that of the question.
        park: the name of the parking queue.

    Raises:
        InputError: a field is not text, or the kind is none of those.
    """

    HEADER: ClassVar[str] = "x-rabbit-chx-hand-over"

    kind: MarkerKind
    slot: str
    id: str
    park: str

    def __post_init__(self) -> None:
        for name in _FIELDS:
            value = getattr(self, name)
            if not isinstance(value, str):
                raise InputError(f"the {name} of a hand-over marker is {value!r:.60}: give text")
        if self.kind not in _KINDS:
            raise InputError(
                f"a hand-over marker of the kind {self.kind!r:.60}: give one of {', '.join(_KINDS)}"
            )

    def headers(self) -> dict[str, dict[str, str]]:
        """Return the headers of the message, as pika and aio-pika take them."""
        return {self.HEADER: {name: str(getattr(self, name)) for name in _FIELDS}}

    def as_kind(self, kind: MarkerKind) -> HandOverMarker:
        """Return another marker of the same hand-over."""
        return HandOverMarker(kind, self.slot, self.id, self.park)

    def reply(self, kind: Literal["flushed", "taken"]) -> HandOverMarker:
        """Return the reply to this marker."""
        return self.as_kind(kind)

    @classmethod
    def from_headers(cls, headers: Mapping[str, Any] | None) -> HandOverMarker | None:
        """Return the marker that a message is; None if it is none.

        Args:
            headers: the message's headers, as pika or aio-pika gives them; None where it has none.
        """
        table = (headers or {}).get(cls.HEADER)
        if not isinstance(table, Mapping):
            return None
        kind, *rest = (table.get(name) for name in _FIELDS)
        known = next((marker for marker in _KINDS if marker == kind), None)
        if known is None or not all(isinstance(value, str) for value in rest):
            return None
        return cls(known, *map(str, rest))


def look_at(
    where: str,
    exchange: ExchangeDeclare,
    queues: Iterable[QueueDeclare],
    bindings: Iterable[QueueBind | ExchangeBind],
) -> OperationSequence[tuple[ExchangeDeclare | QueueDeclare, ...]]:
    """Find what is missing of an exchange and its queues; change nothing.

    What exists is declared once more. The broker accepts an equal declaration and refuses a different one.

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
    declarations: tuple[ExchangeDeclare | QueueDeclare, ...] = (exchange, *queues)
    for declaration in declarations:
        answer = yield replace(declaration, passive=True)
        if not isinstance(answer, Refusal):
            yield from asked(where, declaration)
        elif answer.reply_code == _NOT_FOUND:
            missing.append(declaration)
        else:
            raise refused(where, declaration, answer)
    for name in dict.fromkeys(
        binding.destination for binding in bindings if isinstance(binding, ExchangeBind)
    ):
        yield from check_exchange(where, name)
    return tuple(missing)


def check_exchange(where: str, exchange: str) -> OperationSequence[None]:
    """Check that an exchange exists, of any type.

    Args:
        where: the broker's address without password, for errors.
        exchange: the exchange's name.

    Raises:
        NotFoundError: there is no such exchange.
    """
    yield from asked(where, ExchangeDeclare(exchange, passive=True))
