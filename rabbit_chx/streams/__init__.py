"""Streams, written and read as columns over the stream protocol."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rabbit_chx.lazy_names import is_installed, lazy
from rabbit_chx.version import missing_extra

if TYPE_CHECKING:
    from rabbit_chx.streams.chunks import Fingerprint as Fingerprint
    from rabbit_chx.streams.options import ReadLimits as ReadLimits
    from rabbit_chx.streams.options import WriteLimits as WriteLimits
    from rabbit_chx.streams.publisher import StreamPublisher as StreamPublisher
    from rabbit_chx.streams.publisher import StreamReport as StreamReport
    from rabbit_chx.streams.reader import StreamReader as StreamReader

_NAMES = {
    "rabbit_chx.streams.chunks": ["Fingerprint"],
    "rabbit_chx.streams.options": ["ReadLimits", "WriteLimits"],
    "rabbit_chx.streams.publisher": ["StreamPublisher", "StreamReport"],
    "rabbit_chx.streams.reader": ["StreamReader"],
}

__all__ = [name for names in _NAMES.values() for name in names if is_installed("pyarrow")]

_load, __dir__ = lazy(__name__, _NAMES)


def __getattr__(name: str) -> object:
    try:
        return _load(name)
    except ModuleNotFoundError as missing:
        raise missing_extra(name, missing.name, "streams") from None
