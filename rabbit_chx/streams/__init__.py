"""The stream protocol: RabbitMQ's log, read and written as columns."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rabbit_chx.errors import MissingExtraError
from rabbit_chx.lazy_names import lazy

if TYPE_CHECKING:
    from rabbit_chx.streams.chunks import Fingerprint as Fingerprint
    from rabbit_chx.streams.parity import MisplacedRow as MisplacedRow
    from rabbit_chx.streams.parity import StreamParity as StreamParity
    from rabbit_chx.streams.parity import stream_parity as stream_parity
    from rabbit_chx.streams.publisher import StreamPublisher as StreamPublisher
    from rabbit_chx.streams.reader import StreamReader as StreamReader
    from rabbit_chx.streams.replaying import replay as replay
    from rabbit_chx.streams.stream_report import StreamReport as StreamReport

_NAMES = {
    "rabbit_chx.streams.chunks": ["Fingerprint"],
    "rabbit_chx.streams.parity": ["MisplacedRow", "StreamParity", "stream_parity"],
    "rabbit_chx.streams.publisher": ["StreamPublisher"],
    "rabbit_chx.streams.reader": ["StreamReader"],
    "rabbit_chx.streams.replaying": ["replay"],
    "rabbit_chx.streams.stream_report": ["StreamReport"],
}

__all__ = [name for names in _NAMES.values() for name in names]

_load, __dir__ = lazy(__name__, _NAMES)


def __getattr__(name: str) -> object:
    try:
        return _load(name)
    except ModuleNotFoundError as missing:
        raise MissingExtraError(
            f"{name} needs {missing.name}, which is not installed: pip install 'rabbit-chx[streams]'"
        ) from None
