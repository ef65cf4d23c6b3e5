"""A connection as its users see it, whoever moves its bytes, and two ways in which it fails them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from rabbit_chx.errors import BrokerTimeoutError, ConnectionLostError

if TYPE_CHECKING:
    from rabbit_chx.connection.session import Session

__all__ = ["InterruptedLinkError", "Link", "StallError"]


class Link(Protocol):
    """A connection, whoever moves its bytes."""

    @property
    def session(self) -> Session:
        """The protocol's side."""

    @property
    def bytes_sent(self) -> int:
        """Bytes that the socket has taken, heartbeats left out."""

    @property
    def backlog(self) -> bool:
        """Whether bytes wait for the socket to take them."""

    @property
    def bytes_under_way(self) -> int:
        """Bytes that the socket has taken and the peer's has not, heartbeats left out; 0 where no one can tell."""


class StallError(BrokerTimeoutError):
    """The broker answers nothing, and has not said that it blocks us."""


class InterruptedLinkError(ConnectionLostError):
    """Ctrl-C or the like came while the connection was at work."""
