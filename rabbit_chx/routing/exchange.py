"""What the exchanges that hash a message have in common: how they are given a message."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import TypeAlias

from rabbit_chx.amqp.client_fields import Headers, Sender
from rabbit_chx.routing.bindings import Place
from rabbit_chx.routing.message import NO_KEYS, SentMessage
from rabbit_chx.routing.message_091 import Message091
from rabbit_chx.routing.message_10 import AMQP_1_0, Message10
from rabbit_chx.routing.release import Release

#: A message as the broker sees it before it routes.
ReceivedMessage: TypeAlias = Message091 | Message10


def received(sent: SentMessage, release: Release) -> ReceivedMessage:
    """Return a message as the broker of a release sees it.

    Args:
        sent: the message as the caller describes it.
        release: the release of the broker.

    Raises:
        InputError: the client cannot send such a message, or something is given twice.
        NotDeterminedError: that release has AMQP 1.0 only through a plugin.
        ChannelClosedError: CC or BCC is not an array.
    """
    if sent.client == AMQP_1_0:
        return Message10.of(sent, release)
    return Message091.of(sent, release)


class HashExchange(ABC):
    """An exchange that gives each message to at most one destination, by a hash."""

    __slots__ = ()

    def route(
        self,
        routing_key: str | bytes = "",
        headers: Headers | None = None,
        properties: object = None,
        *,
        cc: Iterable[str | bytes] = NO_KEYS,
        bcc: Iterable[str | bytes] = NO_KEYS,
        client: Sender = "pika",
    ) -> Place:
        """Return the destination of a message; None where it is unroutable, as it is where nothing is bound.

        Args:
            routing_key: text or bytes, of at most 255 bytes: AMQP carries no more.
            headers: a mapping, or pairs; values are AmqpField or bare Python values. None is void; only a
                name that is absent is missing.
            properties: a mapping of property names, or an object that has them, such as a
                ``pika.BasicProperties``; headers in it count as headers.
            cc: the routing keys of the header CC. An ``x-consistent-hash`` exchange ignores them; an
                ``x-modulus-hash`` exchange hashes them together with the routing key, and still gives the
                message to one destination.
            bcc: the routing keys of the header BCC, with the same effect.
            client: the client whose encoding bare values take: ``pika`` or ``aio-pika``; or ``amqp-1.0``.

        ``amqp-1.0`` is any publisher of AMQP 1.0 to a broker from 4.0 on. `routing_key` is then the key of
        the target address ``/exchanges/EXCHANGE/KEY``, or of `to` where the link has no target,
        percent-decoded. `headers` are the application properties; their values are
        :class:`~rabbit_chx.amqp.Amqp10Value`, or bare ones as Qpid Proton sends them. `properties` is a
        mapping of ``message_id``, ``correlation_id``, ``creation_time`` (milliseconds, and what
        ``hash-property: timestamp`` hashes) and ``message_annotations``, which win over headers. `cc` is the
        annotation ``x-cc``.

        Raises:
            InputError: the client cannot send such a message, or something is given twice.
            NotDeterminedError: aio-pika makes up the message_id that is hashed; or the client is ``amqp-1.0``
                and the release is before 4.0, where a plugin converts the message; or the release counts
                bindings in an order that cannot be known (``x-modulus-hash``).
            ChannelClosedError: the broker of that release closes the channel on such a message.
        """
        return self._destination(SentMessage(routing_key, headers, properties, cc, bcc, client))

    @abstractmethod
    def _destination(self, sent: SentMessage) -> Place:
        """Return the destination of a message, as `route` says."""
