"""Whether a queue is fit for a group: a quorum queue with a single active consumer. AMQP tells it only when a declaration is refused.

A declaration of a queue that exists, with other arguments, changes nothing and is refused with the first argument that
differs and its value (rabbitmq-server v4.3.6, rabbit_misc.erl, ``assert_args_equivalence1/4``). So the declarations go on
with what the refusals have told until none is refused, and the arguments are known.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from rabbit_chx.analysis.wording import listed
from rabbit_chx.consuming.member import OnFailure
from rabbit_chx.errors import MismatchError

#: What a queue needs so that a group keeps order.
WANTED: dict[str, Any] = {"x-queue-type": "quorum", "x-single-active-consumer": True}
#: Since 4.0 a quorum queue drops a message that was returned 20 times, unless an argument or a policy says otherwise.
_LIMIT_SINCE = (4, 0, 0)
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
    limited = [
        queue
        for queue, arguments in queues.items()
        if arguments is not None
        and "x-delivery-limit" not in arguments
        and "x-dead-letter-exchange" not in arguments
    ]
    if limited and release >= _LIMIT_SINCE:
        yield (
            f"{listed(limited, _SHOWN)}: no argument x-delivery-limit. Unless a policy sets one, the broker drops a message that was returned 20 times, "
            "and each change of hands returns those that were delivered ahead: declare the queues with x-delivery-limit = -1, or set a "
            "policy with delivery-limit, which can be done at any time"
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
