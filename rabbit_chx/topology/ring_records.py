"""The record of a ring: the order of its bindings, which the broker keeps in the arguments of an exchange. Values, without I/O.

The management API lists bindings without their order. So `live/recording.py` stores the order beside them, and `prove_ring` returns the ring
that the records and the listed bindings prove, or the reason why they prove none:

- A settled record fits its own bindings. It also fits bindings that lack some of its own, because an unbind keeps the order of the others, and
  one more binding, because a bind appends.
- An apply stores its steps before the first one. Until it ends, the bindings must be those after one of the steps. Steps that lead back to
  earlier bindings belong to the next record: see `split_steps`.
- All records of a ring have to yield the same ring.

RabbitMQ on Khepri keeps a ring when it restarts (rule `RESTART_KEEPS`). On Mnesia a record is valid until a restart.
"""

from __future__ import annotations

import base64
import hashlib
import json
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any, Literal, TypeAlias

from rabbit_chx.amqp.frames import FRAME_MAX
from rabbit_chx.errors import InputError, NotDeterminedError
from rabbit_chx.routing import Binding, Destination, ExchangeRef, HashRing, Release, ring_changes
from rabbit_chx.routing.bindings import Place, destination_from_json, order_of_binding, place_to_json
from rabbit_chx.routing.ground import PROVENANCES, Ground, Provenance
from rabbit_chx.routing.ring_changes import RingState
from rabbit_chx.routing.rules import RESTART_KEEPS
from rabbit_chx.topology.pending_apply import PENDING_APPLY
from rabbit_chx.words import listed

#: The names of the exchanges that may contain the record of an exchange begin with one of these. A settled record has the first.
RECORD_PREFIXES = ("rabbit-chx.ring.", "rabbit-chx.next.", "rabbit-chx.spare.")
#: A transient exchange, which a restart on Mnesia deletes. Its argument identifies the time since that restart.
START_MARK = "rabbit-chx.start"
#: The exchange that says who has switched tracing on, and the exclusive queue of the connection that gets the copies.
TRACE = "rabbit-chx.trace"
_START = "start"
_FORMAT, _FORMAT_VERSION = "rabbit-chx/record", 1
_MOST_NAME_BYTES = 255
#: Longer contents are compressed.
_MOST_PLAIN_CHARACTERS = 60_000
#: The arguments beside the contents, and the head of their frame.
_OTHER_BYTES = 2_500
#: The management API reports the uptime of a node with a delay of up to 5 s, and the clocks of clients differ.
_SAME_START_S = 10.0

StepAction: TypeAlias = Literal["bind", "unbind"]


@dataclass(frozen=True, slots=True)
class Step:
    """A bind or an unbind."""

    action: StepAction
    binding: Binding


@dataclass(frozen=True, slots=True)
class BrokerStart:
    """What identifies the broker, and its last start.

    Attributes:
        cluster: the name of the cluster; None if it is not known.
        mark: the identity in `START_MARK`; None without that exchange.
        nodes: the start of each running node, in seconds since 1970; None if the user may not list nodes.
    """

    cluster: str | None = None
    mark: str | None = None
    nodes: Mapping[str, float] | None = None

    def last_start(self) -> float | None:
        """Return the time of the last start of a node, in seconds since 1970; None if it is not known."""
        return max(self.nodes.values(), default=None) if self.nodes else None

    def is_other_cluster(self, now: BrokerStart) -> bool:
        """Return True if `now` is of another cluster. Definitions of older releases contain records, and may be imported there."""
        if None not in (self.cluster, now.cluster) and self.cluster != now.cluster:
            return True
        return bool(self.nodes and now.nodes) and not (self.nodes or {}).keys() & (now.nodes or {}).keys()

    def has_restarted(self, now: BrokerStart, *, marks: bool) -> bool | None:
        """Return whether a node has started since; None if that is not known.

        Args:
            now: the broker now.
            marks: True on Mnesia, where the mark is compared, too.
        """
        if marks and self.mark != now.mark:
            return True
        if not self.nodes or not now.nodes or (marks and self.mark is None):
            return None
        if marks and len(self.nodes) == 1 and self.nodes.keys() == now.nodes.keys():
            return False  # the mark shows it, and clients whose clocks differ compute other times
        return any(
            name not in self.nodes or start - self.nodes[name] > _SAME_START_S
            for name, start in now.nodes.items()
        )


