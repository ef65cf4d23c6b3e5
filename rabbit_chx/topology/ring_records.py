"""The record of a ring: the order of its bindings, which the broker keeps in the arguments of an exchange. Values, without I/O.

The management API lists bindings without their order. So `live/recording.py` stores the order beside them, and `prove_ring` returns the ring
that the records and the listed bindings prove, or the reason why they prove none:

- A final record fits its own bindings. It also fits bindings that lack some of its own, because an unbind keeps the order of the others, and
  one more binding, because a bind appends.
- An apply stores a pending record, with its steps, before the first one. Until it ends, the bindings must be those after one of the steps.
  Steps that lead back to earlier bindings belong to the next record: see `split_steps`.
- All records of a ring have to yield the same ring.

A record holds on the broker of its mark (:mod:`rabbit_chx.topology.mark`). RabbitMQ on Khepri keeps a ring when it restarts (rule
`RESTART_KEEPS`), except the bindings of queues that a restart deletes. On Mnesia a record is void after a restart.
"""

from __future__ import annotations

import base64
import hashlib
import json
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any, Literal, TypeAlias

from rabbit_chx.amqp.frames import FRAME_MAX
from rabbit_chx.errors import InputError, NotDeterminedError
from rabbit_chx.routing import Binding, HashRing, Release, ring_changes
from rabbit_chx.routing.bindings import Place, destination_from_json, order_of_binding, place_to_json
from rabbit_chx.routing.ground import PROVENANCES, Ground, Provenance
from rabbit_chx.routing.ring_changes import RingState
from rabbit_chx.routing.rules import RESTART_KEEPS
from rabbit_chx.topology.mark import MARK, Mark, Stamp, has_restarted
from rabbit_chx.topology.pending_apply import PENDING_APPLY
from rabbit_chx.topology.ring_history import PastRing, RingHistory, past_from_json, past_to_json, with_next
from rabbit_chx.words import listed

#: The names of the exchanges that may contain the record of an exchange begin with one of these. A final record has the first.
RECORD_PREFIXES = ("rabbit-chx.ring.", "rabbit-chx.next.", "rabbit-chx.spare.")
#: The exchange that says who has switched tracing on, and the exclusive queue of the connection that gets the copies.
TRACE = "rabbit-chx.trace"
_FORMAT, _FORMAT_VERSION = "rabbit-chx/record", 2
_MOST_NAME_BYTES = 255
#: Longer contents are compressed.
_MOST_PLAIN_CHARACTERS = 60_000
#: The arguments beside the contents, and the head of their frame.
_OTHER_BYTES = 2_500

StepAction: TypeAlias = Literal["bind", "unbind"]


@dataclass(frozen=True, slots=True)
class Step:
    """A bind or an unbind."""

    action: StepAction
    binding: Binding


