"""Rows moved into one partition for each stream and sorted there: what each attempt of a task then writes is the same."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rabbit_chx.routing import KeyMap, SuperStream
from spark_connector.placing.placement import Placement, moved, text_column
from spark_connector.placing.prediction import as_ring

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def place_for_streams(df: DataFrame, streams: SuperStream | KeyMap | str, key: str = "key") -> DataFrame:
    """Return the same rows as ``delivery=exactly-once`` needs them: one partition for each stream, sorted by key and value.

    The number of a row in its stream is its id there, so each attempt of a task has to give the same rows in the same order. Equal
    rows may change places. Call it last: what is done to the rows after it may move them, and the write then refuses them.

    Streaming frames can be placed as well. Spark does not sort them, so the write sorts the rows of each task itself.

    Args:
        df: the rows; the columns stay as they are. One is `value`, the body, string or binary.
        streams: the super stream (``SuperStream(["orders-0", "orders-1"])``, in the broker's order), or the ring of a hash exchange
            or the table of its slots whose queues are streams, or the JSON of either.
        key: name of the column with the routing key, string or binary.

    Raises:
        InputError: a column is missing or of another type, or the ring has no buckets.

    Example::

        rows = place_for_streams(df, SuperStream(["orders-0", "orders-1"]))
        once = {"superStream": "orders", "delivery": "exactly-once", "appId": "load", "version": 42}
        rows.write.format("rabbitmq").options(url=url, **once).mode("append").save()
    """
    from pyspark.sql import functions

    placing = streams if isinstance(streams, SuperStream) else as_ring(streams)
    column, nullable = text_column(df, key, "the routing key with key=")
    value, _ = text_column(df, "value", "the body 'value'")
    names = placing.partitions if isinstance(placing, SuperStream) else tuple(map(str, placing.destinations))
    # The write names the rows of the spare partition, which have no stream.
    placement = Placement(names, (1,) * len(names), spare=nullable or _has_holes(placing))
    # By bytes, whatever the collation of a column is.
    order = [functions.col(f"`{name}`").cast("binary") for name in (column, value)]
    return moved(df, column, placing, placement, () if df.isStreaming else order)


def _has_holes(placing: SuperStream | KeyMap) -> bool:
    return not isinstance(placing, SuperStream) and None in placing.shares()