@dataclass(frozen=True, slots=True)
class RingRecord:
    """The record of a ring.

    Attributes:
        exchange: the name of the exchange.
        state: the ring, with its bindings in order.
        steps: the binds and unbinds of an apply that has not ended, in order; empty if the record is settled.
        origin: the provenance of the order.
        written: the time, in ISO 8601 and UTC.
        writer: the user, the host and the program.
        start: the broker when the record was written.
        transient: the destinations that a restart deletes; from 4.3 on their buckets stay.
        adopted: True: a command has read the order on Mnesia, where there was no record, so whether the start before that changed the
            order is not known.
    """

    exchange: str
    state: RingState
    steps: tuple[Step, ...] = ()
    origin: Provenance = "read"
    written: str = ""
    writer: str = ""
    start: BrokerStart = BrokerStart()
    transient: tuple[Destination, ...] = ()
    adopted: bool = False

    @property
    def is_settled(self) -> bool:
        """True if no apply is in progress."""
        return not self.steps

    @property
    def about(self) -> str:
        """The time and the writer, in words."""
        return f"{self.written} by {self.writer}"

    def has_same_ring(self, other: RingRecord) -> bool:
        """Return True if another settled record has the same ring, of the same start of the broker."""
        same = (self.is_settled, other.is_settled) == (True, True) and self.exchange == other.exchange
        return same and _key_of(self.state) == _key_of(other.state) and self._is_as_valid_as(other)

    def _is_as_valid_as(self, other: RingRecord) -> bool:
        marks = not self.state.release.follows(RESTART_KEEPS)
        return (
            self.state.release == other.state.release
            and self.transient == other.transient
            and not self.start.is_other_cluster(other.start)
            and (not marks or self.start.has_restarted(other.start, marks=True) is False)
        )


@dataclass(frozen=True, slots=True)
class DamagedRecord:
    """An exchange with the name of a record and other contents. `problem` names what is wrong."""

    name: str
    problem: str


#: A record on the broker by the name of its exchange.
Records: TypeAlias = Mapping[str, RingRecord | DamagedRecord]


def _key_of(state: RingState) -> tuple[Any, ...]:
    return state.buckets, state.bindings, state.end_known


def record_names(exchange: str) -> tuple[str, ...]:
    """Return the names of the exchanges that may contain the record of an exchange."""
    names = tuple(f"{prefix}{exchange}" for prefix in RECORD_PREFIXES)
    if all(len(name.encode(errors="surrogatepass")) <= _MOST_NAME_BYTES for name in names):
        return names
    digest = hashlib.sha256(exchange.encode(errors="surrogatepass")).hexdigest()
    return tuple(f"{prefix}{digest}" for prefix in RECORD_PREFIXES)


def is_own_exchange(name: object) -> bool:
    """Return True if an exchange of this name belongs to this program and not to the user. An import can make a name that is no text."""
    own = (START_MARK, PENDING_APPLY, TRACE)
    return isinstance(name, str) and (name in own or name.startswith(RECORD_PREFIXES))


def start_arguments(mark: str) -> dict[str, str]:
    """Return the arguments of `START_MARK`."""
    return {_START: mark}


def start_mark_in(arguments: Mapping[str, Any]) -> str | None:
    """Return the identity in the arguments of `START_MARK`."""
    mark = arguments.get(_START)
    return mark if isinstance(mark, str) else None


# -- steps


