"""Logins and users that are refused."""

from __future__ import annotations

import re
import time
from contextlib import closing

import pytest
from canary import CANARY, canary_user
from declared import BINDINGS, with_login

from rabbit_chx.amqp import ConnectionSettings
from rabbit_chx.broker import Broker
from rabbit_chx.broker.management import Management
from rabbit_chx.broker.pika_connection import PikaConnection
from rabbit_chx.errors import AccessRefusedError, NotFoundError
from rabbit_chx.testing import RunningBroker
from rabbit_chx.testing.broker_search import release_is_in
from rabbit_chx.topology.live.live_broker import QueueCounts

pytestmark = pytest.mark.broker


@pytest.mark.parametrize(
    ("change", "kind", "words"),
    [
        (("//guest:guest@", "//guest:c4nary@"), AccessRefusedError, "answered 403 .*: check user name"),
        (("$", "?auth_mechanism=external"), AccessRefusedError, "EXTERNAL"),
        (("$", "-gone"), NotFoundError, "answered 530 .*vhost .*-gone.* not found: check the vhost"),
    ],
    ids=["password", "mechanism", "vhost"],
)
def test_a_login_that_cannot_be_is_refused_and_the_password_is_not_shown(
    vhost_url: str, change: tuple[str, str], kind: type[Exception], words: str
) -> None:
    start = time.monotonic()
    with pytest.raises(kind, match=words) as caught, Broker(re.sub(*change, vhost_url)):
        pass
    assert "c4nary" not in str(caught.value)
    assert time.monotonic() - start < 30
    with Broker(f"{vhost_url}?auth_mechanism=external&auth_mechanism=plain") as live:
        assert live.release


def test_a_user_without_permissions_is_refused(vhost: RunningBroker) -> None:
    management, name = Management(str(vhost.management_url)), ConnectionSettings.from_uri(vhost.url).vhost
    with Broker(vhost.url) as owner:
        owner.declare("y", [("q", 1)])
    with canary_user(management, name) as user:
        url = with_login(vhost.url, user, CANARY)
        nothing = {"configure": "^$", "write": "^$", "read": "^$"}
        management.request("PUT", "permissions", name, user, body=nothing)
        with Broker(url) as live, pytest.raises(AccessRefusedError, match="exchange 'x'"):
            live.declare("x", BINDINGS)
        with closing(PikaConnection(ConnectionSettings.from_uri(url))) as connection:
            if release_is_in(vhost.version, "<4.3"):  # 3.8 to 4.0 do not look at the permissions
                assert connection.count("q") == QueueCounts(0, 0)
            else:
                with pytest.raises(AccessRefusedError, match="queue 'q'") as caught:
                    connection.count("q")
                assert "for this the user needs" not in str(caught.value), "any permission would do"
        management.request("DELETE", "permissions", name, user)
        with pytest.raises(AccessRefusedError, match=r"answered 530 .* refused for user"), Broker(url):
            pass
