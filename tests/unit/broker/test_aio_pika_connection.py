"""The answers of aio-pika's and aiormq's errors, as ours; and AsyncBroker without aio-pika."""

from __future__ import annotations

import subprocess
import sys

import pytest
from aiormq import exceptions as aiormq_errors

from rabbit_chx.amqp import ConnectionSettings
from rabbit_chx.broker.aio_pika_connection import _opening_error, _refusal
from rabbit_chx.errors import BrokerRefusedError, UnreachableError

SETTINGS = ConnectionSettings.from_uri("amqp://u:c4nary@host/shop")
CODES = [
    (aiormq_errors.ChannelAccessRefused, 403),
    (aiormq_errors.ChannelNotFoundEntity, 404),
    (aiormq_errors.ChannelLockedResource, 405),
    (aiormq_errors.ChannelPreconditionFailed, 406),
]


@pytest.mark.parametrize(("kind", "code"), CODES)
def test_the_code_of_a_channel_that_was_closed(kind: type[BaseException], code: int) -> None:
    refusal = _refusal(kind("SAID - by the broker"))
    assert (refusal.reply_code, refusal.reply_text) == (code, "SAID - by the broker")


@pytest.mark.parametrize("code", [320, 501, 504, 530, 540, 541])
def test_the_code_of_a_connection_that_was_closed(code: int) -> None:
    refusal = _refusal(aiormq_errors.ConnectionClosed(code, "SAID"))
    assert (refusal.reply_code, refusal.reply_text) == (code, "SAID")


def test_a_channel_that_was_closed_without_a_code() -> None:
    assert _refusal(aiormq_errors.ChannelClosed("words")).reply_code == 541


def test_a_vhost_that_is_refused_without_a_word() -> None:
    cause = aiormq_errors.InvalidFrameError(
        "Expected one of ['Connection.OpenOk'], got <Connection.Close object>"
    )
    error = _opening_error(SETTINGS, cause)
    assert type(error) is BrokerRefusedError
    assert "amqp://u:***@host:5672/shop: the broker refuses the vhost 'shop': check" in str(error)


def test_an_error_of_the_system_keeps_its_meaning() -> None:
    cause = aiormq_errors.AMQPConnectionError("Name or service not known")
    cause.__cause__ = ConnectionRefusedError(111, "refused")
    error = _opening_error(SETTINGS, cause)
    assert type(error) is UnreachableError
    assert "nobody answers there" in str(error)


WITHOUT_AIO_PIKA = """
import asyncio, sys
sys.modules["aio_pika"] = None
import rabbit_chx.broker
from rabbit_chx import AsyncBroker, Broker
from rabbit_chx.errors import MissingExtraError
try:
    asyncio.run(AsyncBroker("amqp://u:c4nary@127.0.0.1:1").open())
except MissingExtraError as error:
    print(error)
"""


def test_without_aio_pika() -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_AIO_PIKA], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stderr == ""
    assert done.stdout == (
        "AsyncBroker needs aio_pika, which is not installed: pip install 'rabbit-chx[aio]', or use Broker\n"
    )