@dataclass(frozen=True, slots=True)
class RingRecord:
    """The record of a ring.

    Attributes:
        exchange: the name of the exchange.
        state: the ring, with its bindings in order.
        steps: the binds and unbinds of an apply that has not ended, in order; empty if the record is final.
        origin: the provenance of the order.
        written: the time, in ISO 8601 and UTC.
        writer: the user, the host and the program.
        stamp: the broker when the record was written.
        transient: what the broker deletes by itself and may be a member, in words; empty if there was nothing of that kind in the vhost.
        foreign: what other programs bound while the apply ran, at places that are not known.
        began: the time at which the writer began to change the ring; empty if it was so already.
        gap: why the ring of the former record did not last until then; empty if it did.
        past: the rings of the former records, the oldest first.
    """

    exchange: str
    state: RingState
    steps: tuple[Step, ...] = ()
    origin: Provenance = "read"
    written: str = ""
    writer: str = ""
    stamp: Stamp = field(default_factory=Stamp)
    transient: str = ""
    foreign: tuple[Binding, ...] = ()
    began: str = ""
    gap: str = ""
    past: tuple[PastRing, ...] = ()

    @property
    def history(self) -> tuple[PastRing, ...]:
        """Its ring after those of the former records. With steps, it is the one before them."""
        state, began = self.state, self.written if self.steps else self.began
        own = PastRing(self.written, self.writer, state.buckets, state.release, began, self.gap)
        return (*self.past, own)

    @property
    def is_final(self) -> bool:
        """True if no apply is in progress."""
        return not self.steps

    @property
    def about(self) -> str:
        """The time and the writer, in words."""
        return f"{self.written} by {self.writer}"

    @property
    def bindings(self) -> tuple[Binding, ...]:
        """All bindings that it names, once: those of the ring in order, then those of the steps."""
        return tuple(dict.fromkeys([*(self.state.bindings or ()), *(step.binding for step in self.steps)]))

    def has_same_ring(self, other: RingRecord) -> bool:
        """Return True if another record has the same ring, and both are final."""
        return (
            self.is_final
            and other.is_final
            and self.exchange == other.exchange
            and _key_of(self.state) == _key_of(other.state)
            and self.state.release == other.state.release
            and self.foreign == other.foreign
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


def is_own(name: object) -> bool:
    """Return True if an exchange or a queue of this name belongs to this program and not to the user.

    An import can make a name that is no text.
    """
    return isinstance(name, str) and (
        name in (MARK, PENDING_APPLY, TRACE) or name.startswith(RECORD_PREFIXES)
    )


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
    records: Iterable[RingRecord], bound: Sequence[Binding], release: Release, mark: Mark
) -> HashRing:
    """Return the ring of an exchange by its records.

    Args:
        records: the records of the exchange, at least one.
        bound: its bindings, as the broker lists them.
        release: the broker's release.
        mark: the mark of the vhost.

    Raises:
        NotDeterminedError: the records and the bindings do not determine the ring.
    """
    rings: dict[RingState, RingRecord] = {}
    for record in records:
        try:
            state = _state_since(record, bound, release, mark)
        except (NotDeterminedError, InputError) as error:
            raise NotDeterminedError(f"the record of {record.about} does not determine it: {error}") from None
        rings.setdefault(state._replace(release=release, ground=Ground("recorded")), record)
    if len(rings) > 1:
        written = listed([record.about for record in rings.values()])
        raise NotDeterminedError(
            f"an apply ended early, and the bindings have changed since: the records of {written} yield different rings"
        )
    return HashRing(*next(iter(rings)))


def _state_since(record: RingRecord, bound: Sequence[Binding], release: Release, mark: Mark) -> RingState:
    """Return the ring by one record."""
    before, restarted = record.state.release, has_restarted(record.stamp, mark)
    if not release.store_known:
        raise NotDeterminedError(
            "the metadata store is not known, because the user may not list feature flags, and Mnesia changes the order at a restart"
        )
    keeps = release.follows(RESTART_KEEPS) and before.follows(RESTART_KEEPS)
    if not keeps:
        _check_start(record, bound, release, mark, restarted=restarted)
    state = fit_state(record, bound)
    if keeps and restarted:
        _check_kept(record, state, bound, mark)
    return state


def _check_start(
    record: RingRecord, bound: Sequence[Binding], release: Release, mark: Mark, *, restarted: bool
) -> None:
    """Refuse a record on Mnesia, unless no node that has a queue of the ring has started again."""
    if release != record.state.release:
        raise NotDeterminedError(
            f"it is of RabbitMQ {record.state.release}, and this is {release}, which made the ring again"
        )
    if restarted and record.stamp.identity is None:
        raise NotDeterminedError(
            "nothing shows that the broker has not restarted since, and a restart on Mnesia changes the order"
        )
    if restarted:
        raise NotDeterminedError("the broker has restarted since, and a restart on Mnesia changes the order")
    # A queue of the record that is neither listed nor bound was deleted.
    queues = {
        MARK,
        *(place for place, _ in bound),
        *(place for place, _ in record.bindings if place in mark.nodes),
    }
    home = mark.nodes.get(MARK, frozenset())
    for queue in sorted(place for place in queues if isinstance(place, str)):
        if len(home) == 1 and mark.nodes.get(queue) == home:
            continue
        raise NotDeterminedError(
            f"queue {queue} is, or may be, on other nodes than the queue {MARK}: a restart of one of them on Mnesia changes the order, and is "
            "not seen"
        )


