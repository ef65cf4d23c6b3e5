"""A broker that died between the snapshot of a segment and the rows that it covers: what tools/osiris-roll-over.md reports."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
import roll_over_flaw

from rabbit_chx.streams.writer import StreamWriter
from rabbit_chx.testing import RunningBroker, skip_unless_ci

pytestmark = [
    pytest.mark.broker,
    pytest.mark.restarts,
    pytest.mark.own_broker,
    pytest.mark.timeout(200),
]


@pytest.mark.parametrize("proves", [pytest.param(True, marks=pytest.mark.representative), False])
def test_rows_that_a_snapshot_covers_are_stored(
    vhost: RunningBroker,
    broker: RunningBroker,
    proves: bool,  # noqa: FBT001
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if broker.ring_via is None or broker.ring_via[0] != "docker":
        skip_unless_ci("it cuts a file of a broker in Docker")
    if not proves:  # as other clients do it
        monkeypatch.setattr(StreamWriter, "_verify_claim", lambda _: None)
    found = roll_over_flaw.cut(replace(vhost, ring_via=broker.ring_via))
    told = re.search(r"in the stream: 200; the broker's last id of 'load': (\d+)", capsys.readouterr().out)
    assert told
    claimed = int(told[1])  # 232, if the broker made one chunk of the last rows
    assert 200 < claimed <= 232
    assert found == [*range(1, 201), *(range(201, claimed + 1) if proves else ()), *range(claimed + 1, 301)]