def split_steps(state: RingState, steps: Sequence[Step]) -> list[tuple[int, RingState, tuple[Step, ...]]]:
    """Return the parts of which each needs a record of its own: the number of its first step, the ring before it, and its steps.

    The bindings during one part are never the same twice, so the listed bindings show which of its steps are done.

    A set of bindings is known by the XOR of their hashes, which a step changes in constant time: a bind and an unbind are the same XOR. Two
    sets with one fingerprint are harmless: a part ends where it need not, and has one record more. A repetition is never missed, since equal
    sets have equal fingerprints.
    """
    starts, bound, seen = [0], {*(state.bindings or ())}, set[int]()
    print_ = _fingerprint(bound)
    seen.add(print_)
    for number, step in enumerate(steps):
        if (step.action == "bind") == (step.binding in bound):
            continue  # a repetition changes nothing
        after = print_ ^ hash(step.binding)
        if after in seen:
            starts.append(number)
            seen = {print_}
        print_ = after
        seen.add(print_)
        bound ^= {step.binding}
    parts, ends = [], [*starts[1:], len(steps)]
    for start, end in zip(starts, ends, strict=True):
        parts.append((start, state, tuple(steps[start:end])))
        if end < len(steps):
            state = after_steps(state, steps[start:end])
    return parts


def _fingerprint(bindings: Iterable[Binding]) -> int:
    number = 0
    for binding in bindings:
        number ^= hash(binding)
    return number


def after_steps(state: RingState, steps: Iterable[Step]) -> RingState:
    """Return the ring after some steps.

    Raises:
        NotDeterminedError: no rule of the release determines the effect of a step.
    """
    for step in steps:
        if step.action == "bind":
            state = ring_changes.bind(state, *step.binding)
        else:
            state = ring_changes.unbind(state, *step.binding)
    return state


# -- the ring that records and bindings prove


def prove_ring(
    records: Iterable[RingRecord], bound: Sequence[Binding], release: Release, now: BrokerStart
) -> HashRing:
    """Return the ring of an exchange by its records.

    Args:
        records: the records of the exchange, at least one.
        bound: its bindings, as the broker lists them.
        release: the broker's release.
        now: the broker's last start.

    Raises:
        NotDeterminedError: the records and the bindings do not determine the ring.
    """
    rings: dict[RingState, RingRecord] = {}
    for record in records:
        check_valid(record, release, now)
        state = _state_since(record, bound, release, now)
        rings.setdefault(state._replace(release=release, ground=Ground("recorded")), record)
    if len(rings) > 1:
        written = listed([record.about for record in rings.values()])
        raise NotDeterminedError(
            f"an apply ended early, and the bindings have changed since: the records of {written} yield different rings"
        )
    return HashRing(*next(iter(rings)))


def check_valid(record: RingRecord, release: Release, now: BrokerStart) -> None:
    """Refuse a record that says nothing about a broker, whatever its bindings are.

    Raises:
        NotDeterminedError: it is of another cluster, store or release, or of an earlier start on Mnesia.
    """
    written, before = record.about, record.state.release
    if record.start.is_other_cluster(now):
        raise NotDeterminedError(
            f"the record of {written} is of the cluster {record.start.cluster}, and this is {now.cluster or 'another one'}"
        )
    if not release.store_known:
        raise NotDeterminedError(
            f"the record of {written} does not determine it: the metadata store is not known, because the user may not list feature flags, "
            "and Mnesia changes the order at a restart"
        )
    if release.follows(RESTART_KEEPS) and before.follows(RESTART_KEEPS):
        return
    if release != before:
        raise NotDeterminedError(
            f"the record of {written} is of RabbitMQ {before}, and this is {release}, which made the ring again"
        )
    restarted = record.start.has_restarted(now, marks=True)
    if restarted is None:
        raise NotDeterminedError(
            f"the record of {written} does not determine it: a restart on Mnesia changes the order, and the user may not list nodes "
            "(tag monitoring)"
        )
    if restarted:
        raise NotDeterminedError(
            f"the broker restarted after the record of {written}, and a restart on Mnesia changes the order"
        )


