"""A scripted broker of streams, for the tests of the publisher."""

from __future__ import annotations

import pytest
from scripted_streams import ScriptedBroker, ScriptedConnection, ScriptedStream

from rabbit_chx.streams import publisher as publisher_module
from rabbit_chx.streams import writer


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> ScriptedBroker:
    scripted = ScriptedBroker()
    scripted.streams["s"] = ScriptedStream()
    monkeypatch.setattr(publisher_module, "open_any", lambda _settings: ScriptedConnection(scripted))
    monkeypatch.setattr(writer, "open_at", scripted.open_at)
    monkeypatch.setattr(writer, "StreamReader", scripted.reader)
    monkeypatch.setattr(writer, "_FIRST_BACKOFF_S", 0.0)
    monkeypatch.setattr(writer, "_BATCH_ROWS", 8)
    monkeypatch.setattr(publisher_module, "_WAIT_S", 0.0)
    monkeypatch.setattr(writer, "_WAIT_S", 0.0)
    monkeypatch.setattr(writer, "_LOOKED_BACK", 16)
    return scripted
