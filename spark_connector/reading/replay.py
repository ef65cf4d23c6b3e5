"""The rows of a key from a time on, read from the stream of the key."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import closing
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from rabbit_chx.checks import bytes_of
from rabbit_chx.errors import InputError
from rabbit_chx.routing.super_stream import StreamRouting
from rabbit_chx.streams.keys import check_super_stream, find_super_stream
from rabbit_chx.streams.nodes import open_any, settings_of
from spark_connector.options.common import by_lower_name
from spark_connector.options.read_options import ReadOptions
from spark_connector.options.write_options import to_texts
from spark_connector.placing.rings import GivenRing, WatchedRing, read_exchange
from spark_connector.spark_errors import without_traceback

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@without_traceback
def replay(
    spark: SparkSession,
    options: Mapping[str, object],
    key: str | bytes | Iterable[str | bytes],
    since: datetime | str,
    *,
    ring: GivenRing | None = None,
) -> DataFrame:
    """Return the rows of a key, or of several, that were stored from a time on.

    Only the streams that have the keys are read, as the mirror computes them, or with ``routing=key`` the broker. The ring, or the list of a
    super stream's streams, is the current one. Rows that were placed by another one may be in other streams, and are not found.

    Args:
        spark: the session, in which ``register`` has registered the format.
        options: those of a read, with ``superStream``, or with ``exchange`` and its ring: by `ring`, or by ``ringVia``, the command prefix
            by which this process reads it, such as ``docker exec NAME``. With ``filterValues`` the broker omits chunks of other rows; set
            ``filterMatchUnfiltered`` for keys that also have rows without a filter value.
        key: the routing key, or several.
        since: an aware time, or a value of the option ``startingTimestamp``.
        ring: the ring of the exchange or its slot table, its JSON, or a function that reads it.

    Returns:
        The rows, with the columns of a read.

    Raises:
        InputError: an option or the time is not valid, or a key has no stream.
        UnreachableError: no address answers.
        RingSourceError: the ring cannot be read.
    """
    keys = [bytes_of(each, "the key") for each in ([key] if isinstance(key, (str, bytes)) else key)]
    if not keys:
        raise InputError("there is no key: pass at least one")
    given = by_lower_name(to_texts(options, None))
    exchange, ring_via, super_stream, routing = (
        given.pop(name, None) for name in ("exchange", "ringvia", "superstream", "routing")
    )
    if "stream" in given or (exchange is None) == (super_stream is None):
        raise InputError("a replay finds the stream by itself: pass superStream, or exchange with its ring")
    given["startingtimestamp"] = since.isoformat() if isinstance(since, datetime) else since
    parsed = ReadOptions.parse(given | {"stream": "-"})  # which one is not known yet
    if exchange is not None:
        if (ring is None) == (ring_via is None):
            raise InputError(f"exchange {exchange!r} has keys by its ring: pass ring=, or the option ringVia")
        read = partial(read_exchange, ring_via or "", parsed.brokers.addresses[0].vhost, exchange)
        by_key: Any = WatchedRing(read if ring is None else ring).ring
        streams = [by_key.destination_for(each) for each in keys]
    else:
        if ring is not None or ring_via is not None:
            raise InputError("a super stream has no ring: leave it out")
        check_super_stream(super_stream, cast("StreamRouting | None", routing))
        with closing(open_any(settings_of(parsed.brokers.resolve()))) as connection:
            placing = find_super_stream(
                connection, str(super_stream), cast("StreamRouting | None", routing), keys
            )
        streams = [placing.partition_for(each) for each in keys]
    for each, stream in zip(keys, streams, strict=True):
        if not isinstance(stream, str):
            raise InputError(
                f"key {each!r} is routed to {stream}, which is not a stream: check the bindings of {exchange!r}"
            )
        if "," in stream or stream != stream.strip():
            raise InputError(
                f"key {each!r} goes to stream {stream!r}, whose name the option 'stream' cannot have: use rabbit_chx.replay"
            )
    given["stream"] = ",".join(dict.fromkeys(streams))
    frame = spark.read.format("rabbitmq").options(**given).load()
    return frame.where(frame["key"].isin([bytearray(each) for each in keys]))
