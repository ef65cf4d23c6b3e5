"""What happens to the process that publishes."""

from __future__ import annotations

import os
import signal
import time

import pytest
from delivery_checker import Judge
from fire_queues import EXCHANGE
from fire_stage import Stage
from publisher_process import publish_in_process

pytestmark = [pytest.mark.broker, pytest.mark.own_broker]

GOES_ON = "Every row is confirmed, over a new connection."


def test_a_process_that_was_stopped_publishes_each_row(stage: Stage, kept: Judge) -> None:
    def stop(process: int) -> None:
        os.kill(process, signal.SIGSTOP)
        try:
            time.sleep(10)  # the broker gives up after two to three intervals
        finally:
            os.kill(process, signal.SIGCONT)

    run = publish_in_process(f"{stage.site.url}?heartbeat=2", EXCHANGE, stop, stage.folder)
    stage.write_down(run)
    kept(run, fault="publisher's process stopped (SIGSTOP) for 10 s, heartbeat 2 s", promise=GOES_ON)
    assert run.report.reconnects >= 1