def _state_since(
    record: RingRecord, bound: Sequence[Binding], release: Release, now: BrokerStart
) -> RingState:
    """Return the ring by one record."""
    try:
        state = fit_state(record, bound)
        if record.start.has_restarted(now, marks=not release.follows(RESTART_KEEPS)) is not False:
            _check_restart(record, state, bound)
    except (NotDeterminedError, InputError) as error:
        raise NotDeterminedError(f"the record of {record.about} does not determine it: {error}") from None
    return state


def _check_restart(record: RingRecord, state: RingState, bound: Sequence[Binding]) -> None:
    """Refuse what a restart of the broker changes on Khepri."""
    places = {destination for destination, _ in bound}
    lost = {destination for destination, _ in record.state.bindings or ()} - places
    if ghosts := lost & {*record.transient}:
        raise NotDeterminedError(
            f"{listed(sorted(map(str, ghosts)))} is not durable and is not bound any more, and a restart of the broker keeps its buckets"
        )
    if silent := places - {*state.buckets}:
        raise NotDeterminedError(
            f"{listed(sorted(map(str, silent)))} is bound without buckets, and a restart of the broker adds them"
        )


def fit_state(record: RingRecord, bound: Sequence[Binding]) -> RingState:
    """Return the ring after the steps that are done, or after changes by others.

    Raises:
        NotDeterminedError: the record and the bindings do not determine it.
    """
    before = {*(record.state.bindings or ())}
    if repeated := [binding for binding, count in Counter(bound).items() if count > 1]:
        raise NotDeterminedError(f"{_show(repeated)} is bound several times, with different arguments")
    if record.steps:
        return _state_during(record, before ^ {*bound})
    missing, added = before - {*bound}, {*bound} - before
    if len(added) > 1:
        raise NotDeterminedError(f"{_show(added)} were bound since, and their order is not known")
    if len(missing) > 1 and not _is_plain(record.state):
        raise NotDeterminedError(
            f"{_show(missing)} were unbound since, from a ring that its bindings do not make"
        )
    state = record.state
    for binding in missing:
        state = ring_changes.unbind(state, *binding)
    for binding in added:
        if binding[0] in {destination for destination, _ in missing}:
            raise NotDeterminedError(
                f"{binding[0]!s} was bound with another key since, before or after it was unbound"
            )
        state = ring_changes.bind(state, *binding)
    if state.ground.is_assumed:
        raise NotDeterminedError("it does not show holes at the end of the ring")
    return state


def _state_during(record: RingRecord, differing: set[Binding]) -> RingState:
    """Return the ring after the steps whose bindings are those of the broker. `differing` are the bindings that changed since the record."""
    moments = [] if differing else [0]
    done, left = set[Binding](), len(differing)
    bound = {*(record.state.bindings or ())}
    for number, step in enumerate(record.steps, 1):
        if (step.action == "bind") != (step.binding in bound):
            bound ^= {step.binding}
            done ^= {step.binding}
            # `left` is the size of the symmetric difference of `done` and `differing`.
            left += -1 if (step.binding in differing) == (step.binding in done) else 1
        if not left:
            moments.append(number)
    if not moments:
        raise NotDeterminedError(
            "an apply ended early after it, and its bindings were changed by others since"
        )
    states = {after_steps(record.state, record.steps[:number]) for number in (moments[0], moments[-1])}
    if len({state.buckets for state in states}) > 1:
        raise NotDeterminedError("its steps lead to the same bindings twice")
    return next(iter(states))


def _is_plain(state: RingState) -> bool:
    """Return True if the bindings of a ring, each of another destination, make its buckets: then any order of unbinds is the same."""
    bindings = state.bindings or ()
    if len({destination for destination, _ in bindings}) < len(bindings):
        return False
    return ring_changes.replay(bindings, state.release, Ground("replayed")).buckets == state.buckets


