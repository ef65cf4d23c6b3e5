"""Fixtures of the tests of publishers."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import pytest
from scripted_peer import Peer

from rabbit_chx.publishing import Publisher, SharedPublisher


@pytest.fixture
def peer() -> Iterator[Peer]:
    """A broker that acks every message, unless told otherwise."""
    with Peer() as peer:
        yield peer


@pytest.fixture
def opened(peer: Peer) -> Any:
    """How to open a publisher to the exchange `orders` of the peer; options of limits and retries are given by their names."""
    return functools.partial(Publisher, peer.settings, "orders")


@pytest.fixture
def shared(peer: Peer) -> Any:
    """The same for a `SharedPublisher`."""
    return functools.partial(SharedPublisher, peer.settings, "orders")
