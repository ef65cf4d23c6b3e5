"""The plan of a write: the value that is sent to the tasks."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Self

from rabbit_chx.errors import InputError
from rabbit_chx.routing import ConsistentHashExchange
from rabbit_chx.routing.key_map import KeyMap
from spark_connector.casts import ORDER_MARK
from spark_connector.columns import MessageColumns
from spark_connector.options.write_options import WriteOptions
from spark_connector.placing.rings import read_exchange, read_recorded
from spark_connector.writing.stream_layout import StreamLayout

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


def _with_marked_order(options: WriteOptions, schema: StructType) -> WriteOptions:
    """Return the options with the column by which `place_for_streams` has sorted the rows; an InputError if they name another."""
    marked = next((field.name for field in schema.fields if ORDER_MARK in field.metadata), None)
    if marked is None or not options.exactly_once:
        return options
    if options.order_by is not None and options.order_by.lower() != marked.lower():
        raise InputError(
            f"option 'orderBy' is {options.order_by!r}, and place_for_streams has sorted the rows by {marked!r}: leave orderBy out, or place "
            "the rows by the other column"
        )
    return replace(options, order_by=marked)


@dataclass(frozen=True, slots=True)
class WritePlan:
    """Options and columns. `preflight.plan_write` checks them, and `commit` ends the write.

    Attributes:
        streaming: whether each micro-batch of a stream is written with this plan.
        write_id: id of the write; None in a stream, where Spark passes each task the id of the query.
        batch_id: number of the micro-batch, if the planner knows it; else Spark passes it to each task.
        reads_record: whether the ring is that of the record on the broker.
        started: the time of planning, in seconds since 1970.
        layout: the streams of the rows by the stream protocol; None by AMQP, and where Spark commits a batch.
    """

    columns: MessageColumns
    options: WriteOptions
    streaming: bool = False
    write_id: str | None = None
    notes: tuple[str, ...] = ()
    started: float = field(default_factory=time.time)
    layout: StreamLayout | None = None
    batch_id: int | None = None
    reads_record: bool = False

    @classmethod
    def parse(cls, options: Mapping[str, str], schema: StructType, *, streaming: bool = False) -> Self:
        """Return the plan of options by name and of columns, which asks no broker; an InputError if they do not fit."""
        parsed = _with_marked_order(WriteOptions.parse(options), schema)
        columns = MessageColumns.of(schema, parsed)
        write_id = None if streaming else uuid.uuid4().hex
        return cls(columns, parsed, streaming, write_id, reads_record=parsed.reads_record)

    @property
    def ring_reader(self) -> Callable[[], KeyMap | ConsistentHashExchange] | None:
        """The function that reads the ring on the driver; None without the option ``ringVia`` and a record."""
        options = self.options
        exchange = self.options.exchange
        if self.reads_record and options.management_url is not None:
            read = partial(read_recorded, exchange, options.management_url, options.node_addresses)
            return partial(options.brokers.by_amqp.call_first_reachable, read)
        if options.ring_via is None:
            return None
        return partial(read_exchange, options.ring_via, options.brokers.addresses[0].vhost, exchange)
