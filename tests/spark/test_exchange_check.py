"""Looking at an exchange before publishing."""

from __future__ import annotations

import pytest
from exchange_types import CHX, FANOUT
from pika.adapters.blocking_connection import BlockingChannel

from rabbit_chx.amqp import ConnectionSettings
from rabbit_chx.errors import MismatchError, NotFoundError
from rabbit_chx.testing import RunningBroker
from spark_connector.writing.exchange_check import HashExchangeFacts, look_at_hash_exchange

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
