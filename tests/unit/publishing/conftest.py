"""Fixtures of the tests of both publishers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from both_publishers import BOTH, AnyPublisher
from scripted_peer import Peer


@pytest.fixture(params=BOTH, ids=["Publisher", "AsyncPublisher"])
def publisher_of(request: pytest.FixtureRequest) -> AnyPublisher:
    """Which of the two."""
    kind: AnyPublisher = request.param
    return kind


@pytest.fixture
def peer() -> Iterator[Peer]:
    """A broker that acks every message, unless told otherwise."""
    with Peer() as peer:
        yield peer
