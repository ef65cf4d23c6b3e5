"""What an error of the journal means for a member: another session makes it again, or a permission is missing; old brokers are refused."""

from __future__ import annotations

import asyncio
import threading
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock, Mock

import pytest

from rabbit_chx import errors
from rabbit_chx.amqp.replies import is_transient
from rabbit_chx.consuming.stream_connection import StreamGroupConnection, _explain, in_thread


@pytest.mark.parametrize(
    ("error", "may_pass", "says"),
    [
        (errors.MissingRowsError("gone"), True, "gone; the journal 'members' was deleted"),
        (errors.NotFoundError("gone"), True, "gone; the journal 'members' was deleted"),
        (errors.AccessRefusedError("no", reply_code=403), False, "'members': the user needs the permissions read and write"),
        (errors.BrokerTimeoutError("no answer", queue="members"), True, "no answer"),
    ],
)  # fmt: skip
def test_an_error_of_the_journal_says_what_it_means(
    error: errors.RabbitChxError, *, may_pass: bool, says: str
) -> None:
    """A reader misses its rows if it was made again meanwhile; a publisher and a late reader do not find it."""
    explained = _explain(error, "members")
    assert is_transient(explained) is may_pass
    assert says in str(explained)
    assert (explained.queue, explained.reply_code) == ("members", error.reply_code)


async def test_a_call_in_a_thread_returns_or_raises_and_does_not_keep_the_process_alive() -> None:
    assert await in_thread(lambda: threading.current_thread().daemon)
    with pytest.raises(errors.UnreachableError, match="gone"):
        await in_thread(Mock(side_effect=errors.UnreachableError("gone")))
    waiting = asyncio.create_task(in_thread(lambda: 1))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting


def test_a_broker_before_3_11_is_refused() -> None:
    """It tells no commands."""
    broker = SimpleNamespace(commands={}, where="here", server_version="3.10.25", close=lambda: None)
    reading: Any = SimpleNamespace(open_any=lambda: broker)
    with pytest.raises(errors.InputError, match=r"RabbitMQ 3\.10.* upgrade to 3\.11 or newer"):
        asyncio.run(StreamGroupConnection.open(reading, 5))


async def test_without_a_further_thread_a_call_is_an_error_that_may_pass(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(threading.Thread, "start", Mock(side_effect=RuntimeError("can't start new thread")))
    with pytest.raises(errors.UnreachableError, match="a StreamGroup: the system starts no further thread"):
        await in_thread(lambda: 1)


async def test_a_limit_of_connections_is_not_taken_for_an_alarm_that_blocks_the_journal() -> None:
    """The publisher of the journal has connected before, so it tries again first; then the session ends, and `run` counts the outage."""
    refused = errors.BrokerRefusedError("no access to the vhost", reply_code=530)
    gave_up = errors.ConnectionLostError("no access to the vhost; gave up after 9 attempts")
    gave_up.__cause__ = refused
    failed = errors.PublishError("nothing is confirmed", None)
    failed.__cause__ = gave_up
    connection = StreamGroupConnection(MagicMock(), 5)
    connection._publisher = Mock(publish_many=Mock(side_effect=failed))
    with pytest.raises(errors.BrokerRefusedError, match="no access") as raised:
        await asyncio.wait_for(connection.publish("journal", b"alive"), 5)
    assert raised.value is refused
    assert not await connection.is_blocked()
