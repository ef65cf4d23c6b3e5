"""The blocking publisher and Ctrl-C. The interruption is scripted, so that it comes where it is to come."""

from __future__ import annotations

import gc
import threading
import time
import weakref
from collections.abc import Iterator
from unittest.mock import Mock

import pytest
from amqp_broker import Answer, ack, hang_up, nothing
from scripted_peer import Peer

from rabbit_chx.connection.blocking_connection import Connection, Transport
from rabbit_chx.errors import PublishError
from rabbit_chx.publishing import Publisher, Retries
from rabbit_chx.publishing.encoder import Encoder


@pytest.fixture
def peer() -> Iterator[Peer]:
    """A broker that answers nothing, unless told otherwise."""
    with Peer(nothing) as peer:
        yield peer


@pytest.mark.parametrize(
    ("interrupted", "answer", "rows"),
    [((Encoder, "encode"), nothing, 1), ((Transport, "receive"), nothing, 2), ((time, "sleep"), hang_up, 2)],
    ids=["while it encodes", "while it waits for answers", "while it waits to reconnect"],
)
def test_after_ctrl_c_nothing_is_sent_any_more(
    peer: Peer,
    monkeypatch: pytest.MonkeyPatch,
    interrupted: tuple[object, str],
    answer: Answer,
    rows: int,
) -> None:
    with Publisher(peer.settings, "orders", retries=Retries(max_reconnects=1)) as ours:
        ours.send(["k"], ["before"])
        peer.until(lambda: len(peer.messages) == 1)
        peer.answer = answer
        with monkeypatch.context() as patched:
            patched.setattr(*interrupted, Mock(side_effect=KeyboardInterrupt))
            with pytest.raises(KeyboardInterrupt):
                ours.publish_many(["k"], ["interrupted"])
        peer.answer = ack
        with pytest.raises(PublishError, match=r"interrupted \(KeyboardInterrupt\)") as caught:
            ours.publish_many(["k"], ["after"])
        report = caught.value.report
        assert (report.rows, report.confirmed, report.unknown) == (rows, 0, rows)
    assert "after" not in peer.bodies
    assert peer.connections == 1


@pytest.mark.parametrize("rows", [0, 3])
def test_a_publisher_that_nobody_closes_warns_with_its_counts_and_ends_its_thread(
    peer: Peer, rows: int
) -> None:
    before = set(threading.enumerate())
    publisher = Publisher(peer.settings, exchange="x")
    if rows:
        publisher.send(["k"] * rows, ["b"] * rows)
    counts = r"was not closed: 0 of 3 messages confirmed, 3 unknown" if rows else "was not closed; call"
    with pytest.warns(ResourceWarning, match=counts):
        del publisher
    for thread in set(threading.enumerate()) - before:
        if "heartbeat" in thread.name:
            thread.join(10)
            assert not thread.is_alive()


def test_a_finalizer_in_the_thread_of_the_connection_closes_it() -> None:
    with Peer(nothing, heartbeat_s=60) as peer:
        connection = Connection(peer.settings)
        connection._keeper = threading.current_thread()
        connection.close()
        assert connection.session.failure is not None


def test_a_connection_that_nobody_closes_is_collected() -> None:
    with Peer(nothing, heartbeat_s=60) as peer:
        connection = Connection(peer.settings)
        reference, transport = weakref.ref(connection), connection._transport
        del connection
        gc.collect()
        assert reference() is None
        transport.close()
