"""The counts of a report, alone and over several connections: `reports.txt`. What the connections have seen is scripted.

python tests/unit/publishing/test_publish_report.py    # writes the reports of this version into the file
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from pathlib import Path

from scripted_delivery import A, Event, ScriptedConnection, ack, nack, returned
from stories import each_story, played, write_stories

from rabbit_chx.amqp.frames import Return
from rabbit_chx.publishing import PublishReport, Returned
from rabbit_chx.publishing.encoder import Rows
from rabbit_chx.publishing.publish_report import RowBatch, Tally

STORIES = Path(__file__).with_name("reports.txt")


def test_a_report_can_be_pickled() -> None:
    report = PublishReport(rows=1, returned=1, samples=(Returned("k", 312, "NO_ROUTE"),))
    assert pickle.loads(pickle.dumps(report)) == report  # noqa: S301  # our own


def test_reports_are_added() -> None:
    first = PublishReport(5, 4, 1, 0, 0, 2, 3, 1, 100, 1.5, 0.5, (Returned("k", 312, "NO_ROUTE"),))
    total = sum([PublishReport(rows=3, confirmed=2, nacked=1, bytes_sent=50, seconds=2.0)], first)
    assert total == PublishReport(8, 6, 1, 1, 0, 2, 3, 1, 150, 3.5, 0.5, (Returned("k", 312, "NO_ROUTE"),))
    assert total.rows == total.confirmed + total.returned + total.nacked + total.unknown
    assert sum([first], PublishReport()) == first


class Site:
    """Counts, and the connections of their rows."""

    def __init__(self, _how: str) -> None:
        self.tally = Tally()
        self.connection: ScriptedConnection | None = None

    def play(self, event: str) -> str:
        """Let something happen, and return the report: its counts, its bytes and how many keys there are."""
        word, _, rest = event.partition(" ")
        if word == "text":
            report = PublishReport(**json.loads(rest))
            return f"{'complete' if report.complete else 'incomplete'}: {report}"
        if word == "keys":
            keys = [key.strip("'").encode() for key in rest.split()]
            self.tally.count(Rows(keys, [b""] * len(keys)))
        else:
            self.happen(word, int(rest or 0))
        report = self.tally.report(self.connection, now=0)
        assert report.confirmed + report.returned + report.nacked + report.unknown == report.rows
        return f"{report}; {report.bytes_sent} bytes; {report.distinct_keys} keys"

    def happen(self, word: str, number: int) -> None:
        if word == "begin":
            self.tally = Tally()
        elif word == "connect":
            self.connection = ScriptedConnection(A)
        connection = self.connection
        if connection is None:
            return
        match word:
            case "begin" | "connect":
                self.tally.attach(connection)
            case "rows" | "again":
                rows = Rows([b"k"] * number, [b"body"] * number)  # as those that are returned
                connection.session.publish(b"wire", number, RowBatch(rows, range(number)))
                self.tally.rows += number * (word == "rows")
            case "sent":
                connection.bytes_sent += number
            case "lose":
                self.tally.detach(connection)
                self.connection = None
            case _:
                answers: dict[str, Callable[[int], Event]] = {"ack": ack, "nack": nack, "returned": returned}
                answers[word](number)(connection)


@each_story(STORIES)
def test_each_event_counts(how: str, lines: list[str]) -> None:
    assert played(Site(how).play, lines) == lines


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


def test_the_keys_of_two_reports_may_be_the_same_or_not() -> None:
    one, none = PublishReport(rows=1, distinct_keys=1), PublishReport(distinct_keys=0)
    several = PublishReport(rows=2)
    assert (one + none).distinct_keys == (none + one).distinct_keys == 1
    assert (one + one).distinct_keys is (several + none).distinct_keys is None


if __name__ == "__main__":
    write_stories(STORIES, lambda how: Site(how).play)
