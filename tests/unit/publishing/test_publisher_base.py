"""What both publishers do alike with rows, answers and errors. The broker is scripted: it answers as told, at once."""

from __future__ import annotations

from typing import Any
from unittest.mock import Mock

import pytest
from amqp_broker import Answer, ack, hang_up, nack, nothing, unroutable
from broker_frames import said
from descriptors import no_descriptor_left
from pamqp import commands
from scripted_peer import Peer

from rabbit_chx.connection.session import Session
from rabbit_chx.errors import PublishError, RowError
from rabbit_chx.publishing import Limits
from rabbit_chx.publishing.batches import name_columns
from rabbit_chx.publishing.options import PublishOptions
from rabbit_chx.publishing.publish_report import PublishReport
from rabbit_chx.publishing.publisher import PublisherBase


def only(tag: int, answer: Answer) -> Answer:
    """This answer for one message, and an ack for the others."""
    return lambda message: (answer if message.tag == tag else ack)(message)


# -- what goes over the wire


@pytest.mark.parametrize(
    ("options", "mandatory", "mode"),
    [({}, True, 2), ({"mandatory": False}, False, 2), ({"persistent": False}, True, 1)],
    ids=str,
)
def test_messages_are_mandatory_and_persistent_unless_told_otherwise(
    peer: Peer,
    opened: Any,
    options: dict[str, Any],
    mandatory: bool,  # noqa: FBT001
    mode: int,
) -> None:
    with opened(**options) as publisher:
        publisher.publish_many(["k"] * 2, ["b"] * 2)
        publisher.publish_many(["k"] * 2, ["b"] * 2, properties={"message_id": ["1", None]})
    sent = [(message.mandatory, message.properties.delivery_mode) for message in peer.messages]
    assert sent == [(mandatory, mode)] * 4


# -- what came of the rows


NO_QUEUE = r"no queue took 1 of the messages \(reply code 312, NO_ROUTE; one has the key 'k2'\), so no queue has them: bind"
REJECTED = "the broker rejected messages"


@pytest.mark.parametrize(
    ("answer", "options", "says", "count"),
    [
        (unroutable, {}, NO_QUEUE, "returned"),
        (nack, {}, REJECTED, "nacked"),
        (nack, {"on_unroutable": "report"}, REJECTED, "nacked"),
    ],
)
def test_one_row_that_is_not_confirmed_is_an_error(
    peer: Peer, opened: Any, *, answer: Answer, options: dict[str, Any], says: str, count: str
) -> None:
    peer.answer, reports = only(2, answer), list[PublishReport]()
    with opened(nack_retries=0, progress=reports.append, **options) as publisher:
        with pytest.raises(PublishError, match=says) as caught:
            publisher.publish_many(["k1", "k2", "k3"], ["b"] * 3)
        report = caught.value.report
        assert reports[-1] is report
        assert caught.value.exchange == "orders"
        assert (report.rows, report.confirmed, getattr(report, count)) == (3, 2, 1)
        assert publisher.publish_many(["k"], ["b"]).confirmed == 1


def test_a_row_without_its_queue_names_the_queue(peer: Peer, opened: Any) -> None:
    """The exchange with an empty name has neither bindings nor a ring."""
    peer.answer = only(2, unroutable)
    says = r"so no queue has them: queue 'k2' does not exist: check its name and the vhost"
    with opened() as publisher, pytest.raises(PublishError, match=says):
        publisher.publish_many(["k1", "k2"], ["b"] * 2, exchanges=["", ""])


def test_the_error_of_a_row_that_closes_the_connection_has_its_number_and_the_text_of_the_broker(
    peer: Peer, opened: Any
) -> None:
    close = said(commands.Connection.Close(541, "INTERNAL_ERROR", 0, 0), 0)
    peer.answer = lambda message: close if message.routing_key == "k2" else ack(message)
    says = r"row 1 \(.*541 INTERNAL_ERROR.*; 2 of 3 messages confirmed"
    with opened(backoff_s=0.01) as publisher, pytest.raises(PublishError, match=says):
        publisher.publish_many(["k1", "k2", "k3"], ["b"] * 3)


