"""The answers of aio-pika's and aiormq's errors, as ours."""

from __future__ import annotations

import pytest
from aiormq import exceptions as aiormq_errors

from rabbit_chx.amqp import ConnectionSettings
from rabbit_chx.connection.aio_pika_opening import _connect_error, parse_refusal
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
    assert parse_refusal(kind("SAID - by the broker")) == (code, "SAID - by the broker")


@pytest.mark.parametrize("code", [320, 501, 504, 530, 540, 541])
def test_the_code_of_a_connection_that_was_closed(code: int) -> None:
    assert parse_refusal(aiormq_errors.ConnectionClosed(code, "SAID")) == (code, "SAID")


def test_a_channel_that_was_closed_without_a_code() -> None:
    assert parse_refusal(aiormq_errors.ChannelClosed("words")) == (541, "words")


@pytest.mark.parametrize(
    "end",
    [
        aiormq_errors.ConnectionClosed(),
        aiormq_errors.ConnectionClosed(0, "normal closed"),
        aiormq_errors.ChannelClosed(None, None),
        Exception(),
    ],
    ids=repr,
)
def test_an_end_without_a_reply_of_the_broker_has_no_code(end: Exception) -> None:
    assert parse_refusal(end) is None


def test_a_vhost_that_is_refused_without_a_word() -> None:
    cause = aiormq_errors.InvalidFrameError(
        "Expected one of ['Connection.OpenOk'], got <Connection.Close object>"
    )
    error = _connect_error(SETTINGS, cause)
    assert type(error) is BrokerRefusedError
    assert "amqp://u:***@host:5672/shop: the broker refuses the vhost 'shop' (Expected" in str(error)


def test_damaged_bytes_are_not_a_refused_vhost() -> None:
    error = _connect_error(SETTINGS, aiormq_errors.InvalidFrameError("Unknown frame type: 77"))
    assert type(error) is UnreachableError


def test_an_error_of_the_system_keeps_its_meaning() -> None:
    cause = aiormq_errors.AMQPConnectionError("Name or service not known")
    cause.__cause__ = ConnectionRefusedError(111, "refused")
    error = _connect_error(SETTINGS, cause)
    assert type(error) is UnreachableError
    assert "no server answers there" in str(error)
