"""An upgrade rehearsed on brokers of our own: the same exchanges and the same messages on both releases.

A broker of each release is started, one after the other. Each hash exchange is declared on it, with a queue in place of
each destination. The messages are published and consumed, and the queue of each is compared with what the mirror says.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pika

from rabbit_chx.amqp import ConnectionSettings
from rabbit_chx.amqp.client_fields import HeaderTable
from rabbit_chx.amqp.header_table import encode_table
from rabbit_chx.analysis import Refused
from rabbit_chx.broker import Broker, DiagnosticsRing
from rabbit_chx.broker.management import Management
from rabbit_chx.broker.pika_connection import PikaConnection
from rabbit_chx.errors import ApplyError, NoBrokerError, PlanRefusedError, RabbitChxError
from rabbit_chx.routing import Destination, ExchangeRef, HashRing, Place, Release
from rabbit_chx.testing.containers import (
    image_version,
    official_image,
    require_docker,
    require_image,
    start_docker_broker,
)
from rabbit_chx.testing.local_server import installed_version, start_local_broker
from rabbit_chx.testing.running_broker import RunningBroker, in_vhost
from rabbit_chx.topology import (
    BindingDefinition,
    ExchangeDefinition,
    QueueDefinition,
    RingMember,
    Topology,
    plan,
)
from rabbit_chx.topology.objects import HASH_EXCHANGE
from rabbit_chx.topology.upgrade import bound_to, hash_exchanges, hashed_on, predict_exchange
from rabbit_chx.topology.upgrade_exchange import (
    ExchangeUpgrade,
    SampledMessage,
    SampleMovement,
    hash_arguments,
    same_rules,
)

#: What is added to the number of a message that is sent with its header in an array.
IN_ARRAYS = 1 << 28
_BROKERS_OWN = "amq."
_PATIENCE_S = 30.0
_BETWEEN_LOOKS = 200
_FLAGS = struct.Struct(">H")


@dataclass(frozen=True, slots=True)
class ProofMismatch:
    """A message, or a ring, that is not as the mirror says.

    Attributes:
        release: the release of the broker.
        key: the key of the message; None for the ring.
        predicted: what the mirror says.
        found: what the broker did.
    """

    release: Release
    key: str | None
    predicted: str
    found: str


@dataclass(frozen=True, slots=True)
class ExchangeProof:
    """What two brokers did with the messages of one exchange.

    Attributes:
        name: the exchange's name.
        published: how many messages were published, on both.
        compared: how many of the sample both routed.
        predicted: how many of these move, by the mirror.
        measured: how many of these moved.
        in_arrays: how many messages stayed that were sent with their header in an array after the upgrade; None where that
            was not tried.
        mismatches: where mirror and broker disagree.
        left_out: why it was not rehearsed; None if it was.
    """

    name: str
    published: int = 0
    compared: int = 0
    predicted: int = 0
    measured: int = 0
    in_arrays: int | None = None
    mismatches: tuple[ProofMismatch, ...] = ()
    left_out: str | None = None


@dataclass(frozen=True, slots=True)
class UpgradeProof:
    """What two brokers did, beside what the mirror says.

    Attributes:
        before: the release of the first broker.
        after: the release of the second.
        origins: where the two brokers came from.
        same_rules: whether both follow the rules of the releases that were asked for.
        exchanges: the exchanges.
    """

    before: Release
    after: Release
    origins: tuple[str, str]
    same_rules: bool
    exchanges: tuple[ExchangeProof, ...]

    @property
    def published(self) -> int:
        """How many messages were published."""
        return sum(exchange.published for exchange in self.exchanges)

    @property
    def mismatches(self) -> int:
        """How often mirror and broker disagree."""
        return sum(len(exchange.mismatches) for exchange in self.exchanges)

    @property
    def complete(self) -> bool:
        """Whether all exchanges were rehearsed, by the rules of the releases that were asked for, and none disagrees."""
        left_out = any(exchange.left_out for exchange in self.exchanges)
        return self.same_rules and not self.mismatches and not left_out


@dataclass(frozen=True, slots=True)
class Trial:
    """What one broker did with the messages of an exchange.

    Attributes:
        release: the broker's release.
        published: how many messages were published.
        places: where each came to, by its number; a message that is missing came nowhere, and did not come back.
        ring: the ring that the broker had; None where it was not read.
    """

    release: Release
    published: int
    places: Mapping[int, Place]
    ring: HashRing | None


def prove_upgrade(
    topology: Topology,
    samples: Mapping[str, Sequence[SampledMessage]],
    before: Release,
    after: Release,
    *,
    said: Callable[[str], None] = lambda _: None,
    seen: Callable[[int], None] = lambda _: None,
) -> UpgradeProof:
    """Start a broker of each release, publish the samples to both, and compare each message with the mirror.

    The brokers run one after the other, and are removed in any case, also after Ctrl-C. Each exchange is declared with what
    is bound to it, in the order of its ring, and nothing else of the topology.

    Args:
        topology: what there is.
        samples: the messages of each hash exchange, by its name.
        before: the release before.
        after: the release after.
        said: called with a line before something that takes its time.
        seen: called from time to time with the number of messages that have come.

    Raises:
        NoBrokerError: there is no broker of a release.
        RabbitChxError: a broker refuses something, or its connection ends.
    """
    topology = replace(topology, rings={})  # a fresh broker has no ghosts
    exchanges = hash_exchanges(topology)
    trials: dict[str, list[Trial]] = {exchange.name: [] for exchange in exchanges}
    upgrades: dict[str, ExchangeUpgrade] = {}
    left_out: dict[str, str] = {}
    releases: list[Release] = []
    origins: list[str] = []
    published = 0
    sources = [_source_of(release) for release in (before, after)]  # both are sought before either is started
    for asked, (where, start) in zip((before, after), sources, strict=True):
        said(f"starting RabbitMQ {asked.version}: {where}")
        broker = start()
        try:
            release = _release_of(broker, asked)
            releases.append(release)
            origins.append(broker.origin)
            for number, exchange in enumerate(exchanges):
                name = exchange.name
                if name in left_out:
                    continue
                sample = samples.get(name, ())
                upgrade = predict_exchange(topology, exchange, sample, releases[0], release)
                if upgrade.sample is None:
                    left_out[name] = "no rule says where its messages go"
                    continue
                upgrades[name] = upgrade
                messages = _to_publish(upgrade, upgrade.sample)
                said(f"RabbitMQ {release.version}: publishing {len(messages):,} messages to {name}")
                stand_in = stand_in_for(topology, exchange)
                inside = _with_vhost(broker, f"rehearsal-{number}")
                try:
                    ring = _declare(inside, stand_in)
                except PlanRefusedError as refusal:
                    left_out[name] = f"RabbitMQ {release.version} refuses it: {refusal}"
                    continue
                places = _places_of(inside.url, stand_in, messages, seen, published)
                published += len(messages)
                trials[name].append(Trial(release, len(messages), places, ring))
        finally:
            broker.stop()
    proofs = tuple(
        ExchangeProof(name, left_out=left_out[name])
        if name in left_out
        else exchange_proof(upgrades[name], *both)
        for name, both in trials.items()
    )
    alike = same_rules(before, releases[0]) and same_rules(after, releases[1])
    return UpgradeProof(releases[0], releases[1], (origins[0], origins[1]), alike, proofs)


# -- a broker of a release


def _source_of(release: Release) -> tuple[str, Callable[[], RunningBroker]]:
    """Return where a broker of a release comes from, in words, and what starts it. An image may be pulled now.

    Another patch of the same series is taken where this patch is missing.

    Raises:
        NoBrokerError: there is none; the message says what was tried.
    """
    major, minor, _ = release.numbers
    series = f"{major}.{minor}"
    tag = release.version if image_version(release.version) else series
    in_docker = (f"the image {official_image(tag)}", partial(start_docker_broker, tag))
    if image_version(tag):
        return in_docker
    failures = []
    try:
        version = installed_version()
        if version.startswith(f"{series}."):
            return f"the rabbitmq-server of this machine, {version}", start_local_broker
        failures.append(f"the rabbitmq-server of this machine is {version}")
    except RabbitChxError as error:
        failures.append(f"this machine: {error}")
    try:
        require_docker()
        require_image(official_image(tag))
    except RabbitChxError as error:
        failures.append(f"Docker: {error}")
        raise NoBrokerError(f"there is no broker of RabbitMQ {series}: {'; '.join(failures)}") from None
    return in_docker


def _release_of(broker: RunningBroker, asked: Release) -> Release:
    with Broker(broker.url, broker.management_url) as live:
        release = live.release
    if release.store != asked.store:
        raise NoBrokerError(f"{broker.origin} has the store {release.store}, and {asked} was asked for")
    return release


def _with_vhost(broker: RunningBroker, vhost: str) -> RunningBroker:
    """Return the broker with a new vhost in its URL. It goes with the broker."""
    assert broker.management_url is not None  # noqa: S101  # our brokers have it
    Management(broker.management_url).request("PUT", "vhosts", vhost)
    return in_vhost(broker, vhost)


# -- what is declared on it


@dataclass(frozen=True, slots=True)
class StandIn:
    """An exchange as it is rehearsed.

    Attributes:
        topology: the exchange and its destinations. Queues are classic and durable. A destination exchange is a fanout
            with one queue behind it.
        exchange: the exchange's name in it.
        places: the destination that each queue represents, by the queue's name.
        renamed: whether a destination has another name, because its own may not be declared.
    """

    topology: Topology
    exchange: str
    places: Mapping[str, Destination]
    renamed: bool


def stand_in_for(topology: Topology, exchange: ExchangeDefinition) -> StandIn:
    """Return what is declared to rehearse an exchange: the exchange alone, and a queue in place of each destination.

    The names stay, because the order of an ``x-modulus-hash`` exchange depends on them.
    """
    bindings = bound_to(topology, exchange)
    destinations = dict.fromkeys(destination for destination, _ in bindings)
    names = {destination for destination in destinations if isinstance(destination, str)}
    queues: dict[str, Destination] = {}
    behind_fanouts: dict[str, str] = {}
    for destination in destinations:
        if isinstance(destination, ExchangeRef):
            queue = f"behind {destination.name}"
            while queue in names:
                queue += "'"
            names.add(queue)
            behind_fanouts[_declarable(destination.name)] = queue
        else:
            queue = _declarable(destination)
        queues[queue] = destination
    name = _declarable(exchange.name)
    on = hashed_on(exchange)
    members = tuple(RingMember(_stand_in(destination), key) for destination, key in bindings)
    is_ring = exchange.type == HASH_EXCHANGE
    hashing = ExchangeDefinition(
        name,
        exchange.type,
        arguments={} if on is None else hash_arguments(on),
        ring=members if is_ring else None,
    )
    fanouts = (ExchangeDefinition(fanout, "fanout") for fanout in behind_fanouts)
    to_queues = (BindingDefinition(fanout, queue) for fanout, queue in behind_fanouts.items())
    without_ring = () if is_ring else members
    to_members = (BindingDefinition(name, member.destination, member.key) for member in without_ring)
    return StandIn(
        Topology((hashing, *fanouts), tuple(map(QueueDefinition, queues)), (*to_queues, *to_members)),
        name,
        queues,
        any(_stand_in(destination) != destination for destination in destinations),
    )


def _stand_in(destination: Destination) -> Destination:
    if isinstance(destination, ExchangeRef):
        return ExchangeRef(_declarable(destination.name))
    return _declarable(destination)


def _declarable(name: str) -> str:
    """Return a name that may be declared, of nearly the same place in an order: those of the broker may not."""
    return f"amq-{name.removeprefix(_BROKERS_OWN)}" if name.startswith(_BROKERS_OWN) else name


def _declare(broker: RunningBroker, stand_in: StandIn) -> HashRing | None:
    """Declare an exchange, and return the ring that it has then; None where it has none, or other names."""
    with Broker(broker.url, broker.management_url) as fresh:  # there is no ring yet that had to be read
        wanted = plan(stand_in.topology, fresh.topology())
        with suppress(ApplyError):  # the ring is read afterwards, and compared with the mirror
            fresh.apply(wanted)
    if stand_in.topology.exchanges[0].type != HASH_EXCHANGE or stand_in.renamed:
        return None
    with Broker(broker.url, ring_source=DiagnosticsRing(broker.ring_via or ())) as live:
        return live.ring(stand_in.exchange)


# -- messages


def _to_publish(upgrade: ExchangeUpgrade, sample: SampleMovement) -> dict[int, SampledMessage]:
    """Return messages by their numbers: those that the broker takes, and all with their header in an array if that helps."""
    numbered = enumerate(zip(sample.messages, sample.after, strict=True))
    messages = {number: message for number, (message, place) in numbered if not isinstance(place, Refused)}
    if upgrade.kept_in_array is not None and upgrade.hashed_on is not None:
        header = upgrade.hashed_on.name
        messages |= {
            number + IN_ARRAYS: message.with_array(header) for number, message in enumerate(sample.messages)
        }
    return messages


def _places_of(
    url: str,
    stand_in: StandIn,
    messages: Mapping[int, SampledMessage],
    seen: Callable[[int], None],
    seen_before: int,
) -> dict[int, Place]:
    """Publish messages, consume them all, and return where each message came to; None where it came back as unroutable.

    A message that comes to no queue and does not come back is not in the answer, 30 seconds after the last that came.
    `seen` is called from time to time with the number of messages that have come, those of before included.
    """
    places: dict[int, Place] = {}

    def receive(place: Place) -> Callable[..., None]:
        return lambda _channel, _method, _properties, body: places.__setitem__(int.from_bytes(body), place)

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
                seen(seen_before + len(places))
        come, deadline = len(places), time.monotonic() + _PATIENCE_S
        while len(places) < len(messages) and time.monotonic() < deadline:
            connection.process(0.2)
            seen(seen_before + len(places))
            if len(places) > come:
                come, deadline = len(places), time.monotonic() + _PATIENCE_S
    return places


class _WithTable(pika.BasicProperties):
    """Properties whose header table is encoded here: pika sends neither all types of fields nor a name twice."""

    def __init__(self, table: HeaderTable, **properties: Any) -> None:  # noqa: ANN401
        super().__init__(**properties)
        self._table = table

    def encode(self) -> list[bytes]:
        """Return the pieces of the properties: first the flags, then the table, which is before all that is hashed."""
        pieces: list[bytes] = super().encode()
        (flags,) = _FLAGS.unpack(pieces[0])
        return [_FLAGS.pack(flags | self.FLAG_HEADERS), encode_table(self._table), *pieces[1:]]


def wire_properties(message: SampledMessage) -> pika.BasicProperties:
    """Return what pika sends for the headers and properties of a message, each with its type of the wire."""
    if not message.headers:
        return pika.BasicProperties(**message.properties)
    return _WithTable(message.headers, **message.properties)


# -- what the brokers did, beside what the mirror says


def exchange_proof(upgrade: ExchangeUpgrade, before: Trial, after: Trial) -> ExchangeProof:
    """Return what two brokers did with the messages of one exchange, beside the prediction for their releases."""
    sample, rings = upgrade.sample, upgrade.rings
    assert sample is not None  # noqa: S101  # what no rule decides is not rehearsed
    mismatches: list[ProofMismatch] = []
    if rings is not None:
        mismatches += _other_ring(before, rings.before)
        mismatches += _other_ring(after, rings.after)
    mismatches += _other_places(before, sample.messages, sample.before)
    mismatches += _other_places(after, sample.messages, sample.after)
    compared = predicted = measured = stayed = 0
    for number, (place_before, place_after) in enumerate(zip(sample.before, sample.after, strict=True)):
        if number in before.places:
            stayed += after.places.get(number + IN_ARRAYS, ...) == before.places[number]
        if isinstance(place_before, Refused) or isinstance(place_after, Refused):
            continue
        compared += 1
        predicted += place_before != place_after
        measured += before.places.get(number, ...) != after.places.get(number, ...)
    return ExchangeProof(
        upgrade.name,
        before.published + after.published,
        compared,
        predicted,
        measured,
        stayed if any(number >= IN_ARRAYS for number in after.places) else None,
        tuple(mismatches),
    )


def _other_ring(trial: Trial, ring: HashRing) -> Iterator[ProofMismatch]:
    if trial.ring is not None and trial.ring.buckets != ring.buckets:
        yield ProofMismatch(trial.release, None, repr(ring), repr(trial.ring))


def _other_places(
    trial: Trial, messages: Sequence[SampledMessage], predicted: Sequence[Place | Refused]
) -> Iterator[ProofMismatch]:
    for number, (message, place) in enumerate(zip(messages, predicted, strict=True)):
        if isinstance(place, Refused):
            continue
        seen = trial.places.get(number, ...)
        if seen is ... or seen != place:
            yield ProofMismatch(trial.release, message.key, _in_words(place), _in_words(seen))


def _in_words(place: object) -> str:
    if place is ...:
        return "(neither in a queue nor returned)"
    return "(nowhere)" if place is None else str(place)
