"""What an upgrade does to one hash exchange: which keys move, by which rule, and which messages of a sample."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from operator import eq
from typing import Any, Literal, TypeAlias

from rabbit_chx.amqp import AmqpField
from rabbit_chx.amqp.client_fields import HeaderTable, table_for
from rabbit_chx.analysis import Finding, Hashing, MovementMatrix, Refused, movement_matrix
from rabbit_chx.errors import ChannelClosedError, InputError, NotDeterminedError
from rabbit_chx.routing import (
    Binding,
    ConsistentHashExchange,
    Destination,
    HashedOn,
    HashRing,
    ModulusHashExchange,
    Place,
    Release,
    rules,
)
from rabbit_chx.routing.bindings import weight_of
from rabbit_chx.routing.exchange import HashExchange
from rabbit_chx.routing.release import Rule

#: ``safe``: no key moves. ``repair``: none moves, if the ring gets its order back. ``moves``: keys move by a rule.
#: ``unknown``: no rule says whether keys move.
Verdict: TypeAlias = Literal["safe", "repair", "moves", "unknown"]
_HASHES = 1 << 27
#: What an upgrade in place does to the order of a ring. An exchange without an order has ``none``.
RingOrder: TypeAlias = Literal["kept", "lost", "none"]
_RESTARTS = (rules.RESTART_SHUFFLES, rules.RESTART_EMPTIES, rules.RESTART_SORTS, rules.RESTART_KEEPS)
#: What decides the seed of a header's value.
_OF_HEADERS = (
    rules.HEADER_IS_TUPLE, rules.HEADER_IS_BARE, rules.INTEGER_IS_SEED, rules.TIMESTAMP_IS_SEED,
    rules.LIST_IS_ITS_HEAD, rules.VOID_IS_UNDEFINED, rules.FIRST_HEADER_COUNTS, rules.LAST_HEADER_COUNTS,
)  # fmt: skip


@dataclass(frozen=True, slots=True, repr=False)
class ExchangeUpgrade:
    """What an upgrade does to a hash exchange.

    Attributes:
        name: the exchange's name.
        hashed_on: what it hashes; None for an ``x-modulus-hash`` exchange, which hashes all routing keys.
        sample: where the sample goes before and after; None where no rule says that.
        rings: the ring before and after; None for an ``x-modulus-hash`` exchange.
        exact: the exact shares of keys that go from where to where; None where the two releases hash the same value
            differently, or where no rule says it.
        expected: the share of keys that is expected to move, where `exact` is None because the hashes differ: what two
            hashes that know nothing of each other give.
        kept_in_array: how many messages of the sample stay if their header is sent in an array of one element after the
            upgrade; None where that is of no use.
        findings: what else an upgrade does to the exchange: ``order`` (the ring may come back in another order),
            ``hashed-differently`` (the same header value has another hash), ``refused-message`` (the broker closes the
            connection on some messages), ``modulus-order`` (bindings are counted in another order), ``second-binding`` (a
            destination that is bound twice has other buckets), ``weight`` (a binding cannot be made again),
            ``transient-destination`` (a member does not survive the restart), ``ring-differs`` (the ring that was read is not
            what its bindings make).
    """

    name: str
    hashed_on: HashedOn | None
    sample: SampleMovement | None
    rings: UpgradedRings | None = None
    exact: MovementMatrix | None = None
    expected: float | None = None
    kept_in_array: int | None = None
    findings: tuple[Finding, ...] = ()

    @property
    def hashes(self) -> str:
        """What the exchange hashes, in words."""
        return "all routing keys" if self.hashed_on is None else str(self.hashed_on)

    @property
    def moves_by_rule(self) -> bool:
        """Whether keys move although the ring keeps its order."""
        return bool(self.expected or (self.exact and self.exact.moved) or (self.sample and self.sample.moved))

    @property
    def verdict(self) -> Verdict:
        """What becomes of the exchange's keys."""
        if self.sample is None:
            return "unknown"
        if self.moves_by_rule:
            return "moves"
        return "repair" if self.rings is not None and self.rings.order == "lost" else "safe"


def hash_upgrade(
    name: str,
    bindings: Sequence[Binding],
    live: HashRing | None,
    hashed_on: HashedOn,
    messages: Sequence[SampledMessage],
    *,
    releases: tuple[Release, Release],
) -> ExchangeUpgrade:
    """Return what an upgrade does to an ``x-consistent-hash`` exchange, without findings.

    Args:
        name: the exchange's name.
        bindings: destinations and binding keys, in the order of the ring.
        live: the ring as it was read from a broker; None where it was not.
        hashed_on: what the exchange hashes.
        messages: the sample.
        releases: the release before and the one after.
    """
    rings = upgraded_rings(bindings, live, *releases)
    arguments = hash_arguments(hashed_on)
    old, new = (ConsistentHashExchange(name, ring, arguments) for ring in (rings.before, rings.after))
    sample = SampleMovement(messages, routes_of(old, messages), routes_of(new, messages))
    if hashed_alike(hashed_on, *releases):
        return ExchangeUpgrade(
            name, hashed_on, sample, rings, exact=movement_matrix(rings.before, rings.after)
        )
    before, after = rings.before.shares(), rings.after.shares()
    stays = sum(share * after.get(place, 0.0) for place, share in before.items())
    kept_in_array = None
    if releases[0].follows(rules.HEADER_IS_TUPLE) and releases[1].follows(rules.LIST_IS_ITS_HEAD):
        in_arrays = routes_of(new, [message.with_array(hashed_on.name) for message in messages])
        kept_in_array = sum(map(eq, sample.before, in_arrays))
    several = len(before) > 1 or len(after) > 1
    return ExchangeUpgrade(
        name, hashed_on, sample, rings, expected=1 - stays if several else 0.0, kept_in_array=kept_in_array
    )


