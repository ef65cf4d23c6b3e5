"""A `Broker` that is not connected."""

from __future__ import annotations

import pytest

from rabbit_chx.broker import Broker
from rabbit_chx.errors import InputError, UriError


def test_a_broker_needs_a_good_url_and_a_with_block() -> None:
    with pytest.raises(UriError):
        Broker("host")
    with pytest.raises(InputError, match="with Broker"):
        _ = Broker("amqp://u:c4nary@h").release
    assert repr(Broker("amqp://u:c4nary@h")) == "Broker('amqp://u:***@h:5672/%2F')"
