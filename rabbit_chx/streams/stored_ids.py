"""The ids of named rows, as a stream has them: in the property message-id, as ``name:id``."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rabbit_chx.streams.reader import StreamReader

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rabbit_chx.amqp import ConnectionSettings

#: Rows of the stream's end that are read first; then four times as many, and so on.
_FIRST_PIECE = 50_000


class Stored(NamedTuple):
    """How often a stream has the ids of a range.

    Attributes:
        once: the ids that it has once.
        lost: those that it does not have.
        doubled: those that it has more than once.
    """

    once: int
    lost: int
    doubled: int


def rows_of(batch: pa.RecordBatch, name: str) -> tuple[pa.RecordBatch, NDArray[np.uint64]]:
    """Return the rows of a name, and their ids; the batch has the column ``message_id``."""
    is_ours = pc.match_substring_regex(batch["message_id"], f"^{re.escape(name)}:[0-9]{{1,19}}$")
    ours = batch.filter(is_ours)
    texts = pc.utf8_slice_codeunits(ours["message_id"], len(name) + 1)
    return ours, texts.cast(pa.uint64()).to_numpy(zero_copy_only=False)


def count_stored(
    url: Sequence[ConnectionSettings],
    stream: str,
    name: str,
    first: int,
    last: int,
    *,
    addresses: Mapping[str, str] | None = None,
    timeout_s: float = 60.0,
) -> Stored:
    """Read a stream backwards and count the ids of a range, all of which are confirmed.

    It reads back to a row of the name with a lower id. Where there is none, it reads the whole stream: an id may be there twice if
    the broker has forgotten the name.

    Args:
        url: nodes to try in turn.
        stream: the stream.
        name: the name that the rows were published under.
        first: the lowest id.
        last: the highest id; all between were published, too.
        addresses: where advertised addresses are for us.
        timeout_s: the longest time without a chunk, in seconds.

    Raises:
        RabbitChxError: it cannot be read.
    """
    counts = np.zeros(last - first + 1, np.int64)
    start: Any = "last"
    end: int | None = None
    piece = _FIRST_PIECE
    while True:
        with StreamReader(
            url, stream, start=start, end=end, include=("message_id",), on_missing="count",
            addresses=addresses, timeout_s=timeout_s,
        ) as reader:  # fmt: skip
            behind = False
            for batch in reader:
                _, ids = rows_of(batch, name)
                behind |= bool((ids < first).any())
                wanted = ids[(ids >= first) & (ids <= last)].astype(np.int64)
                np.add.at(counts, wanted - first, 1)
            begin, is_cut = reader.start_offset, reader.missing > 0
        if behind or is_cut or begin == 0:
            return Stored(int((counts == 1).sum()), int((counts == 0).sum()), int((counts > 1).sum()))
        start, end, piece = max(0, begin - piece), begin, piece * 4
