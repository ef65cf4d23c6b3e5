"""The answers of aio-pika's and aiormq's errors, as ours."""

from __future__ import annotations

import struct

import pytest
from aiormq import exceptions as aiormq_errors
from pamqp import decode
from pamqp import frame as pamqp_frame
from pamqp.exceptions import UnmarshalingException

from rabbit_chx.amqp import ConnectionSettings
from rabbit_chx.connection import aio_pika_opening
from rabbit_chx.connection.aio_pika_opening import _connect_error, parse_refusal
from rabbit_chx.errors import BrokerRefusedError, UnreachableError

SETTINGS = ConnectionSettings.from_uri("amqp://u:c4nary@host/shop")


#: A frame of basic.deliver, whose routing key is no UTF-8.
_DELIVERY = (60, 60), b"\x01c" + bytes(8) + b"\x00" + b"\x01x" + b"\x01\xff"


def test_a_text_that_is_no_utf_8_is_decoded_on_our_connections_only() -> None:
    before = dict(decode.METHODS), dict(decode.TABLE_MAPPING)
    (kind, method), arguments = _DELIVERY
    payload = struct.pack(">HH", kind, method) + arguments
    frame = struct.pack(">BHI", 1, 1, len(payload)) + payload + b"\xce"
    (_, _, delivered) = aio_pika_opening._unmarshal(frame)
    assert delivered.routing_key.encode(errors="surrogateescape") == b"\xff"
    assert before == (decode.METHODS, decode.TABLE_MAPPING)
    assert decode.METHODS["shortstr"] is decode.short_str
    with pytest.raises(UnmarshalingException, match="utf-8"):
        pamqp_frame.unmarshal(frame)


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
