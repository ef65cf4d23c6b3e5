"""The micro-batches of a streaming query: its offsets in the checkpoint, the end of each micro-batch, and the check of the logs.

Spark keeps offsets in the checkpoint as JSON objects, and compares them as texts. An *anchor* is the start of a new query before its
offsets are known. Spark asks a source for its start again until the first micro-batch is committed, and keeps only ends. So the first
micro-batch has no rows: it ends at the offsets, which are then in the checkpoint, and `latest` has the same offsets whenever the query is
started again. (Spark 4.3, MicroBatchExecution.scala, ``getStartOffset`` and ``runBatch``.)
"""

from __future__ import annotations

import json
import logging
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping
from contextlib import closing
from datetime import datetime
from typing import Any, NamedTuple

from rabbit_chx import errors
from rabbit_chx.amqp.settings import ManagementUrl
from rabbit_chx.streams.chunks import Fingerprint
from rabbit_chx.streams.log_lookup import LogEnd, LogEnds
from rabbit_chx.streams.nodes import open_any, settings_of
from rabbit_chx.streams.rows import find_super_stream
from spark_connector.options.read_options import Bound, ReadOptions

# -- The streams of a read, and its start and end in each

_log = logging.getLogger(__name__)

_EARLIEST = -2
_LATEST = -1
#: The interval at which the bindings of an exchange are read.
_BINDINGS_S = 30.0


class Sources:
    """The streams of a read; streams may be added while a query runs. `logs` finds their ends."""

    def __init__(self, options: ReadOptions) -> None:
        self.logs = LogEnds(options.brokers.resolve(), options.addresses, options.timeout_s)
        self._options = options
        self._bound: tuple[str, ...] = ()
        self._now: tuple[str, ...] = ()  # the streams of the last call of `ends`
        self._read_at = -_BINDINGS_S

    def close(self) -> None:
        """Close the connections."""
        self.logs.close()

    def ends(self) -> dict[str, LogEnd]:
        """Return the ends of the streams that exist; an InputError if the broker does not have the filters of the read."""
        if self._options.filter_values:
            self.logs.check_filters()
        self._now = self._streams()
        return self.logs.ends(self._now)

    def offsets_at(self, option: str, bound: Bound, ends: Mapping[str, LogEnd]) -> dict[str, int]:
        """Return the start or end offset of each stream by the value of an `option`.

        Raises:
            InputError: the option contains other streams than those of the read.
            NotFoundError: a stream does not exist.
            MissingRowsError: a stream ends before the offset, and ``failOnDataLoss`` is true.
        """
        for stream in self._now:
            if stream not in ends:
                raise errors.NotFoundError(  # with any failOnDataLoss: nothing was read of it yet
                    f"there is no stream {stream!r} (a queue of another type may have that name): check the name and the vhost",
                    queue=stream,
                )
        named = bound if isinstance(bound, Mapping) else ()
        for stream in named:
            if stream not in self._now:
                raise errors.InputError(
                    f"option {option!r} names stream {stream!r}, which is not one of {self._options.source}: leave it out",
                    queue=stream,
                )
        return {stream: self._offset_at(option, bound, stream, end) for stream, end in ends.items()}

    def streams_of_keys(self, keys: Iterable[bytes]) -> dict[bytes, str | None]:
        """Return the stream of each key in the super stream of the read; None if not one partition is bound with it."""
        options = self._options
        name = str(self._options.super_stream)
        with closing(open_any(settings_of(options.brokers.resolve()))) as connection:
            if options.routing != "key":
                placing = find_super_stream(connection, name, options.routing, ())
                return {key: placing.partition_for(key) for key in keys}
            bound = {key: connection.routes(name, key.decode(errors="replace")) for key in keys}
        return {key: streams[0] if len(streams) == 1 else None for key, streams in bound.items()}

    def lose(self, stream: str, message: str, instead: str) -> None:
        """Report missing rows, as a MissingRowsError if ``failOnDataLoss`` is true, or as a warning with their number and what is read."""
        if self._options.fail_on_data_loss:
            raise in_sparks_words(errors.MissingRowsError(message, queue=stream))
        _log.warning("%s; %s (failOnDataLoss is false)", message, instead)

    def _offset_at(self, option: str, bound: Bound, stream: str, end: LogEnd) -> int:
        if isinstance(bound, datetime):
            return self.logs.offset_of(stream, bound, end)
        if isinstance(bound, Mapping) and stream not in bound:
            raise errors.InputError(
                f"option {option!r} does not name stream {stream!r}: pass an offset for each stream of {self._options.source}; "
                "-2 is its first row, and -1 is the end",
                queue=stream,
            )

        offset = bound[stream] if isinstance(bound, Mapping) else bound
        if offset in ("earliest", _EARLIEST):
            return self.logs.offset_of(stream, "first", end)
        if offset in ("latest", _LATEST):
            return end.offset

        assert isinstance(offset, int)  # the options are checked
        if offset > end.offset:
            self.lose(
                stream,
                f"option {option!r} is {offset} for stream {stream!r}, which ends at offset {end.offset}: it was deleted and made "
                "again, or its log was cut; pass an offset that it has",
                f"{offset - end.offset:,} offsets are passed over",
            )

        return min(offset, end.offset)

    def _streams(self) -> tuple[str, ...]:
        options = self._options
        if options.super_stream is not None:
            return self.logs.partitions(options.super_stream)
        if options.exchange is None:
            return options.streams
        if time.monotonic() - self._read_at >= _BINDINGS_S:
            try:
                self._bound = self._bound_now(options.exchange)
            except errors.UnreachableError as cause:
                if not self._bound:
                    raise
                _log.warning("%s; the streams of exchange %r are those from before", cause, options.exchange)
            self._read_at = time.monotonic()
        return self._bound

    def _bound_now(self, exchange: str) -> tuple[str, ...]:
        management_url = self._options.management_url
        if management_url is None:
            streams = self.logs.streams_of(exchange)
            remedy = "check its name and the vhost, or pass managementUrl, which also finds the streams behind bound exchanges"
        else:
            login = self._options.brokers.resolve()[0]
            types = bound_queues(management_url.with_login_of(login), login.vhost, exchange)
            streams = tuple(sorted(queue for queue, kind in types.items() if kind == "stream"))
            remedy = (
                f"bind queues of the type stream, or name the streams with the option 'stream'; spark_connector.drain takes messages out "
                f"of the {len(types)} other queues that are"
            )
        if not streams:
            raise errors.InputError(
                f"no stream is bound to exchange {exchange!r}: {remedy}", exchange=exchange
            )
        return streams


