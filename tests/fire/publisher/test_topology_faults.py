"""What happens to queues, bindings and the exchange while rows come."""

from __future__ import annotations

import pytest
from delivery_checker import Judge
from fire_load import Load, Run
from fire_queues import EXCHANGE, QUEUES
from fire_stage import Stage

from rabbit_chx.publishing import Retries

pytestmark = [pytest.mark.broker, pytest.mark.own_broker]

GONE = QUEUES[0]
KEPT_BACK = "The other rows are sent, then PublishError counts those that no queue took. Every confirmed row is there."


def test_a_deleted_queue_loses_its_own_rows_only(stage: Stage, kept: Judge) -> None:
    run = stage.publish(lambda _: stage.site.delete_queue(GONE), on_unroutable="report")
    stage.read_ring()
    outcome = "complete" if run.report.complete else "rows came back and are counted"
    kept(
        run,
        fault="one queue deleted, with what is in it",
        promise="The rows of that queue are gone, also confirmed ones. Every other confirmed row is there.",
        outcome=outcome,
        elsewhere=stage.rows_for(GONE, run),
    )
    assert run.error is None


def test_a_deleted_exchange_is_an_error(stage: Stage, kept: Judge) -> None:
    run = stage.publish(lambda _: stage.site.delete_exchange())
    assert f"404 NOT_FOUND - no exchange '{EXCHANGE}'" in str(run.error)
    kept(
        run,
        fault="the exchange deleted",
        promise="PublishError with the broker's words, at once. Every confirmed row is there.",
        outcome="PublishError: 404 NOT_FOUND",
    )


@pytest.mark.representative
def test_rows_without_a_binding_are_an_error(stage: Stage, kept: Judge) -> None:
    run = stage.publish(lambda _: remove_all(stage), load=Load(rows=12_000, fault_at=3_000))
    assert "NO_ROUTE" in str(run.error)
    verdict = kept(
        run,
        fault="all bindings removed",
        promise=KEPT_BACK,
        outcome="PublishError: 312 NO_ROUTE",
    )
    assert verdict.ok == verdict.acked
    assert run.handed == run.load.rows == run.report.confirmed + run.report.returned


def test_rows_without_a_binding_are_reported(stage: Stage, kept: Judge) -> None:
    run = stage.publish(lambda _: remove_all(stage), on_unroutable="report")
    verdict = kept(
        run,
        fault='all bindings removed, on_unroutable="report"',
        promise="The report counts the rows that no queue took. Every confirmed row is there.",
        outcome="rows came back and are counted",
    )
    assert run.error is None
    assert verdict.ok == verdict.acked
    assert run.report.returned == run.load.rows - run.report.confirmed


def remove_all(stage: Stage) -> None:
    for queue in QUEUES:
        stage.unbind(queue)


def test_a_removed_binding_loses_no_row(stage: Stage, kept: Judge) -> None:
    run = stage.publish(lambda _: stage.unbind(GONE))
    stage.read_ring()
    kept(
        run,
        fault="one binding removed",
        promise="Every row is confirmed. Keys change their queue as the ring does.",
    )


@pytest.mark.representative
def test_full_queues_are_an_error_that_counts_the_refused_rows(stage: Stage, kept: Judge) -> None:
    run = stage.publish(
        lambda _: limit(stage, 6_000), load=Load(fault_at=3_000), retries=Retries(backoff_s=0.2)
    )
    assert "basic.nack" in str(run.error)
    verdict = kept(
        run,
        fault="full queues that refuse (reject-publish), nobody consumes",
        promise="PublishError after nack_retries, and counts what was refused. Every confirmed row is there.",
        outcome="PublishError: refused (basic.nack)",
        ordered=False,
    )
    assert verdict.ok == verdict.acked
    assert run.report.retried > 0


def test_the_first_refusal_is_an_error_where_order_is_kept(stage: Stage, kept: Judge) -> None:
    run = stage.publish(
        lambda _: limit(stage, 6_000), load=Load(fault_at=3_000), retries=Retries(keep_order=True)
    )
    assert "basic.nack" in str(run.error)
    verdict = kept(
        run,
        fault="full queues that refuse (reject-publish), keep_order=True",
        promise="PublishError at the first refusal, so nothing overtakes. Every confirmed row is there.",
        outcome="PublishError: refused (basic.nack)",
    )
    assert verdict.ok == verdict.acked
    assert run.report.retried == 0


def test_full_queues_that_are_consumed_get_each_row(stage: Stage, kept: Judge) -> None:
    taken: dict[str, list[int]] = {queue: [] for queue in QUEUES}

    def consume(run: Run) -> None:
        limit(stage, 1_000)
        with stage.site.channel() as channel:
            while not run.over:
                for queue in QUEUES:
                    _, _, body = channel.basic_get(queue, auto_ack=True)
                    if body:
                        taken[queue].append(int(body.split()[0]))

    run = stage.publish(consume, load=Load(rows=7_200, fault_at=600), retries=Retries(backoff_s=0.2))
    kept(
        run,
        fault="full queues that refuse (reject-publish), with a consumer slower than the publisher",
        promise="Every row is confirmed, as long as some are confirmed in between. Refused rows may be overtaken.",
        found=taken,
        ordered=False,
    )
    assert run.report.retried > 0


def limit(stage: Stage, messages: int) -> None:
    """Let queues hold so many messages and refuse more.

    A limit below what they hold when the broker sets it would drop messages: leave it seconds.
    """
    definition = {"max-length": messages, "overflow": "reject-publish"}
    policy = {"pattern": "", "apply-to": "queues", "definition": definition}
    stage.site.management.request("PUT", "policies", stage.site.vhost, "full", body=policy)
