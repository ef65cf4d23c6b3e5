"""Fixtures of the tests of publishers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from scripted_peer import Peer


@pytest.fixture
def peer() -> Iterator[Peer]:
    """A broker that acks every message, unless told otherwise."""
    with Peer() as peer:
        yield peer
