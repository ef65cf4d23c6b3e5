"""No local variable of the product's frames shows a password where a broker refuses a login, or does not have what is named."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Callable
from contextlib import closing

import pytest
from frame_secrets import locals_with

from rabbit_chx import Broker, Publisher, SharedPublisher, StreamPublisher
from rabbit_chx.errors import RabbitChxError
from rabbit_chx.streams import WriteLimits
from rabbit_chx.streams.connection import StreamConnection
from rabbit_chx.streams.nodes import stream_settings
from rabbit_chx.testing import RunningBroker

pytestmark = pytest.mark.broker

WRONG = "canary-4711"


def publisher(url: str, _management: str) -> None:
    with Publisher(url, "nothing") as made:
        made.publish_many(["k"], ["b"])


def shared_publisher(url: str, _management: str) -> None:
    async def publish() -> None:
        async with SharedPublisher(url, "nothing") as made:
            await made.publish_many(["k"], ["b"])

    asyncio.run(publish())


def broker(url: str, management: str) -> None:
    with Broker(url, management) as made:
        made.exchange("nothing")


EACH = pytest.mark.parametrize(
    "use", [publisher, shared_publisher, broker], ids=["Publisher", "SharedPublisher", "Broker"]
)


def password_of(url: str) -> str:
    return url.partition("://")[2].partition("@")[0].partition(":")[2]


@EACH
def test_login_is_refused(vhost: RunningBroker, use: Callable[[str, str], None]) -> None:
    url = vhost.url.replace(f":{password_of(vhost.url)}@", f":{WRONG}@")
    with pytest.raises(RabbitChxError) as caught:
        use(url, str(vhost.management_url))
    assert locals_with(WRONG, caught.value) == []


@EACH
def test_exchange_is_missing(vhost: RunningBroker, use: Callable[[str, str], None]) -> None:
    login = f":{password_of(vhost.url)}@"
    with pytest.raises(RabbitChxError, match="nothing") as caught:
        use(vhost.url, str(vhost.management_url))
    assert locals_with(login, caught.value) == []


def test_management_api_refuses_the_login(vhost: RunningBroker) -> None:
    management = str(vhost.management_url)
    management = management.replace(f":{password_of(management)}@", f":{WRONG}@")
    with pytest.raises(RabbitChxError) as caught, Broker(vhost.url, management) as made:
        made.exchange("nothing")
    user = management.partition("://")[2].partition(":")[0]
    for secret in (WRONG, base64.b64encode(f"{user}:{WRONG}".encode()).decode()):
        assert locals_with(secret, caught.value) == []


@pytest.mark.chx_broker(">=3.9", "streams")
def test_stream_publisher(vhost: RunningBroker) -> None:
    good, management = vhost.stream_url, str(vhost.management_url)
    with closing(StreamConnection(stream_settings(good))) as connection:
        connection.create_stream("s")
    wrong = good.replace(f":{password_of(good)}@", f":{WRONG}@")
    wrong_management = management.replace(f":{password_of(management)}@", f":{WRONG}@")
    for url, stream, management_url in (
        (wrong, "s", None),
        (good, "nothing", None),
        (good, "s", wrong_management),
    ):
        with pytest.raises(RabbitChxError) as caught:
            StreamPublisher(
                url, stream=stream, name="load", limits=WriteLimits(management_url=management_url)
            )
        for secret in (WRONG, f":{password_of(good)}@"):
            assert locals_with(secret, caught.value) == []
