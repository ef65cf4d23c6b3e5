"""The codes of the stream protocol, and the errors that they are.

Source: rabbitmq-server v4.3.5, deps/rabbitmq_stream_common/include/rabbit_stream.hrl.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

from rabbit_chx.errors import (
    AccessRefusedError,
    BrokerRefusedError,
    MismatchError,
    NotFoundError,
    RabbitChxError,
    UnreachableError,
)


class Code(IntEnum):
    """The codes of replies, of errors of publishers, and of changes of streams."""

    OK = 1
    STREAM_DOES_NOT_EXIST = 2
    SUBSCRIPTION_EXISTS = 3
    SUBSCRIPTION_DOES_NOT_EXIST = 4
    STREAM_EXISTS = 5
    STREAM_NOT_AVAILABLE = 6
    SASL_MECHANISM_NOT_SUPPORTED = 7
    AUTHENTICATION_FAILURE = 8
    SASL_ERROR = 9
    SASL_CHALLENGE = 10
    AUTHENTICATION_FAILURE_LOOPBACK = 11
    VHOST_ACCESS_FAILURE = 12
    UNKNOWN_FRAME = 13
    FRAME_TOO_LARGE = 14
    INTERNAL_ERROR = 15
    ACCESS_REFUSED = 16
    PRECONDITION_FAILED = 17
    PUBLISHER_DOES_NOT_EXIST = 18
    NO_OFFSET = 19


def code_in_words(code: int) -> str:
    """Return a code with its name, for messages."""
    try:
        return f"code {code}, {Code(code).name.lower().replace('_', ' ')}"
    except ValueError:
        return f"code {code}"


class _Meaning(NamedTuple):
    kind: type[RabbitChxError]
    remedy: str


_LOOK = _Meaning(BrokerRefusedError, "look at the broker's log")
_MEANINGS: dict[int, _Meaning] = {
    Code.STREAM_DOES_NOT_EXIST: _Meaning(NotFoundError, "check the name and the vhost, or create it; a queue of another type may have that name"),
    Code.SUBSCRIPTION_EXISTS: _Meaning(BrokerRefusedError, "take another subscription id"),
    Code.SUBSCRIPTION_DOES_NOT_EXIST: _Meaning(BrokerRefusedError, "subscribe first"),
    Code.STREAM_EXISTS: _Meaning(MismatchError, "use what is there, or delete it first"),
    Code.STREAM_NOT_AVAILABLE: _Meaning(UnreachableError, "wait until a node with a replica is up, or connect to one"),
    Code.FRAME_TOO_LARGE: _Meaning(BrokerRefusedError, "send smaller rows, or raise stream.frame_max on the broker"),
    Code.ACCESS_REFUSED: _Meaning(AccessRefusedError, "give the user the permission: rabbitmqctl set_permissions"),
    Code.PRECONDITION_FAILED: _Meaning(BrokerRefusedError, "check ids, names and arguments; an id or a name may be in use"),
    Code.PUBLISHER_DOES_NOT_EXIST: _Meaning(BrokerRefusedError, "declare the publisher again"),
}  # fmt: skip


def refusal(where: str, doing: str, code: int, stream: str | None = None) -> RabbitChxError:
    """Return the error for a code of the broker.

    Args:
        where: the broker's address without its password.
        doing: what was asked for, such as "subscribe to stream 'orders'".
        code: the code, of a reply, a `PublishErrors` or a `StreamChanged`.
        stream: the stream concerned, where there is one.
    """
    kind, remedy = _MEANINGS.get(code, _LOOK)
    message = f"{where}: the broker refuses to {doing} ({code_in_words(code)}): {remedy}"
    return kind(message, queue=stream, reply_code=code)
