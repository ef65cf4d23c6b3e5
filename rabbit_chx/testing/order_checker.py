"""Whether consumers handle the messages of each key in order, for tests: each message has its key's next number."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from copy import deepcopy
from dataclasses import dataclass, field
from itertools import chain, islice
from threading import Lock
from typing import Any, NamedTuple

from rabbit_chx.amqp import ConnectionSettings
from rabbit_chx.analysis.key_routing import Hashing, Refused
from rabbit_chx.broker.facade import Broker
from rabbit_chx.broker.pika_connection import PikaConnection
from rabbit_chx.broker.scratch import find_routes
from rabbit_chx.checks import is_whole
from rabbit_chx.errors import ChannelClosedError, InputError
from rabbit_chx.planning.plan import plan
from rabbit_chx.routing import Destination, ExchangeRef
from rabbit_chx.routing.bindings import Place
from rabbit_chx.routing.key_map import KeyMap
from rabbit_chx.routing.message import HASH_ARGUMENTS
from rabbit_chx.testing import containers
from rabbit_chx.testing.running_broker import RunningBroker, temporary_vhost
from rabbit_chx.topology import Topology
from rabbit_chx.topology.objects import (
    HASH_EXCHANGE,
    MODULUS_EXCHANGE,
    BindingDefinition,
    ExchangeDefinition,
    QueueDefinition,
)

_SAMPLES = 5  # of each kind of fault


@dataclass(frozen=True, slots=True)
class OrderFault:
    """A fault in the order of messages.

    Attributes:
        kind: ``out of order``, ``stale``, ``lost`` or ``unexpected``.
        key: the key.
        number: the number of the message.
        says: what is wrong with it.
    """

    kind: str
    key: str
    number: int
    says: str

    def __str__(self) -> str:
        return f"{self.kind}: key {self.key!r}, message {self.number:,}: {self.says}"


@dataclass(frozen=True, slots=True)
class OrderReport:
    """The faults in the order of messages.

    Attributes:
        messages: how many messages were handled, repeats included.
        keys: how many keys they have.
        out_of_order: messages that were handled for the first time after a newer message of their key.
        stale: repeats of old messages after which the newer ones of their key were not handled again. What a key's last message leaves is then
            wrong until the next message.
        lost: messages that were never handled. Without `sent` only those that a newer message of their key follows.
        repeated: messages that had been handled before. This is not a fault: delivery is at least once.
        redelivered: those of the repeated that the broker marked as redelivered. The others were published twice, or handled by two
            consumers.
        unexpected: messages that were not sent: numbers below the first or beyond the last, and keys that are not in `sent`.
        faults: the first few faults of each kind.
    """

    messages: int
    keys: int
    out_of_order: int
    stale: int
    lost: int
    repeated: int
    redelivered: int
    unexpected: int
    faults: tuple[OrderFault, ...] = field(default=(), repr=False)

    @property
    def ok(self) -> bool:
        """Whether there is no fault. Repeats alone are none."""
        return not (self.out_of_order or self.stale or self.lost or self.unexpected)

    def __str__(self) -> str:
        counts = (
            f"{self.messages:,} messages of {self.keys:,} keys: {self.out_of_order:,} out of order, {self.stale:,} stale, "
            f"{self.lost:,} lost, {self.unexpected:,} unexpected; {self.repeated:,} repeated, of which {self.redelivered:,} "
            "redelivered"
        )
        return "\n".join([counts, *(f"  {fault}" for fault in self.faults)])


class OrderChecker:
    """Checks that the messages of each key are handled in the order of their numbers.

    The publisher of the test numbers the messages of each key: `first`, and then counting up. The handler passes each message to `handled`
    at the moment of its effect. Threads and tasks may share a checker. If the handlers are in several processes, let them write down what
    they handle in one place, such as a table, and pass the messages to the checker afterwards, in that order.

    Args:
        first: the number of each key's first message.

    Example::

        checker = OrderChecker()

        async def handle(message):
            checker.handled(message.routing_key, int(message.body), redelivered=message.redelivered)

        ...
        report = checker.report(sent={"customer-1": 500, "customer-2": 500})
        assert report.ok, report
    """

    def __init__(self, *, first: int = 0) -> None:
        self._first = first
        self._lock = Lock()
        self._keys: dict[str, _KeyHistory] = {}
        self._faults = _Faults()
        self._messages = self._repeated = self._redelivered = 0

    def handled(self, key: str, number: int, *, redelivered: bool = False) -> None:
        """Note that a message was handled.

        Args:
            key: the key, within which order matters; mostly the routing key.
            number: the message's number among those of its key.
            redelivered: whether the broker marked it as redelivered.

        Raises:
            InputError: the number is not an int, or the key is not text.
        """
        if not isinstance(key, str):
            raise InputError(f"the key {key!r:.60} is of type {type(key).__name__}: pass text")
        if not is_whole(number):
            raise InputError(f"the number of a message of key {key!r} is {number!r:.60}: pass an int")
        with self._lock:
            self._messages += 1
            history = self._keys.setdefault(key, _KeyHistory(self._first))
            if number < self._first:
                self._faults.add("unexpected", key, number, f"numbers begin at {self._first:,}")
                return
            if skipped := history.broken_off_by(number):
                self._faults.add("stale", key, history.last, _stale(skipped))
            is_repeat = history.has(number)
            if is_repeat:
                self._repeated += 1
                self._redelivered += redelivered
            elif number < history.highest:
                self._faults.add("out of order", key, number, f"{history.highest:,} was handled before it")
            history.add(number, is_repeat=is_repeat)

    def report(self, sent: Mapping[str, int] | None = None) -> OrderReport:
        """Return what was found so far.

        Args:
            sent: how many messages were sent of each key. With it the report contains messages that are lost at the end of a key, and of
                messages that were not sent. None where that is not known.

        Raises:
            InputError: `sent` has no whole number from 0 for a key.
        """
        if sent is not None:
            _check_sent(sent)
        with self._lock:
            faults = deepcopy(self._faults)
            for key in sorted({*self._keys, *(sent or ())}):
                history = self._keys.get(key) or _KeyHistory(self._first)
                if skipped := history.broken_off_by(None):
                    faults.add("stale", key, history.last, _stale(skipped))
                end = history.highest + 1 if sent is None else self._first + sent.get(key, 0)
                faults.add_many("lost", key, history.missing(end), "it was never handled")
                faults.add_many("unexpected", key, history.beyond(end), "it was not sent")
            return OrderReport(
                messages=self._messages,
                keys=len(self._keys),
                out_of_order=faults.counts["out of order"],
                stale=faults.counts["stale"],
                lost=faults.counts["lost"],
                repeated=self._repeated,
                redelivered=self._redelivered,
                unexpected=faults.counts["unexpected"],
                faults=tuple(faults.samples),
            )


def _check_sent(sent: object) -> None:
    if not isinstance(sent, Mapping):
        raise InputError(f"sent is {sent!r:.60}: pass a mapping of keys to numbers of messages")
    for key, count in sent.items():
        if not is_whole(count, 0):
            raise InputError(f"sent has {count!r:.60} for key {key!r:.60}: pass a whole number from 0")


class _KeyHistory:
    """Which numbers of a key were handled, and which was the last."""

    def __init__(self, first: int) -> None:
        self.highest = self.last = first - 1
        self._next = first  # all below it were handled
        self._apart: set[int] = set()  # those above it
        self._in_rerun = False  # the last message was a repeat

    def has(self, number: int) -> bool:
        return number < self._next or number in self._apart

    def add(self, number: int, *, is_repeat: bool) -> None:
        self.last = number
        self._in_rerun = is_repeat
        self.highest = max(self.highest, number)
        if number >= self._next:
            self._apart.add(number)
        while self._next in self._apart:
            self._apart.remove(self._next)
            self._next += 1

    def broken_off_by(self, number: int | None) -> int:
        """Return how many handled numbers a run of repeats leaves out if this number is next; None is the end."""
        if not self._in_rerun:
            return 0
        end = self.highest + 1 if number is None else number
        apart = sum(self.last < handled < end for handled in self._apart)
        return max(0, min(self._next, end) - self.last - 1) + apart

    def missing(self, end: int) -> tuple[int, Iterator[int]]:
        """Return how many numbers below `end` were not handled, and these."""
        inside = sum(number < end for number in self._apart)
        numbers = (number for number in range(self._next, end) if number not in self._apart)
        return max(0, end - self._next - inside), numbers

    def beyond(self, end: int) -> tuple[int, Iterator[int]]:
        """Return how many numbers from `end` on were handled, and these."""
        apart = sorted(number for number in self._apart if number >= end)
        numbers = chain(range(end, self._next), apart)
        return max(0, self._next - end) + len(apart), numbers


class _Faults:
    """Faults, counted by kind, with the first few of each kind."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.samples: list[OrderFault] = []

    def add(self, kind: str, key: str, number: int, says: str) -> None:
        self.add_many(kind, key, (1, iter((number,))), says)

    def add_many(self, kind: str, key: str, faults: tuple[int, Iterator[int]], says: str) -> None:
        count, numbers = faults
        room = max(0, _SAMPLES - self.counts[kind])
        self.samples += [OrderFault(kind, key, number, says) for number in islice(numbers, room)]
        self.counts[kind] += count


