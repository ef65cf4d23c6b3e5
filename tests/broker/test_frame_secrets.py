"""No local variable of the product's frames shows a password where a broker refuses a login, or does not have what is named."""

from __future__ import annotations

import base64
from collections.abc import Callable
from contextlib import closing

import pytest
from declared import with_login
from frame_secrets import locals_with

from rabbit_chx import Broker, Publisher, SharedPublisher, StreamPublisher
from rabbit_chx.amqp import ConnectionSettings
from rabbit_chx.errors import RabbitChxError
from rabbit_chx.streams import WriteLimits
from rabbit_chx.streams.nodes import open_any, settings_of
from rabbit_chx.testing import RunningBroker

pytestmark = pytest.mark.broker

WRONG = "canary-4711"


def publisher(url: str, _: str) -> None:
    with Publisher(url, "nothing") as made:
        made.publish_many(["k"], ["b"])


def shared_publisher(url: str, _: str) -> None:
    with SharedPublisher(url, "nothing") as made:
        made.submit("k", "b").result(60)


def broker(url: str, management: str) -> None:
    with Broker(url, management) as made:
        made.exchange("nothing")


def stream_publisher(url: str, management: str) -> None:
    stream = "s" if WRONG in management else "nothing"
    StreamPublisher(url, stream=stream, name="load", limits=WriteLimits(management_url=management))


@pytest.mark.parametrize(
    "use",
    [
        publisher,
        shared_publisher,
        broker,
        stream_publisher,
    ],
)
def test_a_refused_login_and_a_missing_object(vhost: RunningBroker, use: Callable[[str, str], None]) -> None:
    url, api = vhost.url, str(vhost.management_url)
    if use is stream_publisher:
        url = vhost.stream_url
        with closing(open_any(settings_of(url))) as connection:
            connection.create_stream("s")
    settings = ConnectionSettings.from_uri(vhost.url)
    user, password = settings.username, settings.password.reveal()
    secrets = (WRONG, f":{password}@", base64.b64encode(f"{user}:{WRONG}".encode()).decode())
    for amqp, management in (
        (with_login(url, user, WRONG), api),
        (url, api),
        (url, with_login(api, user, WRONG)),
    ):
        with pytest.raises(RabbitChxError) as caught:
            use(amqp, management)
        for secret in secrets:
            assert locals_with(secret, caught.value) == []
            assert secret not in str(caught.value)
