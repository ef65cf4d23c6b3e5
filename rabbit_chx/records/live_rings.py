"""The rings of a live topology, with their bindings and their records."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any, Literal, NamedTuple, TypeAlias

from rabbit_chx.checks import similar
from rabbit_chx.errors import InputError, MismatchError, NotFoundError, RabbitChxError
from rabbit_chx.records.ring_records import (
    RestartMark,
    RingRecord,
    changes_since,
    record_content,
    record_in,
    record_name,
    seal,
    unseal,
    why_foreign,
    why_void,
)
from rabbit_chx.routing import Binding, Destination, HashRing, Release
from rabbit_chx.routing.bindings import AS_LISTED, OrderKnowledge, Place, destination_from_json, place_to_json
from rabbit_chx.routing.release import NEWEST_COMPARED
from rabbit_chx.routing.rules import DUPLICATES_APPEND, RESTART_KEEPS
from rabbit_chx.text import apply_text, command_text, exchange_argument, listed
from rabbit_chx.topology.model import LiveTopology
from rabbit_chx.topology.objects import (
    BROKERS_EXCHANGES,
    HASH_EXCHANGE,
    MARK,
    ExchangeDefinition,
    RingMember,
)

# -- An apply that has begun: what the broker keeps of it until it ends. Values, without I/O
# It is stored once, in the arguments of an exchange that is made before the first change and deleted after the last one, with the steps of each
# ring and the record of the ring before. Nobody stores how far the apply got: until it ends, the order of these rings is not determined. The
# same file repeats it from its first step. The plan of that has the same checksum, and counts shares from before the first change.

_FORMAT = "rabbit-chx/apply"
_FORMAT_VERSION = 4
#: The fields of the movement of a key map: after each step the shares of keys that have moved, and that are lost; `unknown`; `transient_share`.
PlannedMovement: TypeAlias = tuple[tuple[tuple[float, float], ...], str, float]

#: What a plan does with a ring: it leaves it as it is; it changes it in steps that are right for its live order alone; it makes it whatever it
#: was; or it deletes it with its exchange.
RingChange: TypeAlias = Literal["keep", "by-order", "remake", "delete"]
#: The changes by the words that are stored. A remade ring is ``new`` without members before; of a ring that is ``reset`` the order is given up.
_CHANGE_OF_WORD: Mapping[str, RingChange] = {
    "by-order": "by-order",
    "new": "remake",
    "replaced": "remake",
    "reset": "remake",
    "deleted": "delete",
}
_WORD_OF_CHANGE: Mapping[RingChange, str] = {
    "keep": "unchanged",
    "by-order": "by-order",
    "remake": "replaced",
    "delete": "deleted",
}


@dataclass(frozen=True, slots=True)
class PlannedSteps:
    """The change of a ring as an apply planned it.

    Attributes:
        record: the ring before the first change, with the number before that of the record that the apply will store.
        steps: its binds (True) and unbinds, in order.
        early: the number of steps before objects are replaced.
        change: what they do with the ring.
        gives_up_order: True if they make a ring whose order is not known.
    """

    record: RingRecord
    steps: tuple[tuple[bool, Binding], ...]
    early: int
    change: RingChange
    gives_up_order: bool = False

    @property
    def before(self) -> HashRing:
        """The ring before the first change, with what was known of it."""
        return replace(self.record.ring, order=OrderKnowledge(self.record.origin))

    @property
    def stored_word(self) -> str:
        """The word that is stored for its change."""
        if self.gives_up_order:
            return "reset"
        if self.change == "remake" and not self.record.members:
            return "new"
        return _WORD_OF_CHANGE[self.change]

    def followed_by(self, record: RingRecord) -> RingRecord:
        """Return a later record of the ring."""
        return replace(record, number=self.record.number + 1)


@dataclass(frozen=True, slots=True)
class PendingApply:
    """An apply that has begun.

    Attributes:
        file: the digest of the wanted topology, the cluster and the vhost.
        checksum: the checksum of the plan.
        written: the time of its begin, in ISO 8601 and UTC.
        writer: the user, the host and the program.
        changes: the changes of the plan, as texts.
        rings: the rings that change, by their exchanges.
        movements: the keys that move in each key map, by its exchange.
    """

    file: str
    checksum: str
    written: str
    writer: str
    changes: tuple[str, ...]
    rings: Mapping[str, PlannedSteps]
    movements: Mapping[str, PlannedMovement]

    def __str__(self) -> str:
        return f"the apply of {self.written} by {self.writer}"

    def has_ended(self, records: Mapping[str, RingRecord]) -> bool:
        """Return True if all its rings have the records that are stored at its end, or later ones. An import may have brought it back."""
        return bool(self.rings) and all(
            name in records and records[name].number > planned.record.number
            for name, planned in self.rings.items()
        )


def pending_arguments(pending: PendingApply, frame_max: int) -> dict[str, Any] | None:
    """Return the arguments of the exchange; None if they do not fit into a frame of so many bytes."""
    rings = {
        name: [
            record_content(ring.record),
            [[is_bind, place_to_json(place), key] for is_bind, (place, key) in ring.steps],
            ring.early,
            ring.stored_word,
        ]
        for name, ring in pending.rings.items()
    }
    about = pending.file, pending.checksum, pending.written, pending.writer
    content = [*about, pending.changes, rings, dict(pending.movements)]
    return seal(_FORMAT, _FORMAT_VERSION, {}, content, frame_max)


def read_pending(arguments: Mapping[str, Any]) -> PendingApply | None:
    """Return the apply in the arguments of an exchange; None if they are of another format, or damaged."""
    try:
        content = unseal(_FORMAT, _FORMAT_VERSION, "an apply", arguments)
        file, checksum, written, writer, changes, rings, movements = content
        return PendingApply(
            str(file),
            str(checksum),
            str(written),
            str(writer),
            tuple(map(str, changes)),
            {str(name): _ring_of(*ring) for name, ring in rings.items()},
            {
                str(name): (tuple((float(moved), float(lost)) for moved, lost in moments), unknown, transient)
                for name, (moments, unknown, transient) in movements.items()
            },
        )
    except (RabbitChxError, ValueError, TypeError, KeyError, AttributeError, IndexError):
        return None


def _ring_of(record: Any, steps: Any, early: Any, word: Any) -> PlannedSteps:
    bindings = tuple(
        (is_bind is True, (destination_from_json(place), str(key))) for is_bind, place, key in steps
    )
    change = _CHANGE_OF_WORD.get(str(word), "keep")
    return PlannedSteps(record_in(record), bindings, int(early), change, gives_up_order=word == "reset")


# -- What shows the order of the rings of a broker: records, the mark that proves them, and what its user may do


@dataclass(frozen=True, slots=True)
class WaysToLearn:
    """How the user of a broker may learn the order of a ring and keep it, beside ``rabbitmqctl``.

    Attributes:
        can_trace: True if the user has the tag ``administrator``, which tracing takes.
        voids: the policies because of which no record lasts, in words; empty if one may last.
    """

    can_trace: bool = False
    voids: str = ""


@dataclass(frozen=True, slots=True)
class Evidence:
    """What shows the order of the rings of a broker.

    Attributes:
        records: the records of rings, by the exchanges that they are about.
        damaged: what is wrong with the records that cannot be read, by their names.
        pending: the apply that has begun and not ended.
        mark: the mark of the vhost, which proves the records.
        is_administrator: True if the user has the tag ``administrator``, which tracing takes.
    """

    records: Mapping[str, RingRecord] = field(default_factory=dict, hash=False)
    damaged: Mapping[str, str] = field(default_factory=dict, hash=False)
    pending: PendingApply | None = None
    mark: RestartMark = field(default_factory=RestartMark)
    is_administrator: bool = False

    @property
    def ways_to_learn(self) -> WaysToLearn:
        """How the user may learn the order of a ring."""
        return WaysToLearn(self.is_administrator, "" if self.mark.holds else self.mark.policies)

    def steps_of(self, exchange: str) -> PlannedSteps | None:
        """Return the steps of a ring that may not all be done; None if it has none, or a record that was stored since the begin."""
        planned = None if self.pending is None else self.pending.rings.get(exchange)
        record = self.records.get(exchange)
        is_over = planned and record and record.number >= planned.record.number
        return None if is_over else planned

    def about(self, exchange: str) -> tuple[object, ...]:
        """Return what is kept of a ring: to see whether it changes."""
        name = record_name(exchange)
        return self.records.get(exchange), self.damaged.get(name), self.steps_of(exchange)

    def proves(self, exchange: str, ring: HashRing, bound: Iterable[RingMember]) -> bool:
        """Return True if the record of an exchange proves its ring, so that it is known without a ring source."""
        record = self.records.get(exchange)
        if record is None or self.steps_of(exchange) is not None or record.ring.buckets != ring.buckets:
            return False
        return not why_void(record, bound, ring.release, self.mark)

    def following(self, record: RingRecord) -> RingRecord:
        """Return a new record of a ring with the number after the former one, or after that which an apply that has not ended keeps."""
        former = self.records.get(record.exchange)
        planned = self.steps_of(record.exchange)
        if planned is not None:
            return planned.followed_by(record)
        if former is None:
            return record
        return replace(record, number=former.number + 1)


def evidence_of(live: LiveTopology) -> Evidence:
    """Return what shows the order of the rings of a broker."""
    found = live.facts.evidence
    return found if isinstance(found, Evidence) else Evidence()


class LiveRing(NamedTuple):
    """The live ring of an exchange; `bound` are all its bindings, in ring order as far as that is known."""

    exchange: str
    ring: HashRing
    bound: tuple[RingMember, ...]

    def is_made_by(self, members: tuple[RingMember, ...]) -> bool:
        """Return True if these members make the same buckets and bindings."""
        if self.bound != members and Counter(self.bound) != Counter(members):
            return False
        try:
            return make_ring(members, self.ring.release).buckets == self.ring.buckets
        except InputError:  # this release refuses the weight of a binding that is older than the rule
            return self.bound == members

    @property
    def is_unknown(self) -> bool:
        """True if a broker has it, and its order was neither read nor recorded."""
        return not self.ring.order.is_known

    @property
    def is_unordered(self) -> bool:
        """True if a broker has it, and its order is not known. Not even one binding determines it: others may have left buckets."""
        return self.is_unknown and not self.ring.is_determined

    def is_wanted(
        self, members: tuple[RingMember, ...], *, any_order: bool, is_external: bool = False
    ) -> bool:
        """Return True if these members need no change.

        In `any_order`, as of a definitions file, and of an external ring whose order is not known, the bindings count, and not the buckets.
        """
        if self.is_unordered and not any_order:
            return is_external and Counter(self.bound) == Counter(members)
        return self.is_made_by(members) or (any_order and self.bound == members)

    @property
    def with_bound(self) -> HashRing:
        """The ring with all its bindings, also if it was read without them."""
        return replace(self.ring, bindings=tuple(dict.fromkeys(member.binding for member in self.bound)))


def find_live_ring(live: LiveTopology, exchange: ExchangeDefinition | None, name: str) -> LiveRing:
    """Return the live ring of an exchange. It is empty if the exchange does not exist (`exchange` is None) or is of another type."""
    release = live.release or NEWEST_COMPARED
    if exchange is None or exchange.type != HASH_EXCHANGE:
        return LiveRing(name, make_ring((), release), ())
    ring = live.rings.get(name)
    if exchange.ring is not None:
        bound = exchange.ring
    elif ring is None:
        bound = ()
    elif ring.bindings is not None:
        bound = tuple(RingMember(*binding) for binding in ring.bindings)
    else:
        bound = make_members(ring.buckets)
    return LiveRing(name, _ring_as_listed(bound, release) if ring is None else ring, bound)


def record_here(live: LiveTopology, name: str) -> RingRecord | None:
    """Return the record of a ring if it was written on this broker, also if that has restarted since."""
    evidence = evidence_of(live)
    record = evidence.records.get(name)
    return None if record is None or why_foreign(record.recorded_start, evidence.mark) else record


def find_recorded(live: LiveTopology, name: str) -> RingRecord | None:
    """Return the record of a ring with exactly the live bindings, also if the broker has restarted since; None without one."""
    record = record_here(live, name)
    bound = find_live_ring(live, live.exchange(name), name).bound
    return None if record is None or changes_since(record, bound) else record


def read_without_record(live: LiveTopology) -> list[str]:
    """Return the exchanges whose rings were read, and that no record on the broker fits."""
    read = {name: ring for name, ring in live.rings.items() if ring.provenance == "read"}
    bound = {name: find_live_ring(live, live.exchange(name), name).bound for name in read}
    proves = evidence_of(live).proves
    return [name for name, ring in read.items() if bound[name] and not proves(name, ring, bound[name])]


def record_command(*names: str) -> str:
    """Return the command that stores the order of rings on the broker."""
    command = command_text("record", *map(exchange_argument, names))
    return f"{command} (`Broker.record(live.rings)`)"


def none_lasts(ways_to_learn: WaysToLearn) -> str:
    """Return why no record would last."""
    return f"none would last: {ways_to_learn.voids} takes messages of the queue {MARK} away"


def how_to_record(names: Sequence[str], ways_to_learn: WaysToLearn) -> str:
    """Return a sentence that names rings without a record that fits them, and the command that stores one, if it may last."""
    about = f"no record on the broker fits the order of {listed(list(names))}"
    if ways_to_learn.voids:
        return f"{about}, and {none_lasts(ways_to_learn)}"
    return f"{about}: if this order is right, store it with {record_command(*names)}"


def _ring_as_listed(bound: tuple[RingMember, ...], release: Release) -> HashRing:
    try:
        return make_ring(bound, release)
    except InputError:  # this release refuses the weight of a binding that is older than the rule
        buckets = tuple(member.destination for member in bound for _ in range(member.weight))
        return HashRing(buckets, release, AS_LISTED, tuple(member.binding for member in bound))


def may_have_publishers(name: str, queues: Iterable[Destination], live: LiveTopology) -> bool:
    """Return True if an exchange may have publishers. If it was deleted and is declared again, its queues exist, and its publishers may."""
    return live.exchange(name) is not None or not {queue.name for queue in live.queues}.isdisjoint(queues)


def may_keep_buckets(release: Release) -> bool:
    """Return True if a ring may have buckets after all its bindings are removed.

    A restart keeps those of queues that end with it, and second bindings that append leave holes.
    """
    keeps = release.follows(RESTART_KEEPS) or not release.store_known
    return keeps or release.follows(DUPLICATES_APPEND)


def make_ring(members: Sequence[RingMember], release: Release) -> HashRing:
    """Return the ring that members make on an exchange without bindings.

    Raises:
        InputError: the broker would refuse a binding.
    """
    return HashRing.from_bindings([member.binding for member in members], release)


def make_members(buckets: Sequence[Place]) -> tuple[RingMember, ...]:
    """Return one member for each run of equal buckets, without holes."""
    return tuple(
        RingMember(destination, str(len(list(run))))
        for destination, run in groupby(buckets)
        if destination is not None
    )


def live_hash_exchange(live: LiveTopology, name: str) -> ExchangeDefinition:
    """Return a live hash exchange.

    Raises:
        NotFoundError: it does not exist.
        MismatchError: it is of another type.
    """
    exchange = live.exchange(name)
    if exchange is not None and exchange.type == HASH_EXCHANGE:
        return exchange
    type_ = BROKERS_EXCHANGES.get(name) if exchange is None else exchange.type
    if type_ is None:
        if meant := similar(name, (known.name for known in live.exchanges)):
            raise NotFoundError(f"there is no exchange {name!r}: did you mean {meant}?", exchange=name)
        raise NotFoundError(
            f"there is no exchange {name!r}: check its name and the vhost of the URL; if it was deleted, declare it again with {apply_text()}",
            exchange=name,
        )
    raise MismatchError(
        f"exchange {name!r} is of type {type_}, not {HASH_EXCHANGE}: pass another one", exchange=name
    )