def _stale(skipped: int) -> str:
    return (
        f"it was handled again, and the {skipped:,} after it did not"
        if skipped > 1
        else "it was handled again, and the one after it did not"
    )


# -- A check that a real broker routes the keys of a topology as predicted
# Only the exchanges that hash are applied in a vhost of their own, with the queues of their rings. Routing does not depend on the type, the
# arguments and the policies of a queue, so each is a classic queue without arguments, which keeps every message. Another exchange in a ring is
# replaced by a fanout with one queue, which gets every message of its buckets.


_MOST_SHOWN = 20


def assert_parity(topology: Topology, keys: Iterable[Any], *, broker: RunningBroker | None = None) -> None:
    """Assert that a broker puts a message of each key into the predicted queue.

    The exchanges of the topology that hash are applied in a temporary vhost. A message of each key is published to each of them, and the
    contents of every queue are compared with the prediction. The queues are classic queues without arguments, because routing depends
    neither on their type nor on their arguments. Another exchange in a ring is replaced by a queue: what is behind it is not compared.

    Args:
        topology: the topology, as in `Topology.from_toml`.
        keys: routing keys, or values of the header or the property that the exchanges hash.
        broker: the broker, with a management URL; None: that of the running test, which takes `chx_broker` or `chx_vhost`.

    Raises:
        AssertionError: a message is in another queue, in several, or in none. The message has the first 20 keys of each exchange, each with
            the expected and the actual queue.
        InputError: there is no broker or no key, or that of `broker` has no management URL (without one, the test of a fixture is skipped); or no exchange of the topology hashes.
        RabbitChxError: the topology cannot be applied, or the broker does not answer.
    """
    __tracebackhide__ = True
    of_test = containers.broker_of_test
    broker = broker or of_test
    if broker is None:
        raise InputError("assert_parity has no broker: take chx_broker or chx_vhost, or pass broker=")
    values = list(keys)
    if not values:
        raise InputError("assert_parity has no keys to compare: pass some")
    wrong: list[str] = []
    with ExitStack() as stack:
        skipping = [InputError] if broker is of_test else []  # as `chx_vhost` does
        inside = containers.enter_or_give_up(stack, temporary_vhost(broker), *skipping)
        connected = stack.enter_context(Broker(inside.url, inside.management_url))
        applied, places = _plain(topology)
        connected.apply(plan(applied, connected.topology(), propose=False))
        connection = stack.enter_context(closing(PikaConnection(ConnectionSettings.from_uri(inside.url))))
        hashing = [exchange for exchange in applied.exchanges if _hashes(exchange)]
        maps = {exchange.name: applied.key_map(exchange.name, connected.release) for exchange in hashing}
        mirrors = {exchange.name: _Mirror(_hashing_of(exchange), maps[exchange.name]) for exchange in hashing}
        for exchange in hashing:
            wrong += _mismatches(connection, exchange.name, mirrors, values, places)
    if wrong:
        raise AssertionError("\n".join([f"{broker.origin} routes otherwise than predicted:", *wrong]))


