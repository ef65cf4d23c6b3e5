"""Brokers that cannot be reached, and logins and users that are refused."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from contextlib import closing
from functools import partial
from typing import Any

import pytest
from canary import CANARY, canary_user
from declared import BINDINGS, with_login

from rabbit_chx import Publisher, errors
from rabbit_chx.amqp import ConnectionSettings
from rabbit_chx.broker import Broker
from rabbit_chx.broker.live_broker import QueueCounts
from rabbit_chx.broker.management import Management
from rabbit_chx.broker.pika_connection import PikaConnection
from rabbit_chx.testing import RunningBroker
from rabbit_chx.testing.containers import release_is_in

pytestmark = pytest.mark.broker


@pytest.mark.parametrize("client", [Broker, partial(Publisher, exchange="x")], ids=["pika", "publisher"])
@pytest.mark.parametrize(
    ("change", "kind", "words"),
    [
        ((":guest@", ":c4nary@"), errors.AccessRefusedError, "403 ACCESS_REFUSED.*: check user name"),
        (("$", "?auth_mechanism=external"), errors.AccessRefusedError, "EXTERNAL"),
        (("$", "-gone"), errors.NotFoundError, "530 .*vhost .*-gone.* not found: check the vhost"),
        ((r":\d+/", ":1/"), errors.UnreachableError, "no server answers there.*check host and port"),
        (("@[^:]+:", "@no-such-host.invalid:"), errors.UnreachableError, "host cannot be resolved"),
    ],
    ids=["password", "mechanism", "vhost", "port", "host"],
)
def test_a_login_that_cannot_be_is_refused_and_the_password_is_not_shown(
    vhost_url: str, client: Callable[[str], Any], change: tuple[str, str], kind: type[Exception], words: str
) -> None:
    start = time.monotonic()
    with pytest.raises(kind, match=words) as caught, client(re.sub(*change, vhost_url)):
        pass
    assert time.monotonic() - start < 30
    assert "c4nary" not in str(caught.value)
    assert "guest@" not in str(caught.value)
    with client(f"{vhost_url}?auth_mechanism=external&auth_mechanism=plain"):
        pass


def test_a_user_without_permissions_is_refused(vhost: RunningBroker) -> None:
    management, name = Management(str(vhost.management_url)), ConnectionSettings.from_uri(vhost.url).vhost
    with Broker(vhost.url) as owner:
        owner.declare("y", [("q", 1)])
    with canary_user(management, name, read="^$") as user:
        url = with_login(vhost.url, user, CANARY)
        with Broker(url) as live, pytest.raises(errors.AccessRefusedError, match="exchange 'x'"):
            live.declare("x", BINDINGS)
        with closing(PikaConnection(ConnectionSettings.from_uri(url))) as connection:
            if release_is_in(vhost.version, "<4.3"):  # 3.10 and 4.0 do not look at the permissions
                assert connection.count("q") == QueueCounts(0, 0)
            else:
                with pytest.raises(errors.AccessRefusedError, match="queue 'q'") as caught:
                    connection.count("q")
                assert "for this the user needs" not in str(caught.value), "any permission would do"
        management.request("DELETE", "permissions", name, user)
        with pytest.raises(errors.AccessRefusedError, match=r"answered 530 .* refused for user"), Broker(url):
            pass
