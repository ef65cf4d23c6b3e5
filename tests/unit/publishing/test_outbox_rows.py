"""The messages of an outbox as rows of a delivery: which message was returned, and when an outage begins."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import replace
from itertools import permutations

import pytest
from amqp_broker import ACK, confirm, returned
from scripted_delivery import A, ScriptedConnection

from rabbit_chx.errors import ConnectionLostError, RowError, UnknownOutcomeError, UnroutableError
from rabbit_chx.publishing.delivery import Delivery, Open, Step, drive
from rabbit_chx.publishing.encoder import Encoder
from rabbit_chx.publishing.options import Limits, Retries
from rabbit_chx.publishing.outbox import Message, Outbox, OutboxRows
from rabbit_chx.publishing.publish_report import LOST

PLAIN = b"\0\0"
#: The properties with a header that the broker has added, which is not compared.
CHANGED = b"\x20\0\0\0\0\0"


def encoder(frame_max: int) -> Encoder:
    return Encoder(b"x", PLAIN, mandatory=True, frame_max=frame_max)


def places_returned(
    bodies: Sequence[str], returns: Sequence[tuple[str, bytes]], contents: Sequence[bytes] = ()
) -> list[int]:
    """Return the places of the messages that get an UnroutableError, if the broker returns these bodies in this order."""
    outbox = Outbox(100, 1 << 20, 10.0, lambda: 0.0)
    futures: list[Future[None]] = [Future() for _ in bodies]
    for body, content, future in zip(bodies, contents or [PLAIN] * len(bodies), futures, strict=True):
        outbox.submit(Message(b"k", body.encode(), content, b"x", future, 0.0))
    rows, connection = OutboxRows(outbox, 100, 0.0), ScriptedConnection(A)
    rows.attach(connection)
    batch = rows.take()
    assert batch is not None
    connection.session.publish(encoder(131_072).encode(batch.rows), len(bodies), batch)
    for body, content in returns:
        connection.say(returned("x", "k", body.encode(), content))
    connection.say(confirm(ACK, len(bodies), multiple=True))
    rows.settle()
    errors = [future.exception(0) for future in futures]
    assert all(error is None or isinstance(error, UnroutableError) for error in errors)
    return [place for place, error in enumerate(errors) if error is not None]


@pytest.mark.parametrize("content", [PLAIN, CHANGED], ids=["as sent", "with another header"])
@pytest.mark.parametrize("count", [1, 2, 3])
def test_a_message_that_differs_from_the_others_is_found_in_any_order_of_returns(
    count: int, content: bytes
) -> None:
    bodies = "abcd"
    for order in permutations(bodies, count):
        found = places_returned(bodies, [(body, content) for body in order])
        assert [bodies[place] for place in found] == sorted(order), order


@pytest.mark.parametrize(
    ("bodies", "returns", "places"),
    [
        ("xax", "x", [0]),
        ("xax", "ax", [1, 2]),
        ("xax", "xx", [0, 2]),
        ("xax", "xxa", [0, 1, 2]),
        ("axbx", "bax", [0, 2, 3]),  # a late return does not begin the order again
    ],
)
def test_of_equal_messages_the_first_behind_the_last_return_was_returned(
    bodies: str, returns: str, places: list[int]
) -> None:
    assert places_returned(bodies, [(body, PLAIN) for body in returns]) == places


def test_of_messages_that_differ_only_in_a_property_the_one_with_the_returned_property_was_returned() -> None:
    assert places_returned("xx", [("x", CHANGED)], [PLAIN, CHANGED]) == [1]


def test_without_an_open_message_an_outage_ends_the_delivery_at_once() -> None:
    """So the next message begins an outage of its own, with all its time."""
    rows = OutboxRows(Outbox(100, 1 << 20, 10.0, lambda: 0.0), 100, 0.0)
    delivery = Delivery(
        [A], encoder, Limits(), Retries(), clock=lambda: 0.0, jitter=lambda: 1.0, outcomes=rows
    )
    lost = ConnectionLostError("the connection was lost")
    steps: list[Step] = []

    def do(step: Step) -> ScriptedConnection | None:
        steps.append(step)
        if isinstance(step, Open):
            return ScriptedConnection(A)
        raise lost

    drive(delivery.connect(), do)
    with pytest.raises(ConnectionLostError) as caught:
        drive(delivery.serve(rows), do)
    assert caught.value is lost
    assert [type(step).__name__ for step in steps] == ["Open", "Poll"]


def test_a_message_that_was_returned_and_accepted_over_the_next_connection_is_confirmed() -> None:
    outbox, future = Outbox(100, 1 << 20, 10.0, lambda: 0.0), Future[None]()
    outbox.submit(Message(b"k", b"a", PLAIN, b"x", future, 0.0))
    rows = OutboxRows(outbox, 100, 0.0)
    batch = rows.take()
    assert batch is not None
    for is_returned in (True, False):
        connection = ScriptedConnection(A)
        rows.attach(connection)
        connection.session.publish(encoder(131_072).encode(batch.rows), 1, batch)
        if is_returned:  # and the connection is lost before the ack
            connection.say(returned("x", "k", b"a", PLAIN))
    connection.say(confirm(ACK, 1))
    rows.settle()
    assert future.exception(0) is None


def test_a_message_in_doubt_that_is_returned_may_be_in_a_queue() -> None:
    outbox, future = Outbox(100, 1 << 20, 10.0, lambda: 0.0), Future[None]()
    outbox.submit(Message(b"k", b"a", PLAIN, b"x", future, 0.0))
    rows, connection = OutboxRows(outbox, 100, 0.0), ScriptedConnection(A)
    batch = rows.take()
    assert batch is not None
    rows.attach(connection)
    connection.session.publish(encoder(131_072).encode(batch.rows), 1, replace(batch, doubt=LOST))
    connection.say(returned("x", "k", b"a", PLAIN) + confirm(ACK, 1))
    rows.settle()
    error = future.exception(0)
    assert isinstance(error, UnknownOutcomeError)
    assert isinstance(error.__cause__, UnroutableError)
    assert (error.exchange, error.reply_code) == ("x", 312)
    stats = outbox.stats(0, 0)
    assert (stats.returned, stats.failed, stats.unknown) == (0, 1, 1)


def test_a_message_whose_headers_do_not_fit_into_the_frames_of_the_connection_is_not_sent() -> None:
    outbox = Outbox(100, 1 << 20, 10.0, lambda: 0.0)
    rows, connection = OutboxRows(outbox, 100, 0.0), ScriptedConnection(A)
    connection.session.frame_max = 4096
    most = 4096 - 8 - 12
    futures: list[Future[None]] = [Future() for _ in range(3)]
    for future, size in zip(futures, (most, most + 1, 2), strict=True):
        outbox.submit(Message(b"k", b"b", b"p" * size, b"x", future, 0.0))
    rows.attach(connection)
    batch = rows.take()
    assert batch is not None
    pending = rows.pending(batch)
    assert pending is not None
    assert list(pending.numbers) == [0, 2]
    with pytest.raises(RowError, match=r"^the properties are 4,077 bytes long; one frame holds 4,076:"):
        futures[1].result(0)
    assert not futures[0].done()
    assert (outbox.counts["nacked"], outbox.counts["unknown"]) == (1, 0)