def in_sparks_words(cause: errors.MissingRowsError) -> errors.MissingRowsError:
    """Return the error with the Spark option as its remedy."""
    text = str(cause).removesuffix(", or pass on_missing='count'")
    return errors.MissingRowsError(
        f"{text}. With failOnDataLoss=false the reading goes on with what is there",
        queue=cause.queue,
        offsets=cause.offsets,
    )


def bound_queues(management_url: ManagementUrl, vhost: str, exchange: str) -> dict[str, str]:
    """Return the types of the queues that are bound to an exchange, or to exchanges bound to it."""
    from rabbit_chx.broker.management import Management  # loads pika, which an executor may lack

    management = Management(management_url)
    management.get("exchanges", vhost, exchange)  # raises if it does not exist
    targets = defaultdict(set)
    ends = {"source": str, "destination_type": str, "destination": str}
    for binding in management.get_list("bindings", vhost, fields=ends):
        targets[binding["source"]].add((binding["destination_type"], binding["destination"]))
    queues = set()
    seen = {exchange}
    left = [exchange]
    while left:
        for kind, name in targets[left.pop()]:
            if kind == "queue":
                queues.add(name)
            elif name not in seen:
                seen.add(name)
                left.append(name)
    listed = management.get_list(
        "queues", vhost, query={"columns": "name,type"}, fields={"name": str, "type": str}
    )
    return {queue["name"]: queue["type"] for queue in listed if queue["name"] in queues}


class Place(NamedTuple):
    """A position in a stream: the first offset that is not read, and the fingerprint of the last known chunk before it."""

    next: int
    before: Fingerprint | None = None


def anchor(bound: Bound) -> dict[str, Any]:
    """Return the offset of a new query."""
    if isinstance(bound, datetime):
        return {"anchor": bound.isoformat()}
    return {"anchor": dict(sorted(bound.items())) if isinstance(bound, Mapping) else bound}


def is_anchor(offset: Mapping[str, Any]) -> bool:
    """Return whether it is the offset of a new query."""
    return isinstance(offset, Mapping) and "anchor" in offset  # a source of Spark may have a number


def offset_of(places: Mapping[str, Place]) -> dict[str, Any]:
    """Return the offset of places; equal places have equal texts."""
    return {"streams": {stream: _fields(place) for stream, place in sorted(places.items())}}


