"""Looking at an exchange before publishing."""

from __future__ import annotations

import pytest
from declared import with_login
from exchange_types import CHX, FANOUT
from pika.adapters.blocking_connection import BlockingChannel

from rabbit_chx.amqp import ConnectionSettings
from rabbit_chx.broker.management import Management
from rabbit_chx.errors import MismatchError, NotFoundError
from rabbit_chx.publishing.exchange_check import HashExchangeFacts, look_at_hash_exchange
from rabbit_chx.testing import RunningBroker

pytestmark = pytest.mark.broker


def test_looking_at_the_exchange(channel: BlockingChannel, broker: RunningBroker, vhost_url: str) -> None:
    settings = ConnectionSettings.from_uri(vhost_url)
    channel.exchange_declare("hashing", CHX, arguments={"hash-header": "h"}, auto_delete=True)
    channel.exchange_declare("(ä)", CHX, durable=True, arguments={"alternate-exchange": "amq.fanout"})
    plain = HashExchangeFacts(broker.version, alternate_exchange=False)
    assert look_at_hash_exchange(settings, "x") == look_at_hash_exchange(settings, "hashing") == plain
    assert look_at_hash_exchange(settings, "(ä)").alternate_exchange
    with pytest.raises(NotFoundError, match="exchange 'nope' does not exist"):
        look_at_hash_exchange(settings, "nope")
    channel.exchange_declare("other", FANOUT)
    with pytest.raises(MismatchError, match="exchange 'other' is of type fanout, not x-consistent-hash"):
        look_at_hash_exchange(settings, "other")
    with pytest.raises(NotFoundError):
        look_at_hash_exchange(settings, "nope")  # the look above has not made it


def test_who_may_publish_and_not_configure_looks_at_it_too(
    channel: BlockingChannel, vhost: RunningBroker
) -> None:
    del channel  # it has declared x
    management, there = Management(str(vhost.management_url)), ConnectionSettings.from_uri(vhost.url)
    user = f"{there.vhost}-writer"
    management.request("PUT", "users", user, body={"password": "pw", "tags": ""})
    try:
        rights = {"configure": "^$", "write": ".*", "read": "^$"}
        management.request("PUT", "permissions", there.vhost, user, body=rights)
        settings = ConnectionSettings.from_uri(with_login(vhost.url, user, "pw"))
        assert look_at_hash_exchange(settings, "x") == HashExchangeFacts(
            vhost.version, alternate_exchange=False
        )
    finally:
        management.request("DELETE", "users", user)
