"""What a dry run says."""

from __future__ import annotations

from spark_connector.dry_runs import DryRun, HotKey, PartitionRows, skew


def test_skew_is_the_maximum_over_the_mean() -> None:
    assert skew([5, 5, 5]) == 1.0
    assert skew([9, 0, 0]) == 3.0
    assert skew([]) == skew([0, 0]) == 1.0


def test_a_dry_run_counts_what_its_partitions_have() -> None:
    parts = (PartitionRows(0, 3, {"q1": 2, "q2": 1}), PartitionRows(1, 1, {"q1": 1}))
    run = DryRun("x", "amqp://h", {}, parts, "read", {"q1": 0.5, "q2": 0.25, "q3": 0.25})
    assert run.rows == 4
    assert run.predicted == {"q1": 3, "q2": 1, "q3": 0}
    assert run.partition_skew == 1.5
    assert run.queue_skew == 2.25
    assert "q3" in str(run)
    words = "the fullest queue has 2.25 times the mean, and no queue has more than 1.50 times its share of the ring"
    assert words in " ".join(str(run).split())
    assert "queues in it" in str(run)


def test_without_a_ring_queues_are_not_predicted() -> None:
    run = DryRun("x", "amqp://h", {}, (PartitionRows(0, 3, {}),), hottest=(HotKey("k", 2),))
    assert run.ok
    assert "no ring was given: queues were not checked" in str(run)
    assert "queues in it" not in str(run)
    assert "fullest queue" not in str(run)
    heading, row = str(run).splitlines()[-3::2]
    assert heading.split() == ["hottest", "keys", "rows", "of", "the", "rows"]
    assert row.split() == ["k", "2", "66.7%"]
