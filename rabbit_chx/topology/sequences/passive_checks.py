"""What is there, asked over AMQP alone: passive declarations, which change nothing."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from rabbit_chx.topology.sequences.operations import (
    ExchangeBind,
    ExchangeDeclare,
    QueueBind,
    QueueDeclare,
    Refusal,
    refused,
)
from rabbit_chx.topology.sequences.steps import asked

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rabbit_chx.topology.sequences.steps import OperationSequence

__all__ = ["check_exchange", "look_at"]

_NOT_FOUND = 404


def look_at(
    where: str,
    exchange: ExchangeDeclare,
    queues: Iterable[QueueDeclare],
    bindings: Iterable[QueueBind | ExchangeBind],
) -> OperationSequence[tuple[ExchangeDeclare | QueueDeclare, ...]]:
    """Find what is missing of an exchange and its queues; change nothing.

    What exists is declared once more. The broker accepts that for an equal one and refuses it for a different
    one.

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
    things: tuple[ExchangeDeclare | QueueDeclare, ...] = (exchange, *queues)
    for wanted in things:
        answer = yield replace(wanted, passive=True)
        if not isinstance(answer, Refusal):
            yield from asked(where, wanted)
        elif answer.reply_code == _NOT_FOUND:
            missing.append(wanted)
        else:
            raise refused(where, wanted, answer)
    for name in dict.fromkeys(b.destination for b in bindings if isinstance(b, ExchangeBind)):
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
