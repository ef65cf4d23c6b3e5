"""Rows that AMQP 1.0 publishers write into a stream, read as columns. The other clients are in tests/broker."""

from __future__ import annotations

import pytest
from stream_writers import found, written

from rabbit_chx.testing import temporary_vhost
from tests.parity.conftest import Rabbit

pytestmark = pytest.mark.docker

FIRST_WITH_AMQP_10 = (4, 0, 0)


def test_the_rows_of_amqp_10_are_read(rabbit: Rabbit) -> None:
    if rabbit.release.numbers < FIRST_WITH_AMQP_10:
        pytest.skip(f"RabbitMQ {rabbit.release.version} has no AMQP 1.0 of its own")
    with (
        temporary_vhost(rabbit.broker) as inside,
        written("amqp-1.0", inside.url, inside.stream_url, "of-amqp-10") as (sent, chunks),
    ):
        assert found(chunks, sent) == sent
