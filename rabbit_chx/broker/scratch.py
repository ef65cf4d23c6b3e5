"""A scratch vhost that is deleted at the end of a block, a copy of a ring in it, and the queues that messages reach there.

Names do not affect the routing of a ring. So its copy has other names: one queue for each run of buckets.
"""

from __future__ import annotations

import secrets
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import groupby, islice
from typing import Any

import pika

from rabbit_chx import errors
from rabbit_chx.amqp import AmqpField
from rabbit_chx.analysis.findings import CHECK_KINDS, VERIFY_KINDS, Finding, Severity, place_text
from rabbit_chx.analysis.key_routing import Hashing, Refused
from rabbit_chx.analysis.reports import SourceFields, draw_map, outcome_text, ring_text
from rabbit_chx.broker.exchange_report import exchange_facts
from rabbit_chx.broker.live_broker import Operation
from rabbit_chx.broker.management import Management
from rabbit_chx.broker.pika_connection import PikaConnection
from rabbit_chx.erlang.hashing import Term
from rabbit_chx.planning.refusals import know_rings, verify_by_trace
from rabbit_chx.records.live_rings import WaysToLearn
from rabbit_chx.rendering.document import Block, Document, Facts, Table
from rabbit_chx.result_fields import shown
from rabbit_chx.routing import Destination, ExchangeRef, HashRing, Release
from rabbit_chx.routing.bindings import MAX_BINDING_WEIGHT, ORIGINS, GivenBindings, Place, ascending_bindings
from rabbit_chx.routing.key_map import KeyMap
from rabbit_chx.routing.observations import Observation
from rabbit_chx.text import listed, percent, plural
from rabbit_chx.topology.objects import (
    HASH_EXCHANGE,
    MODULUS_EXCHANGE,
    BindingDefinition,
    ExchangeDefinition,
    QueueDefinition,
)

# -- Observed keys and queues of an exchange: the ring that they determine, and the contradictions of a ring by them

#: Of fewer messages the share of one key says little.
_FEWEST_MESSAGES = 100


def observed_ring(
    bindings: GivenBindings, observations: Iterable[Observation], release: Release, hashing: Hashing
) -> HashRing:
    """Return the ring that observations determine, as :meth:`HashRing.from_observations` does.

    Args:
        bindings: the bindings of the exchange, in any order.
        observations: keys and their queues; a key is the routing key, or the value of the header or the property.
        release: the release of the broker.
        hashing: what the exchange hashes.

    Raises:
        InputError: the observations do not determine a ring.
    """
    is_text = (
        hashing.hash_header is None and hashing.hash_property != "timestamp"
    )  # shown as it is in an error
    terms = [each if is_text else each._replace(key=hashing.term(each.key, release)) for each in observations]
    return HashRing.from_observations(bindings, terms, release)


def as_observations(
    traced: Iterable[tuple[Any, Sequence[str]]], places: Mapping[str, Destination], *, has_alternate: bool
) -> list[Observation]:
    """Return what a broker did with messages as observations, each distinct one once; without a queue its `queue` is None.

    Messages without the hashed header or property are left out.

    Args:
        traced: the hashed value and the queues of each message.
        places: the destination that leads to each queue.
        has_alternate: True if an alternate exchange gets unroutable messages, so that other queues show that the message was unroutable.
    """
    found: dict[tuple[object, ...], Observation] = {}
    for value, queues in traced:
        reached = {places[queue] for queue in queues if queue in places}
        if value is None or len(reached) > 1:
            continue
        place = next(iter(reached), None if has_alternate or not queues else queues[0])
        key = type(value), value, place
        seen = found.setdefault(key, Observation(value, place, messages=0, is_traced=True))
        found[key] = seen._replace(messages=seen.messages + 1)
    return list(found.values())