def _check_kept(record: RingRecord, state: RingState, bound: Sequence[Binding], mark: Mark) -> None:
    """Refuse a ring of which a restart on Khepri may have kept buckets without bindings, or added buckets."""
    places = {destination for destination, _ in bound}
    if passing := record.transient or mark.passing(places):
        raise NotDeterminedError(
            f"the broker has restarted since, which deletes {passing}: if that was a member of the ring, its buckets may have stayed, or moved"
        )
    if silent := places - {*state.buckets}:
        raise NotDeterminedError(
            f"the broker has restarted since, and {listed(sorted(map(str, silent)))} is bound without buckets, which a restart adds"
        )


def history_of(
    records: Iterable[RingRecord | DamagedRecord], ring: HashRing, bound: Sequence[Binding], mark: Mark
) -> RingHistory:
    """Return the history of a ring by its records; `bound` are the bindings that the broker lists."""
    record = newest(records)
    if record is None:
        return RingHistory((), ring, "no record of it is on the broker")
    return RingHistory(record.history, ring, doubt_since(record, ring, bound, mark))


def following(
    record: RingRecord, former: RingRecord, ring: HashRing, bound: Sequence[Binding], mark: Mark
) -> RingRecord:
    """Return a record with the history of the former one.

    Args:
        record: the record, with the time and the writer.
        former: the record before it.
        ring: the ring before its steps. If it is another one than that of the former record, it is part of the history, too.
        bound: the bindings before its steps, as the broker lists them.
        mark: the mark before its steps.
    """
    gap = doubt_since(former, ring, bound, mark)
    past = with_next(former.past, former.history[-1])
    if gap and record.steps and ring.ground.is_certain:
        past = with_next(past, PastRing(record.written, "", ring.buckets, ring.release, gap=gap))
        gap = ""
    return replace(record, gap=gap, past=past)


def newest(records: Iterable[RingRecord | DamagedRecord]) -> RingRecord | None:
    """Return the record that was written last; None without one."""
    valid = (record for record in records if isinstance(record, RingRecord))
    return max(valid, key=lambda record: record.written, default=None)


def doubt_since(record: RingRecord, ring: HashRing, bound: Sequence[Binding], mark: Mark) -> str:
    """Return why the ring of a record may not have lasted until now; empty if it has. `ring` is that of now, as far as it is known."""
    if record.steps:
        return f"an apply of {record.about} did not end"
    try:
        state = _state_since(record, bound, ring.release, mark)
    except (NotDeterminedError, InputError) as error:
        return str(error)
    if changed := {*bound} ^ {*(record.state.bindings or ())}:
        return f"another program bound or unbound {show_bindings(changed)} since {record.written}"
    if ring.ground.is_certain and ring.buckets != state.buckets:
        return f"the order was changed since {record.written}, and not by this program"
    return ""


