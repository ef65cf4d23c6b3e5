"""A mover that dies at a given step, by SIGKILL: when the broker has done that step, and before anything else is sent.

What goes in one flight is sent one by one here. So exactly those operations have arrived that a flight would have brought which was
cut off at this point. This changes the process that calls it, which is to die.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pika.adapters.blocking_connection import BlockingChannel

from rabbit_chx.broker.hand_over import PikaCarrier, _Copies
from rabbit_chx.broker.live_broker import Operation
from rabbit_chx.broker.pika_connection import PikaConnection
from rabbit_chx.errors import BrokerRefusedError


@dataclass(frozen=True, slots=True)
class PlacedDeath:
    """Where a mover dies.

    Attributes:
        after: ``operation``: something declared, bound, unbound or deleted. ``take``: a parked message got. ``copy``: it was published
            once more, and confirmed. ``ack``: it was taken out of the parking queue. ``marker``: a marker sent. ``reply``: the reply
            to one read.
        count: after how many of these; the first operation takes the lock.
    """

    after: Literal["operation", "take", "copy", "ack", "marker", "reply"]
    count: int

    def __str__(self) -> str:
        return f"{self.after} {self.count}"


class _Steps:
    """The steps that are done, and the death."""

    def __init__(self, death: PlacedDeath, told: int) -> None:
        self._death, self._told, self._left = death, told, death.count
        self.copied: set[int] = set()

    def done(self, kind: str, settle: Callable[[], object] = lambda: None) -> None:
        """Count a step; die after the last one, when the broker has done it."""
        if kind != self._death.after:
            return
        self._left -= 1
        if self._left == 0:
            settle()
            os.write(self._told, json.dumps(len(self.copied)).encode())
            os.kill(os.getpid(), signal.SIGKILL)


def die_at(death: PlacedDeath, told: int) -> None:
    """Have this process die when it comes to a step.

    Args:
        death: where.
        told: a file descriptor. It gets the number of messages that are there twice then: copied, and still parked.
    """
    steps = _Steps(death, told)
    _follow_operations(steps)
    _follow_carrier(steps)


def _follow_operations(steps: _Steps) -> None:
    perform = PikaConnection.perform

    def perform_and_count(self: PikaConnection, operation: Operation) -> None:
        perform(self, operation)
        steps.done("operation")

    def perform_one_by_one(self: PikaConnection, operations: Sequence[Operation]) -> bool:
        try:
            for operation in operations:
                perform_and_count(self, operation)
        except BrokerRefusedError:
            return False
        return True

    PikaConnection.perform = perform_and_count  # type: ignore[method-assign]
    PikaConnection.perform_together = perform_one_by_one  # type: ignore[method-assign]


def _follow_carrier(steps: _Steps) -> None:
    get, ack, publish = BlockingChannel.basic_get, BlockingChannel.basic_ack, _Copies.publish
    send, wait = PikaCarrier.send_marker, PikaCarrier.wait_for_reply

    def basic_get(self: BlockingChannel, *arguments: Any) -> Any:
        got = get(self, *arguments)
        if got[0] is not None:
            steps.done("take")
        return got

    def publish_copy(self: _Copies, exchange: str, method: Any, *message: Any) -> None:
        publish(self, exchange, method, *message)
        steps.copied.add(method.delivery_tag)
        steps.done("copy", lambda: self._connection.wait_until(lambda: not self._open))

    def basic_ack(self: BlockingChannel, tag: int) -> None:
        ack(self, tag)
        steps.copied.discard(tag)
        steps.done("ack", self.basic_qos)  # whose answer comes when the broker has done what was sent before

    def sent(self: PikaCarrier, *marker: Any) -> None:
        send(self, *marker)
        steps.done("marker")

    def replied(self: PikaCarrier, *marker: Any, **limits: Any) -> bool:
        in_time = wait(self, *marker, **limits)
        steps.done("reply")
        return in_time

    BlockingChannel.basic_get = basic_get  # type: ignore[method-assign,assignment]
    BlockingChannel.basic_ack = basic_ack  # type: ignore[method-assign,assignment]
    _Copies.publish = publish_copy  # type: ignore[method-assign,assignment]
    PikaCarrier.send_marker, PikaCarrier.wait_for_reply = sent, replied  # type: ignore[method-assign,assignment]
