"""Consumers by the statistics of the broker, which may be some seconds old."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from sides import as_live

from rabbit_chx.broker import usage as usage_module
from rabbit_chx.broker.usage import with_settled_consumers
from rabbit_chx.topology import LiveTopology
from rabbit_chx.topology.model import Consumer, Usage

WAITING = Usage(consumers={"q1": [Consumer("a", active=False)]})
SETTLED = Usage(consumers={"q1": [Consumer("a", active=True)], "q2": []})


@pytest.mark.parametrize("answers", [1, 3, 50])
def test_data_without_an_active_consumer_are_read_again_for_a_while(
    monkeypatch: pytest.MonkeyPatch, answers: int
) -> None:
    now = [0.0]
    clock = SimpleNamespace(monotonic=lambda: now[0], sleep=lambda s: now.__setitem__(0, now[0] + s))
    monkeypatch.setattr(usage_module, "time", clock)
    reads = iter(range(2, 1_000))
    monkeypatch.setattr(usage_module, "read_usage", lambda *_: WAITING if next(reads) < answers else SETTLED)
    api: Any = None
    live = with_settled_consumers(as_live(LiveTopology(), usage=WAITING if answers > 1 else SETTLED), api)
    is_settled = answers < usage_module._STALE_S
    assert live.facts.usage == (SETTLED if is_settled else WAITING)
    assert now[0] == (answers - 1 if is_settled else usage_module._STALE_S)
