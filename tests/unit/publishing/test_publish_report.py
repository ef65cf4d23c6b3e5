"""The counts of a report, alone and over several connections. What the connections have seen is scripted."""

from __future__ import annotations

import pickle

import pytest
from scripted_delivery import A, Event, ScriptedConnection, ack, all_of, nack, returned

from rabbit_chx.amqp.frames import Return
from rabbit_chx.publishing import PublishReport, Returned
from rabbit_chx.publishing.encoder import Rows
from rabbit_chx.publishing.publish_report import Tally


@pytest.mark.parametrize(
    ("report", "complete", "text"),
    [
        (PublishReport(), True, "nothing was published"),
        (PublishReport(1000, 1000), True, "1,000 of 1,000 messages confirmed"),
        (PublishReport(3, 3, republished=2, reconnects=1), True, "3 of 3 messages confirmed, 2 sent again after a reconnect"),
        (PublishReport(3, 2, returned=1), False, "2 of 3 messages confirmed, 1 returned as unroutable"),
        (PublishReport(3, returned=3), False, "0 of 3 messages confirmed, 3 returned as unroutable"),
        (PublishReport(3, 2, nacked=1), False, "2 of 3 messages confirmed, 1 nacked"),
        (PublishReport(1, unknown=1), False, "0 of 1 messages confirmed, 1 unknown"),
        (
            PublishReport(2010, 2000, returned=1, nacked=4, unknown=5, republished=6),
            False,
            "2,000 of 2,010 messages confirmed, 1 returned as unroutable, 4 nacked, 5 unknown, 6 sent again after a reconnect",
        ),
    ],
    ids=str,
)  # fmt: skip
def test_a_report_names_each_count_and_is_complete_if_all_rows_are_confirmed(
    report: PublishReport,
    complete: bool,  # noqa: FBT001
    text: str,
) -> None:
    assert (report.complete, str(report)) == (complete, text)


def test_a_report_can_be_pickled() -> None:
    report = PublishReport(rows=1, returned=1, samples=(Returned("k", 312, "NO_ROUTE"),))
    assert pickle.loads(pickle.dumps(report)) == report  # noqa: S301  # our own


def test_reports_are_added() -> None:
    first = PublishReport(5, 4, 1, 0, 0, 2, 3, 1, 100, 1.5, 0.5, (Returned("k", 312, "NO_ROUTE"),))
    total = sum([PublishReport(rows=3, confirmed=2, nacked=1, bytes_sent=50, seconds=2.0)], first)
    assert total == PublishReport(8, 6, 1, 1, 0, 2, 3, 1, 150, 3.5, 0.5, (Returned("k", 312, "NO_ROUTE"),))
    assert total.rows == total.confirmed + total.returned + total.nacked + total.unknown
    assert sum([first], PublishReport()) == first


def connection_with(messages: int, bytes_sent: int = 0) -> ScriptedConnection:
    """A connection over which so many messages were sent."""
    connection = ScriptedConnection(A)
    connection.session.publish(b"wire", messages)
    connection.bytes_sent = bytes_sent
    return connection


def tally_of(rows: int, connection: ScriptedConnection) -> Tally:
    """Counts of so many rows, which are then sent over a connection."""
    tally = Tally()
    tally.attach(connection)
    tally.rows = rows
    connection.session.publish(b"wire", rows)
    return tally


def counts(tally: Tally, connection: ScriptedConnection | None) -> tuple[int, int, int, int]:
    report = tally.report(connection, now=0)
    assert report.confirmed + report.returned + report.nacked + report.unknown == report.rows
    return report.confirmed, report.returned, report.nacked, report.unknown


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        ([], (0, 0, 0, 3)),
        ([ack(2)], (2, 0, 0, 1)),
        ([returned(1), ack()], (2, 1, 0, 0)),  # a returned row is acked and not confirmed
        ([nack(2), ack()], (2, 0, 0, 1)),  # it may be sent again
    ],
)
def test_rows_are_unknown_until_they_are_answered(
    events: list[Event], expected: tuple[int, int, int, int]
) -> None:
    connection = ScriptedConnection(A)
    tally = tally_of(3, connection)
    all_of(*events)(connection)
    assert counts(tally, connection) == expected




