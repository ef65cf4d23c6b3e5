"""Messages that the broker was sending when a member ended their channel: aiormq logs an error for each, and they are none."""

from __future__ import annotations

import logging

__all__ = ["LateFrames"]

_LOGGER = logging.getLogger("aiormq.connection")
_SAYS = "Got frame for closed channel"


class LateFrames(logging.Filter):
    """Keeps the frames of channels that this member has ended out of the log of aiormq. The broker returns these messages."""

    def __init__(self) -> None:
        super().__init__()
        self._channels: set[int] = set()

    def expect(self, channel: int) -> None:
        """Drop what is logged about frames of a channel that is being ended.

        Args:
            channel: the number of the channel.
        """
        self._channels.add(channel)
        _LOGGER.addFilter(self)

    def end(self) -> None:
        """Drop nothing any more."""
        _LOGGER.removeFilter(self)

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether a record is logged.

        Args:
            record: the record.
        """
        number = record.args[0] if isinstance(record.args, tuple) and record.args else None
        return not (number in self._channels and str(record.msg).startswith(_SAYS))
