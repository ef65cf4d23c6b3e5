"""Rows for which the broker closes the channel or the connection, among rows that it takes."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from delivery_checker import Judge
from exchange_types import FANOUT
from fire_load import Load
from fire_stage import Stage

from rabbit_chx.publishing import Retries

pytestmark = pytest.mark.broker

LOAD = Load(rows=12_000, fault_at=3_000)
POISON = {3_000, 3_001, 8_000, 11_999}
PROMISE = "PublishError names the first such row and counts them. Every other row is confirmed; those around them may be sent again."


@pytest.mark.parametrize(
    ("what", "code"),
    [
        ("a missing exchange", 404),
        pytest.param("a decimal header to a stream", 541, marks=pytest.mark.chx_broker(">=4.0")),
    ],
    ids=["channel", "connection"],
)
def test_only_the_row_that_closes_the_connection_fails(
    what: str, code: int, stage: Stage, kept: Judge
) -> None:
    if code == 541:
        with stage.site.channel() as channel:
            channel.exchange_declare("poison", FANOUT, durable=True)
            channel.queue_declare("s", durable=True, arguments={"x-queue-type": "stream"})
            channel.queue_bind("s", "poison")
    rows = range(LOAD.rows)
    columns: dict[str, Any] = {"exchanges": ["poison" if row in POISON else None for row in rows]}
    if code == 541:
        columns["properties"] = {
            "headers": [{"d": Decimal("1.25")} if row in POISON else None for row in rows]
        }
    run = stage.publish(lambda _: None, load=LOAD, columns=columns, retries=Retries(backoff_s=0.1))
    assert f"row {min(POISON)} " in str(run.error)
    assert str(code) in str(run.error)
    kept(
        run,
        fault=f"four rows with {what}, for which the broker closes the {'channel' if code == 404 else 'connection'}",
        promise=PROMISE,
        outcome=f"PublishError: {code}",
    )
    assert (run.report.confirmed, run.report.nacked) == (LOAD.rows - len(POISON), len(POISON))
