"""What an order checker found in a history: counts of each fault, and the first of each."""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = ["OrderFault", "OrderReport"]


@dataclass(frozen=True, slots=True)
class OrderFault:
    """One fault of a history.

    Attributes:
        kind: ``out of order``, ``stale``, ``lost`` or ``unexpected``.
        key: the key.
        number: the number of the message.
        says: what is wrong with it.
    """

    kind: str
    key: str
    number: int
    says: str

    def __str__(self) -> str:
        return f"{self.kind}: key {self.key!r}, message {self.number:,}: {self.says}"


@dataclass(frozen=True, slots=True)
class OrderReport:
    """What was found in the order of messages.

    Attributes:
        messages: how many messages were handled, repeats included.
        keys: how many keys they have.
        out_of_order: messages that were handled for the first time after a newer one of their key.
        stale: repeats of old messages after which the newer ones of their key did not come again. What a key's last message
            leaves is then wrong until the next one.
        lost: messages that never came. Without `sent` only those that a newer one of their key follows.
        repeated: messages that had been handled before. This is no fault: delivery is at least once.
        redelivered: those of the repeated that the broker marked as redelivered. The others were published twice, or
            handled by two consumers.
        unexpected: messages that nobody sent: numbers below the first or beyond the last, and keys that are not in `sent`.
        faults: the first few faults of each kind.
    """

    messages: int
    keys: int
    out_of_order: int
    stale: int
    lost: int
    repeated: int
    redelivered: int
    unexpected: int
    faults: tuple[OrderFault, ...] = field(default=(), repr=False)

    @property
    def ok(self) -> bool:
        """Whether there is no fault. Repeats alone are none."""
        return not (self.out_of_order or self.stale or self.lost or self.unexpected)

    def __str__(self) -> str:
        counts = (
            f"{self.messages:,} messages of {self.keys:,} keys: {self.out_of_order:,} out of order, {self.stale:,} stale, "
            f"{self.lost:,} lost, {self.unexpected:,} unexpected; {self.repeated:,} repeated, of which {self.redelivered:,} "
            "redelivered"
        )
        return "\n".join([counts, *(f"  {fault}" for fault in self.faults)])