class _Mirror(NamedTuple):
    """What an exchange hashes, and its map."""

    hashing: Hashing
    key_map: KeyMap


def _hashing_of(exchange: ExchangeDefinition) -> Hashing:
    return Hashing(exchange.arguments.get("hash-header"), exchange.arguments.get("hash-property"))


def _mismatches(
    connection: PikaConnection,
    exchange: str,
    mirrors: Mapping[str, _Mirror],
    values: Sequence[Any],
    places: Mapping[str, Place],
) -> list[str]:
    """Publish a message of each key; return a line for each of the first wrong ones, and one with the number of all."""
    hashing, key_map = mirrors[exchange]
    found = find_routes(connection, exchange, hashing, values, places)
    wrong = []
    for key, place, actual in zip(values, hashing.route_all(values, key_map), found, strict=True):
        predicted = _follow(exchange, mirrors, place, hashing.message(key))
        if actual != (() if predicted is None else (predicted,)):
            names = " and ".join(map(_name, actual)) or "no queue"
            wrong.append(
                f"  exchange {exchange}, key {key!r:.80}: expected {_name(predicted)}, actual {names}"
            )
    if not wrong:
        return []
    of = f" {len(wrong):,} of {len(values):,} keys of exchange {exchange}, first:"
    return [of, *wrong[:_MOST_SHOWN]]


