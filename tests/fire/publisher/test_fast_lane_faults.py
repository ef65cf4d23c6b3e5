"""What happens while the publisher itself routes: straight to the queue that the ring names."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
from delivery_checker import Judge
from fire_load import Run
from fire_queues import BINDINGS, EXCHANGE, QUEUES
from fire_stage import Stage

pytestmark = [pytest.mark.broker, pytest.mark.restarts, pytest.mark.own_broker]

GONE = QUEUES[0]
LANE = 'routing="client": '


@pytest.fixture(name="publish")
def publish_by_client(stage: Stage) -> Callable[..., Run]:
    """Publishes with the ring as it was read before the first row and after the last."""
    return partial(stage.publish, routing="client", ring=stage.ring_now)


def test_a_killed_broker_loses_no_row(stage: Stage, publish: Callable[..., Run], kept: Judge) -> None:
    run = publish(stage.kill_broker)
    same = stage.ring_now() == stage.rings[0]  # where the store is Mnesia, its order may be another one
    assert run.report.complete
    kept(
        run,
        fault=LANE + "broker killed (SIGKILL) and started again after 1 s",
        promise="Every row is confirmed, in the queue that the ring named at first. If the restart has changed the ring, PublishError says so.",
        outcome="complete" if same else "PublishError: the ring has changed",
    )
    assert run.report.reconnects >= 1


def test_a_removed_binding_is_reported(stage: Stage, publish: Callable[..., Run], kept: Judge) -> None:
    def remove(_: Run) -> None:
        with stage.site.channel() as channel:
            channel.queue_unbind(GONE, EXCHANGE, str(dict(BINDINGS)[GONE]))

    run = publish(remove)
    assert run.report.complete
    assert "ring" in str(run.error)
    kept(
        run,
        fault=LANE + "one binding removed",
        promise="Every row is confirmed, in the queue that the ring named at first. Then PublishError says that the ring has changed.",
        outcome="PublishError: the ring has changed",
    )


def test_the_rows_of_a_deleted_queue_are_counted(
    stage: Stage, publish: Callable[..., Run], kept: Judge
) -> None:
    run = publish(lambda _: stage.site.delete_queue(GONE))
    assert run.report.returned > 0
    kept(
        run,
        fault=LANE + "one queue deleted, with what is in it",
        promise="The rows of that queue are gone or come back, which PublishError counts. Every other confirmed row is there.",
        outcome="PublishError: rows came back, and the ring has changed",
        elsewhere=stage.rows_for(GONE, run),
    )
