"""What the client libraries raise at the end of a connection, read from the sources of aiormq 7.2.4, aio-pika 10.2.1, pika 1.4.4 and 1.5.0rc1.

The product does not list these classes for aio-pika, since aiormq raises any class: `rabbit_chx.connection.aio_pika_opening.LOST` is all of them.
For pika it lists two, `AMQPError` and OSError. The tests hold both against these errors, one or two of each kind. A class without an instance is raised as a class.
"""

from __future__ import annotations

import asyncio
import ssl
import struct
from typing import TypeAlias

import aiormq.exceptions as aiormq
import pika.exceptions as pika

_Raised: TypeAlias = "BaseException | type[BaseException]"

_OF_EACH_CALL: tuple[_Raised, ...] = (
    # aiormq/connection.py FrameReceiver.get_frame: the end of the stream, or damaged bytes
    aiormq.AMQPConnectionError("Server connection unexpectedly closed"),
    aiormq.InvalidFrameError("frame"),
    # the same, what pamqp raises beside its own errors
    struct.error("unpack requires a buffer of 4 bytes"),
    KeyError(99),
    UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte"),
    # aiormq/connection.py __handle_close, exception_by_code: a reply of the broker
    aiormq.ConnectionClosed(320, "CONNECTION_FORCED - broker forced connection closure"),
    aiormq.ConnectionInternalError("INTERNAL_ERROR"),
    # aiormq/channel.py _on_get_frame, connection.py channel; asyncio: a closed transport
    RuntimeError("unable to perform operation on <TCPTransport closed=True>"),
    # aiormq/connection.py connect, _rpc, __writer: what asyncio raises for a socket
    ConnectionResetError("reset"),
    TimeoutError(),
    ssl.SSLError("bad record mac"),
    OSError(113, "No route to host"),
    AttributeError("'NoneType' object has no attribute 'write'"),
    # aiormq/base.py FutureStore.add, reject_all, and connection.py connect: ended without an error
    Exception,
    # aiormq/base.py Base.close, connection.py __reader (a stuck broker), connect: the default, and a cancelled reader
    asyncio.CancelledError,
)

#: Of a ConsumerGroup's libraries, out of `connect`.
CONNECT_ENDS: tuple[_Raised, ...] = (
    *_OF_EACH_CALL,
    # aiormq/connection.py connect: the peer closes in the handshake
    aiormq.IncompatibleProtocolError("closed"),
)

#: Of a ConsumerGroup's libraries, out of each other call that waits for the broker.
CALL_ENDS: tuple[_Raised, ...] = (
    *_OF_EACH_CALL,
    # aiormq/connection.py _on_close: the default
    aiormq.ConnectionClosed(0, "normal closed"),
    # aiormq/channel.py _on_close_ok_frame: closed by this side
    aiormq.ChannelClosed(None, None),
    # aiormq/channel.py task, lock, rpc, basic_ack, basic_reject: closed before the call
    aiormq.ChannelInvalidStateError("closed"),
    # aio_pika/connection.py Connection.close: the default is the class, without arguments
    aiormq.ConnectionClosed,
)

#: Of the connection of a `Broker`. pika wraps what a socket or its decoder raises into StreamLostError.
PIKA_ENDS: tuple[BaseException, ...] = (
    # adapters/base_connection.py _proto_connection_lost
    pika.StreamLostError("Stream connection lost: KeyError(99)"),
    # adapters/blocking_connection.py _flush_output, process_data_events: a closed connection
    pika.ConnectionWrongStateError(),
    # channel.py _raise_if_not_open; blocking_connection.py BlockingChannel._flush_output
    pika.ChannelWrongStateError("Channel is closed."),
    pika.ChannelClosedByClient(200, "closed"),
    # heartbeat.py _check_and_send_heartbeat; connection.py _on_blocked_connection_timeout
    pika.AMQPHeartbeatTimeout("no activity"),
    pika.ConnectionBlockedTimeout("blocked"),
    # connection.py _deliver_frame_to_channel, frame.py decode_frame, channel.py ContentFrameAssembler
    pika.InvalidFrameError("Invalid FRAME_END marker"),
    # connection.py _on_connection_close_from_broker: a reply of the broker
    pika.ConnectionClosedByBroker(320, "CONNECTION_FORCED"),
    # adapters/utils/io_services_utils.py, select_connection.py: what the socket raises at once
    OSError(9, "Bad file descriptor"),
)
