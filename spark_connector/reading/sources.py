"""The streams of a read, and its start and end in each."""

from __future__ import annotations

import logging
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping
from contextlib import closing
from datetime import datetime

from rabbit_chx.amqp.settings import ManagementUrl
from rabbit_chx.errors import InputError, MissingRowsError, NotFoundError, UnreachableError
from rabbit_chx.streams.ends import LogEnd, LogEnds
from rabbit_chx.streams.keys import find_super_stream
from rabbit_chx.streams.nodes import open_any, settings_of
from spark_connector.options.read_options import Bound, ReadOptions

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
                raise NotFoundError(  # with any failOnDataLoss: nothing was read of it yet
                    f"there is no stream {stream!r} (a queue of another type may have that name): check the name and the vhost",
                    queue=stream,
                )
        for stream in bound if isinstance(bound, Mapping) else ():
            if stream not in self._now:
                raise InputError(
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
            raise in_sparks_words(MissingRowsError(message, queue=stream))
        _log.warning("%s; %s (failOnDataLoss is false)", message, instead)

    def _offset_at(self, option: str, bound: Bound, stream: str, end: LogEnd) -> int:
        if isinstance(bound, datetime):
            return self.logs.offset_of(stream, bound, end)
        if isinstance(bound, Mapping) and stream not in bound:
            raise InputError(
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
            except UnreachableError as cause:
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
            raise InputError(f"no stream is bound to exchange {exchange!r}: {remedy}", exchange=exchange)
        return streams


def in_sparks_words(cause: MissingRowsError) -> MissingRowsError:
    """Return the error with the Spark option as its remedy."""
    text = str(cause).removesuffix(", or pass on_missing='count'")
    return MissingRowsError(
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
