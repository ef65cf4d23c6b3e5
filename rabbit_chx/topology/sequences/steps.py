"""What a sequence asks of its client: operations over AMQP, requests to the management API, rings, and messages to carry.

A sequence is a generator without I/O. It yields a step and gets the answer to it, or the error. At the end it returns or
raises. So the order of all operations is written once, and a blocking and an asyncio client run it.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from rabbit_chx.errors import RabbitChxError
from rabbit_chx.topology.sequences.carrier_steps import CarrierStep
from rabbit_chx.topology.sequences.operations import Operation, QueueCounts, Refusal, refused

if TYPE_CHECKING:
    from collections.abc import Awaitable

__all__ = [
    "Access",
    "ApiRequest",
    "ApiSequence",
    "OperationSequence",
    "Pipeline",
    "RingRequest",
    "SendingCheck",
    "Sequence",
    "SequenceStep",
    "asked",
    "carried_out",
    "carried_out_async",
    "performed",
]


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
        """Return whether an answer has the shape that is asked for.

        Args:
            answer: the decoded JSON.
        """
        if self.fields is None:
            return True
        entries = answer if self.listed else [answer]
        return isinstance(entries, list) and all(
            isinstance(one, dict)
            and all(isinstance(one.get(name), kind) for name, kind in self.fields.items())
            for one in entries
        )

    @property
    def wanted_shape(self) -> str:
        """The shape of a right answer, in words."""
        what = "a list of objects" if self.listed else "an object"
        return f"{what} with {', '.join(self.fields)}" if self.fields else what


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


def carried_out(sequence: Generator[Any, Any, _T], do: Callable[[Any], Any]) -> _T:
    """Carry a sequence out.

    Args:
        sequence: the sequence.
        do: does a step and returns the answer. An error of ours that it raises is given to the sequence.

    Returns:
        What the sequence returns.

    Raises:
        RabbitChxError: what the sequence raises.
    """
    try:
        step = next(sequence)
        while True:
            try:
                answer = do(step)
            except RabbitChxError as error:
                step = sequence.throw(error)
            else:
                step = sequence.send(answer)
    except StopIteration as done:
        result: _T = done.value
        return result


async def carried_out_async(sequence: Generator[Any, Any, _T], do: Callable[[Any], Awaitable[Any]]) -> _T:
    """Carry a sequence out, as `carried_out` does.

    Args:
        sequence: the sequence.
        do: does a step and returns the answer. An error of ours that it raises is given to the sequence.

    Raises:
        RabbitChxError: what the sequence raises.
    """
    try:
        step = next(sequence)
        while True:
            try:
                answer = await do(step)
            except RabbitChxError as error:
                step = sequence.throw(error)
            else:
                step = sequence.send(answer)
    except StopIteration as done:
        result: _T = done.value
        return result


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
