"""The broker facade: one object for all operations on a live broker."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Any, Self, cast

from rabbit_chx.amqp import ConnectionSettings
from rabbit_chx.amqp.settings import ManagementUrl, read_secretly
from rabbit_chx.broker.applying import (
    WAIT_S,
    Applied,
    Drained,
    Permission,
    append_of,
    apply_plan,
    wait_drained,
    with_obstacles,
)
from rabbit_chx.broker.declaring import Declared, declare_exchange
from rabbit_chx.broker.firehose import TracedMessage, end_trace, is_traced, left_trace, trace, traced_node
from rabbit_chx.broker.hand_over import HAND_OVER_LEVELS, HandOverLevel, PikaCarrier
from rabbit_chx.broker.live_broker import try_count
from rabbit_chx.broker.live_routing import mirror_of, slots_of
from rabbit_chx.broker.management import Management
from rabbit_chx.broker.pika_connection import PikaConnection
from rabbit_chx.broker.reading import (
    Detail,
    find_exchange,
    read_consumer_tags,
    read_release,
    read_ring,
    read_topology,
    table_in,
)
from rabbit_chx.broker.recording import record_rings, wait_for_others
from rabbit_chx.broker.ring_source import CONNECTION_NAME, DiagnosticsRing
from rabbit_chx.broker.same_broker import OrderSource, OwnConnection, Ways
from rabbit_chx.broker.sharding import read_sharded_exchange
from rabbit_chx.broker.usage import read_rates_of
from rabbit_chx.checks import check_seconds, check_share
from rabbit_chx.connection.blocking_connection import UsageGuard
from rabbit_chx.connection.tokens import Credentials, with_credentials
from rabbit_chx.errors import BrokerRefusedError, InputError, ManagementNeededError, RabbitChxError
from rabbit_chx.planning.plan_value import DRAIN_S, Plan
from rabbit_chx.planning.refusals import know_rings
from rabbit_chx.records.live_rings import WaysToLearn
from rabbit_chx.records.ring_records import RingRecord
from rabbit_chx.routing import ConsistentHashExchange, HashRing, ModulusHashExchange, Release, SlotTable
from rabbit_chx.routing.bindings import GivenBindings
from rabbit_chx.routing.key_map import unknown_order
from rabbit_chx.routing.message import HASH_ARGUMENTS, HashedOn
from rabbit_chx.topology import LiveTopology, Topology
from rabbit_chx.topology.model import PublishRates
from rabbit_chx.topology.objects import HASH_EXCHANGE, ExchangeDefinition
from rabbit_chx.topology.plugin_objects import ShardedExchange

_BAD_REQUEST = 400


def _list_connections(management: Management, settings: ConnectionSettings) -> list[str] | None:
    """Return the connections of a user, which a broker lists at once; None if it does not, or if another name may be the user's."""
    if settings.password.is_token or "EXTERNAL" in settings.auth_mechanisms:
        return None
    try:
        path = ("connections", "username", settings.username)
        return [entry["name"] for entry in management.get_list(*path, fields={"name": str})]
    except RabbitChxError:  # as of a user who may not list them
        return None


def _name_of_connection(management: Management, connection: str) -> str | None:
    """Return the name that a listed connection gave itself; None if the broker does not show it, as before its next statistics."""
    try:
        entry = management.get("connections", connection, fields={"client_properties?": dict})
    except RabbitChxError:
        return None
    properties = entry.get("client_properties")
    return None if properties is None else str(properties.get("connection_name", ""))


class _Connected(Ways):
    """The connections of a broker; implements :class:`~rabbit_chx.broker.live_broker.LiveBroker`."""

    def __init__(
        self, settings: ConnectionSettings, management: Management | None, source: OrderSource | None
    ) -> None:
        client = f"{CONNECTION_NAME}{secrets.token_hex(8)}"
        given = (settings.connection_name or "").replace("\n", " ")
        named = f"{given} ({client})" if given else client
        known = None if management is None else _list_connections(management, settings)
        self.amqp = PikaConnection(replace(settings, connection_name=named))
        self.carrier = PikaCarrier(settings)
        own = OwnConnection(
            named,
            self.amqp.socket_name,
            known,
            listing=lambda: None if management is None else _list_connections(management, settings),
            name_of=lambda name: None if management is None else _name_of_connection(management, name),
        )
        super().__init__(
            settings.masked_url,
            settings.vhost,
            self.amqp.cluster_name,
            self.amqp.server_version,
            management=management,
            source=source,
            own=own,
        )

    def close(self) -> None:
        self.forget_connection()
        self.carrier.close()
        self.amqp.close()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