def test_answers_before_a_report_belong_to_the_report_before() -> None:
    connection = connection_with(10, bytes_sent=1000)
    all_of(returned(2), ack())(connection)
    tally = Tally()
    tally.attach(connection)
    assert counts(tally, connection) == (0, 0, 0, 0)
    tally = tally_of(1, connection)
    ack()(connection)
    connection.bytes_sent += 100
    assert counts(tally, connection) == (1, 0, 0, 0)
    assert tally.report(connection, now=0).bytes_sent == 100


def test_a_new_connection_counts_from_zero() -> None:
    """Its tags begin at 1, whatever the last one had answered before this report began."""
    first = connection_with(10, bytes_sent=1000)
    all_of(returned(4), ack())(first)
    tally = tally_of(5, first)
    first.bytes_sent += 50
    ack(11)(first)
    tally.detach(first)
    assert counts(tally, None) == (1, 0, 0, 4)
    second = connection_with(4)
    tally.attach(second)
    second.bytes_sent = 40
    all_of(returned(1), ack())(second)
    assert counts(tally, second) == (4, 1, 0, 0)
    assert tally.report(second, now=0).bytes_sent == 90


@pytest.mark.parametrize(
    ("acks", "returns", "kept"), [(3, 1, (2, 1)), (1, 3, (0, 1)), (0, 2, (0, 0)), (3, 0, (3, 0))]
)
def test_of_a_lost_connection_no_returned_row_counts_as_confirmed(
    acks: int, returns: int, kept: tuple[int, int]
) -> None:
    connection = connection_with(0)
    tally = tally_of(5, connection)
    returned(returns)(connection)
    if acks:
        ack(acks)(connection)
    tally.detach(connection)
    assert counts(tally, None)[:2] == kept


def test_samples_of_all_its_connections_are_in_the_report() -> None:
    earlier, tally = Tally(), Tally()
    first, second = ScriptedConnection(A), ScriptedConnection(A)
    lost, late = Return(312, "NO_ROUTE", b"a"), Return(312, "NO_ROUTE", b"\xff")
    earlier.attach(first)
    first.session.samples.append(Return(312, "NO_ROUTE", b"old"))
    tally.attach(first)
    first.session.samples.append(lost)
    tally.attach(second)
    second.session.samples.append(late)
    assert tally.report(second, now=0).samples == (
        Returned("a", 312, "NO_ROUTE"),
        Returned("\\xff", 312, "NO_ROUTE"),
    )


@pytest.mark.parametrize(
    ("batches", "distinct"),
    [
        ([], 0),
        ([[]], 0),
        ([[b"", b""], [b""]], 1),  # the routing key of Celery by default
        ([[b"a"], [], [b"a", b"a"]], 1),
        ([[b"a", b"b", b"a"]], None),
        ([[b"a"], [b"b"]], None),
        ([[b"a"], [b"b"], [b"b"]], None),
        ([[b""], [b"b"]], None),
    ],
)
def test_one_key_is_told_from_several(batches: list[list[bytes]], distinct: int | None) -> None:
    tally = Tally()
    for keys in batches:
        tally.count(Rows(keys, [b""] * len(keys)))
    assert tally.report(None, 0.0).distinct_keys == distinct


def test_the_keys_of_two_reports_may_be_the_same_or_not() -> None:
    one, none = PublishReport(rows=1, distinct_keys=1), PublishReport(distinct_keys=0)
    several = PublishReport(rows=2)
    assert (one + none).distinct_keys == (none + one).distinct_keys == 1
    assert (one + one).distinct_keys is (several + none).distinct_keys is None
