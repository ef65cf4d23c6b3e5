"""The hierarchy of errors, by cause.

::

    RabbitChxError
    ├── InputError            (also ValueError)       the caller gave something that cannot work
    │   ├── UriError                                  an AMQP URI that cannot be followed
    │   ├── RowError                                  a key or body that AMQP cannot carry
    │   ├── TopologyError                             a topology, or a file of one, with mistakes; it lists all of them
    │   ├── ManagementNeededError                     AMQP does not tell it, and there is no management URL
    │   ├── EmptyRingError                            the ring has no buckets, so it has no answer
    │   ├── ContradictedError                         observed keys contradict each other, or the bindings
    │   └── NotDeterminedError                        no rule of that release decides it: read the broker
    │       └── UnknownOrderError                     the order of the ring is not known; carries its members
    ├── BrokerRefusedError                            the broker answered with a refusal
    │   ├── AccessRefusedError                        wrong password, or no permission
    │   ├── NotFoundError                             no such vhost, exchange or queue
    │   ├── MismatchError                             it exists, but with another type or properties
    │   ├── ConnectionLimitError                      the limit of connections is reached; this may pass
    │   ├── ChannelClosedError                        the broker closes the channel on such a message
    │   ├── UnroutableError                           no queue takes the message
    │   └── NackedError                               the broker refuses the message (basic.nack)
    ├── UnreachableError      (also ConnectionError)  nothing answers at the address
    │   ├── ConnectionLostError                       the connection ended while it was in use
    │   ├── BrokerTimeoutError (also TimeoutError)    the broker does not answer in time
    │   └── NoBrokerError                             no broker for tests was found or started
    ├── RingSourceError                               the ring could not be read: the command failed or printed no ring
    ├── PlanRefusedError                              a plan does more than it may; nothing was changed
    │   └── PlanOutdatedError                         the broker is another one than when the plan was made
    ├── ApplyError                                    a plan was done in part; carries what was done
    ├── HandlerError                                  the handler of a group failed with a message at each attempt
    ├── PublishError                                  messages were not confirmed, or the ring changed; carries the report
    ├── UnknownOutcomeError                           a copy of the message was sent and not answered: it may be in a queue
    ├── BufferFullError                               a publisher holds as many unanswered messages as it may
    ├── DamagedChunkError                             a chunk of a stream whose checksum or lengths do not fit
    ├── MissingRowsError                              a stream does not have the rows that were asked for, or others in their place
    ├── DeduplicationError                            another handler of the message does not end in time
    └── MissingExtraError     (also ImportError)      an optional dependency that is not installed

The message alone is enough to act on: it names the thing, the value and the remedy. Attributes hold the same for programs. No message
contains a password.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Self

#: The password of a URL in any text, which may be cut off. ``user:password@`` is what messages ask for, and ``***`` no password.
_PASSWORD = re.compile(
    r"(?<=://)([^\s:@/?#\[]*):(?:(?!password@|\*{3}@)\S*@|(?!\*{3}@|password@|\d{1,5}(?![^\s/?#'\",;:.)\]]))[^\s'\"]+)"
)


def masked_urls(text: str) -> str:
    """Return a text with ``***`` for the password of each URL, such as an argument in the place of another one."""
    return _PASSWORD.sub(r"\1:***@", text)


class RabbitChxError(Exception):
    """Base class of the errors of this package.

    Attributes:
        exchange: the exchange concerned, where there is one.
        queue: the queue or stream concerned, where there is one.
        reply_code: the reply code of AMQP (404, 406, ...) or of the stream protocol (2, 6, ...), where the broker gave one.
    """

    def __init__(
        self,
        message: str,
        *,
        exchange: str | None = None,
        queue: str | None = None,
        reply_code: int | None = None,
    ) -> None:
        super().__init__(masked_urls(message))
        self.exchange = exchange
        self.queue = queue
        self.reply_code = reply_code

    def reworded(self, message: str, **about: Any) -> Self:
        """Return an error of this type with another `message`; `about` are the attributes that differ."""
        same = {"exchange": self.exchange, "queue": self.queue, "reply_code": self.reply_code}
        return type(self)(message, **same | about)

    def __reduce__(self) -> tuple[Any, ...]:
        # Exception's own __reduce__ forgets keyword arguments; Spark pickles what a task raises.
        return _rebuild, (type(self), self.args, self.__dict__)


def _rebuild(cls: type[RabbitChxError], args: tuple[Any, ...], state: dict[str, Any]) -> RabbitChxError:
    error = cls.__new__(cls, *args)
    error.args = args
    error.__dict__.update(state)
    return error


class InputError(RabbitChxError, ValueError):
    """An argument is invalid."""


class UriError(InputError):
    """An AMQP URI is invalid."""


class RowError(InputError):
    """A message cannot be sent over AMQP."""


class TopologyError(InputError):
    """A topology or topology file is invalid. The text lists all of them.

    Attributes:
        problems: each mistake, a :class:`~rabbit_chx.topology.Finding`.
        file: the name of the file, where it is known.

    Args:
        problems: the mistakes, at least one, in the order of the file.
        file: the name of the file, where it is known.
        what: what the mistakes are in, for the text; a file's name comes before it.
    """

    def __init__(
        self, problems: Iterable[Any], *, file: str | None = None, what: str = "the topology"
    ) -> None:
        listed = tuple(problems)
        count = "a mistake" if len(listed) == 1 else f"{len(listed)} mistakes"
        lines = [f"{file or what} has {count}:", *(f"  {problem}" for problem in listed)]
        super().__init__("\n".join(lines))
        self.problems: tuple[Any, ...] = listed
        self.file = file


class ManagementNeededError(InputError):
    """AMQP does not provide the requested data, and no URL of the management API was given."""


class EmptyRingError(InputError):
    """The ring has no buckets, because nothing is bound to the exchange."""


class ContradictedError(InputError):
    """Observed keys contradict each other, or the bindings. The ring changed between them, or they are of another exchange."""


class NotDeterminedError(InputError):
    """The rules of the release do not determine the answer, or the given facts are too few. The broker has it: read the ring.

    Attributes:
        fact: of too few observed keys what they do not show, without the remedy; else empty.
        keys_needed: about how many further keys that takes; else 0.
    """

    fact: str = ""
    keys_needed: int = 0


class UnknownOrderError(NotDeterminedError):
    """The answer depends on the order in which the members of a ring were bound, and that is not known.

    Attributes:
        members: ``(destination, binding key)`` of each binding; their order has no meaning.
    """

    members: tuple[tuple[object, str], ...] = ()


class BrokerRefusedError(RabbitChxError):
    """The broker refused the request."""


class AccessRefusedError(BrokerRefusedError):
    """The user name or password is wrong, or the user lacks a permission (403)."""


class NotFoundError(BrokerRefusedError):
    """The vhost, exchange or queue does not exist (404)."""


class MismatchError(BrokerRefusedError):
    """The exchange or queue exists, but with another type or other properties (406)."""


class ConnectionLimitError(BrokerRefusedError):
    """The limit of connections of the node, the vhost or the user is reached (530)."""


class ChannelClosedError(BrokerRefusedError):
    """The broker would close the channel or the connection because of the message."""


class UnroutableError(BrokerRefusedError):
    """The broker returned the message: the exchange routes it to no queue (312). No queue has it."""


class NackedError(BrokerRefusedError):
    """The broker refused the message with basic.nack. Usually no queue has it; of several queues some may."""


class UnreachableError(RabbitChxError, ConnectionError):
    """The address does not answer."""


class ConnectionLostError(UnreachableError):
    """The connection ended while it was in use."""


class BrokerTimeoutError(UnreachableError, TimeoutError):
    """The broker did not answer in time."""


class NoBrokerError(UnreachableError):
    """No broker for tests was found or started; the message lists the attempts."""


class RingSourceError(RabbitChxError):
    """The true ring could not be read: a command failed or could not be run, or it printed no ring."""


class PlanRefusedError(RabbitChxError):
    """A plan exceeds what is permitted. Nothing was changed.

    Attributes:
        refusals: why, each a :class:`~rabbit_chx.topology.Finding` with the flag that allows it.

    Args:
        message: what is refused, in words.
        refusals: the refusals.
    """

    def __init__(self, message: str, refusals: Iterable[Any] = ()) -> None:
        super().__init__(message)
        self.refusals: tuple[Any, ...] = tuple(refusals)


class PlanOutdatedError(PlanRefusedError):
    """The broker has changed since the plan was made, or another plan is still being applied. Nothing was changed."""


class ApplyError(RabbitChxError):
    """A plan was applied in part. Plan and apply again: completed changes are not repeated.

    Attributes:
        applied: what was done, an :class:`~rabbit_chx.topology.Applied`.

    Args:
        message: what went wrong, and how far the plan got.
        applied: what was done.
    """

    def __init__(self, message: str, applied: Any, **about: Any) -> None:
        super().__init__(message, **about)
        self.applied = applied


class PublishError(RabbitChxError):
    """Some messages were not confirmed, or the ring for client routing has changed. `report` has the counts.

    Attributes:
        report: the counts up to the error: a :class:`~rabbit_chx.publishing.publish_report.PublishReport`, of a `StreamPublisher` a
            :class:`~rabbit_chx.streams.StreamReport`.
    """

    def __init__(self, message: str, report: Any, **about: Any) -> None:
        super().__init__(message, **about)
        self.report: Any = report


class UnknownOutcomeError(RabbitChxError):
    """The message may be in a queue: it was sent over a connection that ended without an answer for it. `__cause__` is the reason: no answer
    to another copy in time, or the refusal of that copy.
    """


class BufferFullError(RabbitChxError):
    """The publisher holds as many unanswered messages as it may. The message was not sent."""


class DamagedChunkError(RabbitChxError):
    """A chunk of a stream cannot be read: its checksum or its lengths do not fit. No row of it was given out."""


class MissingRowsError(RabbitChxError):
    """Requested rows are not in the stream: retention, a recreated stream, a truncated log.

    Attributes:
        offsets: the offsets that are missing; None where the log is another one.
    """

    def __init__(self, message: str, *, offsets: range | None = None, **about: Any) -> None:
        super().__init__(message, **about)
        self.offsets = offsets


class DeduplicationError(RabbitChxError):
    """Another handler of the same message did not end in time. Do not ack the message."""


class HandlerError(RabbitChxError):
    """The handler of a group failed with a message at each attempt. The message is back in its place."""


class MissingExtraError(RabbitChxError, ImportError):
    """An optional dependency is not installed; the message names the extra."""


#: The errors of a published message that may pass: the same message may be confirmed later. All others last until somebody changes something.
#: A login is refused while a password or a token is rotated; a refused message (basic.nack) is mostly one that a full queue rejects.
PASSING_ERRORS: tuple[type[RabbitChxError], ...] = (
    AccessRefusedError,
    BufferFullError,
    ConnectionLimitError,
    NackedError,
    UnknownOutcomeError,
    UnreachableError,
)
