"""The connection of `AsyncBroker`."""

from __future__ import annotations

import asyncio
import logging

import pytest

from rabbit_chx.amqp import ConnectionSettings
from rabbit_chx.broker.aio_pika_connection import AioPikaConnection

pytestmark = pytest.mark.broker

#: After 3 s without a frame aiormq takes a connection without heartbeats for stuck.
QUIET_S = 3.5


def test_a_connection_that_was_quiet_is_closed_in_good_order(
    vhost_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def be_quiet() -> None:
        connection = await AioPikaConnection.open(ConnectionSettings.from_uri(vhost_url))
        await asyncio.sleep(QUIET_S)
        await connection.close()

    caplog.set_level(logging.DEBUG, logger="aiormq")
    asyncio.run(be_quiet())
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING] == []
    assert any("Received frame <Connection.CloseOk" in record.getMessage() for record in caplog.records)
