"""Errors of futures that nobody asks for: what is logged, and when."""

from __future__ import annotations

import asyncio
import logging
import os
from concurrent.futures import wait
from typing import Any
from unittest.mock import Mock

import pytest
from amqp_broker import nack, nothing, unroutable
from scripted_peer import Peer

from rabbit_chx import errors
from rabbit_chx.publishing import SharedPublisher, outbox
from rabbit_chx.publishing.outbox import UnreadErrors

_SOON_S = 60.0


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A clock that stands still, and publishers without errors so far."""
    clock = Mock(monotonic=Mock(return_value=100.0))
    monkeypatch.setattr(outbox, "time", clock)
    monkeypatch.setattr(outbox, "_LEFT", set())
    return clock


def drop(publisher: SharedPublisher, count: int, exchange: str | None = None) -> None:
    """Submit messages, and ask nothing."""
    wait([publisher.submit("k", "b", exchange=exchange) for _ in range(count)], _SOON_S)


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return what was logged since the last call."""
    lines = [record.getMessage() for record in caplog.records if record.name == outbox.__name__]
    caplog.clear()
    return [line.partition(" with ")[0].rpartition(": ")[2] + line.partition(" with ")[2] for line in lines]


def test_a_kind_is_logged_at_once_then_once_in_ten_seconds_and_the_rest_at_the_close(
    peer: Peer, clock: Any, caplog: pytest.LogCaptureFixture
) -> None:
    peer.answer = unroutable
    publisher = SharedPublisher(peer.settings, "orders")
    drop(publisher, 1)
    drop(publisher, 4)
    drop(publisher, 2, "bills")
    [first] = told(caplog)
    assert first.startswith("1 message endedUnroutableError, and nobody has asked")
    assert "(by exchange: 'orders' 1)" in first
    clock.monotonic.return_value += 10.0
    drop(publisher, 1)
    [second] = told(caplog)
    assert second.startswith("7 messages ended")
    assert "(by exchange: 'orders' 5, 'bills' 2)" in second
    drop(publisher, 3)
    assert told(caplog) == []
    publisher.close()
    [rest] = told(caplog)
    assert rest.startswith("3 messages ended")


def test_kinds_are_logged_apart(peer: Peer, caplog: pytest.LogCaptureFixture) -> None:
    with SharedPublisher(peer.settings, "orders") as publisher:
        for peer.answer in (unroutable, nack):
            drop(publisher, 1)
    assert [line.split(",")[0] for line in told(caplog)] == [
        "1 message endedUnroutableError",
        "1 message endedNackedError",
    ]


@pytest.mark.parametrize("ask", ["result", "exception"])
def test_an_error_that_was_asked_for_is_not_logged(
    peer: Peer, caplog: pytest.LogCaptureFixture, ask: str
) -> None:
    peer.answer = unroutable
    with SharedPublisher(peer.settings, "orders") as publisher:
        future = publisher.submit("k", "b")
        if ask == "result":
            with pytest.raises(errors.UnroutableError):
                future.result(_SOON_S)
        assert isinstance(future.exception(_SOON_S), errors.UnroutableError)
        del future
    outbox.tell_left()
    assert told(caplog) == []


def test_the_end_of_the_process_counts_futures_that_still_exist(
    peer: Peer, caplog: pytest.LogCaptureFixture
) -> None:
    peer.answer = unroutable
    with SharedPublisher(peer.settings, "orders") as publisher:
        futures = [publisher.submit("k", "b") for _ in range(3)]
        wait(futures, _SOON_S)
    assert told(caplog) == []  # they may be asked after the close
    assert futures[0].exception(0)
    outbox.tell_left()
    assert [line.split(",")[0] for line in told(caplog)] == ["2 messages endedUnroutableError"]
    futures.clear()
    assert told(caplog) == []


def test_a_forked_child_logs_nothing_of_its_parent(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    kept = UnreadErrors("the publisher")
    mark = kept.hold(errors.UnroutableError("lost", exchange="x"))
    monkeypatch.setattr(os, "getpid", lambda: 1)
    del mark
    outbox.tell_left()
    assert told(caplog) == []


def test_no_more_than_three_exchanges_are_named(caplog: pytest.LogCaptureFixture) -> None:
    kept = UnreadErrors("the publisher")
    for exchange in "abcde":
        kept.hold(errors.UnroutableError("lost", exchange=exchange))
    with caplog.at_level(logging.WARNING):
        kept.flush()
    assert told(caplog)[-1].count("'") == 2 * 3
    assert kept._dropped == {}


@pytest.mark.parametrize("is_closed", [False, True], ids=["cancelled", "its loop is closed"])
def test_the_error_of_a_publish_that_nobody_awaits_is_logged(
    *, peer: Peer, is_closed: bool, caplog: pytest.LogCaptureFixture
) -> None:
    peer.answer = nothing
    publisher = SharedPublisher(peer.settings, "orders")

    async def publish() -> None:
        call = asyncio.ensure_future(publisher.publish("k", "b"))
        await asyncio.sleep(0)
        call.cancel()
        if not is_closed:
            await asyncio.to_thread(publisher.close, 0.1)
            await asyncio.sleep(0)  # the loop completes what the thread has passed on

    asyncio.run(publish())
    publisher.close(0.1)
    assert [line.split(",")[0].startswith("1 message ended") for line in told(caplog)] == [True]
