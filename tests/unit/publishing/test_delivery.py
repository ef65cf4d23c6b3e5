"""What is sent again and when, decided without socket and clock: the broker's answers and the time are scripted. `deliveries.txt` has most of it.

python tests/unit/publishing/test_delivery.py    # writes what this version does into the file
"""

from __future__ import annotations

from asyncio import CancelledError
from itertools import chain, repeat
from pathlib import Path

import pytest
from delivery_stories import DeliveryStory, close, close_over
from hypothesis import given, settings
from hypothesis import strategies as st
from scripted_delivery import Broker, ScriptedConnection, ack, lost, nack, nothing
from stories import each_story, played, write_stories

from rabbit_chx import errors
from rabbit_chx.amqp.frames import error_for
from rabbit_chx.publishing.delivery import Open, Sleep, Step, drive
from rabbit_chx.publishing.encoder import Rows
from rabbit_chx.publishing.publish_report import PublishReport, close_error

STORIES = Path(__file__).with_name("deliveries.txt")


@each_story(STORIES)
def test_what_is_sent_counted_and_raised(how: str, lines: list[str]) -> None:
    assert played(DeliveryStory(how).play, lines) == lines


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("403", errors.AccessRefusedError),
        ("denied", errors.AccessRefusedError),
        ("404", errors.NotFoundError),
        ("406-of-no-row", errors.ChannelClosedError),
        ("501", errors.ChannelClosedError),
        ("541", errors.ChannelClosedError),
    ],
)
@settings(max_examples=25)
@given(st.sets(st.sampled_from("abcdef"), min_size=1), st.integers(1, 5))
def test_rows_that_close_the_connection_are_named_and_their_neighbours_are_confirmed(
    code: str, kind: type[errors.RabbitChxError], poison: set[str], batch: int
) -> None:
    broker = Broker(repeat(lambda connection: close_over(connection, "".join(poison), code)))
    for first in range(0, 6, batch):
        bodies = "abcdef"[first : first + batch]
        broker.hand_over(" ".join(bodies), [f"x{body}" for body in bodies])
    report = broker.drain()
    good = 6 - len(poison)
    assert (report.rows, report.confirmed, report.nacked, report.unknown) == (6, good, len(poison), 0)
    assert [
        (type(error), error.exchange, error.reply_code, int(str(error).split()[1]))
        for error in broker.delivery.tally.closes
    ] == [(kind, f"x{body}", close(code).reply_code, "abcdef".index(body)) for body in sorted(poison)]
    sent = [body for connection in broker.connections for body in connection.bodies]
    assert report.republished == len(sent) - 6
    assert broker.delivery.failure is None


def test_a_probe_that_is_answered_late_blames_no_row_of_a_later_batch() -> None:
    def serve(connection: ScriptedConnection) -> None:
        connection.fails_over = "b"  # which closes nothing: the answer to its probe never comes
        ack()(connection)

    broker = Broker(chain([lost(close("541"))], repeat(serve)))
    broker.publish("a b")
    assert broker.connections[-1].session.probes
    broker.connections[-1].fails_over = ""
    broker.connections[-1].is_channel_closed = False
    refused = error_for(406, "PRECONDITION_FAILED - of an unknown row", where="amqp://broker")
    broker.follow(chain([lost(refused)], repeat(ack())))
    assert broker.publish("c d e").nacked == 0


@pytest.mark.parametrize(
    "text",
    ["user_id property set to 'nobody' but authenticated user was 'guest'", "a text of a later release"],
)
def test_a_406_of_a_publish_is_about_the_message(text: str) -> None:
    cause = error_for(406, f"PRECONDITION_FAILED - {text}", where="amqp://broker")
    assert type(close_error(cause, "row 5", "x")) is errors.ChannelClosedError


def test_a_row_that_was_processed_later_is_not_named_at_the_end_of_an_outage() -> None:
    def drop(connection: ScriptedConnection) -> None:
        number = len(broker.connections)
        connection.fails_over = "a" if number in (3, 4) else ""
        if number < 5:
            assert connection.bodies
            lost()(connection)
        elif connection.bodies[-1] == "c":
            broker.refusals = [errors.UnreachableError("nobody answers")] * 50
            lost()(connection)

    broker = Broker(repeat(drop), reconnect_timeout_s=30)
    with pytest.raises(errors.ConnectionLostError) as caught:
        broker.publish("a b c")
    assert "sent alone" not in str(caught.value)


def test_an_operation_that_is_given_up_is_taken_up_by_the_next() -> None:
    def up_to_the_backoff(step: Step) -> ScriptedConnection | None:
        if isinstance(step, Sleep):
            raise CancelledError
        return broker.do(step)

    broker = Broker(iter([ack(1), lost(), ack()]))
    broker.run(broker.delivery.submit(Rows([b"k"] * 3, [b"a", b"b", b"c"])))
    with pytest.raises(CancelledError):
        drive(broker.delivery.drain(), up_to_the_backoff)
    assert broker.delivery.report.unknown == 2
    broker.run(broker.delivery.drain())
    assert broker.connections[1].bodies == ["b", "c"]
    assert broker.delivery.report.confirmed == 3


def test_a_publisher_that_is_closed_while_it_connects_leaves_no_connection() -> None:
    """A signal handler or another task closes it."""

    def and_close(step: Step) -> ScriptedConnection | None:
        connection = broker.do(step)
        if isinstance(step, Open):
            broker.delivery.close()
        return connection

    broker = Broker([])
    with pytest.raises(errors.InputError, match="the connection is closed: open a new one"):
        drive(broker.delivery.connect(), and_close)
    assert (len(broker.opened), broker.closed) == (1, 1)


def test_the_seconds_of_a_report_run_from_its_first_row() -> None:
    broker = Broker([ack(), ack()])
    broker.delivery.finish()
    broker.now = 100.0
    assert broker.delivery.report.seconds == 0
    broker.hand_over("a")
    broker.now = 107.0
    broker.hand_over("b")
    broker.now = 110.0
    assert broker.delivery.report.seconds == 10


def test_a_refused_message_that_waits_at_the_end_counts_as_nacked() -> None:
    broker = Broker([nack(1), lost()], max_reconnects=0)
    with pytest.raises(errors.ConnectionLostError):
        broker.publish("a b")
    report = broker.delivery.finish().final
    assert report is not None
    assert (report.nacked, report.unknown) == (1, 1)


def test_a_wait_reports_its_progress_each_quarter_of_a_second() -> None:
    broker, reports = Broker([nothing] * 4 + [ack()]), list[PublishReport]()
    broker.delivery._progress = reports.append
    broker.publish("a")
    assert [(report.seconds, report.confirmed) for report in reports] == [
        *((number / 4, 0) for number in range(5)),
        (1.25, 1),
    ]


if __name__ == "__main__":
    write_stories(STORIES, lambda how: DeliveryStory(how).play)
