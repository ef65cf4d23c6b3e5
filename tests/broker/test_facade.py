"""A `Broker` opened and closed."""

from __future__ import annotations

import pytest
from declared import BINDINGS

from rabbit_chx.broker import Broker
from rabbit_chx.errors import InputError
from rabbit_chx.testing import RunningBroker

pytestmark = pytest.mark.broker


def test_the_release_is_the_broker_s(live: Broker, vhost: RunningBroker) -> None:
    assert live.release.version == vhost.version


def test_open_and_close(vhost_url: str) -> None:
    broker = Broker(vhost_url).open()
    assert broker.open() is broker
    assert broker.release.version
    broker.declare("x", BINDINGS)
    broker.close()
    broker.close()
    with pytest.raises(InputError, match="not connected"):
        broker.declare("x", BINDINGS)
    with broker.open() as again:
        assert again.release.version


def test_a_ring_source_that_is_none(vhost_url: str) -> None:
    with pytest.raises(InputError, match="cannot be split into words"):
        Broker(vhost_url, ring_source="docker exec 'x")
    with pytest.raises(InputError, match="ring_source is of type bytes"):
        Broker(vhost_url, ring_source=b"docker exec x")  # type: ignore[arg-type]
