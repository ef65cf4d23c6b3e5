"""Fixtures of the tests that start a real Spark."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pika.adapters.blocking_connection import BlockingChannel

from rabbit_chx.broker.management import Management
from rabbit_chx.testing import RunningBroker


@pytest.fixture
def broker_user(broker: RunningBroker, vhost_url: str, channel: BlockingChannel) -> Iterator[str]:
    """A user of the test's vhost, with the password `c4nary-password`."""
    assert broker.management_url is not None
    assert channel.is_open
    management = Management(broker.management_url)
    name = vhost_url.rpartition("/")[2]
    management.request("PUT", "users", name, body={"password": "c4nary-password", "tags": ""})
    everything = {"configure": ".*", "write": ".*", "read": ".*"}
    management.request("PUT", "permissions", name, name, body=everything)
    yield name
    management.request("DELETE", "users", name)
