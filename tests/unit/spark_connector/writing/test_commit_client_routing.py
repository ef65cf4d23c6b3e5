"""A write that the client routes: what it requires before it begins, and what a changed ring does to it at its end."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.types import StringType, StructType

from rabbit_chx.errors import InputError, PublishError
from rabbit_chx.publishing import PublishReport
from rabbit_chx.routing import ExchangeRef, HashRing
from spark_connector.placing.rings import WatchedRing
from spark_connector.reports import TaskReport
from spark_connector.writing.commit import commit_write
from spark_connector.writing.preflight import plan_write
from spark_connector.writing.write_plan import WritePlan

SCHEMA = StructType().add("key", StringType()).add("value", StringType())
OPTIONS = {"url": "amqp://ann:c4nary@here", "exchange": "x", "preflight": "false", "routing": "client"}
RING = HashRing.from_buckets(["q1", "q2"])
GROWN = HashRing.from_buckets(["q1", "q2", "q3"])
DONE = TaskReport(
    0, 0, rows=5, publish_report=PublishReport(rows=5, confirmed=5), predicted={"q1": 3, "q2": 2}
)


def readings(*rings: HashRing) -> WatchedRing:
    """A ring that is read so, one time after the other."""
    left = iter(rings)
    return WatchedRing(lambda: next(left))


def planned(ring: WatchedRing, **options: str) -> WritePlan:
    assert ring.ring is not None
    given = {**OPTIONS, **options, "ring": ring.ring.to_json()}
    return plan_write(given, SCHEMA, ring=ring)


@pytest.mark.parametrize(
    "given", [{}, {"ring": RING.to_json()}], ids=["no ring", "a ring that is not read again"]
)
def test_something_must_read_the_ring(given: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=r"nothing reads the ring before and after the write: pass ringVia"):
        plan_write({**OPTIONS, **given}, SCHEMA, ring=WatchedRing(given.get("ring")))


@pytest.mark.parametrize(
    ("ring", "says"),
    [
        (HashRing.from_bindings([("q1", 1)]), "this one is replayed"),
        (HashRing.from_buckets([ExchangeRef("audit")]), "belongs to exchange audit, not to a queue"),
    ],
    ids=["replayed", "exchange"],
)
def test_a_ring_by_which_nothing_can_be_routed_is_refused(ring: HashRing, says: str) -> None:
    with pytest.raises(InputError, match=says):
        planned(readings(ring))


def test_a_ring_that_stays_commits_the_write() -> None:
    ring = readings(RING, RING)
    report = commit_write(planned(ring), [DONE], ring=ring)
    assert (report.failed, report.changed_ring) == (False, None)


def test_a_ring_that_has_changed_fails_the_write_and_both_are_in_the_report(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    ring = readings(RING, GROWN)
    with pytest.raises(
        PublishError, match=r"of the keys of q1 belong to q3 now, and 3 messages went to q1"
    ) as caught:
        commit_write(planned(ring, reportPath=str(path)), [DONE], ring=ring)
    assert caught.value.report.confirmed == 5
    report = json.loads(path.read_text())
    assert report["failed"]
    assert report["notes"] == [f"the write failed: {caught.value}"]
    before, after = (HashRing.from_json(json.dumps(ring)) for ring in report["changed_ring"])
    assert (before, after) == (RING, GROWN)


def test_a_plan_that_the_client_does_not_route_takes_a_changed_ring_for_a_note() -> None:
    ring = readings(RING, GROWN)
    plan = replace(planned(ring), options=replace(planned(readings(RING)).options, routing="exchange"))
    lost = replace(DONE, publish_report=PublishReport(rows=5, confirmed=5, reconnects=1))
    (note,) = commit_write(plan, [lost], ring=ring).notes
    assert "the ring has changed" in note
