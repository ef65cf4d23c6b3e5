"""The record of a ring: the order of its bindings, which the broker keeps in the arguments of an exchange. Values, without I/O.

The management API lists bindings without their order. So `broker/recording.py` stores the order beside them. A record proves the ring while the
broker lists exactly its bindings, with their arguments, on the broker of its mark (:mod:`rabbit_chx.records.ring_records`), on the condition that only
rabbit_chx has changed them. Without some of its members it proves the ring without their buckets. Other bindings prove nothing: no rule of a
release leads from them to one ring, since further ones may have come and gone in between. Before an apply changes
a ring, its record is deleted, and `pending_apply.py` keeps it until the apply ends.

RabbitMQ on Khepri keeps a ring when it restarts (rule `RESTART_KEEPS`). On Mnesia a record is void after a restart.
"""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
import zlib
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, field, replace
from datetime import datetime
from itertools import groupby
from typing import Any

from rabbit_chx.amqp.frames import FRAME_MAX
from rabbit_chx.errors import InputError, RabbitChxError
from rabbit_chx.routing import Destination, HashRing, Release
from rabbit_chx.routing.bindings import (
    PROVENANCES,
    OrderKnowledge,
    Place,
    Provenance,
    destination_from_json,
    order_of_binding,
    place_to_json,
)
from rabbit_chx.routing.rules import RESTART_KEEPS
from rabbit_chx.text import listed
from rabbit_chx.topology.argument_table import plain
from rabbit_chx.topology.objects import MARK, RECORD_PREFIX, RingMember

# -- The mark of a vhost: a queue whose messages show whether the broker has started again since a record was written. Values, without I/O
# The mark is a durable classic queue with one persistent and one transient message, and two random texts as arguments: its identity, and its
# start, which is another one each time that the mark is made again. No copy of a record or of definitions has its messages, and no clock counts
# (tested on 3.10.8, 4.0.5 and 4.3.6 with kill, stop, ``rabbitmqctl stop_app`` and imports):
#
# ========  ==================================================================
# messages  what they show
# ========  ==================================================================
# 2         this is the broker on which the mark was made, since the same start
# 1         its node has started again: the transient message is gone
# 0         it was imported, copied or purged
# ========  ==================================================================
#
# Of two messages, one has to be transient: other programs can publish to the queue, or move its messages and make them persistent. A recorded start is
# what a record has of the mark when it is written. `why_foreign` and `has_restarted` compare both.

_IDENTITY = "rabbit-chx-identity"
_START = "rabbit-chx-start"
#: The persistent and the transient message.
BOTH_MESSAGES = 2


