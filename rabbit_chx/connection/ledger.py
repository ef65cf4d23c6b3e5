"""The publisher confirms of one channel. No I/O.

The broker numbers the messages of a confirming channel 1, 2, 3, ... (the delivery tag). It confirms them in any order, singly or all tags
up to one (`multiple`). rabbitmq-server v4.3.0, rabbit_channel.erl, send_confirms_and_nacks/1: a `multiple` ack never covers a rejected
message, and a confirm covers only open messages.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Generic, NamedTuple, TypeVar

Batch = TypeVar("Batch")


class Part(NamedTuple, Generic[Batch]):
    """Some messages of a batch, by their indices in it."""

    batch: Batch
    indices: list[int]


class _SentBatch(NamedTuple, Generic[Batch]):
    last: int  # delivery tag of its last message
    messages: int
    size: int
    batch: Batch


class Ledger(Generic[Batch]):
    """Counts the messages that are sent, acked, nacked and open on one channel.

    Attributes:
        sent: messages published; the last delivery tag.
        answered: messages that the broker acked or nacked.
        acked: messages that the broker acked, including returned ones.
        open: messages without a confirm.
        open_bytes: bytes on the wire of the batches that have an open message.
        refused: the nacked messages, until `take_refused` returns them.
    """

    def __init__(self) -> None:
        self.sent = 0
        self.answered = 0
        self.acked = 0
        self.nacked = 0
        self.open = 0
        self.open_bytes = 0
        self._low = 0  # the low-water mark: every tag up to here is answered
        self._ahead: set[int] = set()  # answered tags above it
        self._entries: deque[_SentBatch[Batch]] = deque()  # batches with an open message, oldest first
        self.refused: list[Part[Batch]] = []

    def enter(self, messages: int, size: int, batch: Batch) -> None:
        """Enter a batch of `messages` with `size` bytes on the wire; `take_refused` and `unanswered` return `batch`."""
        self.sent += messages
        self.open += messages
        self.open_bytes += size
        self._entries.append(_SentBatch(self.sent, messages, size, batch))

    def has_news(self, until_open: int) -> bool:
        """Return whether at most this many messages are open, or the broker refused one."""
        return self.open <= until_open or bool(self.refused)

    @property
    def is_last_open(self) -> bool:
        """True if the last message is not answered."""
        return self.is_open(self.sent)

    def is_open(self, tag: int) -> bool:
        """Return whether the message with this tag has no answer."""
        return self._low < tag <= self.sent and tag not in self._ahead

    def find_open(self, after: int = 0) -> Iterator[tuple[int, Batch, int]]:
        """Yield the open messages behind a tag, oldest first: the tag, the batch, and the index in it."""
        for entry in self._entries:
            first = entry.last - entry.messages + 1
            for tag in range(max(first, after + 1), entry.last + 1):
                if self.is_open(tag):
                    yield tag, entry.batch, tag - first

    def take_refused(self) -> list[Part[Batch]]:
        """Remove and return the nacked messages, by batch."""
        refused = self.refused
        self.refused = []
        return refused

    def find_unanswered(self) -> list[Part[Batch]]:
        """Return the open messages by batch, oldest first."""
        return list(self._open_through(self.sent))

    def ack(self, tag: int, *, multiple: bool) -> None:
        """Enter a basic.ack; raise a ValueError for a tag that was not published."""
        self._check(tag)
        if multiple:
            self._answer_through(tag or self.sent)  # AMQP 0-9-1: tag 0 means all
        elif tag == self._low + 1:
            self._advance_low(tag)
        elif tag > self._low:
            self._ahead.add(tag)
            self._advance_low(self._low)

    def ack_each(self, tags: list[int]) -> None:
        """Enter a basic.ack of each single tag; raise a ValueError for a tag that was not published."""
        if tags:
            self._check(max(tags))
            low = self._low
            self._ahead.update([tag for tag in tags if tag > low])
            self._advance_low(low)

    def nack(self, tag: int, *, multiple: bool) -> None:
        """Enter a basic.nack; raise a ValueError for a tag that was not published."""
        self._check(tag)
        last = (tag or self.sent) if multiple else tag
        parts = list(self._open_through(last, 0 if multiple else tag - 1))
        # Counted before they are answered: an interruption between the two must not turn a nack into an ack.
        self.nacked += sum(len(part.indices) for part in parts)
        self.ack(tag, multiple=multiple)
        for part in parts:
            if self.refused and self.refused[-1].batch is part.batch:
                self.refused[-1].indices.extend(part.indices)
            else:
                self.refused.append(part)

    def _check(self, tag: int) -> None:
        if tag > self.sent:
            raise ValueError(f"the broker confirmed delivery tag {tag}, but only {self.sent} were published")

    def _open_through(self, tag: int, after: int = 0) -> Iterator[Part[Batch]]:
        after = max(after, self._low)
        for entry in self._entries:
            first = entry.last - entry.messages + 1
            if first > tag:
                return
            if entry.last <= after:
                continue
            tags = range(max(first, after + 1), min(entry.last, tag) + 1)
            if indices := [tag - first for tag in tags if tag not in self._ahead]:
                yield Part(entry.batch, indices)

    def _answer_through(self, tag: int) -> None:
        if tag <= self._low:
            return
        ahead = self._ahead
        if len(ahead) <= tag - self._low:
            self._ahead = {answered for answered in ahead if answered > tag}
        else:
            ahead.difference_update(range(self._low + 1, tag + 1))
        self._advance_low(tag)

    def _advance_low(self, tag: int) -> None:
        """Advance the low-water mark to a tag and past contiguous confirms."""
        ahead = self._ahead
        while tag + 1 in ahead:
            tag += 1
            ahead.remove(tag)
        self._low = tag
        self.answered = tag + len(ahead)
        self.acked = self.answered - self.nacked
        self.open = self.sent - self.answered
        entries = self._entries
        while entries and entries[0].last <= tag:
            self.open_bytes -= entries.popleft().size


class RowLedger(Ledger[Batch]):
    """A ledger that names each row that the broker acks. Its batches have `numbers`, one for each message.

    Attributes:
        confirmed: the numbers of acked rows, until the user takes them.
    """

    def __init__(self) -> None:
        super().__init__()
        self._numbers: dict[int, int] = {}  # by delivery tag, of the open messages
        self.confirmed: list[int] = []

    def enter(self, messages: int, size: int, batch: Batch) -> None:
        """Enter a batch as `Ledger.enter`."""
        self._numbers.update(zip(range(self.sent + 1, self.sent + messages + 1), batch.numbers, strict=True))  # type: ignore[attr-defined]
        super().enter(messages, size, batch)

    def ack(self, tag: int, *, multiple: bool) -> None:
        """Enter a basic.ack as `Ledger.ack`."""
        first = self._low + 1 if multiple else tag
        last = tag or self.sent
        super().ack(tag, multiple=multiple)
        self._confirm(range(first, last + 1))

    def ack_each(self, tags: list[int]) -> None:
        """Enter a basic.ack of each single tag as `Ledger.ack_each`."""
        super().ack_each(tags)
        self._confirm(tags)

    def nack(self, tag: int, *, multiple: bool) -> None:
        """Enter a basic.nack as `Ledger.nack`."""
        confirmed = len(self.confirmed)
        super().nack(tag, multiple=multiple)
        del self.confirmed[confirmed:]  # it answers the messages as an ack does

    def _confirm(self, tags: Iterable[int]) -> None:
        numbers = self._numbers
        self.confirmed += [numbers.pop(tag) for tag in tags if tag in numbers]