def places_in(offset: Mapping[str, Any]) -> dict[str, Place]:
    """Return the places of an offset of `offset_of`; a RabbitChxError for another value."""
    try:
        return {stream: _place(fields) for stream, fields in offset["streams"].items()}
    except (AttributeError, KeyError, TypeError):
        raise errors.RabbitChxError(
            f"the checkpoint has the offset {offset!r:.200}, which is none of format('rabbitmq'): pass a checkpointLocation that no "
            "other query has used"
        ) from None


def offsets_behind_latest(progress: Any) -> dict[str, Any]:
    """Return how far a streaming query is behind the ends of its streams, with the names of the Kafka source's metrics.

    Spark (4.0 to 4.3) asks no data source in Python for metrics, so this compares the offsets of a progress.

    Args:
        progress: that of a streaming query, such as ``query.lastProgress``, or of a ``StreamingQueryListener``.

    Returns:
        ``minOffsetsBehindLatest``, ``maxOffsetsBehindLatest``, ``avgOffsetsBehindLatest``, and ``byStream`` with that of each stream. Empty
        if the progress has no offsets of ``format("rabbitmq")``, as before the first micro-batch.
    """
    sources = progress if isinstance(progress, Mapping) else json.loads(progress.json)
    behind: dict[str, int] = {}
    for source in sources["sources"]:
        end = _streams_of(source.get("endOffset"))
        latest = _streams_of(source.get("latestOffset"))
        behind |= {name: max(0, latest[name] - end[name]) for name in end.keys() & latest.keys()}
    if not behind:
        return {}
    return {
        "minOffsetsBehindLatest": min(behind.values()),
        "maxOffsetsBehindLatest": max(behind.values()),
        "avgOffsetsBehindLatest": sum(behind.values()) / len(behind),
        "byStream": dict(sorted(behind.items())),
    }


def _streams_of(offset: object) -> dict[str, int]:
    """Return the next offset of each stream; nothing for the offset of another source."""
    value = json.loads(offset) if isinstance(offset, str) else offset
    streams = value.get("streams") if isinstance(value, Mapping) else None
    return {name: fields["next"] for name, fields in streams.items()} if isinstance(streams, Mapping) else {}


def _fields(place: Place) -> dict[str, int]:
    if place.before is None:
        return {"next": place.next}
    chunk, epoch, crc = place.before
    return {"chunk": chunk, "crc": crc, "epoch": epoch, "next": place.next}


def _place(fields: Mapping[str, int]) -> Place:
    if "chunk" not in fields:
        return Place(fields["next"])
    return Place(fields["next"], Fingerprint(fields["chunk"], fields["epoch"], fields["crc"]))


