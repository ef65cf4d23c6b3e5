"""The record of a ring: the order of its bindings, which the broker keeps in the arguments of an exchange. Values, without I/O.

The management API lists bindings without their order. So `live/recording.py` stores the order beside them. A record proves the ring while the
broker lists exactly its bindings, with their arguments, on the broker of its mark (:mod:`rabbit_chx.records.mark`). Bindings that differ
prove nothing: no rule of a release leads from them to one ring, since other bindings may have come and gone in between. Before an apply changes
a ring, its record is deleted, and `pending_apply.py` keeps it until the apply ends.

RabbitMQ on Khepri keeps a ring when it restarts (rule `RESTART_KEEPS`). On Mnesia a record is void after a restart.
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
from typing import Any, TypeAlias

from rabbit_chx.amqp.frames import FRAME_MAX
from rabbit_chx.errors import InputError, NotDeterminedError
from rabbit_chx.records.mark import Mark, Stamp, has_restarted
from rabbit_chx.records.ring_history import PastRing, past_from_json, past_to_json, with_next
from rabbit_chx.routing import HashRing, Release
from rabbit_chx.routing.bindings import Place, destination_from_json, order_of_binding, place_to_json
from rabbit_chx.routing.ground import PROVENANCES, Ground, Provenance
from rabbit_chx.routing.rules import RESTART_KEEPS, RESTART_SORTS
from rabbit_chx.topology.objects.argument_table import plain
from rabbit_chx.topology.objects.objects import RingMember
from rabbit_chx.topology.objects.own_names import MARK, RECORD_PREFIX
from rabbit_chx.words import listed

_FORMAT, _FORMAT_VERSION = "rabbit-chx/record", 3
_MOST_NAME_BYTES = 255
#: Longer contents are compressed.
_MOST_PLAIN_CHARACTERS = 60_000
#: The arguments beside the contents, and the head of their frame.
_OTHER_BYTES = 2_500


@dataclass(frozen=True, slots=True)
class RingRecord:
    """The record of a ring.

    Attributes:
        exchange: the name of the exchange.
        ring: the ring. Its ground is `recorded`, or that of the ring before an apply.
        members: all bindings, in the order of the ring as far as they have buckets.
        origin: the provenance of the order.
        written: the time, in ISO 8601 and UTC.
        writer: the user, the host and the program.
        stamp: the broker when the record was written.
        began: the time at which the ring of the former record began to change; empty if that is not known.
        past: the rings of the former records, the oldest first.
        number: how many records of the ring the broker has been given; an apply counts twice.
    """

    exchange: str
    ring: HashRing
    members: tuple[RingMember, ...]
    origin: Provenance = "read"
    written: str = ""
    writer: str = ""
    stamp: Stamp = field(default_factory=Stamp)
    began: str = ""
    past: tuple[PastRing, ...] = ()
    number: int = 1

    @property
    def history(self) -> tuple[PastRing, ...]:
        """Its ring after those of the former records."""
        own = PastRing(self.written, self.writer, self.ring.buckets, self.ring.release, self.began)
        return (*self.past, own)

    @property
    def about(self) -> str:
        """The time and the writer, in words."""
        return f"{self.written} by {self.writer}"

    def has_same_ring(self, other: RingRecord) -> bool:
        """Return True if another record has the same ring."""
        return (
            self.exchange == other.exchange
            and self.ring == other.ring
            and self.ring.end_known == other.ring.end_known
            and Counter(self.members) == Counter(other.members)
        )


@dataclass(frozen=True, slots=True)
class DamagedRecord:
    """An exchange with the name of a record and other contents. `problem` names what is wrong."""

    name: str
    problem: str


#: What the broker keeps as the record of each ring, by the name of its exchange.
Records: TypeAlias = Mapping[str, RingRecord | DamagedRecord]


def record_name(exchange: str) -> str:
    """Return the name of the exchange that contains the record of an exchange."""
    name = f"{RECORD_PREFIX}{exchange}"
    if len(name.encode(errors="surrogatepass")) <= _MOST_NAME_BYTES:
        return name
    return RECORD_PREFIX + hashlib.sha256(exchange.encode(errors="surrogatepass")).hexdigest()


# -- what a record proves


def why_void(record: RingRecord, bound: Iterable[RingMember], release: Release, mark: Mark) -> str:
    """Return why a record does not prove the ring of its exchange, as a sentence; empty if it does.

    Args:
        record: the record.
        bound: the bindings of the exchange, as the broker lists them.
        release: the broker's release.
        mark: the mark of the vhost.
    """
    try:
        is_restarted = has_restarted(record.stamp, mark)
    except NotDeterminedError as error:
        return str(error)
    return next(_doubts(record, tuple(bound), release, mark, is_restarted=is_restarted), "")


def _doubts(
    record: RingRecord, bound: Sequence[RingMember], release: Release, mark: Mark, *, is_restarted: bool
) -> Iterator[str]:
    """Yield why a record of this broker does not prove a ring."""
    before = record.ring.release
    if not release.store_known:
        yield "the metadata store is not known, because the user may not list feature flags, and Mnesia changes the order at a restart"
    keeps = release.follows(RESTART_KEEPS) and before.follows(RESTART_KEEPS)
    if not keeps and release != before:
        yield f"it is of RabbitMQ {before}, and this is {release}, which made the ring again"
    if not keeps and is_restarted and None in (record.stamp.identity, record.stamp.start):
        yield "nothing shows that the broker has not restarted since, and a restart on Mnesia changes the order"
    if not keeps and is_restarted:
        yield "the broker has restarted since, and a restart on Mnesia changes the order"
    if changes := changes_since(record, bound):
        yield f"other software has {changes} since"
    if unseen := unseen_restarts(bound, release, mark):
        yield unseen
    silent = {member.destination for member in bound} - {*record.ring.buckets}
    if keeps and is_restarted and silent:
        named = listed(sorted(map(str, silent)))
        yield f"the broker has restarted since, and {named} is bound without buckets, which a restart adds"


def unseen_restarts(bound: Iterable[RingMember], release: Release, mark: Mark) -> str:
    """Return which restarts change a ring with these bindings and leave the mark as it is, as a sentence; empty if there are none."""
    if release.follows(RESTART_KEEPS):
        return ""
    if strangers := mark.strangers([MARK, *(member.destination for member in bound)]):
        return (
            f"queue {strangers[0]} is, or may be, on other nodes than the queue {MARK}: a restart of one of them on Mnesia changes the order, "
            "and is not seen"
        )
    if release.follows(RESTART_SORTS) and len(mark.cluster) != 1:
        several = (
            "of which this one has several" if mark.cluster else "and listing them takes the tag monitoring"
        )
        return f"RabbitMQ {release} adds all bindings again when any node of a cluster returns, {several}"
    return ""


def changes_since(record: RingRecord, bound: Iterable[RingMember]) -> str:
    """Return what others have bound and unbound since a record was written, in words; empty if the bindings are those of the record."""
    now, then = Counter(bound), Counter(record.members)
    changes = (
        (verb, list(members.elements())) for verb, members in (("unbound", then - now), ("bound", now - then))
    )
    return " and ".join(f"{verb} {_show_members(members)}" for verb, members in changes if members)


def _show_members(members: Iterable[RingMember]) -> str:
    return listed(
        [
            f"{member.destination!s}={member.key}{' with arguments' if member.arguments else ''}"
            for member in sorted(members, key=lambda member: order_of_binding(member.binding))
        ]
    )


def ring_by_record(
    record: RingRecord | DamagedRecord, assumed: HashRing, bound: Iterable[RingMember], mark: Mark
) -> HashRing:
    """Return the ring that a record proves, or a likely one with the reason: that of the record as far as its members are bound."""
    if isinstance(record, DamagedRecord):
        doubt = f"the record {record.name} is ignored: {record.problem}"
        return replace(assumed, ground=Ground("assumed", doubt))
    bound = tuple(bound)
    void = why_void(record, bound, assumed.release, mark)
    if not void:
        return replace(record.ring, release=assumed.release, ground=Ground("recorded"))
    likely = likely_ring(record, assumed, bound)
    doubt = f"the record of {record.about} does not determine it: {void}"
    return replace(likely, ground=Ground("assumed", doubt))


def likely_ring(record: RingRecord, assumed: HashRing, bound: Iterable[RingMember]) -> HashRing:
    """Return the ring that the bindings make in the order of a record, without ghost buckets; the `assumed` one if they make none."""
    bindings = list(dict.fromkeys(member.binding for member in bound))
    place = {binding: number for number, binding in enumerate(record.ring.bindings or ())}
    bindings.sort(key=lambda binding: place.get(binding, len(place)))
    try:
        return HashRing.from_bindings(bindings, assumed.release)
    except InputError:  # the release refuses the weight of a binding that is older than the rule
        return assumed


def is_recorded(
    ring: HashRing, record: RingRecord | DamagedRecord | None, bound: Iterable[RingMember], mark: Mark
) -> bool:
    """Return True if the record of an exchange proves its ring, so that it is known without a ring source."""
    if record is None:
        return False
    proven = ring_by_record(record, replace(ring, ground=Ground("assumed")), bound, mark)
    return proven.ground.is_certain and proven.buckets == ring.buckets


def doubt_since(record: RingRecord, ring: HashRing, bound: Iterable[RingMember], mark: Mark) -> str:
    """Return why the ring of a record may not have lasted until now; empty if it has. `ring` is that of now, as far as it is known."""
    doubt = why_void(record, bound, ring.release, mark)
    if not doubt and ring.ground.is_certain and ring.buckets != record.ring.buckets:
        return f"the order was changed since {record.written}, and not by this program"
    return doubt


def following(record: RingRecord, former: RingRecord, doubt: str) -> RingRecord:
    """Return a record with the history of the former one. `doubt`: why the ring of that may not have lasted until now; empty if it has."""
    past = with_next(former.past, former.history[-1])
    return replace(record, began="" if doubt else record.written, past=past, number=former.number + 1)


def beginning(record: RingRecord, former: RingRecord, doubt: str) -> RingRecord:
    """Return the record of a ring before an apply, with the history of what the apply will store. A ring that was read is part of it."""
    if doubt and record.ring.ground.is_certain:
        former, doubt = replace(following(record, former, doubt), writer=""), ""
    return following(record, former, doubt)


def limits_of(records: Iterable[RingRecord], mark: Mark) -> Iterator[str]:
    """Yield what will make new records void although the release keeps rings."""
    for record in records:
        if mark.policies:
            yield f"{mark.policies} takes messages of the queue {MARK} away, which makes the record of {record.exchange} void"


# -- the record as arguments of an exchange


def record_arguments(record: RingRecord, frame_max: int = FRAME_MAX) -> dict[str, Any] | None:
    """Return the arguments of the exchange with a record; None if they do not fit into a frame of so many bytes.

    The oldest rings of its history are left out for that.
    """
    head = {"exchange": record.exchange, "written": record.written, "writer": record.writer}
    while (arguments := seal(_FORMAT, _FORMAT_VERSION, head, record_content(record), frame_max)) is None:
        if not record.past:
            return None
        record = replace(record, past=record.past[1:])
    return arguments


def seal(
    format_: str, version: int, head: Mapping[str, str], content: object, frame_max: int
) -> dict[str, Any] | None:
    """Return the arguments of an exchange with contents and their digest; None if they do not fit into a frame of so many bytes."""
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    digest = hashlib.sha256(text.encode()).hexdigest()
    encoding, most = "json", frame_max - _OTHER_BYTES
    if len(text) > min(_MOST_PLAIN_CHARACTERS, most):
        encoding, text = "zlib", base64.b64encode(zlib.compress(text.encode(), 9)).decode()
    if len(text) > most:
        return None
    sealed = {"encoding": encoding, "content": text, "digest": digest}
    return {"format": format_, "format_version": version, **head, **sealed}


def unseal(format_: str, version: int, noun: str, arguments: Mapping[str, Any]) -> Any:
    """Return the contents in the arguments of an exchange.

    Raises:
        InputError: they are not those of this format, or were changed. It calls them by the `noun`.
    """
    found, of = arguments.get("format_version"), arguments.get("format")
    if of != format_:
        raise InputError(f"it is not {noun}: its format is {of!r:.40}, not {format_!r}")
    if isinstance(found, int) and found < version:
        raise InputError("it has the format of an earlier program: the command record makes a new one")
    if found != version:
        raise InputError(
            f"it has the format version {found!r:.40}, and this program reads {version}: update rabbit-chx"
        )
    text = arguments.get("content")
    try:
        if arguments.get("encoding") == "zlib":
            text = zlib.decompress(base64.b64decode(text or "", validate=True)).decode()
        if hashlib.sha256(str(text).encode()).hexdigest() == arguments.get("digest"):
            return json.loads(str(text))
    except (ValueError, TypeError, RecursionError, zlib.error):
        pass
    raise InputError("its digest does not match its contents: somebody changed it")


def record_content(record: RingRecord) -> dict[str, Any]:
    """Return a record as JSON."""
    ring, stamp = record.ring, record.stamp
    return {
        "exchange": record.exchange,
        "members": [
            [
                place_to_json(member.destination),
                member.key,
                *([plain(member.arguments)] if member.arguments else []),
            ]
            for member in record.members
        ],
        "buckets": [[place_to_json(place), len(list(run))] for place, run in groupby(ring.buckets)],
        "end_known": ring.end_known,
        "release": [ring.release.version, ring.release.store if ring.release.store_known else None],
        "origin": record.origin,
        "ground": ring.ground.origin,
        "written": record.written,
        "writer": record.writer,
        "cluster": stamp.cluster,
        "vhost": stamp.vhost,
        "identity": stamp.identity,
        "start": stamp.start,
        "node": stamp.node,
        "began": record.began,
        "past": past_to_json(record.past, ring.buckets),
        "number": record.number,
    }


def read_record(arguments: Mapping[str, Any]) -> RingRecord:
    """Return the record in the arguments of an exchange.

    Raises:
        InputError: they are not those of a record, or were changed.
    """
    content = unseal(_FORMAT, _FORMAT_VERSION, "a record", arguments)
    try:
        return record_in(content)
    except (ValueError, TypeError, KeyError, IndexError, RecursionError) as error:
        raise InputError(f"its contents are damaged: {error!r:.100}") from None


def record_in(content: Any) -> RingRecord:
    """Return the record of a JSON value, as `record_content` makes it.

    Raises:
        InputError: its order is of an unknown provenance.
    """
    members = tuple(
        RingMember(destination_from_json(place), str(key), *arguments)
        for place, key, *arguments in content["members"]
    )
    version, store = content["release"]
    buckets: list[Place] = []
    for place, count in content["buckets"]:
        buckets += [None if place is None else destination_from_json(place)] * count
    origin = content["origin"]
    if origin not in PROVENANCES:
        raise InputError(f"the provenance {origin!r:.40} of its order is unknown: update rabbit-chx")
    return RingRecord(
        str(content["exchange"]),
        HashRing(
            tuple(buckets),
            Release(version, store),
            Ground(content["ground"]),
            tuple(dict.fromkeys(member.binding for member in members)),
            content["end_known"] is True,
        ),
        members,
        origin,
        str(content["written"]),
        str(content["writer"]),
        Stamp(*(content[name] for name in ("cluster", "vhost", "identity", "start", "node"))),
        str(content["began"]),
        past_from_json(content["past"], buckets),
        int(content["number"]),
    )


def records_in(exchanges: Iterable[Mapping[str, Any]]) -> dict[str, RingRecord | DamagedRecord]:
    """Return the records among the exchanges that the management API lists, by their names."""
    records: dict[str, RingRecord | DamagedRecord] = {}
    for entry in exchanges:
        name = entry["name"]
        if not isinstance(name, str) or not name.startswith(RECORD_PREFIX):
            continue
        try:
            record = read_record(entry.get("arguments") or {})
        except InputError as error:
            records[name] = DamagedRecord(name, str(error))
        else:
            if name != record_name(record.exchange):
                records[name] = DamagedRecord(name, f"it is the record of exchange {record.exchange!r}")
            elif record.stamp.identity is None:
                records[name] = DamagedRecord(name, f"it does not name the queue {MARK} that proves it")
            else:
                records[name] = record
    return records


def make_record(exchange: str, ring: HashRing, bound: Iterable[RingMember]) -> RingRecord:
    """Return the record of a ring that is certain, without time, writer and stamp.

    Args:
        exchange: the exchange's name.
        ring: the ring.
        bound: its bindings, in ring order as far as they have buckets.
    """
    members = tuple(replace(member, slots=None) for member in bound)
    bindings = tuple(dict.fromkeys(member.binding for member in members))
    recorded = HashRing(ring.buckets, ring.release, Ground("recorded"), bindings, ring.end_known)
    return RingRecord(exchange, recorded, members, ring.provenance)
