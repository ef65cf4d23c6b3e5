"""The limit of any client: ready-made bytes through one socket, with a window of publisher confirms.

This code encodes, checks and keeps nothing. The cost is that of the broker, of the kernel, and of reading
acks.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Iterable, Sequence

from pamqp import commands, frame, header
from pamqp.base import Frame as Method

from rabbit_chx.amqp import ConnectionSettings
from rabbit_chx.publishing.encoder import Encoder, Rows

_FRAME_MAX = 131_072
#: basic.ack on channel 1: the delivery tag, and whether it also acks all tags before it.
_ACK = re.compile(rb"\x01\x00\x01\x00\x00\x00\x0d\x00\x3c\x00\x50(.{8})(.)\xce", re.DOTALL)


def ready_made(exchange: str, keys: Sequence[str], body: bytes, chunk: int = 500) -> list[tuple[bytes, int]]:
    """Return one encoded message for each key, in chunks, with the number of messages of each chunk."""
    persistent = commands.Basic.Properties(delivery_mode=2).marshal()
    encoder = Encoder(exchange.encode(), persistent, mandatory=True, frame_max=_FRAME_MAX)
    parts = [[key.encode() for key in keys[i : i + chunk]] for i in range(0, len(keys), chunk)]
    return [(encoder.encode(Rows(part, [body] * len(part))), len(part)) for part in parts]


class RawSocket:
    """An AMQP connection with a confirming channel, opened step by step, without a look at the answers."""

    def __init__(self, url: str) -> None:
        settings = ConnectionSettings.from_uri(url)
        self._socket = socket.create_connection((settings.host, settings.port), timeout=60)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._rest = b""
        self._socket.sendall(header.ProtocolHeader().marshal())
        self._expect("Connection.Start")
        password = settings.password.reveal()
        self._say(0, commands.Connection.StartOk({}, "PLAIN", f"\0{settings.username}\0{password}"))
        self._expect("Connection.Tune")
        self._say(0, commands.Connection.TuneOk(2047, _FRAME_MAX, 0))
        self._say(0, commands.Connection.Open(settings.vhost))
        self._expect("Connection.OpenOk")
        self._say(1, commands.Channel.Open())
        self._expect("Channel.OpenOk")
        self._say(1, commands.Confirm.Select())
        self._expect("Confirm.SelectOk")

    def push(self, chunks: Iterable[tuple[bytes, int]], window: int) -> int:
        """Send the chunks with at most `window` unconfirmed messages, and wait for the last confirm."""
        sent = low = 0
        ahead: set[int] = set()
        for wire, messages in chunks:
            while sent + messages - low - len(ahead) > window:
                low = self._read_acks(low, ahead)
            self._socket.sendall(wire)
            sent += messages
        while low < sent:
            low = self._read_acks(low, ahead)
        return sent

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()

    def _read_acks(self, low: int, ahead: set[int]) -> int:
        data = self._socket.recv(1 << 18)
        if not data:
            raise SystemExit("the broker has closed the raw connection")
        data = self._rest + data
        end = 0
        for ack in _ACK.finditer(data):
            end = ack.end()
            tag = int.from_bytes(ack[1])
            if ack[2] == b"\x01":
                low = max(low, tag)
                if ahead:
                    ahead.difference_update([t for t in ahead if t <= low])
            else:
                ahead.add(tag)
            while low + 1 in ahead:
                low += 1
                ahead.remove(low)
        self._rest = data[end:]
        return low

    def _say(self, channel: int, method: Method) -> None:
        self._socket.sendall(frame.marshal(method, channel))

    def _expect(self, name: str) -> None:
        while True:
            if self._rest:
                try:
                    size, _, got = frame.unmarshal(self._rest)
                except Exception as incomplete:  # noqa: BLE001, F841  # pamqp has no type of its own for it
                    size = 0
                if size:
                    self._rest = self._rest[size:]
                    if got.name != name:
                        raise SystemExit(f"the broker says {got.name} instead of {name}")
                    return
            data = self._socket.recv(1 << 16)
            if not data:
                raise SystemExit("the broker has closed the raw connection")
            self._rest += data
