"""A broker without sockets, for the tests of the publisher; a node on the loopback, for those of the connection."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest
from stream_node import ListeningNode
from stream_publishers import Broker, running_broker

from rabbit_chx.streams.connection import StreamConnection
from rabbit_chx.streams.frames import Key


@pytest.fixture
def broker() -> Iterator[Broker]:
    with running_broker() as broker:
        yield broker


@pytest.fixture
def node() -> Iterator[ListeningNode]:
    """A node of 4.3 with all commands, which does not advertise an address."""
    with ListeningNode() as node:
        node.version, node.commands, node.opening = "4.3.6", list(Key), {}
        yield node


@pytest.fixture
def opened(node: ListeningNode) -> Iterator[StreamConnection]:
    """A connection to the node, which records only what follows the login."""
    with closing(StreamConnection(node.settings)) as opened:
        node.seen.clear()
        node.requests.clear()
        yield opened