def hash_arguments(hashed_on: HashedOn) -> dict[str, str]:
    """Return the arguments of an exchange that hashes this."""
    if hashed_on.kind == "routing-key":
        return {}
    return {f"hash-{hashed_on.kind}": hashed_on.name.decode()}


def modulus_upgrade(
    name: str,
    bindings: Sequence[Binding],
    messages: Sequence[SampledMessage],
    *,
    releases: tuple[Release, Release],
) -> ExchangeUpgrade:
    """Return what an upgrade does to an ``x-modulus-hash`` exchange, without findings."""
    old, new = (ModulusHashExchange(name, bindings, release) for release in releases)
    try:
        sample = SampleMovement(messages, routes_of(old, messages), routes_of(new, messages))
    except NotDeterminedError:
        return ExchangeUpgrade(name, None, None)
    return ExchangeUpgrade(name, None, sample, exact=_modulus_matrix(old.destinations, new.destinations))


def _modulus_matrix(old: Sequence[Destination], new: Sequence[Destination]) -> MovementMatrix:
    """Return the exact movement over all 2^27 hashes. Both have the same number of bindings."""
    amounts: dict[tuple[Place, Place], float] = {}
    for remainder, pair in enumerate(zip(old, new, strict=True)):
        hashes = (_HASHES - remainder + len(old) - 1) // len(old)
        amounts[pair] = amounts.get(pair, 0.0) + hashes / _HASHES
    return MovementMatrix(tuple(dict.fromkeys(old)), tuple(dict.fromkeys(old)), amounts)


@dataclass(frozen=True, slots=True)
class MovedMessage:
    """A message of a sample that does not stay where it was.

    Attributes:
        message: the message.
        before: where it went, or that it was refused.
        after: where it goes, or that it is refused.
    """

    message: SampledMessage
    before: Place | Refused
    after: Place | Refused


@dataclass(frozen=True, slots=True, repr=False)
class SampleMovement:
    """Where the messages of a sample go before and after.

    Attributes:
        messages: the messages.
        before: where each went, or that it was refused.
        after: where each goes, or that it is refused.
    """

    messages: Sequence[SampledMessage]
    before: Sequence[Place | Refused]
    after: Sequence[Place | Refused]

    @property
    def moved(self) -> tuple[MovedMessage, ...]:
        """The messages that do not stay, in the order of the sample. Two refusals are equal."""
        return tuple(
            MovedMessage(message, before, after)
            for message, before, after in zip(self.messages, self.before, self.after, strict=True)
            if before != after and not (isinstance(before, Refused) and isinstance(after, Refused))
        )

    @property
    def matrix(self) -> MovementMatrix:
        """How many messages that both route go from where to where."""
        pairs: Counter[tuple[Place, Place]] = Counter()
        for before, after in zip(self.before, self.after, strict=True):
            if not isinstance(before, Refused) and not isinstance(after, Refused):
                pairs[before, after] += 1
        rows, columns = (dict.fromkeys(pair[side] for pair in pairs) for side in (0, 1))
        # The same order on both sides, so that what stays is on the diagonal.
        places = sorted({*rows, *columns}, key=lambda place: (place is None, str(place)))
        return MovementMatrix(
            tuple(place for place in places if place in rows),
            tuple(place for place in places if place in columns),
            {pair: pairs[pair] for pair in product(places, places) if pairs[pair]},
        )

    def refused(self, *, after: bool) -> int:
        """Return how many messages are refused on one side."""
        return sum(isinstance(place, Refused) for place in (self.after if after else self.before))


def routes_of(exchange: HashExchange, messages: Sequence[SampledMessage]) -> list[Place | Refused]:
    """Return where an exchange sends each message, or that the broker closes the connection on it.

    Raises:
        NotDeterminedError: no rule of the release decides it.
    """

    def route(message: SampledMessage) -> Place | Refused:
        try:
            return exchange.route(message.routing_key, message.headers, message.properties)
        except ChannelClosedError as error:
            return Refused(str(error))

    return list(map(route, messages))


