"""Fixtures of the faults that happen to a publisher."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from delivery_checker import Judge, Verdict
from fire_load import Run
from fire_queues import moved
from fire_stage import Stage, fire_stage

from rabbit_chx.testing import RunningBroker


@pytest.fixture
def stage(vhost: RunningBroker, tmp_path: Path) -> Iterator[Stage]:
    """Exchange, queues and user; at the end nothing that was written holds the password."""
    with fire_stage(vhost, tmp_path) as stage_:
        yield stage_


@pytest.fixture
def kept(stage: Stage, record: Judge) -> Judge:
    """Checks what a run promised, and records it: ``kept(run, fault=..., promise=...)``."""

    def check(
        run: Run,
        *,
        fault: str,
        promise: str,
        outcome: str = "complete",
        path: str = "Publisher",
        **history: Any,
    ) -> Verdict:
        report = run.report
        assert report.confirmed + report.returned + report.nacked + report.unknown == report.rows
        assert (run.error is None and report.complete) == (outcome == "complete"), report
        found = stage.history(run, **history)
        return record(
            found,
            path=path,
            fault=fault,
            promise=promise,
            recover_s=run.recover_s if run.error is None else None,
            outcome=outcome,
            moved=moved(found, stage.rings[0]),
        )

    return check
