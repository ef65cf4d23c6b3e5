"""A broker, as one object."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rabbit_chx.amqp import ConnectionSettings
from rabbit_chx.broker.declaration import Declared, left_by_bindings, left_by_ring, wanted_ring
from rabbit_chx.broker.live_exchange import LiveExchange, read_exchange, read_release
from rabbit_chx.broker.management import Management
from rabbit_chx.broker.operations import (
    ExchangeBind,
    ExchangeDeclare,
    QueueBind,
    QueueDeclare,
    check_declared_name,
    check_exchange,
    look_at,
    perform,
)
from rabbit_chx.broker.pika_connection import PikaConnection
from rabbit_chx.broker.ring_source import DiagnosticsRing, ring_by
from rabbit_chx.errors import InputError, MismatchError, NotFoundError
from rabbit_chx.routing import ExchangeRef, HashedOn, HashRing, Release
from rabbit_chx.routing.hash_input import refuse_misspelt

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import TracebackType
    from typing import Any, Self

    from rabbit_chx.broker.ring_source import RingSource
    from rabbit_chx.routing import Binding, Destination
    from rabbit_chx.routing.bindings import GivenBindings

__all__ = ["Broker"]


class Broker:
    """A live broker: declare rings, and read them. Do not use one from two threads at once.

    Use it in a ``with`` block, or call `open` and `close`.

    Args:
        url: the AMQP URI, see :func:`rabbit_chx.amqp.uri.parse_uri`.
        management_url: the management API, ``http[s]://user:password@host:15672``. It tells what AMQP cannot:
            bindings, the exchange's arguments, the metadata store.
        ring_source: how to read the true ring: a :class:`~rabbit_chx.broker.RingSource`, or the command
            prefix of a :class:`~rabbit_chx.broker.DiagnosticsRing` such as ``docker exec NAME`` (``""`` for a
            broker on this machine).

    Raises:
        UriError: the URL is malformed, or has a parameter that is not supported.
        InputError: the management URL is malformed, or the ring source is neither a prefix nor a source.
    """

    def __init__(
        self,
        url: str,
        management_url: str | None = None,
        ring_source: RingSource | str | Sequence[str] | None = None,
    ) -> None:
        self._settings = ConnectionSettings.from_uri(url)
        self._management = None if management_url is None else Management(management_url)
        self._ring_source = _as_ring_source(ring_source)
        self._connection: PikaConnection | None = None
        self._release: Release | None = None

    def __repr__(self) -> str:
        management = f", management_url={self._management.masked_url!r}" if self._management else ""
        return f"Broker({self._settings.masked_url!r}{management})"

    def open(self) -> Self:
        """Connect, unless it is connected; return itself.

        Raises:
            BrokerRefusedError: the broker refuses the login or the vhost.
            UnreachableError: nothing answers at the address.
        """
        if self._connection is None:
            self._connection = PikaConnection(self._settings)
        return self

    def close(self) -> None:
        """Close the connection, if there is one; `open` connects again."""
        connection, self._connection, self._release = self._connection, None, None
        if connection is not None:
            connection.close()

    def __enter__(self) -> Self:
        """Connect; see `open`."""
        return self.open()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def release(self) -> Release:
        """The broker's version and metadata store.

        Without a management URL the store is the default of that version, marked as not known.

        Raises:
            InputError: the Broker is not open.
            UnreachableError: the management API does not answer.
        """
        version = self._connected.server_version
        if self._release is None:
            self._release = read_release(self._management) if self._management else Release(version)
        return self._release

    def declare(
        self,
        exchange: str,
        bindings: GivenBindings,
        *,
        durable: bool = True,
        arguments: Mapping[str, Any] | None = None,
        queue_arguments: Mapping[str, Any] | None = None,
        allow_existing: bool = False,
    ) -> Declared:
        """Declare an x-consistent-hash exchange and its durable queues, and bind them in the given order.

        What exists is not changed. Everything is checked before anything is created. Then the bindings are
        made one after another, so that a fresh exchange gets its buckets in their order. Exchanges as
        destinations must exist.

        An exchange that exists must have what is asked for, or its beginning; the rest is then bound at the
        end. A ring source compares the whole ring. A management URL compares the bindings, without their
        order, and the arguments that decide about routing. Without both the call is refused, since a second
        binding of a queue would be ignored or add buckets, depending on the release. `allow_existing` permits
        it: it says that the exchange has no other bindings than these. The broker itself compares type and
        durability, not ``hash-header`` or ``hash-property`` (rabbitmq-server v4.3.6, rabbit_exchange.erl,
        ``assert_args_equivalence/2``).

        Args:
            exchange: the exchange's name.
            bindings: ``(destination, weight)`` pairs, or a mapping, in the order of the ring; a weight is an
                int or the binding key's text.
            durable: whether the exchange survives a restart of the broker.
            arguments: the exchange's arguments, such as ``{"hash-header": "tenant"}``.
            queue_arguments: the arguments of all queues, such as ``{"x-queue-type": "quorum"}``.
            allow_existing: whether to bind to an exchange that exists and cannot be compared.

        Returns:
            What was created and bound, and the ring afterwards.

        Raises:
            MismatchError: something exists with another type, durability or arguments; or the exchange has
                another ring, or other bindings, than asked for.
            NotFoundError: a destination exchange does not exist.
            AccessRefusedError: the user lacks a permission.
            RingSourceError: the ring of an exchange that exists could not be read.
            UnreachableError: the connection is lost, or the management API does not answer.
            InputError: the Broker is not open; the broker or AMQP would not accept a name, weight or argument; or the
                exchange exists, and nothing tells what is bound to it.
        """
        check_declared_name(exchange, "exchange")
        refuse_misspelt(arguments or ())
        wanted = wanted_ring(bindings, self.release)
        binds = {binding: _bind(exchange, *binding) for binding in wanted.bindings or ()}
        queues = dict.fromkeys(bind.queue for bind in binds.values() if isinstance(bind, QueueBind))
        where = self._settings.masked_url
        missing = self._connected.run(
            look_at(
                where,
                ExchangeDeclare(exchange, durable=durable, arguments=arguments),
                [QueueDeclare(queue, arguments=queue_arguments) for queue in queues],
                binds.values(),
            )
        )
        fresh = any(isinstance(one, ExchangeDeclare) for one in missing)
        left, ring = tuple(binds), wanted
        if not fresh:
            left, ring = self._compared(exchange, wanted, arguments, allow_existing=allow_existing)
            _refuse_ghosts(exchange, ring, missing)
        self._connected.run(perform(where, (*missing, *(binds[binding] for binding in left))))
        if left and not fresh and self._ring_source is not None:
            ring = self._read_again(exchange, wanted)
        created = tuple(
            ExchangeRef(one.exchange) if isinstance(one, ExchangeDeclare) else one.queue for one in missing
        )
        return Declared(created, left, ring)

    def _compared(
        self, exchange: str, wanted: HashRing, arguments: Mapping[str, Any] | None, *, allow_existing: bool
    ) -> tuple[tuple[Binding, ...], HashRing]:
        """Return what is left to bind to an exchange that exists, and its ring so far."""
        left, ring = wanted.bindings or (), wanted.with_release(wanted.release)
        if self._management is not None:
            live = self._live(self._management, exchange)
            if HashedOn.from_arguments(live.arguments) != HashedOn.from_arguments(arguments):
                raise MismatchError(
                    f"exchange {exchange!r} has the arguments {dict(live.arguments)}, not {dict(arguments or {})}, and so "
                    "hashes something else: delete it and declare it again, or declare what is there",
                    exchange=exchange,
                )
            left = left_by_bindings(exchange, wanted, live.bindings)
        if self._ring_source is not None:
            ring = self.ring(exchange)
            by_bindings, left = left, left_by_ring(exchange, wanted, ring)
            if self._management is not None and by_bindings != left:
                raise MismatchError(
                    f"exchange {exchange!r} has bindings without buckets: its ring is {ring!r}, and "
                    f"{len(live.bindings)} bindings are listed; nothing was changed; unbind and bind what has no buckets",
                    exchange=exchange,
                )
        if self._management is None and self._ring_source is None and not allow_existing:
            raise InputError(
                f"exchange {exchange!r} exists, and AMQP does not tell what is bound to it: give Broker a ring_source or a "
                "management_url to compare with, or declare with allow_existing=True if it has no other bindings than these",
                exchange=exchange,
            )
        return left, ring

    def _read_again(self, exchange: str, wanted: HashRing) -> HashRing:
        """Read the ring after bindings were added to it."""
        ring = self.ring(exchange)
        if ring != wanted:
            raise MismatchError(
                f"bindings were added to exchange {exchange!r}, and it now has the ring {ring!r}, not {wanted!r}: "
                "a destination had a binding without buckets, or another client binds; compare its bindings, and bind "
                "again what differs",
                exchange=exchange,
            )
        return ring

    def _live(self, management: Management, exchange: str) -> LiveExchange:
        """Read from the management API an exchange that AMQP has found."""
        try:
            return read_exchange(management, self._settings.vhost, exchange)
        except NotFoundError:
            raise MismatchError(
                f"{management.masked_url} knows no exchange {exchange!r} in vhost {self._settings.vhost!r}, and "
                f"{self._settings.masked_url} does: give URLs of the same broker",
                exchange=exchange,
            ) from None

    def ring(self, exchange: str) -> HashRing:
        """Return the ring of an exchange: read by the ring source, else assumed from the bindings of the
        management API.

        Args:
            exchange: the exchange's name.

        Raises:
            InputError: the Broker is not open, or has neither a ring source nor a management URL.
            NotFoundError: there is no such exchange.
            MismatchError: the exchange is of another type.
            RingSourceError: the ring could not be read.
            UnreachableError: the connection is lost, or the management API does not answer.
        """
        check_declared_name(exchange, "exchange")
        if self._ring_source is None and self._management is None:
            raise InputError(
                f"the ring of {exchange!r} cannot be read over AMQP: give Broker a ring_source, such as "
                "'docker exec NAME', 'kubectl exec POD --', or '' for a broker on this machine",
                exchange=exchange,
            )
        self._connected.run(check_exchange(self._settings.masked_url, exchange))
        if self._ring_source is None:
            assert self._management is not None  # noqa: S101  # one of the two is there
            return self._live(self._management, exchange).assumed_ring
        try:
            return ring_by(self._ring_source, self._settings.vhost, exchange, self.release)
        except NotFoundError:
            raise MismatchError(
                f"exchange {exchange!r} in vhost {self._settings.vhost!r} is not of type x-consistent-hash, or the "
                "ring source asks another broker: check the exchange and the ring source",
                exchange=exchange,
            ) from None

    @property
    def _connected(self) -> PikaConnection:
        if self._connection is None:
            raise InputError(
                "the Broker is not connected: use it as 'with Broker(url) as broker:', or call open() and later close()"
            )
        return self._connection


def _as_ring_source(given: Any) -> RingSource | None:  # noqa: ANN401 - it is looked at here
    if isinstance(given, str | list | tuple):
        return DiagnosticsRing(given)
    if given is None or hasattr(given, "read"):
        source: RingSource | None = given
        return source
    raise InputError(
        f"ring_source is of type {type(given).__name__}: give a command prefix, such as 'docker exec NAME', "
        "or an object with a method read(vhost, exchange)"
    )


def _bind(exchange: str, destination: Destination, key: str) -> QueueBind | ExchangeBind:
    if isinstance(destination, ExchangeRef):
        check_declared_name(destination.name, "exchange")
        return ExchangeBind(destination.name, exchange, key)
    check_declared_name(destination, "queue")
    return QueueBind(destination, exchange, key)


def _refuse_ghosts(exchange: str, ring: HashRing, missing: Sequence[ExchangeDeclare | QueueDeclare]) -> None:
    """Refuse a ring that was read if a queue that does not exist has buckets in it: their messages are
    lost.
    """
    if ring.provenance != "read":
        return
    for one in missing:
        if isinstance(one, QueueDeclare) and one.queue in ring.destinations:
            raise MismatchError(
                f"queue {one.queue!r} does not exist, and has buckets of exchange {exchange!r}, whose messages are lost: "
                "declare the queue, bind and unbind it, and declare all this again",
                exchange=exchange,
                queue=one.queue,
            )
