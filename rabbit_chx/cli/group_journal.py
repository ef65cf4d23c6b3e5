"""The journal of a vhost's groups, read up to now: which member claimed each queue when."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from rabbit_chx.broker.pika_connection import PikaConnection
from rabbit_chx.consuming import JournalEntry, Roster

if TYPE_CHECKING:
    from rabbit_chx.amqp import ConnectionSettings

__all__ = ["read_roster"]

_PREFETCH = 1_000  # entries
_LONGEST_S = 10.0
_IDLE_S = 1.0


def read_roster(settings: ConnectionSettings, journal: str) -> Roster:
    """Return what a journal says. It is read from its first entry to those of now, for at most 10 s.

    Args:
        settings: the AMQP connection; its user must read the journal.
        journal: the name of the stream, which must exist.

    Raises:
        RabbitChxError: the broker refuses it, or nothing answers at the address.
    """
    roster = Roster()
    began, last_at, heard = time.time(), 0.0, time.monotonic()

    def take(channel: Any, method: Any, properties: Any, body: bytes) -> None:  # noqa: ANN401
        nonlocal last_at, heard
        heard = time.monotonic()
        entry = JournalEntry.from_json(body)
        if entry is not None:
            last_at = entry.at
            roster.take(int(properties.headers["x-stream-offset"]), entry)
        if method.delivery_tag % (_PREFETCH // 2) == 0:
            channel.basic_ack(method.delivery_tag, multiple=True)

    connection = PikaConnection(settings)
    try:
        with connection.channel() as channel:
            channel.basic_qos(prefetch_count=_PREFETCH)
            channel.basic_consume(journal, take, arguments={"x-stream-offset": "first"})
            deadline = time.monotonic() + _LONGEST_S
            # Members that live write all the time; without them the stream is at its end when nothing more comes.
            while last_at < began and time.monotonic() < min(deadline, heard + _IDLE_S):
                connection.process(0.1)
    finally:
        connection.close()
    return roster