def test_returned_rows_are_only_reported_on_request(peer: Peer, opened: Any) -> None:
    peer.answer = only(2, unroutable)
    with opened(on_unroutable="report") as publisher:
        report = publisher.publish_many(["k1", "k2", "k3"], ["b"] * 3)
    assert (report.rows, report.confirmed, report.returned) == (3, 2, 1)
    assert [sample.key for sample in report.samples] == ["k2"]


@pytest.mark.parametrize("options", [{}, {"on_unroutable": "report"}], ids=["by default", "report"])
@pytest.mark.parametrize(("first", "rows"), [("send", 2), ("publish_many", 1)])
def test_rows_of_unknown_fate_are_an_error(
    opened: Any, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], first: str, rows: int
) -> None:
    """The memory runs out after a row was counted, and before it was sent; the row before it may be answered."""
    with opened(**options) as publisher:
        getattr(publisher, first)(["k"], ["sent"])
        with monkeypatch.context() as patched:
            patched.setattr(Session, "publish", Mock(side_effect=MemoryError))
            with pytest.raises(MemoryError):
                publisher.send(["k"], ["not sent"])
        with pytest.raises(PublishError, match="unknown") as caught:
            publisher.flush()
    report = caught.value.report
    assert report.rows == rows
    assert report.unknown >= 1, "an interrupted Publisher does not wait for the other row"


# -- which row an error names


@pytest.mark.parametrize("form", [list, iter], ids=["list", "iterator"])
@pytest.mark.parametrize(
    ("column", "bad"), [("keys", "x" * 256), ("bodies", None), ("message_id", 5), ("exchanges", "x" * 256)]
)
def test_the_row_that_cannot_be_is_counted_over_batches_and_calls(
    opened: Any, form: Any, column: str, bad: Any
) -> None:
    """Batches are of two rows here; the number counts from the first row of the report."""
    columns: dict[str, Any] = {name: ["a"] * 7 for name in ("keys", "bodies", "message_id", "exchanges")}
    columns[column][5] = bad
    given = {name: form(values) for name, values in columns.items()}
    with opened(max_in_flight=4) as publisher:
        publisher.send(["a"] * 3, ["a"] * 3)
        with pytest.raises(PublishError, match="row 8: ") as caught:
            publisher.send(
                given["keys"],
                given["bodies"],
                properties={"message_id": given["message_id"]},
                exchanges=given["exchanges"],
            )
        assert isinstance(caught.value.__cause__, RowError)
        assert caught.value.report.confirmed == 3 + 4, "the rows of the batches before it are through"


# -- no file descriptor


def test_no_descriptor_left_is_an_outage(peer: Peer, opened: Any) -> None:
    with opened(reconnect_timeout_s=1.0, backoff_s=0.05) as publisher:
        publisher.publish_many(["k"], ["b"])
        peer.answer = hang_up
        with (
            no_descriptor_left(),
            pytest.raises(
                PublishError,
                match=r"was lost.*; gave up after \d+ attempts .* the last attempt failed: .*no file descriptor left \(.*Errno 24",
            ) as caught,
        ):
            publisher.publish_many(["k"], ["b"])
    assert (caught.value.report.rows, caught.value.report.unknown) == (1, 1)


# -- leaving the block


def test_leaving_the_block_reports_rows_that_are_not_confirmed(peer: Peer, opened: Any) -> None:
    peer.answer = unroutable
    with pytest.raises(PublishError, match="0 of 1 messages confirmed"), opened() as publisher:
        publisher.send(["k"], ["b"])


def test_an_error_in_the_block_is_not_hidden_by_a_wait(peer: Peer, opened: Any) -> None:
    def fail() -> None:
        with opened(confirm_timeout_s=0.05, max_reconnects=0) as publisher:
            publisher.send(["k"], ["b"])
            raise ZeroDivisionError

    peer.answer = nothing
    with pytest.raises(ZeroDivisionError):
        fail()


# -- arguments


@pytest.mark.parametrize(("window", "rows"), [(1, 1), (2, 1), (3, 1), (10, 5), (100_000, 500)])
def test_a_batch_is_half_a_window_and_500_rows_at_the_most(window: int, rows: int) -> None:
    arguments = PublisherBase(PublishOptions("amqp://localhost", "x", limits=Limits(max_in_flight=window)))
    columns = name_columns(["k"] * 1200, ["b"] * 1200, None, None)
    assert len(next(arguments._builder.batches_of(columns, 0))) == rows