def comparable(
    key_map: KeyMap, observations: Sequence[Observation], hashing: Hashing | None = None
) -> list[tuple[Observation, Place | Refused]]:
    """Return the observations that a ring can contradict, each with the destination of the ring.

    A key that the ring sends to an exchange is left out, because any queue behind it may have received it.

    Args:
        key_map: the ring, or the slot table if queues behind slots were observed.
        observations: as those of `observed_ring`.
        hashing: what the exchange hashes; the routing key if None.
    """
    places = (hashing or Hashing()).route_all([each.key for each in observations], key_map)
    return [
        (each, place)
        for each, place in zip(observations, places, strict=True)
        if not isinstance(place, ExchangeRef) or isinstance(each.queue, ExchangeRef)
    ]


def contradictions(
    exchange: str, key_map: KeyMap, compared: Sequence[tuple[Observation, Place | Refused]]
) -> str:
    """Return how compared observations contradict a ring, in words; empty if none does. One such key shows that the ring is not the broker's.

    Raises:
        NotDeterminedError: nothing was compared.
    """
    if not compared:
        raise errors.NotDeterminedError(
            f"no key of the exchange {exchange!r} was compared: its ring sends them to exchanges, whose queues it does not show; observe keys "
            "of its queues",
            exchange=exchange,
        )
    found = [(each, place) for each, place in compared if place != each.queue]
    if not found:
        return ""
    observation, predicted = found[0]
    reached = "nowhere" if predicted is None or isinstance(predicted, Refused) else f"to {predicted}"
    return (
        f"{observation}, and the ring sends it {reached}; {len(found):,} of {plural(len(compared), 'key')} {'contradicts' if len(found) == 1 else 'contradict'} the ring, "
        f"{ORIGINS[key_map.provenance]}: which queue a key reaches is not determined"
    )


def few_keys_finding(exchange: str, observed: Iterable[Observation], members: int) -> Finding | None:
    """Return a finding if most of the observed messages have one key, or fewer keys than the ring has members.

    Their queues get most messages, whatever the ring.
    """
    counts: Counter[Term] = Counter()
    for each in observed:
        counts[each.key] += each.messages
    total = counts.total()
    if total < _FEWEST_MESSAGES:
        return None
    heaviest = counts.most_common(max(members - 1, 1))
    most = next((n for n in range(1, len(heaviest) + 1) if _sum(heaviest[:n]) > total / 2), None)
    if most is None:
        return None
    share = _sum(heaviest[:most]) / total
    about = f"{percent(share)} of {total:,} observed messages"
    fix = "publish with keys that differ, or hash a header or a property that does: no ring divides the messages of one key"
    if most == 1:
        message = f"the key {heaviest[0][0]!r:.80} has {about}, and its queue gets all of them"
        return Finding("one-key", message, fix, exchange=exchange, share=share)
    keys = listed([f"{key!r:.80}" for key, _ in heaviest[:most]])
    message = f"{most:,} keys have {about}, and their queues get all of them: {keys}"
    return Finding("few-keys", message, fix, exchange=exchange, share=share)


def _sum(counts: Iterable[tuple[Term, int]]) -> int:
    return sum(count for _, count in counts)


_SIGNALS = tuple(
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)
)  # Windows has no SIGHUP
_REMOVAL_TRIES = 5
_REMOVAL_PAUSE_S = 0.5
_SERVER_ERROR = 500


@contextmanager
def scratch_vhost(management: Management, user: str | None = None) -> Iterator[str]:
    """Create a vhost for a block; it is deleted with all its objects, also if the block is interrupted.

    Args:
        management: the broker's HTTP API, with a user who may create vhosts.
        user: another user, who gets all permissions in the vhost; None: no other user.

    Yields:
        The name of the vhost.

    Raises:
        AccessRefusedError: the user may not create vhosts.
        BrokerRefusedError: the broker refuses the vhost or the permissions, or its deletion.
        UnreachableError: the address does not answer. An error of the block is kept, and has the failed deletion as a note.
    """
    try:
        name = _create(management)
    except errors.BrokerRefusedError as error:
        if "no_such_vhost" not in str(error):
            raise
        name = _create(management)  # a node of a cluster was to start the first one before it had seen it
    try:
        if user is not None:
            everything = dict.fromkeys(("configure", "write", "read"), ".*")
            management.request("PUT", "permissions", name, user, body=everything)
        yield name
    except BaseException as error:
        try:
            _remove(management, name, may_still_appear=False)
        except errors.RabbitChxError as failed:
            error.add_note(str(failed))
        raise
    _remove(management, name, may_still_appear=False)


