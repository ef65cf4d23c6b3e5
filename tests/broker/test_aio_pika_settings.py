"""aio-pika, configured from our reading of a URL."""

from __future__ import annotations

import asyncio

import aio_pika
import pytest

from rabbit_chx.broker import aio_pika_arguments
from rabbit_chx.errors import InputError

pytestmark = pytest.mark.broker


def published_and_read(url: str) -> bytes:
    """Send a message over the URL's connection and read it back."""

    async def there_and_back() -> bytes:
        async with await aio_pika.connect(**aio_pika_arguments(url)) as connection:
            channel = await connection.channel()
            queue = await channel.declare_queue("q", auto_delete=True)
            await channel.default_exchange.publish(aio_pika.Message(b"hello"), "q")
            message = await queue.get(timeout=10)
            await message.ack()
            return bytes(message.body)

    return asyncio.run(asyncio.wait_for(there_and_back(), 30))


@pytest.mark.parametrize("query", ["", "?heartbeat=5&connection_timeout=3000", "?auth_mechanism=plain"])
def test_aio_pika_publishes_and_reads_over_a_plain_connection(vhost_url: str, query: str) -> None:
    assert published_and_read(vhost_url + query) == b"hello"


@pytest.mark.parametrize(
    ("url", "setting"),
    [
        ("amqp://u:hush@h?channel_max=7", "channel_max"),
        ("amqp://u:hush@h?frame_max=8192", "frame_max"),
        ("amqps://u:hush@h?server_name_indication=other", "server_name_indication"),
        ("amqp://u:hush@h?auth_mechanism=external&auth_mechanism=plain", "a second auth_mechanism"),
    ],
)
def test_what_aio_pika_would_ignore_is_an_error(url: str, setting: str) -> None:
    with pytest.raises(InputError, match=f"aio-pika cannot follow {setting}: leave it out") as caught:
        aio_pika_arguments(url)
    assert "hush" not in str(caught.value)
