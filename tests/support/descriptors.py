"""A process that has no file descriptor left, or one: the system refuses all that needs another."""

from __future__ import annotations

import contextlib
import os
import resource
from collections.abc import Iterator

_STANDARD = 3


@contextlib.contextmanager
def _limit(descriptors: int) -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def no_descriptor_left() -> contextlib.AbstractContextManager[None]:
    """Let this process open nothing as long as the block lasts, also where it closes something."""
    return _limit(_STANDARD)


def one_descriptor_left() -> contextlib.AbstractContextManager[None]:
    """Let this process open one descriptor as long as the block lasts."""
    lowest_free = os.open(os.devnull, os.O_RDONLY)
    os.close(lowest_free)
    return _limit(lowest_free + 1)
