"""Messages published to an exchange on a broker of our own, consumed, and the queue that each one came to."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import closing
from typing import TYPE_CHECKING, Any

from rabbit_chx.amqp import ConnectionSettings
from rabbit_chx.broker.pika_connection import PikaConnection
from rabbit_chx.testing.rehearsal.wire_messages import wire_properties

if TYPE_CHECKING:
    from rabbit_chx.routing import Place
    from rabbit_chx.testing.rehearsal.stand_ins import StandIn
    from rabbit_chx.topology.upgrade_exchange import SampledMessage

__all__ = ["places_of"]

_PATIENCE_S = 30.0
_BETWEEN_LOOKS = 200


def places_of(
    url: str,
    stand_in: StandIn,
    messages: Mapping[int, SampledMessage],
    seen: Callable[[int], None] = lambda _: None,
) -> dict[int, Place]:
    """Publish messages, consume them all, and return where each one came to; None for one that came back as unroutable.

    A message that comes to no queue and does not come back is not in the answer, 30 seconds after the last that came.

    Args:
        url: the AMQP URI, with the vhost in which the exchange is.
        stand_in: the exchange and its queues, as they were declared.
        messages: the messages, by their numbers.
        seen: called from time to time with the number of messages that have come.

    Raises:
        RabbitChxError: the broker refuses something, or the connection ends.
    """
    found: dict[int, Place] = {}

    def receive(place: Place) -> Callable[..., None]:
        return lambda _channel, _method, _properties, body: found.__setitem__(int.from_bytes(body), place)

    with (
        closing(PikaConnection(ConnectionSettings.from_uri(url))) as connection,
        connection.channel() as channel,
    ):
        channel.add_on_return_callback(receive(None))
        for queue, place in stand_in.places.items():
            channel.basic_consume(queue, receive(place), auto_ack=True)
        for sent, (number, message) in enumerate(messages.items()):
            key: Any = message.routing_key  # pika's stubs know text only
            channel.basic_publish(
                stand_in.exchange, key, number.to_bytes(4), wire_properties(message), mandatory=True
            )
            if sent % _BETWEEN_LOOKS == 0:
                connection.process(0)
                seen(len(found))
        _wait(connection, found, len(messages), seen)
    return found


def _wait(
    connection: PikaConnection, found: Mapping[int, Place], wanted: int, seen: Callable[[int], None]
) -> None:
    before, deadline = len(found), time.monotonic() + _PATIENCE_S
    while len(found) < wanted and time.monotonic() < deadline:
        connection.process(0.2)
        seen(len(found))
        if len(found) > before:
            before, deadline = len(found), time.monotonic() + _PATIENCE_S
