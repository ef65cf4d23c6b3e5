"""A connection as its users see it: the messages that are open on it, and how it fares.

Three sides share a `Link`. The `Session` writes down what the broker says: answers, returned messages, blocks, and why
the connection ends. The loop, which is a subclass, takes `output` to the socket and counts the bytes. The delivery reads
all of it and calls `publish`. What they share are plain attributes: reading one costs nothing.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from typing import TYPE_CHECKING, Any

from rabbit_chx.amqp.frames import FRAME_MAX, Return
from rabbit_chx.connection.ledger import Ledger

if TYPE_CHECKING:
    from rabbit_chx.errors import RabbitChxError

__all__ = ["Link"]


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
