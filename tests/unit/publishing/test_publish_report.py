"""What a report says of itself."""

from __future__ import annotations

import pickle

import pytest

from rabbit_chx.publishing import PublishReport, Returned


@pytest.mark.parametrize(
    ("report", "complete"),
    [
        (PublishReport(), True),
        (PublishReport(rows=3, confirmed=3), True),
        (PublishReport(rows=3, confirmed=3, republished=2, reconnects=1), True),
        (PublishReport(rows=3, confirmed=2, returned=1), False),
        (PublishReport(rows=3, returned=3), False),
        (PublishReport(rows=3, confirmed=2, nacked=1), False),
        (PublishReport(rows=3, confirmed=2, unknown=1), False),
    ],
    ids=str,
)
def test_only_a_report_whose_rows_are_all_confirmed_is_complete(
    report: PublishReport,
    complete: bool,  # noqa: FBT001
) -> None:
    assert report.complete is complete


@pytest.mark.parametrize(
    ("report", "text"),
    [
        (PublishReport(), "nothing was published"),
        (PublishReport(rows=1000, confirmed=1000), "1,000 of 1,000 rows confirmed"),
        (
            PublishReport(rows=2010, confirmed=2000, returned=1, nacked=4, unknown=5, republished=6),
            "2,000 of 2,010 rows confirmed, 1 returned as unroutable, 4 refused (nack), 5 unknown, 6 sent again after a reconnect",
        ),
        (PublishReport(rows=1, unknown=1), "0 of 1 rows confirmed, 1 unknown"),
    ],
    ids=str,
)
def test_a_report_in_words(report: PublishReport, text: str) -> None:
    assert str(report) == text


def test_a_report_can_be_pickled() -> None:
    report = PublishReport(rows=1, returned=1, samples=(Returned("k", 312, "NO_ROUTE"),))
    assert pickle.loads(pickle.dumps(report)) == report  # noqa: S301  # our own


def test_reports_are_added() -> None:
    first = PublishReport(5, 4, 1, 0, 0, 2, 3, 1, 100, 1.5, 0.5, (Returned("k", 312, "NO_ROUTE"),))
    total = sum([PublishReport(rows=3, confirmed=2, nacked=1, bytes_sent=50, seconds=2.0)], first)
    assert total == PublishReport(8, 6, 1, 1, 0, 2, 3, 1, 150, 3.5, 0.5, (Returned("k", 312, "NO_ROUTE"),))
    assert total.rows == total.confirmed + total.returned + total.nacked + total.unknown
    assert sum([first], PublishReport()) == first