@dataclass(frozen=True, slots=True)
class RecordedStart:
    """Where and since which start of the broker a record holds.

    Attributes:
        cluster: the name of the cluster.
        vhost: the vhost.
        identity: the identity of the mark; None if there was no mark that proves anything.
        start: the start of the mark; None if nothing shows a later restart: the broker had started again, or a queue of the ring is on a node
            whose restarts the mark does not show.
        node: the node of the mark; None if it is not known.
        nodes: the nodes of the cluster; empty if the user could not list them.
    """

    cluster: str | None = None
    vhost: str | None = None
    identity: str | None = None
    start: str | None = None
    node: str | None = None
    nodes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RestartMark:
    """The mark of a vhost now, and the nodes whose restarts it has to show.

    Attributes:
        recorded_start: the cluster, the vhost, and the arguments of the queue; without identity if the queue does not exist.
        messages: the number of its messages, by a passive declaration; None if the broker does not count them.
        persistent: how many of them are persistent, by the last statistics of the broker; None if it has none.
        fault: why the broker does not count them; UnreachableError if no node of the queue is up.
        policies: the policies that take its messages or the queue away, in words.
        nodes: the nodes that have the mark and each queue of the vhost; a queue of which this is not known is missing.
        cluster: the nodes of the cluster; empty if the user may not list them.
        absent: the queues that are down, and of which the broker lists no bindings until their node runs.
    """

    recorded_start: RecordedStart = RecordedStart()
    messages: int | None = None
    fault: RabbitChxError | None = None
    policies: str = ""
    nodes: Mapping[str, frozenset[str]] = field(default_factory=dict, hash=False)
    persistent: int | None = None
    cluster: frozenset[str] = frozenset()
    absent: frozenset[str] = frozenset()

    @property
    def holds(self) -> bool:
        """True if both messages are there, and no others."""
        has_both = self.messages == BOTH_MESSAGES and (self.persistent or 0) <= 1
        return self.recorded_start.identity is not None and has_both

    @property
    def stamp_now(self) -> RecordedStart:
        """The start that a record names if it is made now. Without the transient message it has no start, without both no identity."""
        if self.holds:
            return self.recorded_start
        is_known = self.recorded_start.identity is not None and self.messages == 1
        return replace(
            self.recorded_start, start=None, identity=self.recorded_start.identity if is_known else None
        )

    def queues_on_other_nodes(self, queues: Iterable[object]) -> list[str]:
        """Return those of some queues that are, or may be, on other nodes than the mark, whose restarts it does not show."""
        home = self.nodes.get(MARK, frozenset())
        named = (queue for queue in queues if isinstance(queue, str))
        return sorted(queue for queue in named if len(home) != 1 or self.nodes.get(queue) != home)

    def renewed(self) -> RecordedStart:
        """Return what the mark says when it is made again: with a new start, and a new identity unless it is the same broker as before."""
        identity = self.stamp_now.identity or secrets.token_hex(8)
        return replace(self.recorded_start, identity=identity, start=secrets.token_hex(8))


def mark_arguments(recorded_start: RecordedStart) -> dict[str, Any]:
    """Return the arguments of the queue. Its type is explicit, because the vhost may have another default."""
    return {"x-queue-type": "classic", _IDENTITY: recorded_start.identity, _START: recorded_start.start}


def stamp_in(
    arguments: Mapping[str, Any], cluster: str | None, vhost: str, node: str | None = None
) -> RecordedStart:
    """Return the start that the arguments of the queue name, which is on a node."""
    found = (arguments.get(name) for name in (_IDENTITY, _START))
    identity, start = (text if isinstance(text, str) else None for text in found)
    return RecordedStart(cluster, vhost, identity, start, node)


def has_restarted(recorded_start: RecordedStart, mark: RestartMark) -> bool:
    """Return True if the node of the mark has started again since a record of this broker was written, or may have."""
    return (
        not mark.holds or recorded_start.identity is None or recorded_start.start != mark.recorded_start.start
    )


def why_foreign(recorded_start: RecordedStart, mark: RestartMark) -> str:
    """Return why a record says nothing about this broker; empty if it does.

    One without an identity, of a file, is compared by cluster and vhost alone. The identity is that of one broker, and nodes of a cluster
    without a name report several.
    """
    return next(_faults(recorded_start, mark), "")


def _faults(recorded_start: RecordedStart, mark: RestartMark) -> Iterator[str]:
    now = mark.recorded_start
    for what in ("cluster", "vhost") if recorded_start.identity is None else ("vhost",):
        written = getattr(recorded_start, what)
        here = getattr(now, what)
        if written is None and here is not None:
            yield f"it does not name its {what}: write it again with `show -o json`"
        elif written != here:
            yield f"it is of the {what} {written}, and this is {here}"
    if recorded_start.identity is None:
        return
    if now.identity is None:
        yield f"the queue {MARK} does not exist{_because(mark)}: it was deleted, or the vhost was made again"
    if now.identity != recorded_start.identity:
        yield f"the queue {MARK} is not the one of the record: the vhost was made again, or the record was copied"
    if None not in (recorded_start.node, now.node) and recorded_start.node != now.node:
        yield f"the queue {MARK} is on node {now.node}, and was on {recorded_start.node}: it was moved, or is a copy"
    yield from _message_faults(mark)


