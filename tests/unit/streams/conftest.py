"""A broker without sockets, for the tests of the publisher."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from stream_publishers import Broker, running_broker


@pytest.fixture
def broker() -> Iterator[Broker]:
    with running_broker() as broker:
        yield broker
