"""The status of a `StreamGroup`: the lag of each stream according to its leader."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field

from rabbit_chx.amqp import ConnectionSettings
from rabbit_chx.errors import NotFoundError
from rabbit_chx.result_fields import Metric, shown
from rabbit_chx.streams.chunks import Chunk
from rabbit_chx.streams.connection import StreamConnection
from rabbit_chx.streams.ends import ChunkFinder
from rabbit_chx.streams.frames import Code
from rabbit_chx.streams.nodes import open_at, settings_of

_TIMEOUT_S = 60.0
_LAG_ROWS = Metric(
    "rabbit_chx_stream_group_lag_rows", "The number of offsets of a stream after the stored one."
)
_LAG_S = Metric(
    "rabbit_chx_stream_group_lag_seconds",
    "The age of the oldest chunk of a stream after the stored offset, in seconds.",
)
_OLDEST_S = Metric(
    "rabbit_chx_stream_oldest_row_age_seconds", "The age of the first chunk of a stream, in seconds."
)


@dataclass(frozen=True, slots=True)
class StreamShare:
    """A stream of a group.

    Attributes:
        stored: the stored offset of the group; None without one.
        lag_rows: the number of offsets after the stored one, which is at least the number of rows.
        lag_s: the age of the oldest chunk after the stored offset, in seconds; 0 without one.
        oldest_s: the age of the first chunk of the stream, in seconds, which retention removes next; None without one.
    """

    stream: str = field(metadata=shown("stream"))
    stored: int | None = field(metadata=shown("stored", number=True))
    lag_rows: int = field(metadata=shown("lag rows", number=True, summed=True, metric=_LAG_ROWS))
    lag_s: float = field(metadata=shown("lag s", round, number=True, metric=_LAG_S))
    oldest_s: float | None = field(metadata=shown(metric=_OLDEST_S))


def read_stream_group(
    settings: ConnectionSettings,
    group: str,
    streams: Iterable[str],
    addresses: Mapping[str, str] | None = None,
) -> list[StreamShare]:
    """Return the streams of a group; `addresses` is as for `StreamReader`."""
    shares = []
    for stream in streams:
        at_leader = open_at(
            settings_of(settings), stream, leader=True, addresses=addresses, timeout_s=_TIMEOUT_S
        )
        with closing(at_leader) as connection:
            shares.append(_read_share(connection, group, stream))
    return shares


def _read_share(connection: StreamConnection, group: str, stream: str) -> StreamShare:
    """Return the lag of a group in a stream, by the leader of the stream."""
    stored = connection.query_offset(group, stream)
    finder = ChunkFinder(connection, _TIMEOUT_S)
    end = finder.end(stream).offset
    first = finder.first(stream)
    following = end if first is None else first.offset
    if stored is not None:
        following = max(following, stored + 1)
    chunk = finder.chunk_at(stream, following) if following < end else None
    if chunk is not None:  # not the broker's own chunks before it, such as those of stored offsets
        following = max(following, chunk.offset)
    return StreamShare(stream, stored, max(0, end - following), _age_s(chunk) or 0.0, _age_s(first))


def _age_s(chunk: Chunk | None) -> float | None:
    return None if chunk is None else round(max(0.0, time.time() - chunk.timestamp_ms / 1000), 3)


def find_streams(connection: StreamConnection, names: Sequence[str]) -> list[str]:
    """Return the streams of these names, each of a stream, a super stream, or an exchange to which only streams are bound."""
    found: list[str] = []
    of_name = connection.metadata(names, missing_ok=True)
    for name in names:
        if of_name[name].code != Code.STREAM_DOES_NOT_EXIST:
            connection.metadata([name])  # raises an error if the user may not read it
            found.append(name)
            continue
        try:
            partitions = connection.partitions(name)
        except NotFoundError:
            raise NotFoundError(
                f"{connection.where}: stream, super stream or exchange {name!r} does not exist: check the name and the vhost",
                queue=name,
            ) from None
        connection.metadata(partitions)
        found += partitions
    return [*dict.fromkeys(found)]