def _show(bindings: Iterable[Binding]) -> str:
    return listed([f"{place!s}={key}" for place, key in sorted(bindings, key=order_of_binding)])


# -- the record as arguments of an exchange


def record_arguments(record: RingRecord, frame_max: int = FRAME_MAX) -> dict[str, Any] | None:
    """Return the arguments of the exchange with a record; None if they do not fit into a frame of so many bytes."""
    text = json.dumps(_content(record), sort_keys=True, separators=(",", ":"))
    digest = hashlib.sha256(text.encode()).hexdigest()
    encoding = "json"
    most = frame_max - _OTHER_BYTES
    if len(text) > min(_MOST_PLAIN_CHARACTERS, most):
        encoding, text = "zlib", base64.b64encode(zlib.compress(text.encode(), 9)).decode()
    if len(text) > most:
        return None
    return {
        "format": _FORMAT,
        "format_version": _FORMAT_VERSION,
        "exchange": record.exchange,
        "written": record.written,
        "writer": record.writer,
        "encoding": encoding,
        "content": text,
        "digest": digest,
    }


def _content(record: RingRecord) -> dict[str, Any]:
    state, start = record.state, record.start
    bindings = list(dict.fromkeys([*(state.bindings or ()), *(step.binding for step in record.steps)]))
    number = {binding: n for n, binding in enumerate(bindings)}
    return {
        "exchange": record.exchange,
        "bindings": [[place_to_json(place), key] for place, key in bindings],
        "bound": len(state.bindings or ()),
        "buckets": [[place_to_json(place), len(list(run))] for place, run in groupby(state.buckets)],
        "end_known": state.end_known,
        # 1 is a bind of the first binding, -1 its unbind.
        "steps": [(number[step.binding] + 1) * (1 if step.action == "bind" else -1) for step in record.steps],
        "release": [state.release.version, state.release.store if state.release.store_known else None],
        "origin": record.origin,
        "written": record.written,
        "writer": record.writer,
        "cluster": start.cluster,
        "mark": start.mark,
        "nodes": None
        if start.nodes is None
        else {name: round(time, 1) for name, time in start.nodes.items()},
        "transient": [place_to_json(place) for place in record.transient],
        **({"adopted": True} if record.adopted else {}),
    }


def read_record(arguments: Mapping[str, Any]) -> RingRecord:
    """Return the record in the arguments of an exchange.

    Raises:
        InputError: they are not those of a record, or were changed.
    """
    if arguments.get("format") != _FORMAT:
        raise InputError(
            f"it is not a record: its format is {arguments.get('format')!r:.40}, not {_FORMAT!r}"
        )
    if arguments.get("format_version") != _FORMAT_VERSION:
        raise InputError(
            f"it has the format version {arguments.get('format_version')!r:.40}, and this program reads {_FORMAT_VERSION}: update rabbit-chx"
        )
    text = _text_in(arguments)
    if text is None or hashlib.sha256(text.encode(errors="replace")).hexdigest() != arguments.get("digest"):
        raise InputError("its digest does not match its contents: somebody changed it")
    try:
        return _record_of(json.loads(text))
    except (ValueError, TypeError, KeyError, IndexError, RecursionError) as error:
        raise InputError(f"its contents are damaged: {error!r:.100}") from None


def _text_in(arguments: Mapping[str, Any]) -> str | None:
    text = arguments.get("content")
    if not isinstance(text, str) or arguments.get("encoding") != "zlib":
        return text if isinstance(text, str) else None
    try:
        return zlib.decompress(base64.b64decode(text, validate=True)).decode()
    except (ValueError, zlib.error):
        return None


