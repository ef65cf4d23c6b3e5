"""Logins that are refused, and connections that end."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest
from declared import BINDINGS, with_login

from rabbit_chx.amqp import ConnectionSettings
from rabbit_chx.broker import Broker
from rabbit_chx.broker.management import Management
from rabbit_chx.broker.pika_connection import PikaConnection
from rabbit_chx.errors import AccessRefusedError, BrokerTimeoutError, ConnectionLostError, NotFoundError
from rabbit_chx.testing import RunningBroker
from rabbit_chx.testing.broker_search import release_is_in
from rabbit_chx.topology.live.live_broker import QueueCounts

pytestmark = pytest.mark.broker


def test_a_wrong_password_is_refused_and_not_shown(vhost_url: str) -> None:
    start = time.monotonic()
    with (
        pytest.raises(
            AccessRefusedError, match=r"answered 403 .*Login was refused.*: check user name"
        ) as caught,
        Broker(with_login(vhost_url, "guest", "c4nary")),
    ):
        pass

    assert "c4nary" not in str(caught.value)
    assert time.monotonic() - start < 30


def test_a_mechanism_that_is_not_offered(vhost_url: str) -> None:
    with (
        pytest.raises(AccessRefusedError, match="EXTERNAL"),
        Broker(f"{vhost_url}?auth_mechanism=external"),
    ):
        pass
    with Broker(f"{vhost_url}?auth_mechanism=external&auth_mechanism=plain") as live:
        assert live.release


def test_an_unknown_vhost_is_named(vhost_url: str) -> None:
    with (
        pytest.raises(NotFoundError, match=r"answered 530 .*vhost .*-gone.* not found: check the vhost"),
        Broker(f"{vhost_url}-gone"),
    ):
        pass


@pytest.fixture
def stranger(vhost: RunningBroker) -> Iterator[tuple[Management, str]]:
    """A user without permissions, and the management to pass some."""
    assert vhost.management_url is not None
    management = Management(vhost.management_url)
    name = f"stranger-{time.time_ns()}"
    management.request("PUT", "users", name, body={"password": "pw", "tags": ""})
    yield management, name
    management.request("DELETE", "users", name)


def test_a_user_without_permissions_is_refused(
    stranger: tuple[Management, str], vhost: RunningBroker
) -> None:
    management, name = stranger
    vhost_url = vhost.url
    url = with_login(vhost_url, name, "pw")
    with pytest.raises(AccessRefusedError, match=r"answered 530 .* refused for user"), Broker(url):
        pass

    vhost_name = ConnectionSettings.from_uri(vhost_url).vhost
    nothing = {"configure": "^$", "write": "^$", "read": "^$"}
    management.request("PUT", "permissions", vhost_name, name, body=nothing)
    with Broker(url) as live, pytest.raises(AccessRefusedError, match="exchange 'x'"):
        live.declare("x", BINDINGS)
    with Broker(vhost_url) as owner:
        owner.declare("y", [("q", 1)])
    with closing(PikaConnection(ConnectionSettings.from_uri(url))) as connection:
        if release_is_in(vhost.version, "<4.3"):  # 3.8 to 4.0 do not look at the permissions
            assert connection.count("q") == QueueCounts(0, 0)
            return
        with pytest.raises(AccessRefusedError, match="queue 'q'") as caught:
            connection.count("q")
    assert "for this the user needs" not in str(caught.value), "any permission on the name would do"


def settings_through(port: int, url: str) -> ConnectionSettings:
    scheme, _, rest = url.partition("://")
    login, _, place = rest.rpartition("@")
    return ConnectionSettings.from_uri(f"{scheme}://{login}@127.0.0.1:{port}/{place.partition('/')[2]}")


def test_a_broker_that_goes_silent(proxy: Callable[..., Any], vhost_url: str) -> None:
    way = proxy()
    connection = PikaConnection(settings_through(way.port, vhost_url), reply_timeout_s=0.5)
    connection.check_exchange("amq.direct")
    way.freeze()

    start = time.monotonic()
    with pytest.raises(BrokerTimeoutError, match=r"no answer within 0\.5 s"):
        connection.check_exchange("amq.direct")
    with pytest.raises(ConnectionLostError):
        connection.check_exchange("amq.direct")
    connection.close()

    assert time.monotonic() - start < 30


def test_after_the_connection_is_lost(vhost_url: str, proxy: Callable[..., Any]) -> None:
    way = proxy()
    with Broker(re.sub(r":\d+/", f":{way.port}/", vhost_url)) as broker:
        way.cut()
        with pytest.raises(ConnectionLostError):
            broker.declare("x", BINDINGS)
        with pytest.raises(ConnectionLostError, match="the connection was lost before: connect again"):
            broker.declare("x", BINDINGS)
        assert broker.release.version
