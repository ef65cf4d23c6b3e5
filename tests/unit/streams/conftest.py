"""A scripted broker of streams, for the tests of the publisher."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from scripted_streams import ScriptedBroker
from simulated_streams import scripted_broker
from stream_faults import Clock

from rabbit_chx.streams import writer


@pytest.fixture
def broker() -> Iterator[ScriptedBroker]:
    with scripted_broker() as scripted:
        yield scripted


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(writer, "time", made)
    return made
