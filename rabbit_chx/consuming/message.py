"""The messages that handlers receive."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias, TypeVar
from zlib import crc32

_M = TypeVar("_M", bound="_QueueMessage")


@dataclass(frozen=True, slots=True)
class _QueueMessage:
    queue: str
    routing_key: str
    body: bytes
    headers: Mapping[str, Any] = field(default_factory=dict)
    message_id: str | None = None
    redelivered: bool = False


@dataclass(frozen=True, slots=True)
class ShardMessage(_QueueMessage):
    """A message of a shard.

    Attributes:
        queue: the shard; the name of the exchange if it was consumed by that name, since the broker does not reveal the shard.
        routing_key: its routing key; bytes that are not UTF-8 are surrogate escapes, as in all its texts.
        body: its bytes.
        headers: its headers, as aio-pika decodes them.
        message_id: the id that the publisher set; None if it set none.
        redelivered: whether the broker may have delivered it before.
    """


@dataclass(frozen=True, slots=True)
class GroupMessage(_QueueMessage):
    """A message of a queue of the group.

    Attributes:
        queue: the queue. A message that was parked during a hand-over has the name of its new queue.
        routing_key: its routing key; bytes that are not UTF-8 are surrogate escapes, as in all its texts.
        body: its bytes.
        headers: its headers, as aio-pika or pika decodes them.
        message_id: the id that the publisher set; None if it set none.
        redelivered: whether the broker may have delivered it before.
        generation: a number that grows whenever the queue changes hands. A store can reject writes with a lower number than it has
            seen. None if the group has no journal.
        attempt: 1 for the first call of the handler with this delivery, one more for each retry.
        exchange: the exchange that it was published to.
        properties: its other properties that are set, by their AMQP 0-9-1 names.
    """

    generation: int | None = None
    attempt: int = 1
    exchange: str = ""
    properties: Mapping[str, Any] = field(default_factory=dict)


def convert_message(kind: type[_M], delivered: Any, queue: str, **attributes: Any) -> _M:
    """Convert a message of aiormq. `attributes` are those that only this kind has."""
    properties = delivered.header.properties
    return kind(
        queue,
        delivered.delivery.routing_key or "",
        delivered.body,
        dict(properties.headers or {}),
        properties.message_id,
        bool(delivered.delivery.redelivered),
        **attributes,
    )


# -- The turns of redelivered messages, so that a message that kills its process costs no other one. Without I/O and without a clock
# Such a poison message returns together with all messages that the process held, and a delivery limit counts the return of each. So messages
# that were returned before, of queues with a delivery limit, are *suspects*. While a member holds suspects of any of its queues, it handles one
# of them at a time, and starts nothing else. A suspect is an ordinary message once its handler has ended, or after the time of a turn.
#
# Suspects that return together again and again have an order that is reversed at each second return. So a poison message is once before, and
# once after each other one, which is therefore handled after at most three returns. Suspects wait for each other: they arrive one after the
# other, and their queues need a claim and the hook `on_gained` first.


#: A queue, and the delivery tag of a message of it.
_Key: TypeAlias = tuple[str, int]


class _Queue(Protocol):
    @property
    def is_handling(self) -> bool: ...


@dataclass(slots=True)
class _Suspect:
    """A redelivered message.

    Attributes:
        returns: how often it was returned.
        lane: the messages of a lane are handled in their order.
        is_settled: whether it need not wait for others any more, as when it has arrived some time ago.
        can_start: whether its queue could start it then.
    """

    returns: int
    lane: int
    is_settled: bool = False
    can_start: bool = True


class Turns:
    """The suspects of a member, and which of them has the turn.

    Attributes:
        queues: the queues of the member, by name.
        turn: the queue and the delivery tag of the message that is handled alone; None while suspects wait for each other, or without any.
        is_timed: whether the time of the turn is measured.
    """

    def __init__(self) -> None:
        self.queues: dict[str, _Queue] = {}
        self.turn: _Key | None = None
        self.is_timed = False
        self._suspects: dict[_Key, _Suspect] = {}

    @property
    def are_taken(self) -> bool:
        """Whether there are suspects."""
        return bool(self._suspects)

    def is_suspect(self, queue: str, tag: int) -> bool:
        """Return whether a message is a suspect."""
        return (queue, tag) in self._suspects

    def may_start(self, queue: str, tag: int) -> bool:
        """Return whether a message may be started now."""
        if not self._suspects:
            return True
        return self.turn == (queue, tag) and not any(each.is_handling for each in self.queues.values())

    def add(self, queue: str, tag: int, returns: int, lane: int) -> None:
        """A redelivered message has arrived."""
        self._suspects[queue, tag] = _Suspect(returns, lane)

    def settle(self, queue: str, tag: int, *, can_start: bool) -> None:
        """A suspect waits no longer for others."""
        suspect = self._suspects[queue, tag]
        suspect.is_settled = True
        suspect.can_start = can_start
        self._elect()

    def drop(self, queue: str, tag: int) -> None:
        """A message is no suspect any more, if it was one."""
        self._suspects.pop((queue, tag), None)
        if self.turn == (queue, tag):
            self.turn = None
        self._elect()

    def drop_queue(self, queue: str, but: Collection[int] = ()) -> bool:
        """Drop the suspects of a queue but these; return whether there were any."""
        dropped = [tag for each, tag in self._suspects if each == queue and tag not in but]
        for tag in dropped:
            self.drop(queue, tag)
        return bool(dropped)

    def _elect(self) -> None:
        """Give the turn to the next suspect, once all are settled."""
        if self.turn is None and self._suspects and all(each.is_settled for each in self._suspects.values()):
            most = max(suspect.returns for suspect in self._suspects.values())
            self.turn = min(self._suspects, key=lambda key: self._rank(key, most))
            self.is_timed = False

    def _rank(self, key: _Key, most: int) -> tuple[bool, int, int]:
        """Return the place of a suspect among others of which one was returned so often. Each second time has the reverse order of the first."""
        suspect = self._suspects[key]
        (queue, tag) = key
        place = crc32(f"{queue} {suspect.lane} {(most + 1) // 2}".encode())
        return not suspect.can_start, place if most % 2 else -place, tag
