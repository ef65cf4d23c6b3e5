"""The delivery limit of quorum queues, by release."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

ARGUMENT = "x-delivery-limit"
#: Since 4.0 a quorum queue drops a message that was requeued 20 times, unless an argument or a policy sets another limit.
_DEFAULT_SINCE = (4, 0, 0)
_DEFAULT = 20


def delivery_limit(arguments: Mapping[str, Any], release: tuple[int, ...]) -> int | None:
    """Return the delivery limit of a quorum queue with these arguments; None for no limit. A policy may set another one."""
    limit = arguments.get(ARGUMENT)
    if not isinstance(limit, int):
        return _DEFAULT if release >= _DEFAULT_SINCE else None
    return limit if limit >= 0 else None


def delivery_limit_fault(arguments: Mapping[str, Any], release: tuple[int, ...]) -> tuple[str, str] | None:
    """Return why a quorum queue with these arguments loses messages, and the remedy; None if it does not.

    Before 4.0, a delivery limit of -1 is less than any count: the broker drops a message at its first requeue (``rabbit_fifo.erl``; tested
    with 3.10.8). It accepts such a queue. It does not accept such a policy.
    """
    limit = arguments.get(ARGUMENT)
    if not isinstance(limit, int) or limit >= 0 or release >= _DEFAULT_SINCE:
        return None
    message = (
        f"{ARGUMENT} is {limit}, with which RabbitMQ {'.'.join(map(str, release))} drops each message that is returned, as when the "
        "consumer changes"
    )
    return message, "declare the queue without it, since there is no limit before 4.0"