def _create(management: Management) -> str:
    name = f"rabbit_chx-{secrets.token_hex(4)}"
    try:
        management.request("PUT", "vhosts", name)
    except BaseException as error:
        refused = (
            isinstance(error, errors.BrokerRefusedError)
            and (error.reply_code or _SERVER_ERROR) < _SERVER_ERROR
        )
        if not refused:
            _remove(management, name, may_still_appear=True)
        raise
    return name


def _remove(management: Management, name: str, *, may_still_appear: bool) -> None:
    try:
        _try_to_remove(management, name, may_still_appear=may_still_appear)
    except KeyboardInterrupt:  # the first signal arrives while the vhost is deleted
        _try_to_remove(management, name, may_still_appear=may_still_appear)
        raise


def _try_to_remove(management: Management, name: str, *, may_still_appear: bool) -> None:
    """Delete the vhost, with retries: a large vhost takes time, and a request may have been interrupted."""
    for left in reversed(range(_REMOVAL_TRIES)):
        try:
            management.request("DELETE", "vhosts", name)
        except errors.NotFoundError:
            if not may_still_appear:
                return
        except errors.RabbitChxError as error:
            if not left:
                kind = (
                    errors.UnreachableError
                    if isinstance(error, errors.UnreachableError)
                    else errors.BrokerRefusedError
                )
                raise kind(
                    f"the temporary vhost {name!r} {'may be' if may_still_appear else 'is'} left ({error}): run rabbitmqctl delete_vhost {name}"
                ) from error
        else:
            return
        time.sleep(_REMOVAL_PAUSE_S)


#: The exchange of a copy.
COPY = "rabbit-chx.copy"
_DELIVERY_TIMEOUT_S: Any = 30.0  # pika's stubs know whole seconds only
_NUMBER_BYTES = 4
#: The messages that are published before the queues are read.
_AT_ONCE = 5_000


def declare_copy(connection: PikaConnection, ring: KeyMap, arguments: Mapping[str, str]) -> dict[str, Place]:
    """Declare a copy of a ring, which is deleted with its vhost, and return the destination that each queue stands for; None for a hole.

    The copy has the buckets that routing counts; with holes, routing never draws the last bucket numbers.
    """
    if ring.hashing.exchange_type == MODULUS_EXCHANGE:
        return _declare_modulus_copy(connection, ring.destinations)
    exchange = ExchangeDefinition(COPY, HASH_EXCHANGE, durable=False, arguments=arguments)
    connection.perform(Operation("declare", exchange))
    places: dict[str, Place] = {}
    for place, run in groupby(ring.buckets[: ring.bucket_count]):
        size = len(list(run))
        for start in range(0, size, MAX_BINDING_WEIGHT):
            queue = f"run-{len(places)}"
            places[queue] = place
            destination = ExchangeRef(queue) if isinstance(place, ExchangeRef) else queue
            _add_to_copy(connection, queue, destination, str(min(MAX_BINDING_WEIGHT, size - start)))
    return places


def _declare_modulus_copy(connection: PikaConnection, places: Iterable[Destination]) -> dict[str, Place]:
    """Declare an ``x-modulus-hash`` exchange with destinations of these names, as `declare_copy` does.

    Names determine the order from 4.3 on, and binding keys before, so the keys ascend.
    """
    connection.perform(Operation("declare", ExchangeDefinition(COPY, MODULUS_EXCHANGE, durable=False)))
    bound = list(ascending_bindings(places))
    for place, key in bound:
        _add_to_copy(connection, str(place), place, key)
    return {str(place): place for place, _ in bound}


