"""The counts of a report over several connections. What the connections have seen is scripted."""

from __future__ import annotations

import pytest
from scripted_delivery import A, ScriptedLink, ack, all_of, nack, returned

from rabbit_chx.amqp.frames import Return
from rabbit_chx.publishing.publish_report import Returned
from rabbit_chx.publishing.tally import Tally


def link_with(messages: int, bytes_sent: int = 0) -> ScriptedLink:
    """A connection over which so many messages went."""
    link = ScriptedLink(A)
    link.publish(b"wire", messages)
    link.bytes_sent = bytes_sent
    return link


def counts(tally: Tally, link: ScriptedLink | None) -> tuple[int, int, int, int]:
    report = tally.report(link, now=0)
    assert report.confirmed + report.returned + report.nacked + report.unknown == report.rows
    return report.confirmed, report.returned, report.nacked, report.unknown


def test_rows_are_unknown_until_they_are_answered() -> None:
    tally, link = Tally(), ScriptedLink(A)
    tally.take_up(link)
    tally.rows = 3
    link.publish(b"wire", 3)
    assert counts(tally, link) == (0, 0, 0, 3)
    ack(2)(link)
    assert counts(tally, link) == (2, 0, 0, 1)


def test_a_returned_row_is_acked_and_not_confirmed() -> None:
    tally, link = Tally(), ScriptedLink(A)
    tally.take_up(link)
    tally.rows = 3
    link.publish(b"wire", 3)
    all_of(returned(1), ack())(link)
    assert counts(tally, link) == (2, 1, 0, 0)


def test_what_came_before_on_the_same_connection_belongs_to_the_report_before() -> None:
    link = link_with(10, bytes_sent=1000)
    all_of(returned(2), ack())(link)
    tally = Tally()
    tally.take_up(link)
    assert counts(tally, link) == (0, 0, 0, 0)
    assert tally.report(link, now=0).bytes_sent == 0
    tally.rows = 1
    link.publish(b"wire", 1)
    ack()(link)
    link.bytes_sent += 100
    assert counts(tally, link) == (1, 0, 0, 0)
    assert tally.report(link, now=0).bytes_sent == 100


def test_a_new_connection_counts_from_nothing() -> None:
    """Its tags begin at 1, whatever the last one had answered before this report began."""
    first = link_with(10, bytes_sent=1000)
    all_of(returned(4), ack())(first)
    tally = Tally()
    tally.take_up(first)
    tally.rows = 5
    first.publish(b"wire", 5)
    first.bytes_sent += 50
    ack(11)(first)
    tally.leave(first)
    assert counts(tally, None) == (1, 0, 0, 4)
    second = link_with(4)
    tally.take_up(second)
    second.bytes_sent = 40
    all_of(returned(1), ack())(second)
    assert counts(tally, second) == (4, 1, 0, 0)
    assert tally.report(second, now=0).bytes_sent == 90


@pytest.mark.parametrize(
    ("acks", "returns", "kept"), [(3, 1, (2, 1)), (1, 3, (0, 1)), (0, 2, (0, 0)), (3, 0, (3, 0))]
)
def test_of_a_lost_connection_no_row_is_taken_for_confirmed_that_came_back(
    acks: int, returns: int, kept: tuple[int, int]
) -> None:
    tally, link = Tally(), link_with(0)
    tally.take_up(link)
    tally.rows = 5
    link.publish(b"wire", 5)
    returned(returns)(link)
    if acks:
        ack(acks)(link)
    tally.leave(link)
    assert counts(tally, None)[:2] == kept


def test_rows_refused_for_good_are_not_unknown() -> None:
    tally, link = Tally(), ScriptedLink(A)
    tally.take_up(link)
    tally.rows = 3
    link.publish(b"wire", 3)
    all_of(nack(2), ack())(link)
    assert counts(tally, link) == (2, 0, 0, 1)
    tally.nacked += 1
    assert counts(tally, link) == (2, 0, 1, 0)


def test_samples_of_all_connections_are_in_the_report_and_only_its_own() -> None:
    earlier, tally = Tally(), Tally()
    first, second = ScriptedLink(A), ScriptedLink(A)
    lost, late = Return(312, "NO_ROUTE", b"a"), Return(312, "NO_ROUTE", b"\xff")
    earlier.take_up(first)
    first.samples.append(Return(312, "NO_ROUTE", b"old"))
    tally.take_up(first)
    first.samples.append(lost)
    tally.take_up(second)
    second.samples.append(late)
    assert tally.report(second, now=0).samples == (
        Returned("a", 312, "NO_ROUTE"),
        Returned("\\xff", 312, "NO_ROUTE"),
    )
