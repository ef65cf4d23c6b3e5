"""The answers of aio-pika's and aiormq's errors, as ours."""

from __future__ import annotations

import pytest
from aiormq import exceptions as aiormq_errors

from rabbit_chx.amqp import ConnectionSettings
from rabbit_chx.connection.aio_pika_opening import _connect_error, parse_refusal
from rabbit_chx.errors import BrokerRefusedError, UnreachableError

SETTINGS = ConnectionSettings.from_uri("amqp://u:c4nary@host/shop")


@pytest.mark.parametrize(
    ("end", "refusal"),
    [
        (aiormq_errors.ChannelAccessRefused("SAID"), (403, "SAID")),
        (aiormq_errors.ChannelNotFoundEntity("SAID"), (404, "SAID")),
        (aiormq_errors.ChannelLockedResource("SAID"), (405, "SAID")),
        (aiormq_errors.ChannelPreconditionFailed("SAID"), (406, "SAID")),
        *((aiormq_errors.ConnectionClosed(code, "SAID"), (code, "SAID")) for code in (320, 501, 530, 541)),
        (aiormq_errors.ChannelClosed("words"), (541, "words")),
        *((aiormq_errors.ConnectionClosed(*said), None) for said in ((), (0, "normal closed"))),
        *((end, None) for end in (aiormq_errors.ChannelClosed(None, None), Exception())),
    ],
    ids=repr,
)
def test_an_end_has_the_code_of_the_broker_s_reply(end: Exception, refusal: tuple[int, str] | None) -> None:
    assert parse_refusal(end) == refusal


def test_a_vhost_that_is_refused_without_a_word_is_not_damaged_bytes() -> None:
    cause = aiormq_errors.InvalidFrameError(
        "Expected one of ['Connection.OpenOk'], got <Connection.Close object>"
    )
    error = _connect_error(SETTINGS, cause)
    assert type(error) is BrokerRefusedError
    assert "amqp://u:***@host:5672/shop: the broker refuses the vhost 'shop' (Expected" in str(error)
    error = _connect_error(SETTINGS, aiormq_errors.InvalidFrameError("Unknown frame type: 77"))
    assert type(error) is UnreachableError
    unknown = aiormq_errors.AMQPConnectionError("Name or service not known")
    unknown.__cause__ = ConnectionRefusedError(111, "refused")
    error = _connect_error(SETTINGS, unknown)
    assert type(error) is UnreachableError
    assert "no server answers there" in str(error)