def _add_to_copy(connection: PikaConnection, queue: str, destination: Destination, key: str) -> None:
    connection.perform(Operation("declare", QueueDefinition(queue)))
    if isinstance(destination, ExchangeRef):
        fanout = ExchangeDefinition(destination.name, "fanout", durable=False)
        connection.perform(Operation("declare", fanout))
        connection.perform(Operation("bind", BindingDefinition(destination.name, queue)))
    connection.perform(Operation("bind", BindingDefinition(COPY, destination, key)))


def find_routes(
    connection: PikaConnection,
    exchange: str,
    hashing: Hashing,
    values: Sequence[Any],
    places: Mapping[str, Place],
    *,
    seen: Callable[[int], None] = lambda _: None,
) -> list[tuple[Place, ...]]:
    """Publish a message for each value, and return the destinations at which it is found; none for one that is unroutable or in a hole.

    Args:
        connection: a connection to the vhost.
        exchange: the exchange to which the messages are published.
        hashing: what the exchange hashes.
        values: routing keys, or values of the header or the property that the exchange hashes.
        places: the destination that each classic queue stands for; None for a hole.
        seen: called from time to time with the number of messages that were found so far.

    Raises:
        BrokerTimeoutError: a queue has a message that it does not deliver within 30 s.
        RabbitChxError: the broker closes the channel or the connection.
    """
    found: list[tuple[Place, ...]] = [()] * len(values)
    arrived = 0
    with connection.channel() as channel:
        channel.tx_select()
        for start in range(0, len(values), _AT_ONCE):
            for number, value in enumerate(values[start : start + _AT_ONCE], start):
                key, properties = _message(hashing, value)
                channel.basic_publish(exchange, key, number.to_bytes(_NUMBER_BYTES), properties)
            channel.tx_commit()  # a queue may answer a count before it handles earlier messages, but a committed one is there
            connection.process(0)
            for queue, place in places.items():
                for body in _take_all(channel, queue):
                    found[int.from_bytes(body)] += () if place is None else (place,)
                    arrived += 1
                seen(arrived)
    return found


def _message(hashing: Hashing, value: Any) -> tuple[str, pika.BasicProperties | None]:
    if hashing.hash_header is not None:
        return "", pika.BasicProperties(headers={hashing.hash_header: value})
    if hashing.hash_property is not None:
        return "", pika.BasicProperties(**{hashing.hash_property: value})
    return value, None


def _take_all(channel: Any, queue: str) -> Iterator[bytes]:
    """Take all messages out of a classic queue while nothing is published."""
    count = channel.queue_declare(queue, passive=True).method.message_count
    if not count:
        return
    coming = channel.consume(queue, auto_ack=True, inactivity_timeout=_DELIVERY_TIMEOUT_S)
    for method, _properties, body in islice(coming, count):
        if method is None:
            raise errors.BrokerTimeoutError(
                f"queue {queue!r} does not deliver its messages within {_DELIVERY_TIMEOUT_S:g} s: look at the broker's log and alarms",
                queue=queue,
            )
        yield body
    channel.cancel()


