"""Checks of the queues of a `ConsumerGroup` by their arguments, without I/O: errors, warnings, and the prefetch of each queue.

The arguments of a queue are those that refused declarations reveal, or None if the user may not declare it.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

from rabbit_chx import errors
from rabbit_chx.amqp.exchange_types import ARGUMENT as DELIVERY_LIMIT
from rabbit_chx.amqp.exchange_types import delivery_limit, delivery_limit_fault
from rabbit_chx.consuming.settings import (
    GroupMember,
)
from rabbit_chx.routing.release import QUORUM_V8_SINCE
from rabbit_chx.text import listed

_MAX_LISTED = 5
#: From here on quorum queues heed the priority of consumers, and of messages.
PRIORITIES_SINCE = (4, 0, 0)
_DEFAULT_PRIORITY = 4
_MAX_PRIORITY = 31
#: The arguments that a queue of a group must have.
REQUIRED_ARGUMENTS: dict[str, Any] = {"x-queue-type": "quorum", "x-single-active-consumer": True}
#: An argument that no quorum queue may have. The broker refuses to create a queue with it, and does not compare it with the arguments of a
#: quorum queue that exists (tested with 3.10.8, 4.0.5 and 4.3.6).
NEVER_CREATED: dict[str, Any] = {"x-max-age": "a group asks for the arguments of a queue"}
_REFUSAL = re.compile(
    r"inequivalent arg '(?P<name>[^']+)' for queue .* but current is "
    r"(?:the value '(?P<value>.*)' of type '(?P<type>\w+)'|'(?P<bare>.*)'|(?P<none>none))",
    re.DOTALL,
)
_REMEDY = (
    "a group needs quorum queues with a single active consumer: declare the queue again with "
    'arguments = { x-queue-type = "quorum", x-single-active-consumer = true }; neither can be changed later'
)
#: Where a delivery limit is from, and the remedy; by whether it is an argument.
_LIMITS = {
    True: (
        "of the argument x-delivery-limit",
        "declare the queue again with -1 (from 4.0 on), or without the argument (before)",
    ),
    False: (
        "the default from 4.0 on",
        "set x-delivery-limit=-1 as an argument or by a policy",
    ),
}
#: What the broker does with a message that exceeds the limit; by whether the queue has a dead-letter exchange.
_FATES = {True: "dead-lettered", False: "dropped or dead-lettered"}


def is_deleted(refusal: str) -> bool:
    """Return whether a declaration with `NEVER_CREATED` was refused because the queue does not exist."""
    return any(f"invalid arg '{name}'" in refusal for name in NEVER_CREATED)


def learn_argument(queue: str, arguments: Mapping[str, Any], refusal: str) -> dict[str, Any] | None:
    """Return the arguments, extended by the argument that a refused declaration reveals; None if it reveals none.

    The broker refuses to declare an existing queue with other arguments. The refusal contains the first argument that differs and its value
    (rabbitmq-server v4.3.6, rabbit_misc.erl, ``assert_args_equivalence1/4``). Repeated declarations reveal all arguments. A queue without
    the type quorum or a single active consumer is a MismatchError.
    """
    match = _REFUSAL.search(refusal)
    if match is None:
        return None
    name = match["name"]
    if name in REQUIRED_ARGUMENTS or name == "durable":
        current = match["value"] or match["bare"] or "not set"
        raise errors.MismatchError(
            f"queue {queue!r}: {name} is {current}: {_REMEDY}", queue=queue, reply_code=406
        )
    if match["value"] is None:
        return None
    return {**arguments, name: _parse_argument(match["value"], match["type"])}


def _parse_argument(text: str, kind: str) -> Any:
    if kind == "bool":
        return text == "true"
    is_number = kind not in ("longstr", "binary") and text.removeprefix("-").isdecimal()
    return int(text) if is_number else text


def check_queues(queues: Mapping[str, Mapping[str, Any] | None], release: tuple[int, ...]) -> None:
    """Raise a MismatchError for a queue from which a group would lose messages, or not get them in order.

    A queue of 4.3 with delayed retries returns a message after a delay, behind later messages (tested with 4.3.6).
    """
    for queue, arguments in queues.items():
        if fault := delivery_limit_fault(arguments or {}, release):
            raise errors.MismatchError(f"queue {queue!r}: {': '.join(fault)}", queue=queue)
        retry = (arguments or {}).get("x-delayed-retry-type", "disabled")
        if retry != "disabled":
            raise errors.MismatchError(
                f"queue {queue!r}: x-delayed-retry-type is {retry!r}, with which a message that is returned waits, and later messages overtake it: "
                "declare the queue again without it",
                queue=queue,
            )


def prefetch_of(arguments: Mapping[str, Any] | None, release: tuple[int, ...], member: GroupMember) -> int:
    """Return the number of messages of a queue that a member takes at a time."""
    if _has_timeout(arguments, release):
        # The broker returns the messages that are over the timeout, and the next consumer handles them before the others are returned.
        return 1
    return member.prefetch if delivery_limit(arguments or {}, release) is None else member.concurrency


def _has_timeout(arguments: Mapping[str, Any] | None, release: tuple[int, ...]) -> bool:
    """Return whether the broker returns single messages of a queue after a consumer timeout, as far as its arguments show."""
    return release >= QUORUM_V8_SINCE and "x-consumer-timeout" in (arguments or {})


def delivered_priority(priority: int | None, release: tuple[int, ...]) -> int:
    """Return the priority by which a quorum queue delivers a message: a higher one first (tested with 3.10.8, 4.0.5 and 4.3.6)."""
    given = _DEFAULT_PRIORITY if priority is None else priority
    if release < PRIORITIES_SINCE:
        return _DEFAULT_PRIORITY
    if release < QUORUM_V8_SINCE:
        return _DEFAULT_PRIORITY + (given > _DEFAULT_PRIORITY)
    return min(given, _MAX_PRIORITY)


def queue_warnings(
    queues: Mapping[str, Mapping[str, Any] | None], release: tuple[int, ...], member: GroupMember
) -> Iterator[str]:
    """Yield warnings about the queues. The arguments of a queue are None if they are unknown."""
    for queue, arguments in queues.items():
        if arguments is None:
            yield (
                f"queue {queue}: whether it is a quorum queue with a single active consumer is not known, since the user may not "
                "declare it; without these the order is not kept"
            )
        elif member.failures.on_failure == "dead-letter" and "x-dead-letter-exchange" not in arguments:
            yield (
                f"queue {queue} has no argument x-dead-letter-exchange: unless a policy gives it one, a message that the handler "
                "cannot handle is lost"
            )

    timed = [queue for queue, arguments in queues.items() if _has_timeout(arguments, release)]
    if timed and member.concurrency > 1:
        yield (
            f"{listed(timed, _MAX_LISTED)}: because of the argument x-consumer-timeout the group takes one message at a time, not "
            f"concurrency={member.concurrency}: from 4.3 on a timeout breaks the order of prefetched messages. To take more, declare the queue again "
            "without it"
        )

    alike: defaultdict[tuple[int, bool, bool], list[str]] = defaultdict(list)
    for queue, arguments in queues.items():
        limit = delivery_limit(arguments or {}, release)
        if limit is not None and arguments is not None:
            alike[limit, DELIVERY_LIMIT in arguments, "x-dead-letter-exchange" in arguments].append(queue)

    for (limit, is_argument, is_dead_lettered), names in alike.items():
        source, remedy = _LIMITS[is_argument]
        yield (
            f"{listed(names, _MAX_LISTED)}: delivery limit {limit}, {source}. A message that is returned more often is "
            f"{_FATES[is_dead_lettered]}, so the group prefetches only `concurrency` messages. To prefetch more, {remedy}"
        )
