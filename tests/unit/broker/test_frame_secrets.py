"""No local variable of the product's frames shows a password in an error of a publisher or a broker."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from amqp_broker import hang_up
from frame_secrets import locals_with
from loopback import dead_port
from scripted_peer import Peer

from rabbit_chx import Broker, Publisher, Retries, SharedPublisher, StreamPublisher
from rabbit_chx.errors import InputError, RabbitChxError, UnreachableError
from rabbit_chx.streams import WriteLimits

SECRET = "canary-4711"  # noqa: S105


def publisher(url: str) -> None:
    with Publisher(url, "orders", retries=Retries(max_reconnects=1, backoff_s=0.01)) as made:
        made.publish_many(["k"], ["b"])


def shared_publisher(url: str) -> None:
    async def publish() -> None:
        async with SharedPublisher(
            url, "orders", retries=Retries(reconnect_timeout_s=0.05, backoff_s=0.01)
        ) as made:
            await made.publish_many(["k"], ["b"])

    asyncio.run(publish())


def stream_publisher(url: str) -> None:
    with StreamPublisher(url, stream="s") as made:
        made.publish_many(["k"], ["b"])


def broker(url: str) -> None:
    with Broker(url, f"http://user:{SECRET}@localhost:1") as made:
        made.topology()


def management_url(url: str) -> None:
    with pytest.raises(InputError) as caught:
        StreamPublisher("amqp://localhost", stream="s", limits=WriteLimits(management_url=url))
    assert locals_with(SECRET, caught.value) == []
    with Broker("amqp://localhost", url.replace("amqp:", "http:")):
        raise AssertionError("it is refused")


@pytest.mark.parametrize("use", [publisher, shared_publisher, stream_publisher, broker, management_url])
@pytest.mark.parametrize(
    "address", ["localhost:5672/a b", "localhost:77777", "localhost?hearbeat=5", "local#host"]
)
def test_no_local_shows_the_password_of_a_url_that_is_refused(
    use: Callable[[str], None], address: str
) -> None:
    with pytest.raises(InputError) as caught:
        use(f"amqp://user:{SECRET}@{address}")
    assert locals_with(SECRET, caught.value) == []


@pytest.mark.parametrize("use", [publisher, shared_publisher, stream_publisher, broker])
def test_no_local_shows_the_password_where_nobody_answers(use: Callable[[str], None]) -> None:
    # A publisher of streams ignores the port of an AMQP URI.
    scheme = "rabbitmq-stream" if use is stream_publisher else "amqp"
    with dead_port() as port, pytest.raises(UnreachableError) as caught:
        use(f"{scheme}://user:{SECRET}@127.0.0.1:{port}")
    assert locals_with(SECRET, caught.value) == []


@pytest.mark.parametrize("use", [publisher, pytest.param(shared_publisher, marks=pytest.mark.extended)])
def test_no_local_shows_the_password_of_a_lost_connection(use: Callable[[str], None]) -> None:
    with Peer(hang_up) as peer, pytest.raises(RabbitChxError) as caught:
        use(f"amqp://user:{SECRET}@{peer.settings.host}:{peer.settings.port}/")
    assert locals_with(SECRET, caught.value) == []


def test_the_search_finds_a_password() -> None:
    with pytest.raises(RabbitChxError) as caught:
        Broker("amqp://localhost").exchange(f"orders-{SECRET}")
    assert locals_with(SECRET, caught.value)