@contextmanager
def unwound_by_signals() -> Iterator[None]:
    """Let SIGTERM and SIGHUP end the block as Ctrl-C does; ignore further signals while it ends."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(*_: object) -> None:
        for number in _SIGNALS:
            signal.signal(number, signal.SIG_IGN)
        raise KeyboardInterrupt

    before = {number: signal.signal(number, end) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


_MOST_SHOWN = 20
_COPIED = "the copy has the bindings in the order of their list, so this verifies the rules of the broker"


@dataclass(frozen=True, slots=True)
class ComparedPlace:
    """The number of messages that reached a destination, and of those that the mirror predicted there."""

    destination: Place = field(metadata=shown("destination", place_text))
    messages: int = field(metadata=shown("messages", number=True))
    predicted: int = field(metadata=shown("predicted", number=True))


@dataclass(frozen=True, slots=True)
class DifferentKey:
    """A key whose message was found at another destination than predicted."""

    key: str = field(metadata=shown("key"))
    predicted: Place | Refused = field(metadata=shown("predicted", outcome_text))
    found: Place = field(metadata=shown("found", place_text))


@dataclass(frozen=True, slots=True)
class FrequentKey:
    """The most frequent key of a sample.

    Attributes:
        share: Its share of the messages.
    """

    key: str
    share: float


@dataclass(frozen=True, slots=True)
class VerifyFinding:
    """A fault of the ring.

    Attributes:
        share: The share of the keys that are affected.
    """

    kind: str = field(metadata=shown(values={**CHECK_KINDS, **VERIFY_KINDS}))
    severity: Severity
    destination: Place
    share: float | None
    message: str
    fix: str


@dataclass(frozen=True, slots=True)
class VerifyResult:
    """A comparison of the predictions with a broker.

    Attributes:
        determined: False if something depends on an order or a hashed value that is not known; it is null.
        compared: The number of messages that were compared.
        mismatches: The number of those with another destination; null if none were compared.
    """

    exchange: str
    vhost: str
    arguments: Mapping[str, str]
    source: SourceFields = field(metadata=shown(group=SourceFields))
    determined: bool
    findings: Sequence[VerifyFinding]
    compared: int
    mismatches: int | None
    heaviest_key: FrequentKey | None
    destinations: Sequence[ComparedPlace]
    examples: Sequence[DifferentKey]


@dataclass(frozen=True, slots=True)
class ScratchReport:
    """A comparison with a scratch copy, or with evidence.

    Attributes:
        exchange: the name of the exchange.
        arguments: its arguments that determine the hashed value.
        findings: the faults of the ring.
        found: the number of messages that reached each destination.
        predicted: the number of messages that the mirror predicted for each destination.
        differences: keys of messages with another destination, the predicted one, and the one found.
        heaviest: the most frequent key of the sample and its share of the messages, 0 to 1, which have one destination, whatever the ring; None if no key occurs twice.
        mismatches: the number of messages with another destination.
        by: what else than a copy showed the destinations, in words.
        ways_to_learn: those of the user, if the order of the ring is not known.
    """

    exchange: str
    vhost: str
    arguments: Mapping[str, str]
    ring: KeyMap
    findings: Sequence[Finding]
    found: Mapping[Place, int] = field(default_factory=dict)
    predicted: Mapping[Place, int] = field(default_factory=dict)
    differences: Sequence[tuple[str, Place | Refused, Place]] = ()
    heaviest: tuple[str, float] | None = None
    mismatches: int = 0
    by: str = ""
    ways_to_learn: WaysToLearn = field(default_factory=WaysToLearn)

    def with_messages(
        self,
        keys: Sequence[str],
        predicted: Sequence[Place | Refused],
        found: Sequence[tuple[Place, ...]],
    ) -> ScratchReport:
        """Return the report with a comparison: the predicted destination of each key, and those at which its message was found."""
        differences = [
            (key, place, next((each for each in places if each != place), None))
            for key, place, places in zip(keys, predicted, found, strict=True)
            if places != (() if place is None else (place,))
        ]
        return replace(
            self,
            found=Counter(place for places in found for place in places or (None,)),
            predicted=Counter(place for place in predicted if not isinstance(place, Refused)),
            differences=differences,
            heaviest=_heaviest_key(Counter(keys)),
            mismatches=len(differences),
        )

    def with_evidence(self, pairs: Sequence[Observation], hashing: Hashing, fix: str) -> ScratchReport:
        """Return the report with a comparison of keys and the queues that got them.

        Args:
            pairs: the keys.
            hashing: what the exchange hashes.
            fix: what to do about a contradiction.

        Raises:
            NotDeterminedError: no key can be compared.
        """
        compared = comparable(self.ring, pairs, hashing)
        found = Counter[Place]()
        predicted = Counter[Place]()
        keys = Counter[str]()
        differences = []
        mismatches = 0
        for each, place in compared:
            key = _key_text(each.key)
            found[each.queue] += each.messages
            keys[key] += each.messages
            if not isinstance(place, Refused):
                predicted[place] += each.messages
            if place != each.queue:
                differences.append((key, place, each.queue))
                mismatches += each.messages
        message = contradictions(self.exchange, self.ring, compared)
        findings = [*self.findings]
        if message:
            findings.append(Finding("contradicted", message, fix, exchange=self.exchange))
        if (few := few_keys_finding(self.exchange, pairs, len(self.ring.destinations))) is not None:
            findings.append(few)
        return replace(
            self,
            findings=findings,
            found=found,
            predicted=predicted,
            differences=differences,
            heaviest=_heaviest_key(keys),
            mismatches=mismatches,
        )

    @property
    def doubt(self) -> str | None:
        """The uncertainty of a ring; None if it was read or is recorded."""
        if self.ring.order.is_certain or not self.ring.hashing.has_order:
            return None  # where no order matters, the bindings determine the destinations
        copied = f"{_COPIED}, not the ring; " if not self.by else ""
        return copied + know_rings({self.exchange: self.ring}, self.ways_to_learn)

    def document(self) -> Document:
        """Return the compared objects, the destinations of the messages, and the differences."""
        compared = sum(self.found.values())
        destinations = []
        if not self.doubt:  # else each queue of the copy gets what its own order gives
            places = dict.fromkeys((*self.ring.buckets, *self.found))
            destinations = [
                ComparedPlace(place, self.found.get(place, 0), self.predicted.get(place, 0))
                for place in places
            ]
        result = VerifyResult(
            exchange=self.exchange,
            vhost=self.vhost,
            arguments=self.arguments,
            source=SourceFields.of(self.ring),
            determined=bool(self.found) and not self.doubt,
            findings=[
                VerifyFinding(each.kind, each.severity, each.destination, each.share, each.message, each.fix)
                for each in self.findings
            ],
            compared=compared,
            mismatches=self.mismatches if compared else None,
            heaviest_key=None if self.heaviest is None else FrequentKey(*self.heaviest),
            destinations=destinations,
            examples=[DifferentKey(*difference) for difference in self.differences[:_MOST_SHOWN]],
        )
        parts: list[Block] = [Facts(list(self._facts(compared)))]
        if destinations:
            table = Table.of(ComparedPlace, destinations)
            parts.append(replace(table, pictures=lambda: draw_map(self.ring)))
        if compared and result.examples:
            parts.append(Table.of(DifferentKey, result.examples))
        return Document("verify", parts, result)

    def _facts(self, compared: int) -> Iterator[tuple[str, str]]:
        """Yield the exchange, and what so many compared messages show."""
        if self.ring.hashing.has_order:
            yield from exchange_facts(
                self.exchange, self.vhost, self.arguments, self.ring, self.ways_to_learn
            )
        else:
            yield from (("exchange", self.exchange), ("vhost", self.vhost), ("type", ring_text(self.ring)))
        by = self.by or "a copy in a vhost of its own, now removed"
        yield "compared", f"{plural(compared, 'message')} with {by}" if compared else "nothing"
        yield "mismatches", f"{self.mismatches:,}"
        if self.heaviest:
            yield "heaviest key", _heaviest_text(*self.heaviest)
        if self.doubt:
            yield "verified", f"not the ring, whose order is unknown{'' if self.by else f': {_COPIED}'}"
        elif compared and not self.by and self.ring.provenance == "recorded":
            trace = verify_by_trace(self.exchange)
            yield (
                "verified",
                f"the rules of the broker on a copy of the recorded ring, not this ring: compare that with {trace}",
            )
        yield from (("finding", f"{finding.kind}: {finding.text}") for finding in self.findings)


def _heaviest_key(keys: Counter[str]) -> tuple[str, float] | None:
    heaviest = keys.most_common(1)
    return (heaviest[0][0], heaviest[0][1] / keys.total()) if heaviest and heaviest[0][1] > 1 else None


def _key_text(key: object) -> str:
    value = key.value if isinstance(key, AmqpField) else key
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


def _heaviest_text(key: str, share: float) -> str:
    return f"{key!r:.60}: {percent(share)} of the messages, to one destination"
