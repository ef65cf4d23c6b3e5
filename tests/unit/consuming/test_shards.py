"""Consumers of shards: what they refuse before they connect, and where they cannot connect.

python tests/unit/consuming/test_shards.py    # writes the refusals of this version into `shard_refusals.txt`
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock, Mock, call

import pytest
from stories import each_story, played, refusals, write_stories

from rabbit_chx.consuming import PseudoQueueConsumer, ShardConsumer
from rabbit_chx.consuming.message import ShardMessage
from rabbit_chx.consuming.shards import _Consumer
from rabbit_chx.errors import HandlerError, UnreachableError
from rabbit_chx.version import install_command

STORIES = Path(__file__).with_name("shard_refusals.txt")
NOWHERE = "amqp://u:c4nary@127.0.0.1:1/shop"


def never(*_: Any, **__: Any) -> Any:
    raise AssertionError("nobody is connected")


CALLS: dict[str, Any] = {
    "ShardConsumer": partial(ShardConsumer, NOWHERE, "images", never),
    "PseudoQueueConsumer": partial(PseudoQueueConsumer, NOWHERE, "images"),
}


@each_story(STORIES)
def test_numbers_that_make_no_sense_are_refused(how: str, lines: list[str]) -> None:
    assert played(refusals(CALLS[how]), lines) == lines


def test_the_first_connection_fails_at_once_and_nothing_shows_the_password() -> None:
    for consumer in (ShardConsumer(NOWHERE, "images", never), PseudoQueueConsumer(NOWHERE, "images")):
        assert "c4nary" not in repr(consumer)
        assert consumer.queues == ()
        with pytest.raises(UnreachableError) as refusal:
            asyncio.run(asyncio.wait_for(consumer.run(never), 10))
        assert "c4nary" not in str(refusal.value)


def test_a_consumer_that_was_stopped_before_does_nothing() -> None:
    consumer = PseudoQueueConsumer(NOWHERE, "images")
    consumer.stop()
    asyncio.run(asyncio.wait_for(consumer.run(never), 10))


async def test_a_consumer_that_is_cancelled_does_not_connect_again() -> None:
    consumer: Any = ShardConsumer(NOWHERE, "images", Mock(return_value=SimpleNamespace(reachable=())))
    consumer._connect = AsyncMock(return_value=Mock(is_closed=False, close=AsyncMock()))
    task = asyncio.create_task(consumer.run(never))
    await asyncio.sleep(0.05)
    task.cancel()
    await asyncio.wait({task}, timeout=0.2)
    consumer.stop()
    await asyncio.wait({task}, timeout=5)
    assert task.cancelled()


async def test_messages_of_a_closed_channel_are_not_handled() -> None:
    """The broker has returned them, and delivers them again. The channel closes while the second one is handled."""
    channel: Any = Mock(is_closed=False, ack=AsyncMock(), close=AsyncMock())
    line, handled = _Consumer("shard"), []

    async def handle(message: ShardMessage) -> None:
        handled.append(message.body)
        channel.is_closed = len(handled) == 2

    for tag in range(1, 5):
        await line.take(delivered(tag))
    await asyncio.wait_for(line.run(channel, handle), 20)
    assert handled == [b"1", b"2"]
    assert channel.ack.call_args_list == [call(1), call(2)]


def delivered(tag: int) -> SimpleNamespace:
    """Return a message of aiormq; its body is its tag."""
    return SimpleNamespace(
        body=str(tag).encode(),
        header=SimpleNamespace(properties=SimpleNamespace(headers=None, message_id=None)),
        delivery=SimpleNamespace(routing_key="k", redelivered=False, delivery_tag=tag),
    )


async def cancel_oneself(_: ShardMessage) -> None:
    current = asyncio.current_task()
    assert current is not None
    current.cancel()
    await asyncio.sleep(0)


@pytest.mark.parametrize("handle", [AsyncMock(side_effect=asyncio.CancelledError), cancel_oneself])
async def test_a_handler_that_ends_in_a_cancelled_error_of_its_own_ends_the_run(handle: Any) -> None:
    """Otherwise the message would be delivered at each look, forever, and nothing would say so."""
    channel: Any = Mock(is_closed=False, ack=AsyncMock(), close=AsyncMock())
    takes: list[Any] = []

    async def consume(_queue: str, _prefetch: int, take: Any, _end: Any) -> Any:
        takes.append(take)
        await take(delivered(1))
        return channel

    found = SimpleNamespace(reachable=[SimpleNamespace(name="shard")])
    consumer: Any = ShardConsumer(NOWHERE, "images", Mock(return_value=found), look_every_s=0.05)
    connection = Mock(is_closed=False, close=AsyncMock(), consume=consume)
    consumer._connect = AsyncMock(return_value=connection)
    with pytest.raises(HandlerError, match="'shard': the handler ended in a CancelledError"):
        await asyncio.wait_for(consumer.run(handle), 5)
    assert len(takes) == 1
    channel.ack.assert_not_called()


WITHOUT_AIO_PIKA = """
import asyncio, sys
sys.modules["aio_pika"] = sys.modules["aiormq"] = None
from rabbit_chx.consuming import Deduplicator, PseudoQueueConsumer
from rabbit_chx.errors import MissingExtraError
try:
    asyncio.run(PseudoQueueConsumer("amqp://127.0.0.1:1", "images").run(print))
except MissingExtraError as error:
    print(error)
"""


def test_without_aio_pika_the_extra_is_named() -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_AIO_PIKA], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stderr == ""
    assert done.stdout == (
        f"PseudoQueueConsumer needs aiormq, which is not installed: {install_command('aio')}\n"
    )


if __name__ == "__main__":
    write_stories(STORIES, lambda how: refusals(CALLS[how]))
