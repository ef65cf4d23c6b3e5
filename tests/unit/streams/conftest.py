"""A scripted broker of streams, for the tests of the publisher."""

from __future__ import annotations

import pytest
from scripted_streams import ScriptedBroker, ScriptedConnection, ScriptedStream
from stream_faults import Clock

from rabbit_chx.retry import Backoff
from rabbit_chx.streams import publisher as publisher_module
from rabbit_chx.streams import stored_ids, writer


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> ScriptedBroker:
    scripted = ScriptedBroker()
    scripted.streams["s"] = ScriptedStream()
    monkeypatch.setattr(publisher_module, "open_any", lambda _settings: ScriptedConnection(scripted))
    monkeypatch.setattr(writer, "open_at", scripted.open_at)
    monkeypatch.setattr(stored_ids, "StreamReader", scripted.reader)
    monkeypatch.setattr(writer, "_BACKOFF", Backoff(0.0, 0.0))
    monkeypatch.setattr(writer, "_BATCH_ROWS", 8)
    monkeypatch.setattr(publisher_module, "_WAIT_S", 0.0)
    monkeypatch.setattr(writer, "_WAIT_S", 0.0)
    monkeypatch.setattr(stored_ids, "_FIRST_PIECE", 16)
    return scripted


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(writer, "time", made)
    return made
