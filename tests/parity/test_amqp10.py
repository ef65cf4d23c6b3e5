"""What an AMQP 0-9-1 consumer meets in a queue that AMQP 1.0 publishers fill."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pika
import pytest
from pika.exceptions import ConnectionClosedByBroker
from routes import amqp10
from routes.scenario import Message

from rabbit_chx.amqp import Amqp10Value
from rabbit_chx.broker import pika_parameters
from rabbit_chx.testing import temporary_vhost
from tests.parity.conftest import Rabbit

pytestmark = pytest.mark.docker

FIRST_WITH_AMQP_10 = (4, 0, 0)
MENDED = (4, 3, 0)  # 4.3.6 was tried; it may be earlier
INTERNAL_ERROR = 541
QUEUE: Any = "q"


@pytest.mark.parametrize(
    ("value", "mended"),
    [
        (UUID(int=5), False),
        (Amqp10Value("char", "a"), False),
        (Amqp10Value("decimal32"), True),
        (float("nan"), True),
        (float("inf"), True),
    ],
    ids=["uuid", "char", "decimal", "NaN", "infinity"],
)
def test_a_property_that_closes_the_consumers_connection(rabbit: Rabbit, value: Any, *, mended: bool) -> None:
    if mended and rabbit.release.numbers >= MENDED:
        pytest.skip(f"RabbitMQ {rabbit.release.version} leaves such a property out")
    if rabbit.release.numbers < FIRST_WITH_AMQP_10:
        pytest.skip(f"RabbitMQ {rabbit.release.version} has no AMQP 1.0 of its own")
    with temporary_vhost(rabbit.broker) as inside:
        with pika.BlockingConnection(pika_parameters(inside.url)) as connection:
            connection.channel().queue_declare(QUEUE, durable=True)
            connection.channel().queue_bind(QUEUE, "amq.fanout")
        message = Message(headers={"tenant": value}, client="amqp-1.0")
        assert amqp10.publish(inside.url, "amq.fanout", [(0, message)]) == 0
        for _ in range(2):  # the message is back, and closes the next one's, too
            connection = pika.BlockingConnection(pika_parameters(inside.url))
            with pytest.raises(ConnectionClosedByBroker) as closed:
                connection.channel().basic_get(QUEUE)
            assert closed.value.reply_code == INTERNAL_ERROR
        assert amqp10.consume(inside.url, {QUEUE: 1}) == [(QUEUE, 0)]