def fit_state(record: RingRecord, bound: Sequence[Binding]) -> RingState:
    """Return the ring after the steps that are done, or after changes by others.

    Raises:
        NotDeterminedError: the record and the bindings do not determine it.
    """
    before = {*(record.state.bindings or ())}
    if repeated := [binding for binding, count in Counter(bound).items() if count > 1]:
        raise NotDeterminedError(
            f"{show_bindings(repeated)} is bound several times, with different arguments"
        )
    members = {destination for destination, _ in before}
    if foreign := [other for other in record.foreign if other in bound or other[0] in members]:
        raise NotDeterminedError(
            f"{show_bindings(foreign)} was bound by another program while the apply ran, and its place is not known"
        )
    if record.steps:
        return _state_during(record, before ^ {*bound})
    missing, added = before - {*bound}, {*bound} - before
    if len(added) > 1:
        raise NotDeterminedError(f"{show_bindings(added)} were bound since, and their order is not known")
    if len(missing) > 1 and not _is_plain(record.state):
        raise NotDeterminedError(
            f"{show_bindings(missing)} were unbound since, from a ring that its bindings do not make"
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


def show_bindings(bindings: Iterable[Binding]) -> str:
    """Return bindings in words."""
    return listed([f"{place!s}={key}" for place, key in sorted(bindings, key=order_of_binding)])


# -- the record as arguments of an exchange


def record_arguments(record: RingRecord, frame_max: int = FRAME_MAX) -> dict[str, Any] | None:
    """Return the arguments of the exchange with a record; None if they do not fit into a frame of so many bytes.

    The oldest rings of its history are left out for that.
    """
    text = json.dumps(_content(record), sort_keys=True, separators=(",", ":"))
    digest = hashlib.sha256(text.encode()).hexdigest()
    encoding = "json"
    most = frame_max - _OTHER_BYTES
    if len(text) > min(_MOST_PLAIN_CHARACTERS, most):
        encoding, text = "zlib", base64.b64encode(zlib.compress(text.encode(), 9)).decode()
    if len(text) > most:
        return record_arguments(replace(record, past=record.past[1:]), frame_max) if record.past else None
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
    state, stamp, bindings = record.state, record.stamp, record.bindings
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
        "cluster": stamp.cluster,
        "vhost": stamp.vhost,
        "identity": stamp.identity,
        "start": stamp.start,
        "transient": record.transient,
        "foreign": [[place_to_json(place), key] for place, key in record.foreign],
        "began": record.began,
        "gap": record.gap,
        "past": past_to_json(record.past, state.buckets),
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
    version = arguments.get("format_version")
    if version == 1:
        raise InputError("it has the format of an earlier program: the command record makes a new one")
    if version != _FORMAT_VERSION:
        raise InputError(
            f"it has the format version {version!r:.40}, and this program reads {_FORMAT_VERSION}: update rabbit-chx"
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
        Stamp(content["cluster"], content["vhost"], content["identity"], content["start"]),
        str(content["transient"]),
        tuple((destination_from_json(place), str(key)) for place, key in content["foreign"]),
        # Records of earlier programs do not have these.
        str(content.get("began", "")),
        str(content.get("gap", "")),
        past_from_json(content.get("past", ()), buckets),
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
            if name not in record_names(record.exchange):
                records[name] = DamagedRecord(name, f"it is the record of exchange {record.exchange!r}")
            elif record.stamp.identity is None:
                records[name] = DamagedRecord(name, f"it does not name the queue {MARK} that proves it")
            else:
                records[name] = record
    return records


def records_of(exchange: str, records: Records) -> list[RingRecord | DamagedRecord]:
    """Return the records of an exchange."""
    return [records[name] for name in record_names(exchange) if name in records]


def ring_by_records(
    records: Iterable[RingRecord | DamagedRecord],
    assumed: HashRing,
    bound: Sequence[Binding],
    mark: Mark,
) -> HashRing:
    """Return the ring that the records of an exchange prove, or the `assumed` one with the doubt."""
    records = list(records)
    valid = [record for record in records if isinstance(record, RingRecord)]
    damaged = [record for record in records if isinstance(record, DamagedRecord)]
    if not valid:
        doubts = [f"the record {record.name} is ignored: {record.problem}" for record in damaged]
        return replace(assumed, ground=Ground("assumed", "; ".join(doubts))) if doubts else assumed
    try:
        return prove_ring(valid, bound, assumed.release, mark)
    except NotDeterminedError as error:
        return replace(assumed, ground=Ground("assumed", str(error)))


def limits_of(records: Iterable[RingRecord], mark: Mark) -> Iterator[str]:
    """Yield what will make new records void although the release keeps rings."""
    for record in records:
        if record.transient and record.state.release.follows(RESTART_KEEPS):
            yield (
                f"a restart of the broker makes the record of {record.exchange} void: it deletes {record.transient}, which may be a member of "
                "the ring"
            )
        if mark.policies:
            yield f"{mark.policies} takes messages of the queue {MARK} away, which makes the record of {record.exchange} void"


def is_recorded(
    ring: HashRing, records: Iterable[RingRecord | DamagedRecord], bound: Sequence[Binding], mark: Mark
) -> bool:
    """Return True if the records of an exchange prove its ring, so that it is known without a ring source."""
    proven = ring_by_records(records, replace(ring, ground=Ground("assumed")), bound, mark)
    return proven.ground.is_certain and proven.buckets == ring.buckets


def make_record(exchange: str, ring: HashRing, bound: Sequence[Binding]) -> RingRecord:
    """Return the final record of a ring that is certain, without time, writer and stamp.

    Args:
        exchange: the exchange's name.
        ring: the ring.
        bound: its bindings, in ring order as far as they have buckets.
    """
    state = RingState(ring.buckets, ring.release, Ground("recorded"), tuple(bound), ring.end_known)
    return RingRecord(exchange, state, origin=ring.provenance)