@dataclass(frozen=True, slots=True)
class SampledMessage:
    """A message of a sample.

    Attributes:
        key: what names the message to people: its routing key, or the text of what is hashed.
        routing_key: the routing key.
        headers: the header table, with the types of the wire.
        properties: message_id, correlation_id and timestamp, where the message has them.
    """

    key: str
    routing_key: str | bytes = ""
    headers: HeaderTable = ()
    properties: Mapping[str, Any] = field(default_factory=dict, hash=False)

    @classmethod
    def with_value(cls, key: str, hashing: Hashing, value: Any) -> SampledMessage:  # noqa: ANN401
        """Return the message that has a value where an exchange looks for it.

        Args:
            key: what names the message to people.
            hashing: what the exchange hashes.
            value: the routing key, or the value of the header or the property.

        Raises:
            InputError: the client cannot send the value.
        """
        message = hashing.message(value)
        return cls(
            key,
            message.get("routing_key", ""),
            table_for(message.get("headers", {}), hashing.client),
            message.get("properties", {}),
        )

    def with_array(self, header: bytes) -> SampledMessage:
        """Return the message with the value of a header in an array of one element."""
        headers = tuple(
            (name, AmqpField("array", [value]) if name == header else value) for name, value in self.headers
        )
        return replace(self, headers=headers)


@dataclass(frozen=True, slots=True)
class UpgradedRings:
    """The ring of an exchange before and after an upgrade.

    Attributes:
        before: the ring on the release before.
        after: the ring on the release after, with its bindings in the same order.
        order: what an upgrade in place does to that order.
        restart: the rule of full restarts that decides about `order`.
        decided_by: the release that follows it.
        as_bound: whether the ring before is what its bindings make; False where it was read with ghost buckets or holes.
    """

    before: HashRing
    after: HashRing
    order: RingOrder
    restart: Rule
    decided_by: Release
    as_bound: bool = True


def upgraded_rings(
    bindings: Sequence[Binding], live: HashRing | None, before: Release, after: Release
) -> UpgradedRings:
    """Return the ring of an exchange before and after an upgrade.

    Args:
        bindings: destinations and binding keys, in the order of the ring.
        live: the ring as it was read from a broker; None where it was not.
        before: the release before.
        after: the release after.
    """
    provenance: Literal["replayed", "assumed"] = (
        "assumed" if live is not None and live.provenance == "assumed" else "replayed"
    )
    old, new = (ring_on(bindings, release, provenance) for release in (before, after))
    keeps = before.follows(rules.RESTART_KEEPS) and after.follows(rules.RESTART_KEEPS)
    as_bound = True
    if live is not None and live.provenance == "read":
        as_bound = live.buckets == old.buckets
        old = live if live.release == before else live.with_release(before)
        if not as_bound and keeps:
            # Khepri keeps ghosts and holes; Mnesia makes the ring of its bindings again.
            new = live.with_release(after)
    decided_by = before if not before.follows(rules.RESTART_KEEPS) else after
    order: RingOrder = "kept" if keeps else "lost"
    if len(set(new.destinations) | set(old.destinations)) < 2:  # one destination has only one order
        order = "none"
    restart = next(rule for rule in _RESTARTS if decided_by.follows(rule))
    return UpgradedRings(old, new, order, restart, decided_by, as_bound)


def ring_on(
    bindings: Sequence[Binding],
    release: Release,
    provenance: Literal["replayed", "assumed"] = "replayed",
) -> HashRing:
    """Return the ring that bindings make in this order, also those that the release would not take any more.

    A broker keeps a binding that is older than the rule that refuses its weight.

    Args:
        bindings: destinations and binding keys.
        release: the release.
        provenance: ``replayed`` if the order is known to be the true one, else ``assumed``.

    Raises:
        InputError: no release takes one of the binding keys.
    """
    try:
        return HashRing.from_bindings(bindings, release, provenance)
    except InputError:
        buckets: list[Place] = []
        distinct = tuple(dict.fromkeys(bindings))
        for destination, key in distinct:
            weight = weight_of(destination, key)
            if release.follows(rules.DUPLICATES_APPEND) or destination not in buckets:
                buckets += [destination] * weight
        return HashRing(tuple(buckets), release, "assumed", distinct)


def hashed_alike(hashed_on: HashedOn, before: Release, after: Release) -> bool:
    """Return whether two releases give every value that both route the same seed."""
    return hashed_on.kind != "header" or _follow_alike(_OF_HEADERS, before, after)


def same_rules(release: Release, other: Release) -> bool:
    """Return whether two releases follow the same rules."""
    return _follow_alike(rules.RULES, release, other)


def _follow_alike(compared: Sequence[Rule], before: Release, after: Release) -> bool:
    return all(before.follows(rule) == after.follows(rule) for rule in compared)


def heavy_bindings(bindings: Sequence[Binding], release: Release) -> tuple[Binding, ...]:
    """Return the bindings whose weight a release refuses, if they are made anew."""

    def is_refused(binding: Binding) -> bool:
        try:
            weight_of(*binding, release)
        except InputError:
            return True
        return False

    return tuple(binding for binding in bindings if is_refused(binding))
