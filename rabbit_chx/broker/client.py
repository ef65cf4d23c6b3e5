"""A broker, as one object."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from rabbit_chx.amqp import ConnectionSettings
from rabbit_chx.broker.operations import (
    ExchangeBind,
    ExchangeDeclare,
    QueueBind,
    QueueDeclare,
    check_exchange,
    check_name,
    declare_ring,
)
from rabbit_chx.broker.pika_connection import PikaConnection
from rabbit_chx.broker.ring_source import DiagnosticsRing
from rabbit_chx.errors import InputError, MismatchError, NotFoundError
from rabbit_chx.routing import ExchangeRef, HashRing, Release
from rabbit_chx.routing.bindings import binding_key, check_destination, weight_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from types import TracebackType
    from typing import Any, Self

    from rabbit_chx.broker.ring_source import RingSource
    from rabbit_chx.routing import Destination

__all__ = ["Broker"]


class Broker:
    """A live broker: declare rings, and read them. Use it in a ``with`` block; not from two threads at once.

    Args:
        url: the AMQP URI, see :func:`rabbit_chx.amqp.uri.parse_uri`.
        management_url: the management API, for what AMQP alone cannot tell; nothing here asks it yet.
        ring_source: how to read the true ring: a :class:`~rabbit_chx.broker.RingSource`, or the command prefix
            of a :class:`~rabbit_chx.broker.DiagnosticsRing` such as ``docker exec NAME`` (``""`` for a broker on
            this machine). Without one, `ring` has nothing to read.

    Raises:
        UriError: the URL cannot be followed.
    """

    def __init__(
        self,
        url: str,
        management_url: str | None = None,
        ring_source: RingSource | str | Sequence[str] | None = None,
    ) -> None:
        self._settings = ConnectionSettings.from_uri(url)
        self._management_url = management_url
        self._ring_source = _as_ring_source(ring_source)
        self._connection: PikaConnection | None = None

    def __repr__(self) -> str:
        return f"Broker({self._settings.masked_url!r})"

    def __enter__(self) -> Self:
        """Connect.

        Raises:
            BrokerRefusedError: the broker refuses the login or the vhost.
            UnreachableError: nobody answers there.
        """
        self._connection = PikaConnection(self._settings)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    @property
    def release(self) -> Release:
        """The version that the broker says it is; the store is that version's default and marked as not known."""
        return Release(self._connected.server_version)

    def declare(
        self,
        exchange: str,
        bindings: Iterable[tuple[Destination, int | str]],
        *,
        durable: bool = True,
        arguments: Mapping[str, Any] | None = None,
        queue_arguments: Mapping[str, Any] | None = None,
    ) -> None:
        """Declare an x-consistent-hash exchange and its durable queues, and bind them in the given order.

        What exists is not changed. All of it is looked at before anything is created; then the bindings are made
        one after another, so that a fresh exchange gets its buckets in their order. Exchanges as destinations must
        exist. A destination that has buckets of another weight is refused, since a second binding would be ignored
        or added, by release; that needs a ring source, because AMQP does not show bindings.
        Where the exchange exists, the broker compares type and durability, not ``hash-header`` or
        ``hash-property`` (rabbitmq-server v4.3.6, rabbit_exchange.erl, ``assert_args_equivalence/2``).

        Args:
            exchange: its name.
            bindings: ``(destination, weight)`` pairs; a weight is an int or the binding key's text.
            durable: whether the exchange outlives a restart.
            arguments: of the exchange, such as ``{"hash-header": "tenant"}``.
            queue_arguments: of all the queues, such as ``{"x-queue-type": "quorum"}``.

        Raises:
            MismatchError: something exists and is of another type, durability, weight or with other arguments.
            NotFoundError: a destination exchange does not exist.
            AccessRefusedError: the user may not do it.
            InputError: a name, weight or argument that the broker or AMQP would not take.
        """
        check_name("exchange", exchange)
        release = self.release
        pairs = _one_weight_each(bindings)
        binds = [_bind(exchange, destination, weight, release) for destination, weight in pairs]
        if self._ring_source is not None:
            self._refuse_other_weights(exchange, pairs, release)
        queues = dict.fromkeys(bind.queue for bind in binds if isinstance(bind, QueueBind))
        self._connected.run(
            declare_ring(
                self._settings.masked_url,
                ExchangeDeclare(exchange, durable=durable, arguments=arguments),
                [QueueDeclare(queue, arguments=queue_arguments) for queue in queues],
                binds,
            )
        )

    def _refuse_other_weights(
        self, exchange: str, pairs: Sequence[tuple[Destination, int | str]], release: Release
    ) -> None:
        try:
            buckets = Counter(self.ring(exchange).buckets)
        except NotFoundError:
            return  # a new exchange
        except MismatchError:
            return  # of another type: the broker says it better
        for destination, weight in pairs:
            wanted, there = weight_of(destination, weight, release), buckets[destination]
            if there not in {0, wanted}:
                raise MismatchError(
                    f"{destination!r} has {there} buckets of exchange {exchange!r}, not {wanted}: unbind it first; "
                    "bound anew, it goes to the end of the ring and keys move",
                    exchange=exchange,
                    queue=destination if isinstance(destination, str) else None,
                )

    def ring(self, exchange: str) -> HashRing:
        """The true ring of an exchange, read by the ring source.

        Raises:
            InputError: there is no ring source.
            NotFoundError: there is no such exchange.
            MismatchError: it is of another type.
            RingSourceError: the ring could not be read.
        """
        check_name("exchange", exchange)
        if self._ring_source is None:
            raise InputError(
                f"the ring of {exchange!r} cannot be read over AMQP: give Broker a ring_source, such as "
                "'docker exec NAME', 'kubectl exec POD --', or '' for a broker on this machine",
                exchange=exchange,
            )
        self._connected.run(check_exchange(self._settings.masked_url, exchange))
        try:
            buckets = self._ring_source.read(self._settings.vhost, exchange)
        except NotFoundError:
            raise MismatchError(
                f"exchange {exchange!r} in vhost {self._settings.vhost!r} is not of type x-consistent-hash, or the "
                "ring source asks another broker: check the exchange and the ring source",
                exchange=exchange,
            ) from None
        return HashRing.from_buckets(buckets, release=self.release)

    @property
    def _connected(self) -> PikaConnection:
        if self._connection is None:
            raise InputError("the Broker is not connected: use it as 'with Broker(url) as broker:'")
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


def _one_weight_each(
    bindings: Iterable[tuple[Destination, int | str]],
) -> list[tuple[Destination, int | str]]:
    pairs = list(bindings)
    keys: dict[Destination, str] = {}
    for destination, weight in pairs:
        key = binding_key(weight)
        if keys.setdefault(check_destination(destination), key) != key:
            raise InputError(
                f"{destination!r} is bound twice, with the weights {keys[destination]} and {key}: the broker would "
                "ignore or add the second, by release; give it once"
            )
    return pairs


def _bind(
    exchange: str, destination: Destination, weight: int | str, release: Release
) -> QueueBind | ExchangeBind:
    weight_of(check_destination(destination), weight, release)
    if isinstance(destination, ExchangeRef):
        check_name("exchange", destination.name)
        return ExchangeBind(destination.name, exchange, binding_key(weight))
    check_name("queue", destination)
    return QueueBind(destination, exchange, binding_key(weight))
