"""A model of what is around a hand-over: queues, the slots' bindings, what is being routed, and a consumer of each queue."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from rabbit_chx.consuming.ownership import (
    POLL,
    Abandon,
    Ack,
    Claim,
    Command,
    DeliveredMessage,
    FetchParked,
    LogWarning,
    QueueOwnership,
    RunHook,
    SendReply,
    StartHandler,
    StartTimer,
    Subscribe,
    TimerReason,
)
from rabbit_chx.consuming.settings import GroupMember
from rabbit_chx.topology.slots import HandOverMarker

PREFETCH = 2


def slot_name(slot: int) -> str:
    """Return the name of a slot.

    Args:
        slot: its number.
    """
    return f"x.slot.{slot:02d}"


@dataclass(frozen=True)
class Item:
    """A message, or a marker."""

    number: int
    slot: int = 0
    marker: HandOverMarker | None = None
    reply_to: str | None = None


@dataclass
class Entry:
    """A message in a queue, and who holds it unacknowledged."""

    item: Item
    holder: tuple[str, int] | None = None


@dataclass
class Place:
    """The active consumer of a queue: the ownership that runs in production, and what is on its way to the broker."""

    queue: str
    ownership: QueueOwnership = field(
        default_factory=lambda: QueueOwnership("q", GroupMember("a", prefetch=PREFETCH))
    )
    to_broker: list[Ack | SendReply] = field(default_factory=list)
    running: list[tuple[int, Item]] = field(default_factory=list)
    held: dict[int, Item] = field(default_factory=dict)
    asks_park: bool = False
    polls: bool = False
    taking: TimerReason | None = None
    gave_up: bool = False

    def begin(self) -> None:
        """Consume the queue."""
        self.take(self.ownership.consume())

    def take(self, commands: list[Command]) -> list[Item]:  # noqa: C901, PLR0912  # one branch for each
        """Do what the ownership asks for, and return the messages whose handler begins.

        Args:
            commands: what it asks for. What concerns nobody else is done at once.
        """
        started: list[Item] = []
        for command in commands:
            match command:
                case StartHandler(_, delivery):
                    self.running.append((delivery.tag, self.held[delivery.tag]))
                    started.append(self.held[delivery.tag])
                case Ack() | SendReply():
                    self.to_broker.append(command)
                case FetchParked():
                    self.asks_park = True
                case StartTimer(_, reason, _):
                    if reason == POLL:
                        self.polls = True
                    elif reason.kind == "hand-over":
                        self.taking = reason
                case Subscribe(subscription):
                    started += self.take(self.ownership.on_subscribed(subscription))
                case Claim(subscription):
                    started += self.take(self.ownership.on_claimed(subscription, 0))
                case RunHook():
                    started += self.take(self.ownership.on_hook_done())
                case Abandon(subscription):
                    started += self.take(self.ownership.on_abandoned(subscription))
                case LogWarning():
                    self.gave_up = True
                case _:
                    raise AssertionError(command)
        if self.ownership.subscription is None or self.ownership.subscription.hand_over is None:
            self.taking, self.polls = None, False  # a late timer of a marker that is done does nothing
        return started

    def delivery(self, item: Item) -> DeliveredMessage:
        """Return a message as it is delivered, with a number that is free.

        Args:
            item: the message.
        """
        tag = next(number for number in range(1, 100) if number not in self.held)
        self.held[tag] = item
        return DeliveredMessage(tag, "k", marker=item.marker, reply_to=item.reply_to)

    def key(self) -> tuple[Any, ...]:
        """Return the key that identifies this state."""
        ownership = {
            name: repr(value)
            for name, value in vars(self.ownership).items()
            if name not in ("delivered_count", "_turns")
        }
        own = {name: repr(value) for name, value in vars(self).items() if name != "ownership"}
        return tuple(sorted(ownership.items())), tuple(sorted(own.items()))
