"""``rabbit-chx verify --stream``: the rows that streams have, compared with where the mirror says."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rabbit_chx.analysis.wording import place_text
from rabbit_chx.cli.broker_options import LiveBroker, counted
from rabbit_chx.cli.command import DIFFERENCE, DONE, PARTLY
from rabbit_chx.cli.replay import text_or_base64
from rabbit_chx.cli.report import (
    ASSUMED,
    document,
    entry,
    numbers,
    source_as_json,
    source_fact,
    texts,
    to_json,
)
from rabbit_chx.cli.stream_options import Placement, StreamOptions
from rabbit_chx.rendering import Block, Facts, Line, Table
from rabbit_chx.routing import HashRing, SlotTable, SuperStream
from rabbit_chx.streams import MisplacedRow, StreamParity, StreamReader, stream_parity
from rabbit_chx.streams.keys import columns_with

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa

_COUNTS = ("rows", "right", "wrong", "without_key", "other_exchange")
_MOST_SHOWN = 20


@dataclass(frozen=True, slots=True)
class StoredReport:
    """A comparison with the rows that streams have.

    Attributes:
        placement: what says where rows belong.
        vhost: the vhost.
        streams: what was found in each stream.
        seconds: how long it took.
    """

    placement: Placement
    vhost: str
    streams: Sequence[StreamParity]
    seconds: float

    @property
    def is_guess(self) -> bool:
        """Whether the ring is one."""
        source = self.placement.source
        return isinstance(source, HashRing | SlotTable) and source.provenance == "assumed"

    @property
    def code(self) -> int:
        """The exit code."""
        if self._total("wrong"):
            return DIFFERENCE
        return DONE if self._total("right") and not self.is_guess else PARTLY

    @property
    def examples(self) -> list[tuple[str, MisplacedRow]]:
        """The first rows that are wrong, each with its stream."""
        found = [(each.stream, row) for each in self.streams for row in each.examples]
        return found[:_MOST_SHOWN]

    def blocks(self) -> Iterator[Block]:
        """Return what was compared, the counts of each stream, and rows that are elsewhere."""
        named = "super stream" if isinstance(self.placement.placing, SuperStream) else "exchange"
        what, source = source_fact(self.placement.source)
        facts = [
            (named, self.placement.exchange),
            ("vhost", self.vhost),
            ("ring" if what == "ring" else "placing", source),
            *([("", ASSUMED)] if self.is_guess else []),
            ("compared", f"{self._total('right') + self._total('wrong'):,} of {self._total('rows'):,} rows"),
            ("wrong", f"{self._total('wrong'):,}"),
            ("seconds", f"{self.seconds:.1f}"),
        ]
        yield Facts(facts)
        columns = [*texts("stream"), *numbers(*(name.replace("_", " ") for name in _COUNTS))]
        rows = [(each.stream, *(getattr(each, name) for name in _COUNTS)) for each in self.streams]
        total = ("all", *map(self._total, _COUNTS)) if len(rows) > 1 else ()
        yield Table(columns, rows, total)
        if examples := self.examples:
            yield Table(
                [*texts("stream"), *numbers("offset"), *texts("key", "belongs to")],
                [
                    (
                        stream,
                        row.offset,
                        row.key.decode(errors="backslashreplace"),
                        place_text(row.belongs_to),
                    )
                    for stream, row in examples
                ],
            )
        if not self._total("right") + self._total("wrong"):
            yield Line(
                "No row has a key of this exchange: nothing is proven. Rows that came through another one need --published-to."
            )

    def as_json(self) -> dict[str, Any]:
        """Return the JSON document of this command."""
        return document(
            "verify",
            way="stored",
            exchange=self.placement.exchange,
            vhost=self.vhost,
            **source_as_json(self.placement.source),
            **{name: self._total(name) for name in _COUNTS},
            seconds=round(self.seconds, 3),
            streams=[entry(each, "stream", *_COUNTS) for each in self.streams],
            examples=[
                {
                    "stream": stream,
                    "offset": row.offset,
                    **text_or_base64("key", row.key),
                    "belongs_to": to_json(row.belongs_to),
                }
                for stream, row in self.examples
            ],
        )

    def _total(self, name: str) -> int:
        return sum(getattr(each, name) for each in self.streams)


def exchange_of(at: LiveBroker, stream: str, options: StreamOptions) -> str | None:
    """Return the exchange that most of the first rows of a stream were published to; None where none says one."""
    with options.reader(at, stream, include=["exchange"]) as reader:
        for batch in reader:
            names: Counter[str] = Counter(name for name in batch["exchange"].to_pylist() if name)
            if names:
                return names.most_common(1)[0][0]
    return None


def verify_stored(
    at: LiveBroker, placement: Placement, names: Sequence[str], options: StreamOptions
) -> StoredReport:
    """Read streams and compare their rows."""
    began, found = time.monotonic(), []
    for name in dict.fromkeys(names):
        with options.reader(at, name, include=columns_with(options.key_column)) as reader:
            size = reader.end_offset - reader.start_offset
            with counted(f"offsets of {name}", size) as seen:
                batches = _seen(reader, seen)
                found.append(
                    stream_parity(
                        name,
                        batches,
                        placement.placing,
                        options.published_to or placement.exchange,
                        key_column=options.key_column,
                    )
                )
    return StoredReport(placement, at.settings.vhost, found, time.monotonic() - began)


def _seen(reader: StreamReader, seen: Callable[[int], None]) -> Iterable[pa.RecordBatch]:
    for batch in reader:
        yield batch
        seen(reader.next_offset - reader.start_offset)