def _record_of(content: Any) -> RingRecord:
    bindings = [(destination_from_json(place), str(key)) for place, key in content["bindings"]]
    version, store = content["release"]
    buckets: list[Place] = []
    for place, count in content["buckets"]:
        buckets += [None if place is None else destination_from_json(place)] * count
    origin = content["origin"]
    if origin not in PROVENANCES:
        raise InputError(f"the provenance {origin!r:.40} of its order is unknown: update rabbit-chx")
    nodes = content["nodes"]
    return RingRecord(
        str(content["exchange"]),
        RingState(
            tuple(buckets),
            Release(version, store),
            Ground("recorded"),
            tuple(bindings[: content["bound"]]),
            content["end_known"] is True,
        ),
        tuple(Step("bind" if step > 0 else "unbind", bindings[abs(step) - 1]) for step in content["steps"]),
        origin,
        str(content["written"]),
        str(content["writer"]),
        BrokerStart(
            content["cluster"],
            content["mark"],
            None if nodes is None else {str(n): float(t) for n, t in nodes.items()},
        ),
        tuple(destination_from_json(place) for place in content["transient"]),
        adopted=content.get("adopted") is True,
    )


def records_in(exchanges: Iterable[Mapping[str, Any]]) -> dict[str, RingRecord | DamagedRecord]:
    """Return the records among the exchanges that the management API lists, by their names."""
    records: dict[str, RingRecord | DamagedRecord] = {}
    for entry in exchanges:
        name = entry["name"]
        if not isinstance(name, str) or not name.startswith(RECORD_PREFIXES):
            continue
        try:
            record = read_record(entry.get("arguments") or {})
        except InputError as error:
            records[name] = DamagedRecord(name, str(error))
        else:
            is_own = name in record_names(record.exchange)
            other = DamagedRecord(name, f"it is the record of exchange {record.exchange!r}")
            records[name] = record if is_own else other
    return records


def records_of(exchange: str, records: Records) -> list[RingRecord | DamagedRecord]:
    """Return the records of an exchange."""
    return [records[name] for name in record_names(exchange) if name in records]


def ring_by_records(
    records: Iterable[RingRecord | DamagedRecord],
    assumed: HashRing,
    bound: Sequence[Binding],
    now: BrokerStart,
) -> HashRing:
    """Return the ring that the records of an exchange prove, or the `assumed` one with the doubt."""
    records = list(records)
    valid = [record for record in records if isinstance(record, RingRecord)]
    damaged = [record for record in records if isinstance(record, DamagedRecord)]
    if not valid:
        doubts = [f"the record {record.name} is ignored: {record.problem}" for record in damaged]
        return replace(assumed, ground=Ground("assumed", "; ".join(doubts))) if doubts else assumed
    try:
        return prove_ring(valid, bound, assumed.release, now)
    except NotDeterminedError as error:
        return replace(assumed, ground=Ground("assumed", str(error)))


def is_recorded(
    ring: HashRing, records: Iterable[RingRecord | DamagedRecord], bound: Sequence[Binding], now: BrokerStart
) -> bool:
    """Return True if the records of an exchange prove its ring, so that it is known without a ring source."""
    proven = ring_by_records(records, replace(ring, ground=Ground("assumed")), bound, now)
    return proven.ground.is_certain and proven.buckets == ring.buckets


def make_settled_record(exchange: str, ring: HashRing, bound: Sequence[Binding]) -> RingRecord:
    """Return the record of a ring that is certain, without time and writer.

    Args:
        exchange: the exchange's name.
        ring: the ring.
        bound: its bindings, in ring order as far as they have buckets.
    """
    state = RingState(ring.buckets, ring.release, Ground("recorded"), tuple(bound), ring.end_known)
    return RingRecord(exchange, state, origin=ring.provenance)


def transient_places(destinations: Iterable[Destination], transient: Iterable[str]) -> Iterator[Destination]:
    """Yield the destinations that are queues which a restart deletes."""
    names = {*transient}
    return (
        place
        for place in dict.fromkeys(destinations)
        if not isinstance(place, ExchangeRef) and place in names
    )
