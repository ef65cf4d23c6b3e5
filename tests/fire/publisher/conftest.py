"""Fixtures of the faults that happen to a publisher."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from delivery_checker import Verdict
from fire_load import Run
from fire_stage import Stage, fire_stage
from tcp_proxy import Proxy

from rabbit_chx.testing import RunningBroker


@pytest.fixture
def stage(vhost: RunningBroker, tmp_path: Path) -> Iterator[Stage]:
    """Exchange, queues and user; at the end nothing that was written holds the password."""
    with fire_stage(vhost, tmp_path) as stage_:
        yield stage_


@pytest.fixture
def way(vhost: RunningBroker) -> Iterator[Callable[..., Proxy]]:
    """Makes ways to the broker that can be disturbed: ``way()``, or ``way(tls=context)`` for one that speaks TLS."""
    made: list[Proxy] = []

    def make(**arguments: Any) -> Proxy:
        made.append(Proxy(arguments.pop("url", vhost.url), **arguments))
        return made[-1]

    yield make
    for publisher in made:
        publisher.close()


@pytest.fixture
def kept(stage: Stage, record: Callable[..., Verdict]) -> Callable[..., Verdict]:
    """Checks what a run promised, and records it: ``kept(run, fault=..., promise=...)``."""

    def check(run: Run, *, fault: str, promise: str, outcome: str = "complete", **history: Any) -> Verdict:
        report = run.report
        assert report.confirmed + report.returned + report.nacked + report.unknown == report.rows
        assert (run.error is None and report.complete) == (outcome == "complete"), report
        found = stage.history(run, **history)
        return record(
            found,
            path="Publisher",
            fault=fault,
            promise=promise,
            recover_s=run.recover_s if run.error is None else None,
            outcome=outcome,
            moved=stage.moved(found),
        )

    return check
