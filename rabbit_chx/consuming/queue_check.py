"""Whether a queue is fit for a group: a quorum queue with a single active consumer. AMQP tells it only when a declaration is refused.

A declaration of a queue that exists, with other arguments, changes nothing and is refused with the first argument that
differs and its value (rabbitmq-server v4.3.6, rabbit_misc.erl, ``assert_args_equivalence1/4``). So the declarations go on
with what the refusals have told until none is refused, and the arguments are known.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

from rabbit_chx.analysis.wording import listed
from rabbit_chx.consuming.member import OnFailure
from rabbit_chx.errors import MismatchError

#: What a queue needs so that a group keeps order.
WANTED: dict[str, Any] = {"x-queue-type": "quorum", "x-single-active-consumer": True}
#: Since 4.0 a quorum queue drops a message that was returned 20 times, unless an argument or a policy says otherwise.
_LIMIT_SINCE = (4, 0, 0)
_DEFAULT_LIMIT = 20
_SHOWN = 5
_REFUSAL = re.compile(
    r"inequivalent arg '(?P<name>[^']+)' for queue .* but current is "
    r"(?:the value '(?P<value>.*)' of type '(?P<type>\w+)'|'(?P<bare>.*)'|(?P<none>none))",
    re.DOTALL,
)
_REMEDY = (
    "a group needs quorum queues with a single active consumer: declare the queue anew with "
    'arguments = { x-queue-type = "quorum", x-single-active-consumer = true }; neither can be changed later'
)


def learned_arguments(queue: str, arguments: Mapping[str, Any], refusal: str) -> dict[str, Any] | None:
    """Return arguments, and with them the argument of the queue that a refused declaration tells; None where it tells none.

    If the queue is no quorum queue, or has no single active consumer, the error is MismatchError.
    """
    match = _REFUSAL.search(refusal)
    if match is None:
        return None
    name = match["name"]
    if name in WANTED or name == "durable":
        current = match["value"] or match["bare"] or "not set"
        raise MismatchError(f"queue {queue!r}: {name} is {current}: {_REMEDY}", queue=queue, reply_code=406)
    if match["value"] is None:
        return None
    return {**arguments, name: _value(match["value"], match["type"])}


def refuse_dropping(queues: Mapping[str, Mapping[str, Any] | None], release: tuple[int, ...]) -> None:
    """Refuse queues from which a group would lose messages.

    Before 4.0, a delivery limit of -1 is less than any count: the broker drops a message when it is returned for the first time
    (rabbit_fifo.erl; 3.8.9 and 3.10.8, tried).
    """
    for queue, arguments in queues.items():
        limit = (arguments or {}).get("x-delivery-limit")
        if isinstance(limit, int) and limit < 0 and release < _LIMIT_SINCE:
            raise MismatchError(
                f"queue {queue!r}: x-delivery-limit is {limit}, with which RabbitMQ {'.'.join(map(str, release))} drops each message that is "
                "returned, as when a queue changes hands: declare the queue without it, since there is no limit before 4.0",
                queue=queue,
            )


def delivery_limit(arguments: Mapping[str, Any] | None, release: tuple[int, ...]) -> int | None:
    """Return after how many returns the broker drops or dead-letters a message; None for no limit. Policies are not seen.

    Args:
        arguments: those of the queue; None where they are not known.
        release: the version of the broker.
    """
    limit = (arguments or {}).get("x-delivery-limit")
    if not isinstance(limit, int):
        return _DEFAULT_LIMIT if release >= _LIMIT_SINCE else None
    return limit if limit >= 0 else None


def queue_warnings(
    queues: Mapping[str, Mapping[str, Any] | None], release: tuple[int, ...], on_failure: OnFailure
) -> Iterator[str]:
    """Yield what a user of a group should know of its queues. The arguments of a queue are None where they are not known."""
    for queue, arguments in queues.items():
        if arguments is None:
            yield (
                f"queue {queue}: whether it is a quorum queue with a single active consumer is not known, since the user may not "
                "declare it; without these the order is not kept"
            )
        elif on_failure == "dead-letter" and "x-dead-letter-exchange" not in arguments:
            yield (
                f"queue {queue} has no argument x-dead-letter-exchange: unless a policy gives it one, a message that the handler "
                "cannot handle is lost"
            )
    alike: defaultdict[tuple[int, bool, bool], list[str]] = defaultdict(list)
    for queue, arguments in queues.items():
        limit = delivery_limit(arguments, release)
        if limit is not None and arguments is not None:
            is_dead_lettered = "x-dead-letter-exchange" in arguments
            alike[limit, "x-delivery-limit" in arguments, is_dead_lettered].append(queue)
    for (limit, is_own, is_dead_lettered), names in alike.items():
        yield _limit_warning(listed(names, _SHOWN), limit, is_own=is_own, is_dead_lettered=is_dead_lettered)


def _limit_warning(queues: str, limit: int, *, is_own: bool, is_dead_lettered: bool) -> str:
    """Return what a delivery limit does to messages, and the remedy."""
    source = (
        "of the argument x-delivery-limit"
        if is_own
        else "which RabbitMQ 4.0 and newer set by default, unless a policy sets another limit"
    )
    fate = (
        "dead-letters the message, and the messages behind it overtake it"
        if is_dead_lettered
        else "drops the message, unless a policy names a dead-letter exchange"
    )
    remedy = (
        "To keep every message in its place, declare the queue again with x-delivery-limit = -1 (4.0 and newer; before, without the argument)"
        if is_own
        else "To keep every message in its place, declare the queue again with x-delivery-limit = -1, or set a policy with delivery-limit = -1, "
        "which the group cannot see, so that it still takes `lanes` messages"
    )
    return (
        f"{queues}: the delivery limit is {limit}, {source}. When a message was returned more often, as by members that die while they "
        f"handle it, the broker {fate}. So that the messages behind it are not returned with it, the group takes `lanes` messages at a time (1 by "
        f"default), which is slower than `prefetch`. {remedy}"
    )


def _value(text: str, kind: str) -> Any:  # noqa: ANN401  # as the type says
    if kind == "bool":
        return text == "true"
    if kind in ("longstr", "binary"):
        return text
    try:
        return int(text)
    except ValueError:
        return text