class Broker:
    """A live broker: declare exchanges, read rings, and apply plans. Two threads must not use it at once, nor a forked process.

    Use it in a ``with`` block, or call `open` and `close`. With asyncio, call it in a thread:
    ``await asyncio.to_thread(broker.apply, plan)``.

    Args:
        url: the AMQP URI, or the settings of a connection, see :func:`rabbit_chx.amqp.settings.parse_uri`.
        management_url: the management API, ``http[s]://user:password@host:15672``. It returns data that AMQP does not: bindings, the
            exchange's arguments, the metadata store.
        ring_source: the source of the true ring: a :class:`~rabbit_chx.broker.RingSource`, or the command prefix of a
            :class:`~rabbit_chx.broker.DiagnosticsRing` such as ``docker exec NAME`` (``""`` for a broker on this machine). Without
            access to ``rabbitmqctl`` leave it out: the ring is then that of the record on the broker, if there is one.
        credentials: a function that returns an OAuth 2 token and its expiry (an aware datetime, or seconds since 1970), instead of a password
            in the URL. It is called again, also in other threads, before the token expires; open connections get the new token. The management API gets it, too, unless its URL has a
            login.

    Raises:
        UriError: the URL is malformed, or has a parameter that is not supported.
        InputError: the management URL is malformed, or the ring source is neither a prefix nor a source.
    """

    _connected: _Connected | None = None
    _guard: UsageGuard  # while it is connected
    _release: Release | None = None

    def __init__(
        self,
        url: str | ConnectionSettings,
        management_url: str | ManagementUrl | None = None,
        ring_source: OrderSource | str | Sequence[str] | None = None,
        *,
        credentials: Credentials | None = None,
    ) -> None:
        try:
            settings = (
                url
                if isinstance(url, ConnectionSettings)
                else read_secretly(ConnectionSettings.from_uri, url)
            )
            (self._settings,) = with_credentials([settings], credentials)
            management = read_secretly(_as_management_url, management_url)
        finally:
            del url, management_url
        if management is not None and credentials is not None:
            management = management.with_login_of(self._settings)
        self._management = None if management is None else Management(management)
        self._ring_source = _as_ring_source(ring_source)

    def __repr__(self) -> str:
        if not hasattr(self, "_ring_source"):  # an argument was refused
            return f"<{type(self).__name__}: no URL>"
        management = f", management_url={self._management.masked_url!r}" if self._management else ""
        return f"{type(self).__name__}({self._settings.masked_url!r}{management})"

    def open(self) -> Self:
        """Connect, unless the broker is connected, and return it.

        Raises:
            InputError: this is a forked process, and the broker is connected.
            BrokerRefusedError: the broker refuses the login or the vhost.
            UnreachableError: the address does not answer.
        """
        if self._connected is None:
            self._guard = UsageGuard(f"the Broker of {self._settings.masked_url}")
            self._connected = _Connected(self._settings, self._management, self._ring_source)
        self._guard.check()
        return self

    def close(self) -> None:
        """Close the connection, if it is open; `open` connects again. In a forked process that of the parent stays open."""
        connected = self._connected
        self._connected = None
        self._release = None
        if connected is not None and self._guard.is_this_process:
            connected.close()

    def __enter__(self) -> Self:
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
            InputError: the broker is not open.
            UnreachableError: the management API does not answer.
        """
        live = self._live
        if self._release is None:
            if live.has_management:
                self._release = read_release(live.api, str(live.overview()["rabbitmq_version"]))
            else:
                self._release = Release(live.amqp.server_version)
        return self._release

    @property
    def not_compared(self) -> str:
        """Why the addresses of AMQP and of the management API were not compared, as a sentence; empty if they were, or one was not used."""
        return "" if self._connected is None else self._connected.not_compared

    @property
    def cluster(self) -> str | None:
        """The name of the cluster; None if the broker does not tell it."""
        return self._live.amqp.cluster_name

    def declare(
        self,
        exchange: str,
        bindings: GivenBindings,
        *,
        durable: bool = True,
        arguments: Mapping[str, Any] | None = None,
        queue_arguments: Mapping[str, Any] | None = None,
        allow_existing: bool = False,
        records: bool = True,
    ) -> Declared:
        """Declare an x-consistent-hash exchange and its durable queues, and bind them in the given order.

        This is the short form for a single exchange; `apply` handles whole topologies. Existing objects are not changed. All checks precede
        the first change. Then the bindings are made one after another, so that a fresh exchange gets its buckets in their order. Exchanges
        as destinations must exist.

        With a management URL this is the plan of a topology of one exchange, which may only add objects. The ring of an existing exchange must
        equal the wanted ring or its beginning; the other bindings are then added at the end. A ring source or a record on the broker compares
        the whole ring; a management URL without them compares the bindings without their order. Without both the call is refused, because a second binding of a queue would be ignored or add buckets, depending on the
        release. `allow_existing` permits it: the caller asserts that the exchange has no other bindings than these. The broker itself
        compares type and durability, not ``hash-header`` or ``hash-property`` (rabbitmq-server v4.3.6, rabbit_exchange.erl,
        ``assert_args_equivalence/2``).

        With a management URL the order of the ring is stored on the broker, as `apply` does it. A program that finds another one declaring or
        applying waits for its end, at most 30 seconds.

        Args:
            exchange: the exchange's name.
            bindings: ``(destination, weight)`` pairs, or a mapping, in the order of the ring; a weight is an int or the binding key's text.
            durable: True if the exchange survives a restart of the broker.
            arguments: the exchange's arguments, such as ``{"hash-header": "tenant"}``.
            queue_arguments: the arguments of all queues, such as ``{"x-queue-type": "quorum"}``. Without that argument they have the default type
                of the vhost.
            allow_existing: permits binding to an existing exchange that cannot be compared.
            records: False: do not store the order of the ring on the broker.

        Returns:
            The created objects and bindings, and the ring afterwards.

        Raises:
            MismatchError: an object exists with another type, durability or arguments; or the exchange has another ring, or other bindings.
            NotFoundError: a destination exchange does not exist.
            AccessRefusedError: the user lacks a permission.
            RingSourceError: the ring of an existing exchange could not be read.
            PlanOutdatedError: other programs changed the vhost for 30 seconds.
            UnreachableError: the connection is lost, or the management API does not answer.
            InputError: the broker is not open; a name, weight or argument is not valid in RabbitMQ or AMQP; or the exchange exists, and its
                bindings cannot be read.
        """
        definition = ExchangeDefinition(exchange, HASH_EXCHANGE, durable, arguments=arguments or {})
        return declare_exchange(
            definition,
            bindings,
            self._live,
            self.release,
            queue_arguments=queue_arguments,
            allow_existing=allow_existing,
            records=records,
        )

    def ring(self, exchange: str) -> HashRing:
        """Return the ring of an exchange: read by the ring source, or recorded.

        Args:
            exchange: the exchange's name.

        Raises:
            InputError: the broker is not open.
            ManagementNeededError: neither a ring source nor a management URL is set.
            NotFoundError: the exchange does not exist.
            MismatchError: the exchange is of another type.
            UnknownOrderError: the order of the ring is not known; the error has the members.
            RingSourceError: the ring could not be read.
            UnreachableError: the connection is lost, or the management API does not answer.
        """
        live = self._live
        if not live.has_source and not live.has_management:
            raise ManagementNeededError(
                f"the ring of {exchange!r} cannot be read over AMQP: pass a ring_source, such as 'docker exec NAME', "
                "'kubectl exec POD --', or '' for a broker on this machine; or a management_url, for its record or its bindings",
                exchange=exchange,
            )
        ring = read_ring(live, exchange, self.release)
        if not ring.is_determined:
            raise unknown_order(ring, exchange, know_rings({exchange: ring}, WaysToLearn()))
        return ring

    def inspect(self, exchange: str, *, for_record: bool = False) -> LiveTopology:
        """Return a topology of one exchange: with its bindings, its ring, what that names, and what shows its order. It takes few requests.

        Args:
            exchange: the exchange's name.
            for_record: True: with what a new record of the ring takes.

        Raises:
            InputError: the broker is not open.
            ManagementNeededError: the management URL is not set.
            NotFoundError: the exchange does not exist.
            NotDeterminedError: the exchange has bindings that no client can name.
            MismatchError: an address is that of another broker.
            RingSourceError: the ring could not be read.
            UnreachableError: the management API does not answer.
        """
        detail: Detail = "record" if for_record else "advice"
        return read_topology(self._live, only=exchange, detail=detail, release=self.release)

    def is_traced(self) -> bool:
        """Return True if somebody else has switched on tracing of the vhost, so that `trace` reads it and leaves it on.

        Raises:
            InputError: the broker is not open.
            ManagementNeededError: the management URL is not set.
            AccessRefusedError: the user lacks the tag ``administrator``.
            UnreachableError: the management API does not answer.
        """
        return is_traced(self._live.api, self._live.vhost)

    def traced_node(self) -> str | None:
        """Return the only node of a cluster of several whose messages `trace` sees, that of the management URL; else None."""
        return traced_node(self._live.api)

    def left_trace(self) -> str | None:
        """Return who switched on tracing of the vhost, and when, if that process has ended without switching it off; else None."""
        return left_trace(self._live.api, self._live.vhost) if self._live.has_management else None

    def end_trace(self) -> None:
        """Switch off tracing of the vhost that `left_trace` names.

        Raises:
            BrokerRefusedError: the broker refuses it.
            UnreachableError: the management API does not answer.
        """
        end_trace(self._live.api, self._live.vhost)

    def trace(self, exchange: str, seconds: float) -> list[TracedMessage]:
        """Return what the broker does with the messages that are published to an exchange within some seconds: the hashed value and the queues of each.

        It switches on firehose tracing of the vhost, which costs a copy of each of its messages, and switches it off again, also after an
        error, Ctrl-C or SIGTERM. It takes the tag ``administrator``, and configure on ``rabbit-chx.*``. Of a cluster the copies are those of
        the node that answers the management URL. Messages that reach the exchange over another exchange are not traced.

        Args:
            exchange: the exchange's name.
            seconds: how long it is traced.

        Returns:
            A pair ``(value, queues)`` of each message, at most 500,000. The value is the routing key, the header as an AmqpField, or the
            property; None if the message does not have it. Without queues the message was unroutable.

        Raises:
            InputError: the broker is not open, or `seconds` is not positive.
            ManagementNeededError: the management URL is not set.
            NotFoundError: the exchange does not exist.
            AccessRefusedError: the user lacks the tag ``administrator``, or a permission.
            BrokerRefusedError: another process traces the vhost, or tracing could not be switched off.
            UnreachableError: the connection is lost, or the management API does not answer.
        """
        check_seconds("seconds", seconds, zero=False)
        arguments = table_in(find_exchange(self._live, exchange), "arguments")
        hashed = HashedOn.from_arguments(
            {name: arguments[name] for name in HASH_ARGUMENTS if name in arguments}
        )
        return trace(self._settings, self._live.api, exchange, hashed, seconds)

    def slots(self, exchange: str) -> SlotTable:
        """Return the slots of an exchange: its ring, and the queue of each slot from the management API.

        The ring is read by the ring source, or recorded; else its order is not known, and the table answers what does not depend on it. A slot that is not bound to a queue has no owner in the table.
        Exchanges of the ring that are not slots are its `other_exchanges`.

        Args:
            exchange: the exchange's name.

        Raises:
            InputError: the broker is not open.
            ManagementNeededError: the management URL is not set.
            NotFoundError: the exchange does not exist.
            MismatchError: the exchange is of another type, or a slot is bound to two queues.
            RingSourceError: the ring could not be read.
            UnreachableError: the connection is lost, or the management API does not answer.
        """
        live = read_topology(self._live, only=exchange, release=self.release)
        return slots_of(live, exchange).table()

    def publish_rates(self, exchange: str) -> PublishRates:
        """Return the messages per second of an exchange and of the queues of its vhost.

        The management API counts them for the exchange that they are published to, and for queues. Slots have no rates. A rate is that of
        the last few seconds.

        Args:
            exchange: the exchange's name.

        Raises:
            InputError: the broker is not open.
            ManagementNeededError: the management URL is not set.
            NotFoundError: the exchange does not exist.
            UnreachableError: the management API does not answer.
        """
        entry = find_exchange(self._live, exchange)
        return read_rates_of(self._live.api, self._live.vhost, entry)

    def exchange(self, name: str) -> ConsistentHashExchange | ModulusHashExchange:
        """Return a mirror of an exchange's routing, with its arguments and its ring. Without a known order, `route` raises an UnknownOrderError.

        Args:
            name: the exchange's name.

        Raises:
            InputError: the broker is not open.
            ManagementNeededError: the management URL is not set. AMQP does not return the arguments of an exchange.
            NotFoundError: the exchange does not exist.
            MismatchError: the exchange is of a type that does not hash.
            BrokerRefusedError: its plugin is not enabled, so that the broker refuses every publish.
            RingSourceError: the ring could not be read.
            UnreachableError: the connection is lost, or the management API does not answer.
        """
        live = read_topology(self._live, only=name, release=self.release)
        return mirror_of(live, name)

    def sharding(self, exchange: str, *, counts: bool = True) -> ShardedExchange:
        """Return an exchange that the plugin rabbitmq_sharding shards: its policy, its shards on all nodes, and findings.

        A topology declares such an exchange as an exchange of type ``x-modulus-hash``, and a policy with ``shards-per-node`` that matches
        its name.

        Args:
            exchange: the exchange's name.
            counts: True: query the number of messages and consumers of each shard over AMQP.

        Raises:
            InputError: the broker is not open.
            ManagementNeededError: the management URL is not set.
            NotFoundError: the exchange does not exist.
            MismatchError: no policy shards the exchange, and it has no shards.
            UnreachableError: the connection is lost, or the management API does not answer.
        """
        return read_sharded_exchange(self._live, exchange, self.release, counts=counts)

    def topology(self) -> LiveTopology:
        """Return the topology of the vhost: exchanges, queues, bindings, policies and rings. Read-only.

        Rings are read by the ring source, or recorded; else their order is not known. The members of each ring are in its order.

        Raises:
            InputError: the broker is not open.
            ManagementNeededError: the management URL is not set.
            AccessRefusedError: the user may not read the vhost.
            RingSourceError: the rings could not be read.
            UnreachableError: the management API does not answer.
        """
        return read_topology(self._live)

    def consumers(self, queues: Iterable[str]) -> dict[str, tuple[str, ...] | int]:
        """Return the consumer tags of each of `queues`; their number if the broker collects no metrics, so that it lists no tags.

        The management API lists a new consumer after some seconds.

        Raises:
            InputError: the broker is not open.
            ManagementNeededError: the management URL is not set.
            UnreachableError: the management API does not answer.
        """
        names = list(queues)
        try:
            tags = read_consumer_tags(names, self._live)
            return {queue: tuple(of_queue) for queue, of_queue in tags.items()}
        except BrokerRefusedError as refusal:
            if refusal.reply_code != _BAD_REQUEST:  # the answer of a broker that collects no metrics
                raise
            counts = {name: try_count(self._live.amqp, name) for name in names}
            return {name: count.consumers if count else 0 for name, count in counts.items()}

    def apply(
        self,
        plan: Plan | Topology,
        *,
        allow_moved: float | None = None,
        allow_delete: bool = False,
        allow_loss: bool = False,
        allow_vhost: bool = False,
        allow_unlink: bool = False,
        hand_over: HandOverLevel = "parked",
        records: bool = True,
        drain_s: float = DRAIN_S,
        progress: Callable[[int, int], None] = lambda *_: None,
        waiting: Callable[[str], None] = lambda _: None,
    ) -> Applied:
        """Perform the changes of a plan in order, and compare the rings afterwards.

        The order of the rings is stored on the broker, in exchanges ``rabbit-chx.ring.NAME``, so that it is known later without a ring source.

        The topology is read again first. If the broker has changed since the plan was made, nothing is changed. Meanwhile an exclusive
        queue prevents others from applying a plan: they wait, at most 30 seconds. After an interruption, make another plan and apply it: it
        contains the remaining changes. Messages in the parking queues of exchanges with slots are published again.

        A queue is unbound before it is deleted or replaced. Its consumers then have `drain_s` seconds to empty it. A queue that is not empty then is left
        unbound, with its messages and consumers, and the error is an ApplyError.

        Args:
            plan: the plan, of :func:`rabbit_chx.topology.plan`; or a topology, which is planned here.
            allow_moved: the share of keys that may move in each ring, 0 to 1; None: the limit of the topology.
            allow_delete: permits deleting and replacing objects.
            allow_loss: permits deleting queues that have messages or consumers, without a wait.
            allow_vhost: permits another vhost than the wanted topology names.
            allow_unlink: permits cutting federation links.
            hand_over: the method of moving slots. ``parked``: no message is lost, but messages that arrive while a slot has no queue may be
                overtaken. ``in-order``: no message is overtaken either; a ConsumerGroup must read both queues.
            records: False: do not store the order of the rings on the broker; records of rings that change are deleted.
            drain_s: the time in seconds in which consumers must empty the queues that the plan deletes or replaces.
            progress: called with the number of completed changes, and of all.
            waiting: called with a sentence that names the queues that are not empty yet, every five seconds.

        Returns:
            The completed changes, and the rings afterwards.

        Raises:
            PlanOutdatedError: the broker has changed since the plan was made, or another plan is still being applied after 30 seconds.
            PlanRefusedError: the plan exceeds the permissions. The error names the arguments that permit it.
            ApplyError: an error after the first change. The error contains the completed changes.
            ManagementNeededError: the management URL is not set.
            AccessRefusedError: the user lacks a permission, and nothing was changed.
            UnreachableError: the broker does not answer, and nothing was changed.
            InputError: the broker is not open, `plan` is neither a plan nor a topology, a share is not from 0 to 1, `drain_s` is negative or
                infinite, or `hand_over` is unknown.
        """
        if allow_moved is not None:
            check_share("allow_moved", allow_moved)
        if hand_over not in HAND_OVER_LEVELS:
            raise InputError(f"hand_over is {hand_over!r:.40}: pass {' or '.join(HAND_OVER_LEVELS)}")
        check_seconds("drain_s", drain_s)
        permission = Permission(
            allow_moved, allow_delete, allow_loss, hand_over, records, allow_vhost, allow_unlink, drain_s
        )
        live = self._live
        return wait_for_others(lambda: apply_plan(plan, live, permission, progress, waiting), live)

    def check_order(self, plan: Plan) -> Plan:
        """Return a plan whose appends have what makes it impossible to keep the order of keys as the broker is now, as warnings.

        That is a new queue with a consumer, or an old one with messages and without a consumer.

        Args:
            plan: the plan, of :func:`rabbit_chx.topology.plan`.

        Raises:
            InputError: the broker is not open.
            UnreachableError: the connection is lost.
        """
        return with_obstacles(plan, self._live)

    def wait_drained(
        self, plan: Plan, *, longest_s: float = WAIT_S, waiting: Callable[[str], None] = lambda _: None
    ) -> Drained:
        """Wait after `apply` until each queue that lost keys has been empty once; then the consumers of the appended queues may start.

        The statistics of the broker are some seconds old: the wait takes at least that long.

        Args:
            plan: the plan that was applied, which appends queues.
            longest_s: the longest time in seconds.
            waiting: called every five seconds with a sentence that names the queues that have not been empty.

        Returns:
            The queues that were never empty, and those that had consumers too early; without both the order of each key is kept.

        Raises:
            InputError: the broker is not open, `longest_s` is negative or infinite, or the plan appends nothing.
            ManagementNeededError: the management URL is not set.
            UnreachableError: the broker does not answer.
        """
        check_seconds("longest_s", longest_s)
        append = append_of(plan)
        if append is None:
            raise InputError(
                "the plan appends no queue that gets keys of others: there is nothing to wait for"
            )
        return wait_drained(append, self._live, longest_s, waiting)

    def record(self, rings: Mapping[str, HashRing]) -> dict[str, RingRecord]:
        """Store the order of rings on the broker, in exchanges ``rabbit-chx.ring.NAME``, and return the new records.

        Args:
            rings: the rings by their exchanges, as `topology` or `HashRing.from_observations` returned them.

        Raises:
            InputError: the broker is not open, or the order of a ring is not known.
            PlanOutdatedError: a ring has changed, or a plan is still being applied after 30 seconds.
            ManagementNeededError: the management URL is not set.
            AccessRefusedError: the user may not declare exchanges ``rabbit-chx.*`` or the queue ``rabbit-chx.mark``, or not publish to it.
            MismatchError: that queue does not keep its messages.
            RingSourceError: the rings could not be read.
            UnreachableError: the broker does not answer.
        """
        live = self._live
        return wait_for_others(lambda: record_rings(rings, live), live)

    @property
    def _live(self) -> _Connected:
        if self._connected is None:
            raise InputError(
                "the Broker is not connected: use it as 'with Broker(url) as broker:', or call open() and later close()"
            )
        self._guard.check()
        return self._connected


def _as_management_url(url: str | ManagementUrl | None) -> ManagementUrl | None:
    return ManagementUrl.of(url) if isinstance(url, str) else url


def _as_ring_source(source: Any) -> OrderSource | None:
    if isinstance(source, str | list | tuple):
        return DiagnosticsRing(source)
    if source is None or isinstance(source, RingRecord) or hasattr(source, "read"):
        return cast("OrderSource | None", source)
    raise InputError(
        f"ring_source is of type {type(source).__name__}: pass a command prefix, such as 'docker exec NAME', "
        "or an object with a method read(vhost, exchange)"
    )