def _name(place: Place | Refused) -> str:
    if place is None:
        return "no queue"
    return f"a refusal ({place.reason})" if isinstance(place, Refused) else str(place)


def _follow(
    exchange: str, mirrors: Mapping[str, _Mirror], place: Place | Refused, message: dict[str, Any]
) -> Place | Refused:
    """Return where a message ends that an exchange sends to a place, which may hash as well: the broker visits no exchange twice."""
    passed = {exchange}
    while isinstance(place, ExchangeRef) and place.name in mirrors:
        if place.name in passed:
            return None
        passed.add(place.name)
        hashing, key_map = mirrors[place.name]
        try:
            place = hashing.exchange(key_map).route(**message)
        except ChannelClosedError as error:
            return Refused(str(error))
    return place


def _plain(topology: Topology) -> tuple[Topology, dict[str, Place]]:
    """Return the topology to apply, and the destination that each of its queues stands for."""
    exchanges = [_without_settings(exchange) for exchange in topology.exchanges if _hashes(exchange)]
    if not exchanges:
        raise InputError(
            f"the topology has no exchange of type {HASH_EXCHANGE} or {MODULUS_EXCHANGE} with a destination: there is nothing to compare"
        )
    hashing = {exchange.name for exchange in exchanges}
    places = dict.fromkeys(place for exchange in exchanges for place in _destinations(exchange))
    others = [place.name for place in places if isinstance(place, ExchangeRef) and place.name not in hashing]
    stand_ins = {name: f"rabbit-chx.exchange.{number}" for number, name in enumerate(others)}
    stands_for: dict[str, Place] = {place: place for place in places if isinstance(place, str)}
    stands_for |= {queue: ExchangeRef(name) for name, queue in stand_ins.items()}
    return Topology(
        exchanges=(*exchanges, *(ExchangeDefinition(name, "fanout") for name in others)),
        queues=tuple(map(QueueDefinition, stands_for)),
        bindings=tuple(BindingDefinition(name, queue) for name, queue in stand_ins.items()),
    ), stands_for


def _hashes(exchange: ExchangeDefinition) -> bool:
    return exchange.type in (HASH_EXCHANGE, MODULUS_EXCHANGE) and any(True for _ in _destinations(exchange))


def _destinations(exchange: ExchangeDefinition) -> Iterable[Destination]:
    yield from (member.destination for member in exchange.ring or exchange.members or ())
    yield from exchange.queues or ()


def _without_settings(exchange: ExchangeDefinition) -> ExchangeDefinition:
    return ExchangeDefinition(
        exchange.name,
        exchange.type,
        arguments={name: exchange.arguments[name] for name in HASH_ARGUMENTS if name in exchange.arguments},
        ring=exchange.ring,
        slots=exchange.slots,
        members=exchange.members,
        queues=exchange.queues,
    )