class MicroBatches:
    """Plans the micro-batches of a query. It keeps its connections, so that the ends of streams are found within milliseconds.

    `ends` are the last known ends of the streams.
    """

    def __init__(self, options: ReadOptions) -> None:
        self.ends: Mapping[str, LogEnd] = {}
        self._options = options
        self._sources = Sources(options)
        self._logs = self._sources.logs
        self._held = False
        self._gone: set[str] = set()
        self._seen: dict[str, int] = {}  # the last end of each stream, also of one that is deleted

    def close(self) -> None:
        """Close the connections."""
        self._sources.close()

    def hold(self) -> None:
        """Fix the end of the query at the current ends of the streams."""
        self._look()
        self._held = True

    def begin(self) -> dict[str, Place]:
        """Return the start of the query as offsets.

        Raises:
            InputError: ``startingOffsets`` does not fit the streams.
            MissingRowsError: a stream ends before its start, and ``failOnDataLoss`` is true.
        """
        self._look()
        bound = self._options.start or "latest"
        offsets = self._sources.offsets_at("startingOffsets", bound, self.ends)
        return {stream: self._place(stream, offset, Place(0)) for stream, offset in offsets.items()}

    def after(
        self, places: Mapping[str, Place], most_rows: int | None, most_bytes: int | None
    ) -> dict[str, Place]:
        """Return the end of the micro-batch that starts at these places; the same places if there are no new rows.

        Args:
            places: its start.
            most_rows: its most offsets; None for no bound.
            most_bytes: its approximate most bytes; None for no bound.

        Raises:
            MissingRowsError: a log is not the one that was read, and ``failOnDataLoss`` is true.
        """
        self._look()
        starts = {stream: self._still(stream, place) for stream, place in places.items()}
        known = {
            stream: place
            for stream, place in places.items()
            if stream in self.ends and starts[stream] == place
        }
        counts = {stream: self.ends[stream].offset - place.next for stream, place in known.items()}
        if most_bytes is not None:
            counts = bound_bytes(counts, self._row_bytes(known, counts), most_bytes)
        if most_rows is not None:
            counts = bound_rows(counts, most_rows)
        found = {
            stream: self._place(stream, place.next + counts[stream], place) if counts[stream] else place
            for stream, place in known.items()
        }

        # The rows of a new stream, or of a new log, are read with the next micro-batch, which starts at the offset in the checkpoint.
        new = self.ends.keys() - places.keys()
        return (
            starts
            | found
            | {stream: Place(self._logs.offset_of(stream, "first", self.ends[stream])) for stream in new}
        )

    def _look(self) -> None:
        if not self._held:
            self._seen |= {stream: end.offset for stream, end in self.ends.items()}
            self.ends = self._sources.ends()

    def _still(self, stream: str, place: Place) -> Place:
        """Return the place if its log is still the same, or the first one of another log. A missing stream keeps its place: it may exist
        again later, for example if it was unbound and is bound again.
        """
        end = self.ends.get(stream)
        seen = self._seen.get(stream)
        unread = "how many rows behind that were not read is not known, since the query has just started"
        if seen is not None:
            unread = f"{max(0, seen - place.next):,} rows behind that were seen and not read"

        was_read = f"stream {stream!r} was read up to offset {place.next}, and"
        if end is None:
            if stream not in self._gone:
                self._sources.lose(
                    stream,
                    f"{was_read} it is deleted, or is not part of {self._options.source} any more",
                    f"{unread}, and the reading goes on without them",
                )
                self._gone.add(stream)
            return place

        self._gone.discard(stream)
        if end.offset < place.next:
            differs = f"it ends at offset {end.offset}: it was deleted and created again, or its log was cut"
        elif (found := self._chunk_instead(stream, place, end)) is not None:
            differs = f"its log was rewritten: where {place.before} was, {found} is there. It was deleted and made again, or its log was cut"
        else:
            return place

        first = 0 if self._options.fail_on_data_loss else self._logs.offset_of(stream, "first", end)
        self._sources.lose(
            stream,
            f"{was_read} {differs}, and its offsets now mean other rows",
            f"{unread}; the {end.offset - first:,} rows of the new log are read from its first offset, {first}",
        )
        return Place(first)

    def _chunk_instead(self, stream: str, place: Place, end: LogEnd) -> Fingerprint | None:
        """Return the chunk that is where the last known one was; None if it still is, or if retention has removed it.

        With ``failOnDataLoss`` only the end is compared here: the tasks compare the log, and fail.
        """
        last = end.fingerprint
        before = place.before
        if last is None or before is None:
            return None
        found: Fingerprint | None = last
        if end.offset > place.next and last.offset > before.offset:
            chunk = None if self._options.fail_on_data_loss else self._logs.chunk_at(stream, before.offset)
            found = chunk and chunk.fingerprint
            if found is None or found.offset > before.offset:
                return None
        return None if found == before else found

    def _place(self, stream: str, offset: int, begin: Place) -> Place:
        """Return the place of an offset, with the fingerprint of the chunk before it, or else that of the start."""
        end = self.ends[stream]
        if offset == end.offset:
            return Place(*end)
        chunk = self._logs.chunk_at(stream, offset - 1) if offset else None
        if chunk is None or chunk.offset >= offset:
            return Place(offset, begin.before)
        return Place(offset, chunk.fingerprint)

    def _row_bytes(self, places: Mapping[str, Place], counts: Mapping[str, int]) -> dict[str, float]:
        """Return the size of a row at the start of each stream."""
        sizes = dict.fromkeys(places, 0.0)
        for stream, place in places.items():
            chunk = self._logs.chunk_at(stream, place.next) if counts[stream] else None
            if chunk is not None:
                sizes[stream] = len(chunk.data) / chunk.records
        return sizes


def bound_rows(available: Mapping[str, int], most: int) -> dict[str, int]:
    """Return the number of offsets to read of each stream: all, or `most` together, in proportion to the available ones."""
    total = sum(available.values())
    if total <= most:
        return dict(available)
    shares = {stream: count * most // total for stream, count in available.items()}
    # The remainder goes to the streams that lost most by rounding, so that there is progress with any bound.
    by_loss = sorted(available, key=lambda stream: (-(available[stream] * most % total), stream))
    for stream in by_loss[: most - sum(shares.values())]:
        shares[stream] += 1
    return shares


def bound_bytes(available: Mapping[str, int], row_bytes: Mapping[str, float], most: int) -> dict[str, int]:
    """Return the number of offsets to read of each stream, at least one, for approximately `most` bytes together."""
    total = sum(count * row_bytes[stream] for stream, count in available.items())
    if total <= most:
        return dict(available)
    return bound_rows(available, max(1, int(sum(available.values()) * most / total)))
