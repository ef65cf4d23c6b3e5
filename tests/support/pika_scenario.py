"""A program: everything that uses pika, once, on a real broker. Its arguments are a URL, and that of the management API.

It runs with warnings as errors, with whichever pika is on its path, and prints the version of it.
"""

from __future__ import annotations

import socket
import sys
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from itertools import product

import pika

from rabbit_chx import Broker, Topology
from rabbit_chx.amqp import ConnectionSettings
from rabbit_chx.broker import pika_parameters
from rabbit_chx.broker.message_carrier import PikaCarrier
from rabbit_chx.broker.pika_connection import PikaConnection
from rabbit_chx.cli import main
from rabbit_chx.errors import BrokerTimeoutError, ConnectionLostError, NotFoundError
from rabbit_chx.topology import plan
from rabbit_chx.topology.live.live_broker import Operation
from rabbit_chx.topology.objects import QueueDefinition

_FILE = """
[[exchanges]]
name = "x"
type = "x-consistent-hash"
ring = [{ queue = "q.{1..3}", weight = 2 }]
[[exchanges]]
name = "copies"
type = "fanout"
[[queues]]
name = "q.{1..3}"
[[queues]]
name = "copied"
[[bindings]]
source = "copies"
queue = "copied"
"""
#: Properties that pika's decoder changes: it makes one type of several, and keeps the last of equal names.
_TABLE = b"\x01al" + (5).to_bytes(8) + b"\x01bu\x01\x02" + b"\x01bs\x03\x04"
_RAW = bytes.fromhex("2000") + len(_TABLE).to_bytes(4) + _TABLE  # the flag of the headers, and these


class _Raw(pika.BasicProperties):
    def encode(self) -> list[bytes]:
        return [_RAW]


def run(url: str, management_url: str) -> None:
    """Run all parts."""
    settings = ConnectionSettings.from_uri(url)
    with Broker(url, management_url) as broker:
        broker.apply(plan(Topology.from_toml(_FILE), broker.topology()))
        assert plan(Topology.from_toml(_FILE), broker.topology()).changes == ()
        broker.declare("y", {"z.1": 1})
        assert broker.ring("y").destinations == ("z.1",)
    _move_a_message(settings)
    _ask(settings)
    for command in (["verify", "x"], ["ring", "check", "x"], ["topology", "export"]):
        code = main([*command, "--url", url, "--management-url", management_url])
        assert code in (0, 1), (command, code)


def _move_a_message(settings: ConnectionSettings) -> None:
    connection = PikaConnection(settings)
    bodies = b"", b"x" * 300_000  # no body, and one of three frames
    with connection.channel() as channel:
        for queue, body in product(("copied", "q.1"), bodies):
            channel.basic_publish("", queue, body, _Raw())
        channel.basic_publish("", "q.1", b"last", pika.BasicProperties(message_id="m"))
    with closing(PikaCarrier(settings)) as carrier:
        assert carrier.move_messages("q.1", "copies", 10) == 3
    with connection.channel(raw_headers=True) as channel:
        copies = [channel.basic_get("copied", auto_ack=True) for _ in range(5)]
    seen = [(body, properties.raw) for _, properties, body in copies[:4]]  # type: ignore[union-attr]
    # RabbitMQ 4.3 drops the second of equal names, also of a message that nobody moves.
    assert seen[:2] == seen[2:]
    assert [len(body or b"") for body, _ in seen] == [0, 300_000] * 2
    assert all(b"\x01al" in raw and b"\x01bu" in raw for _, raw in seen)
    assert copies[4][1].message_id == "m"  # type: ignore[union-attr]
    connection.close()


def _ask(settings: ConnectionSettings) -> None:
    connection = PikaConnection(settings)
    assert connection.count("q.1").messages == 0
    _expect(NotFoundError, lambda: connection.count("none"))
    queue = QueueDefinition("together")
    assert connection.perform_together([Operation("declare", queue), Operation("delete", queue)])
    connection.process(0.01)
    connection._connection._impl._transport._sock.shutdown(socket.SHUT_RDWR)  # the connection is lost
    _expect(ConnectionLostError, lambda: connection.count("q.1"))
    _expect(ConnectionLostError, lambda: connection.count("q.1"))
    connection.close()

    impatient = PikaConnection(replace(settings, heartbeat_s=0), reply_timeout_s=0.2)
    _expect(BrokerTimeoutError, lambda: _wait(impatient))
    impatient.close()
    parameters = pika_parameters(settings)
    assert (parameters.host, parameters.port) == (settings.host, settings.port)


def _wait(connection: PikaConnection) -> None:
    with connection.own_errors():
        connection.wait_until(lambda: False)


def _expect(kind: type[Exception], call: Callable[[], object]) -> None:
    try:
        call()
    except kind:
        return
    raise AssertionError(f"no {kind.__name__}")


if __name__ == "__main__":
    run(*sys.argv[1:])
    sys.stdout.write(f"pika {vars(pika)['__version__']}\n")
