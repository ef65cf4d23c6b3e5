"""One frame of each kind that a broker sends."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from pamqp import commands, frame, header
from pamqp.base import Frame as Method

from rabbit_chx.amqp.frames import FRAME_MAX

DEEP: dict[str, Any] = {
    "a": {"b": {"c": [1, "x", {"d": None}]}},
    "capabilities": {"basic.nack": True},
    "since": datetime(2026, 1, 1, tzinfo=UTC),
    "price": Decimal("3.14"),
    "load": 1.5,
    "size": 1 << 40,
    "raw": bytearray(b"\xff"),
}


CHANNEL = 1


def said(method: Method, channel: int = CHANNEL) -> bytes:
    """Return a method as a broker sends it."""
    return frame.marshal(method, channel)


#: The frames with which a broker opens a connection with a confirming channel.
HANDSHAKE = (
    said(
        commands.Connection.Start(
            server_properties={"version": "4.3.6", **DEEP}, mechanisms="AMQPLAIN PLAIN"
        ),
        0,
    ),
    said(commands.Connection.Tune(2047, FRAME_MAX, 60), 0),
    said(commands.Connection.OpenOk(), 0),
    said(commands.Channel.OpenOk()),
    said(commands.Confirm.SelectOk()),
)
RETURN = said(commands.Basic.Return(312, "NO_ROUTE", "x", "a key"))
CONTENT = frame.marshal(
    header.ContentHeader(0, 4, commands.Basic.Properties(headers=DEEP, message_id="m")), 1
)
BODY = b"\x03\0\1\0\0\0\4body\xce"
FRAMES = (
    *HANDSHAKE,
    said(commands.Connection.Secure("more"), 0),
    said(commands.Connection.Close(320, "CONNECTION_FORCED", 0, 0), 0),
    said(commands.Connection.CloseOk(), 0),
    said(commands.Connection.Blocked("low on memory"), 0),
    said(commands.Connection.Unblocked(), 0),
    said(commands.Channel.Flow(True)),
    said(commands.Channel.Close(404, "NOT_FOUND - no exchange 'x'", 60, 40)),
    said(commands.Channel.CloseOk()),
    said(commands.Queue.DeclareOk("q", 1, 2)),
    said(commands.Basic.Ack(3)),
    said(commands.Basic.Ack(7, multiple=True)),
    said(commands.Basic.Nack(9)),
    said(commands.Basic.Nack(12, multiple=True)),
    RETURN + CONTENT + BODY,
    said(commands.Basic.Deliver("amq.ctag-1", 5, True, "x", "a key")) + CONTENT + BODY,
    b"\x08\0\0\0\0\0\0\xce",
    b"AMQP\0\0\x09\x01",
)
