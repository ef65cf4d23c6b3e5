"""The report of one task."""

from __future__ import annotations

from rabbit_chx.publishing import PublishReport
from spark_connector.reports import TaskReport, hash_of_key


def test_the_counts_are_those_of_the_publisher() -> None:
    task = TaskReport(0, 0, publish_report=PublishReport(7, 6, 1, 2, 0, 3, 4, 5, 600, 7.5, 0.5))
    assert (task.published, task.confirmed, task.returned, task.nacked) == (7, 6, 1, 2)
    assert (task.retried, task.republished, task.reconnects, task.bytes_sent) == (3, 4, 5, 600)
    assert (task.seconds, task.blocked_seconds) == (7.5, 0.5)


def test_a_hash_finds_a_key_and_does_not_show_it() -> None:
    assert hash_of_key(b"key") == "2c70e12b7a0646f9"
