"""What an error of the journal means for a member: another session makes it again, or a permission is missing; old brokers are refused."""

from __future__ import annotations

import asyncio
import threading
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from rabbit_chx import errors
from rabbit_chx.amqp.replies import is_transient
from rabbit_chx.consuming.stream_connection import StreamGroupConnection, _explain, in_thread


@pytest.mark.parametrize("kind", [errors.MissingRowsError, errors.NotFoundError])
def test_after_the_deletion_of_the_journal_another_session_makes_it(kind: type[Any]) -> None:
    """A reader misses its rows if it was made again meanwhile; a publisher and a late reader do not find it."""
    explained = _explain(kind("the stream is gone"), "members")
    assert is_transient(explained)
    assert str(explained) == "the stream is gone; the journal 'members' was deleted"
    assert explained.queue == "members"


def test_a_refusal_of_the_journal_names_the_permissions() -> None:
    explained = _explain(errors.AccessRefusedError("refused", reply_code=403), "members")
    assert isinstance(explained, errors.AccessRefusedError)
    assert "'members': the user needs the permissions read and write" in str(explained)
    assert (explained.queue, explained.reply_code) == ("members", 403)


def test_any_other_error_is_as_it_was() -> None:
    error = errors.BrokerTimeoutError("no answer")
    assert _explain(error, "members") is error


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
