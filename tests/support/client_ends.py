"""What the client libraries raise at the end of a connection: a table, read from their sources.

The product does not list these classes for aio-pika, since aiormq raises any class: `rabbit_chx.connection.aio_pika_opening.LOST` is all of them.
For pika it lists two, `AMQPError` and OSError. The tests hold both against this table.
"""

from __future__ import annotations

import asyncio
import ssl
import struct
from dataclasses import dataclass

import aiormq.exceptions as aiormq
import pika.exceptions as pika


@dataclass(frozen=True)
class ClientEnd:
    """What a place in a client library raises at the end of a connection.

    Attributes:
        library: the library, with the versions that were read.
        origin: the file and the function that raises it.
        calls: the calls of the library that it comes out of, by their names there; ``*`` for each that waits for the broker.
        raised: errors of all classes.
    """

    library: str
    origin: str
    calls: tuple[str, ...]
    raised: tuple[BaseException | type[BaseException], ...]


AIORMQ = "aiormq 7.2.4"
AIO_PIKA = "aio-pika 10.2.1"
PIKA = "pika 1.4.4, 1.5.0rc1"

#: Of the libraries of a ConsumerGroup. A class without an instance is raised as a class.
ASYNC_ENDS = (
    # The error that ended the connection or the channel, passed to each call that waits.
    ClientEnd(AIORMQ, "base.py FutureStore.add, reject_all: ended without an error", ("*",), (Exception,)),
    ClientEnd(
        AIORMQ,
        "base.py Base.close, connection.py __reader (a stuck broker): the default, and a cancelled reader",
        ("*",),
        (asyncio.CancelledError,),
    ),
    ClientEnd(
        AIORMQ,
        "connection.py FrameReceiver.get_frame: the end of the stream, or damaged bytes",
        ("*", "connect"),
        (
            aiormq.AMQPConnectionError("Server connection unexpectedly closed"),
            aiormq.InvalidFrameError("frame"),
            aiormq.ProtocolSyntaxError("Unexpected AMQP protocol header"),
        ),
    ),
    ClientEnd(
        AIORMQ,
        "connection.py FrameReceiver.get_frame: what pamqp raises beside its own errors",
        ("*", "connect"),
        (
            struct.error("unpack requires a buffer of 4 bytes"),
            KeyError(99),
            IndexError("index out of range"),
            ValueError("bytes"),
            UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte"),
        ),
    ),
    ClientEnd(
        AIORMQ,
        "connection.py __handle_close, exception_by_code: a reply of the broker",
        ("*", "connect"),
        (
            aiormq.ConnectionClosed(320, "CONNECTION_FORCED - broker forced connection closure"),
            aiormq.ConnectionFrameError("FRAME_ERROR"),
            aiormq.ConnectionChannelError("CHANNEL_ERROR"),
            aiormq.ConnectionResourceError("RESOURCE_ERROR"),
            aiormq.ConnectionInternalError("INTERNAL_ERROR"),
        ),
    ),
    ClientEnd(
        AIORMQ, "connection.py _on_close: the default", ("*",), (aiormq.ConnectionClosed(0, "normal closed"),)
    ),
    ClientEnd(
        AIORMQ,
        "channel.py _on_close_ok_frame: closed by this side",
        ("*",),
        (aiormq.ChannelClosed(None, None),),
    ),
    ClientEnd(
        AIORMQ,
        "channel.py task, lock, rpc, basic_ack, basic_reject: closed before the call",
        ("*",),
        (aiormq.ChannelInvalidStateError("closed"),),
    ),
    ClientEnd(
        AIORMQ,
        "channel.py _on_get_frame, connection.py channel; asyncio: a closed transport",
        ("*", "connect"),
        (RuntimeError("unable to perform operation on <TCPTransport closed=True>"),),
    ),
    ClientEnd(
        AIORMQ,
        "connection.py connect, _rpc, __writer: what asyncio raises for a socket",
        ("*", "connect"),
        (
            ConnectionResetError("reset"),
            BrokenPipeError("pipe"),
            TimeoutError(),
            ssl.SSLError("bad record mac"),
            OSError(113, "No route to host"),
            EOFError(),
            AttributeError("'NoneType' object has no attribute 'write'"),
        ),
    ),
    ClientEnd(
        AIORMQ,
        "connection.py connect: the peer closes in the handshake",
        ("connect",),
        (aiormq.IncompatibleProtocolError("closed"), Exception, asyncio.CancelledError),
    ),
    ClientEnd(
        AIO_PIKA,
        "connection.py Connection.close: the default is the class, without arguments",
        ("*",),
        (aiormq.ConnectionClosed,),
    ),
)

#: Of the connection of a `Broker`. pika wraps what a socket or its decoder raises into StreamLostError.
PIKA_ENDS = (
    ClientEnd(
        PIKA,
        "adapters/base_connection.py _proto_connection_lost",
        ("*",),
        (pika.StreamLostError("Stream connection lost: KeyError(99)"),),
    ),
    ClientEnd(
        PIKA,
        "adapters/blocking_connection.py _flush_output, process_data_events: a closed connection",
        ("*",),
        (pika.ConnectionWrongStateError(),),
    ),
    ClientEnd(
        PIKA,
        "channel.py _raise_if_not_open; blocking_connection.py BlockingChannel._flush_output",
        ("*",),
        (pika.ChannelWrongStateError("Channel is closed."), pika.ChannelClosedByClient(200, "closed")),
    ),
    ClientEnd(
        PIKA,
        "heartbeat.py _check_and_send_heartbeat; connection.py _on_blocked_connection_timeout",
        ("*",),
        (pika.AMQPHeartbeatTimeout("no activity"), pika.ConnectionBlockedTimeout("blocked")),
    ),
    ClientEnd(
        PIKA,
        "connection.py _deliver_frame_to_channel, frame.py decode_frame, channel.py ContentFrameAssembler",
        ("*",),
        (
            pika.UnexpectedFrameError("frame"),
            pika.InvalidFrameError("Invalid FRAME_END marker"),
            pika.BodyTooLongError(2, 1),
        ),
    ),
    ClientEnd(
        PIKA,
        "connection.py _on_connection_close_from_broker: a reply of the broker",
        ("*",),
        (pika.ConnectionClosedByBroker(320, "CONNECTION_FORCED"),),
    ),
    ClientEnd(
        "pika 1.4.4, 1.5.0rc1",
        "adapters/utils/io_services_utils.py, select_connection.py: what the socket raises at once",
        ("*",),
        (BrokenPipeError("pipe"), OSError(9, "Bad file descriptor")),
    ),
)


def errors_of(table: tuple[ClientEnd, ...], call: str) -> list[BaseException | type[BaseException]]:
    """Return the errors that may come out of a call: those of its name, and but for ``connect`` those of each call."""
    return [
        error
        for end in table
        if call in end.calls or ("*" in end.calls and call != "connect")
        for error in end.raised
    ]
