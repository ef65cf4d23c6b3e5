"""What is looked at before the first task, against a real broker."""

from __future__ import annotations

import re

import pytest
from exchange_types import CHX
from pika.adapters.blocking_connection import BlockingChannel

from rabbit_chx.errors import NotFoundError, UnreachableError
from spark_connector.options.write_options import WriteOptions
from spark_connector.writing.preflight import check_broker

pytestmark = pytest.mark.broker


def options(url: str, **more: str) -> WriteOptions:
    return WriteOptions.parse({"url": url, "exchange": "x", **more})


@pytest.mark.usefixtures("channel")
def test_a_good_exchange_needs_no_note(vhost_url: str) -> None:
    assert check_broker(options(vhost_url)) == ()


def test_an_alternate_exchange_is_reported(vhost_url: str, channel: BlockingChannel) -> None:
    channel.exchange_declare("y", CHX, durable=True, arguments={"alternate-exchange": "amq.fanout"})
    (note,) = check_broker(options(vhost_url, exchange="y"))
    assert "has an alternate exchange: what no queue takes goes there, and counts as confirmed" in note


@pytest.mark.usefixtures("channel")
def test_what_cannot_be_written_to(vhost_url: str) -> None:
    with pytest.raises(NotFoundError, match="exchange 'nope' does not exist"):
        check_broker(options(vhost_url, exchange="nope"))
    assert check_broker(options(vhost_url, exchange="nope", preflight="false")) == ()
    assert check_broker(options(vhost_url, exchange="amq.topic")) == ()


@pytest.mark.usefixtures("channel")
def test_one_address_that_answers_is_enough(vhost_url: str) -> None:
    dead = "amqp://127.0.0.1:1"
    assert check_broker(options(f"{dead},{vhost_url}")) == ()
    with pytest.raises(UnreachableError, match="no server answers there"):
        check_broker(options(dead))
    (note,) = check_broker(options(dead), patient=True)
    assert note == "the broker was not checked before the write: no address answered"


def test_a_password_that_only_the_executors_know(vhost_url: str) -> None:
    url = re.sub("guest:guest@", "guest@", vhost_url)
    (note,) = check_broker(options(url, passwordEnv="NOT_SET_HERE"))
    assert note == "the broker was not checked before the write: only the executors have the password"