def _message_faults(mark: RestartMark) -> Iterator[str]:
    """Yield why the messages of a mark show nothing."""
    if mark.messages is None:
        yield f"the messages of the queue {MARK} cannot be counted: {mark.fault}"
    elif mark.messages == 0:
        yield f"the queue {MARK} is empty{_because(mark)}: it was imported, copied or purged"
    elif mark.messages > BOTH_MESSAGES:
        yield f"the queue {MARK} has {mark.messages} messages, and only {BOTH_MESSAGES} are its own: other programs publish to it"
    elif mark.messages == BOTH_MESSAGES and not mark.holds:
        yield f"the queue {MARK} has {mark.persistent} persistent messages, and one is its own: other programs publish to it, or moved them"


def _because(mark: RestartMark) -> str:
    return f", because of {mark.policies}" if mark.policies else ""


_FORMAT = "rabbit-chx/record"
_FORMAT_VERSION = 5
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
        members: all bindings, in the order of the ring as far as they have buckets.
        buckets: the buckets of the ring.
        release: the release of the broker.
        written: the time at which it was written, in ISO 8601 and UTC.
        writer: the user, the host and the program.
        end_known: what `HashRing` says of its end.
        origin: the provenance of the order.
        recorded_start: the broker when the record was written.
        number: how many records of the ring the broker has been given; an apply counts twice.
    """

    exchange: str
    members: tuple[RingMember, ...]
    buckets: tuple[Place, ...]
    release: Release
    written: str = ""
    writer: str = ""
    end_known: bool = True
    origin: Provenance = "read"
    recorded_start: RecordedStart = field(default_factory=RecordedStart)
    number: int = 1

    @property
    def ring(self) -> HashRing:
        """The ring."""
        bindings = tuple(dict.fromkeys(member.binding for member in self.members))
        return HashRing(
            self.buckets, self.release, OrderKnowledge("recorded"), bindings, end_known=self.end_known
        )

    @property
    def about(self) -> str:
        """The time and the writer, in words."""
        return f"{self.written} by {self.writer}" if self.writer else self.written


def record_name(exchange: str) -> str:
    """Return the name of the exchange that contains the record of an exchange."""
    name = f"{RECORD_PREFIX}{exchange}"
    if len(name.encode(errors="surrogatepass")) <= _MOST_NAME_BYTES:
        return name
    return RECORD_PREFIX + hashlib.sha256(exchange.encode(errors="surrogatepass")).hexdigest()


# -- what a record proves


def why_void(record: RingRecord, bound: Iterable[RingMember], release: Release, mark: RestartMark) -> str:
    """Return why a record does not prove the ring of its exchange, as a sentence; empty if it does.

    Args:
        record: the record.
        bound: the bindings of the exchange, as the broker lists them.
        release: the broker's release.
        mark: the mark of the vhost.
    """
    return next(_doubts(record, tuple(bound), release, mark), "")


def _doubts(
    record: RingRecord, bound: Sequence[RingMember], release: Release, mark: RestartMark
) -> Iterator[str]:
    if foreign := why_foreign(record.recorded_start, mark):
        yield foreign
    before = record.ring.release
    is_restarted = has_restarted(record.recorded_start, mark)
    keeps = release.follows(RESTART_KEEPS) and before.follows(RESTART_KEEPS)
    if not release.store_known:
        yield "the metadata store is not known, because the user may not list feature flags, and Mnesia changes the order at a restart"
    # Enabling Khepri takes the rings over, while the node runs (tested on 4.0.5).
    if not keeps and release.version != before.version:
        yield f"it is of RabbitMQ {before}, and this is {release}, which made the ring again"
    if not keeps and is_restarted:
        is_seen = None not in (record.recorded_start.identity, record.recorded_start.start)
        seen = "the broker has restarted" if is_seen else "nothing shows that the broker has not restarted"
        yield f"{seen} since, and a restart on Mnesia changes the order"
    if unlisted := unlisted_queues(record.members, bound, mark):
        yield f"the broker lists no bindings of {listed(unlisted)}, whose node is down"
    changes = changes_since(record, bound, mark.absent)
    if changes and not _has_only_removed(record, bound, mark):
        yield f"other software has {changes} since"
    if unseen := unseen_restarts(bound, release, mark):
        yield unseen
    silent = {member.destination for member in bound} - {*record.ring.buckets}
    if is_restarted and silent:
        named = listed(sorted(map(str, silent)))
        yield f"the broker has restarted since, and {named} is bound without buckets, which a restart adds"


def _has_only_removed(record: RingRecord, bound: Iterable[RingMember], mark: RestartMark) -> bool:
    """Return True if others have only removed members since, which leaves one ring: that of the record without their buckets.

    A queue that ended with its node, or when that left the cluster, may have left its buckets.
    """
    then = Counter(record.members)
    now = Counter(bound)
    removed = then - now
    bindings = Counter(member.destination for member in record.members)
    is_single = all(bindings[member.destination] == 1 for member in removed)
    is_steady = not has_restarted(record.recorded_start, mark) and bool(record.recorded_start.nodes)
    return now < then and is_single and is_steady and mark.cluster.issuperset(record.recorded_start.nodes)


def unseen_restarts(bound: Iterable[RingMember], release: Release, mark: RestartMark) -> str:
    """Return which restarts change a ring with these bindings and leave the mark as it is, as a sentence; empty if there are none."""
    if release.follows(RESTART_KEEPS):
        return ""
    if queues_on_other_nodes := mark.queues_on_other_nodes([MARK, *(member.destination for member in bound)]):
        return (
            f"queue {queues_on_other_nodes[0]} is, or may be, on other nodes than the queue {MARK}: a restart of one of them on Mnesia changes the order, "
            "and is not seen"
        )
    return ""


def why_suspect(record: RingRecord, mark: RestartMark, starts: Mapping[str, float | None]) -> str:
    """Return what may have left buckets of queues that others had bound since a record, as a sentence; empty if nothing has.

    A queue that ends with its node or with its connection leaves the list of bindings, and on Khepri its buckets stay in the ring.

    Args:
        record: the record.
        mark: the mark of the vhost.
        starts: the nodes of the cluster, each with its start in seconds since 1970, as far as it is known.
    """
    if lost := sorted({*record.recorded_start.nodes} - mark.cluster if mark.cluster else ()):
        return f"{listed(lost)} has left the cluster since"
    if has_restarted(record.recorded_start, mark):
        return "the broker has restarted since"
    try:
        written = datetime.fromisoformat(record.written).timestamp()
    except ValueError:  # another program wrote it
        return ""
    started = sorted(node for node, start in starts.items() if start is not None and start > written)
    return f"{listed(started)} has restarted since" if started else ""


def unlisted_queues(
    members: Iterable[RingMember], bound: Iterable[RingMember], mark: RestartMark
) -> list[str]:
    """Return the queues of members that the broker does not list as bound, as their node is down: nobody knows whether they are bound."""
    silent = {member.destination for member in members} - {member.destination for member in bound}
    return sorted(mark.absent & silent)


def changes_since(
    record: RingRecord, bound: Iterable[RingMember], absent: Collection[Destination] = ()
) -> str:
    """Return what others have bound and unbound since a record was written, in words; empty if the bindings are those of the record.

    What became of the bindings of `absent` queues is not known.
    """
    now = Counter(bound)
    then = Counter(member for member in record.members if member.destination not in absent or member in now)
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
    record: RingRecord, unordered: HashRing, bound: Iterable[RingMember], mark: RestartMark
) -> HashRing:
    """Return the ring that a record proves, without the members that others have removed; or `unordered`, with the reason why it proves none."""
    bound = tuple(bound)
    void = why_void(record, bound, unordered.release, mark)
    if not void:
        ring = replace(record.ring, release=unordered.release)
        there = {member.destination for member in bound}
        for member in record.members:
            if member.destination not in there:
                ring = ring.unbind(*member.binding)
        return replace(ring, order=OrderKnowledge("recorded"))
    doubt = f"the record of {record.about} does not determine it: {void}"
    return replace(unordered, order=OrderKnowledge(None, doubt))


# -- the record as arguments of an exchange


def record_arguments(record: RingRecord, frame_max: int = FRAME_MAX) -> dict[str, Any] | None:
    """Return the arguments of the exchange with a record; None if they do not fit into a frame of so many bytes."""
    head = {"exchange": record.exchange, "written": record.written, "writer": record.writer}
    return seal(_FORMAT, _FORMAT_VERSION, head, record_content(record), frame_max)


def seal(
    format_: str, version: int, head: Mapping[str, str], content: object, frame_max: int
) -> dict[str, Any] | None:
    """Return the arguments of an exchange with contents and their digest; None if they do not fit into a frame of so many bytes."""
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    digest = hashlib.sha256(text.encode()).hexdigest()
    encoding = "json"
    most = frame_max - _OTHER_BYTES
    if len(text) > min(_MOST_PLAIN_CHARACTERS, most):
        encoding = "zlib"
        text = base64.b64encode(zlib.compress(text.encode(), 9)).decode()
    if len(text) > most:
        return None
    sealed = {"encoding": encoding, "content": text, "digest": digest}
    return {"format": format_, "format_version": version, **head, **sealed}


def unseal(format_: str, version: int, noun: str, arguments: Mapping[str, Any]) -> Any:
    """Return the contents in the arguments of an exchange.

    Raises:
        InputError: they are not those of this format, or were changed. It calls them by the `noun`.
    """
    found = arguments.get("format_version")
    of = arguments.get("format")
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
        "buckets": [[place_to_json(place), len(list(run))] for place, run in groupby(record.buckets)],
        "release": [record.release.version, record.release.store if record.release.store_known else None],
        "written": record.written,
        "writer": record.writer,
        "end_known": record.end_known,
        "origin": record.origin,
        "stamp": astuple(record.recorded_start),
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
    origin = content["origin"]
    if origin not in PROVENANCES:
        raise InputError(f"the provenance {origin!r:.40} of its order is unknown: update rabbit-chx")
    cluster, vhost, identity, start, node, nodes = content["stamp"]
    buckets: list[Place] = []
    for place, count in content["buckets"]:
        buckets += [None if place is None else destination_from_json(place)] * count
    record = RingRecord(
        str(content["exchange"]),
        members,
        tuple(buckets),
        Release(*content["release"]),
        str(content["written"]),
        str(content["writer"]),
        content["end_known"] is True,
        origin,
        RecordedStart(cluster, vhost, identity, start, node, tuple(nodes)),
        int(content["number"]),
    )
    _ = record.ring  # refuses buckets and bindings of other types
    return record


def records_in(exchanges: Iterable[Mapping[str, Any]]) -> tuple[dict[str, RingRecord], dict[str, str]]:
    """Return the records among the exchanges that the management API lists, by the exchanges that they are about.

    Return also what is wrong with those that cannot be read, by their own names.
    """
    records = dict[str, RingRecord]()
    damaged = dict[str, str]()
    for entry in exchanges:
        name = entry["name"]
        if not isinstance(name, str) or not name.startswith(RECORD_PREFIX):
            continue
        try:
            record = _read_named(name, entry.get("arguments") or {})
        except InputError as error:
            damaged[name] = str(error)
        else:
            records[record.exchange] = record
    return records, damaged


def _read_named(name: str, arguments: Mapping[str, Any]) -> RingRecord:
    record = read_record(arguments)
    if name != record_name(record.exchange):
        raise InputError(f"it is the record of exchange {record.exchange!r}")
    if record.recorded_start.identity is None:
        raise InputError(f"it does not name the queue {MARK} that proves it")
    return record


def make_record(
    exchange: str,
    ring: HashRing,
    bound: Iterable[RingMember],
    *,
    written: str = "",
    writer: str = "",
    recorded_start: RecordedStart | None = None,
) -> RingRecord:
    """Return the record of a ring.

    Args:
        exchange: the exchange's name.
        ring: the ring.
        bound: its bindings, in ring order as far as they have buckets.
        written: the time.
        writer: who writes it.
        recorded_start: the broker.
    """
    members = tuple(replace(member, slots=None) for member in bound)
    return RingRecord(
        exchange,
        members,
        ring.buckets,
        ring.release,
        written,
        writer,
        ring.end_known,
        ring.provenance or "replayed",  # of an order that is made now
        recorded_start or RecordedStart(),
    )
