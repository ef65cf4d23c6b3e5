"""A connection as its users see it: the messages that are open on it, and how it fares. No I/O.

*Ledger.* The broker numbers the messages of a confirming channel 1, 2, 3, ... (the delivery tag) and answers in any order, one
by one or for all tags up to one (`multiple`). rabbitmq-server v4.3.0, rabbit_channel.erl, send_confirms_and_nacks/1: a `multiple`
ack never covers a message that is rejected, and an answer covers only what is still open.

Three sides share a `Link`. The `Session` writes down what the broker says: answers, returned messages, blocks, and why
the connection ends. The loop, which is a subclass, takes `output` to the socket and counts the bytes. The delivery reads
all of it and calls `publish`. What they share are plain attributes: reading one costs nothing.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterator
from typing import Any, Generic, NamedTuple, TypeVar

from rabbit_chx.amqp.frames import FRAME_MAX, Return
from rabbit_chx.errors import RabbitChxError

What = TypeVar("What")


class Part(NamedTuple, Generic[What]):
    """Some messages of a batch.

    Attributes:
        batch: what `Ledger.enter` was given for it.
        places: which of its messages, from 0, in order.
    """

    batch: What
    places: list[int]


class _Batch(NamedTuple, Generic[What]):
    last: int  # tag of its last message
    messages: int
    size: int
    what: What


class Ledger(Generic[What]):
    """Counts what was sent, acked, nacked and is still open, on one channel.

    Attributes:
        sent: messages published so far; the last delivery tag.
        answered: messages that the broker acked or nacked.
        nacked: messages that the broker nacked: it refused them.
        open: messages that are not answered yet.
        open_bytes: bytes on the wire of the batches that have an open message.
        refused: the nacked messages that `take_refused` has not taken yet.
    """

    __slots__ = ("_ahead", "_batches", "_low", "answered", "nacked", "open", "open_bytes", "refused", "sent")

    def __init__(self) -> None:
        self.sent = 0
        self.answered = 0
        self.nacked = 0
        self.open = 0
        self.open_bytes = 0
        self._low = 0  # every tag up to here is answered
        self._ahead: set[int] = set()  # answered tags above it
        self._batches: deque[_Batch[What]] = deque()  # those with an open message, oldest first
        self.refused: list[Part[What]] = []

    @property
    def acked(self) -> int:
        """Messages that the broker acked. It acks what it returned, too."""
        return self.answered - self.nacked

    def enter(self, messages: int, size: int, what: What) -> None:
        """Enter a batch that is published now.

        Args:
            messages: how many messages it has.
            size: their bytes on the wire.
            what: a value that `take_refused` and `left` return for the batch.
        """
        self.sent += messages
        self.open += messages
        self.open_bytes += size
        self._batches.append(_Batch(self.sent, messages, size, what))

    def has_news(self, until_open: int) -> bool:
        """Return whether at most this many messages are open, or the broker refused a message."""
        return self.open <= until_open or bool(self.refused)

    def take_refused(self) -> list[Part[What]]:
        """Return the nacked messages that were not taken yet, by batch."""
        refused, self.refused = self.refused, []
        return refused

    def left(self) -> list[Part[What]]:
        """Return the messages that are not answered, by batch, oldest first."""
        return list(self._open_through(self.sent))

    def ack(self, tag: int, *, multiple: bool) -> None:
        """Enter a basic.ack.

        Raises:
            ValueError: the tag was never published.
        """
        self._check(tag)
        if multiple:
            self._answer_through(tag or self.sent)  # AMQP 0-9-1: tag 0 means all
        elif tag == self._low + 1:
            self._raise_low(tag)
        elif tag > self._low:
            self._ahead.add(tag)
            self._raise_low(self._low)

    def ack_each(self, tags: list[int]) -> None:
        """Enter a basic.ack of each single tag.

        Raises:
            ValueError: one of them was never published.
        """
        if tags:
            self._check(max(tags))
            low = self._low
            self._ahead.update([tag for tag in tags if tag > low])
            self._raise_low(low)

    def nack(self, tag: int, *, multiple: bool) -> None:
        """Enter a basic.nack.

        Raises:
            ValueError: the tag was never published.
        """
        self._check(tag)
        if multiple:
            parts = list(self._open_through(tag or self.sent))
        else:
            parts = list(self._open_through(tag, tag - 1))
        # Counted before they are answered: an interruption between the two must not make an ack of a nack.
        self.nacked += sum(len(part.places) for part in parts)
        self.ack(tag, multiple=multiple)
        for part in parts:
            if self.refused and self.refused[-1].batch is part.batch:
                self.refused[-1].places.extend(part.places)
            else:
                self.refused.append(part)

    def _check(self, tag: int) -> None:
        if tag > self.sent:
            raise ValueError(f"the broker confirmed delivery tag {tag}, but only {self.sent} were published")

    def _open_through(self, tag: int, after: int = 0) -> Iterator[Part[What]]:
        """Yield the open messages above the tag `after`, up to `tag`, by batch."""
        after = max(after, self._low)
        for batch in self._batches:
            first = batch.last - batch.messages + 1
            if first > tag:
                return
            if batch.last <= after:
                continue
            tags = range(max(first, after + 1), min(batch.last, tag) + 1)
            if places := [tag - first for tag in tags if tag not in self._ahead]:
                yield Part(batch.what, places)

    def _answer_through(self, tag: int) -> None:
        if tag <= self._low:
            return
        ahead = self._ahead
        if len(ahead) <= tag - self._low:
            self._ahead = {answered for answered in ahead if answered > tag}
        else:
            ahead.difference_update(range(self._low + 1, tag + 1))
        self._raise_low(tag)

    def _raise_low(self, tag: int) -> None:
        """Let every tag up to this one be answered, and those that follow it and are ahead."""
        ahead = self._ahead
        while tag + 1 in ahead:
            tag += 1
            ahead.remove(tag)
        self._low = tag
        self.answered = tag + len(ahead)
        self.open = self.sent - self.answered
        batches = self._batches
        while batches and batches[0].last <= tag:
            self.open_bytes -= batches.popleft().size


class Link(Ledger[Any], ABC):
    """The ledger of a connection's messages, and how the connection fares.

    Args:
        where: the broker's address without its password.

    Attributes:
        where: the broker's address without its password.
        output: whole frames, to be sent in this order.
        failure: why the connection cannot go on, or None.
        blocked: the broker's reason for asking publishers to wait, or None.
        returned: how many messages came back as unroutable; the broker acks them, too.
        samples: the first few of them.
        frame_max: the largest frame that was agreed on, in bytes.
    """

    def __init__(self, where: str) -> None:
        super().__init__()
        self.where = where
        self.output: deque[bytes] = deque()
        self.failure: RabbitChxError | None = None
        self.blocked: str | None = None
        self.returned = 0
        self.samples: list[Return] = []
        self.frame_max = FRAME_MAX

    def publish(self, wire: bytes, messages: int, what: object = None) -> None:
        """Queue encoded messages.

        Args:
            wire: the messages as they go over the wire.
            messages: how many they are.
            what: a value that `take_refused` and `left` return for them.
        """
        self.enter(messages, len(wire), what)
        self.output.append(wire)

    @property
    @abstractmethod
    def backlog(self) -> bool:
        """Whether bytes wait for the socket to take them."""

    @property
    @abstractmethod
    def bytes_sent(self) -> int:
        """Bytes of messages that the socket has taken."""

    @property
    @abstractmethod
    def bytes_under_way(self) -> int:
        """Bytes of messages that the socket has taken and the peer has not; 0 where the system does not tell."""
