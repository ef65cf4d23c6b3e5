"""The position of a reader in a range of offsets, and what may be missing there. No I/O."""

from __future__ import annotations

from rabbit_chx.errors import DamagedChunkError, MissingRowsError
from rabbit_chx.streams.chunks import Chunk, Fingerprint
from rabbit_chx.streams.frames import Node

#: The end of a range that has none.
NEVER = (1 << 63) - 1
#: The number of deliveries of a damaged chunk that is an error.
_MAX_DAMAGED_READS = 3


class Progress:
    """The position in a range.

    Attributes:
        next: the first offset that was not received yet.
        end: the first offset after the range.
        last: the last chunk of rows before `next`: received, or that of the reader that ended at the start.
        landmarks: further chunks that the stream had when the range was found.
        log_start: with filters: the first offset of the log now, so that omitted offsets are not missing; else None.
        missing: the number of missing offsets, if they are counted.
    """

    def __init__(self, stream: str, *, count_missing: bool) -> None:
        self.next = self.end = 0
        self.last: Fingerprint | None = None
        self.landmarks: list[Fingerprint] = []
        self.log_start: int | None = None
        self.missing = 0
        self._stream = stream
        self._count_missing = count_missing

    def set_range(self, start: int, end: int, log_end: int) -> None:
        """Set the range. It ends with the log at the latest: later offsets are missing."""
        if start > log_end and end in (start, NEVER):
            raise MissingRowsError(
                f"stream {self._stream!r} ends at offset {log_end}, before the start, {start}: it was deleted and created again, or its "
                "log was cut; start at an offset that it has",
                queue=self._stream,
            )
        self.next = start
        self.end = end
        if log_end < end < NEVER:
            self.end = max(start, log_end)
            self._skip(
                self.end,
                end,
                f"does not have the offsets {self.end} to {end - 1}, it ends at {log_end}: end there",
            )

    def skip_unstored(self, name: str, log_start: int) -> None:
        """Count as missing what is before the start: a position that was stored under a name may have been removed with its row."""
        self._skip(
            0,
            self.next,
            f"begins at offset {log_start}, and has no position under the name {name!r}: retention may have removed it and the rows after "
            "it. If the name is new, start at an offset, or at a time after the first row",
        )

    def advance(self, chunk: Chunk) -> bool:
        """Advance past a received chunk, and return whether it has new rows of the range."""
        self.check_landmarks(chunk)
        if chunk.end <= self.next:  # received before, or from a replica that lags behind
            return False
        if chunk.offset > self.next:
            self.skip_to(min(chunk.offset, self.end), chunk.offset)
            if self.next >= self.end:
                return False
        self.next = chunk.end
        if chunk.kind == "user":
            self.last = chunk.fingerprint
        return chunk.kind == "user"

    def skip_to(self, offset: int, next_offset: int) -> None:
        """Advance past offsets that were not delivered: the log does not have them and continues at the next one, or filters omit them."""
        if self.log_start is not None:
            next_offset = self.log_start
        if next_offset > self.next:
            missing = min(next_offset, offset)
            self._skip(
                self.next,
                missing,
                f"does not have the offsets {self.next} to {missing - 1} any more, it continues at {next_offset}: retention has removed "
                "them, or its log was cut; start after them",
            )
        self.next = offset

    def check_landmarks(self, chunk: Chunk) -> None:
        """Check that a received chunk is the known one of its offset."""
        for known in filter(None, (self.last, *self.landmarks)):
            if chunk.offset <= known.offset < chunk.end:
                self._check_same(known, chunk)

    def check_chunk(self, expected: Fingerprint, found: Chunk | None, log_end: int) -> None:
        """Check that a chunk is still in the log, unless retention has removed it; `found` is the first chunk at its offset or after it."""
        if found is None or log_end <= expected.offset:
            raise self._rewritten_error(expected, f"it ends at {log_end}")
        if found.offset <= expected.offset:
            self._check_same(expected, found)

    def check_reached_by(self, log_end: int) -> None:
        """Check that the log still has the range."""
        if log_end < self.end:
            raise self._rewritten_error(self.landmarks[-1], f"it ends at {log_end}")

    def _check_same(self, expected: Fingerprint, chunk: Chunk) -> None:
        found = chunk.fingerprint
        if found != expected:
            raise self._rewritten_error(expected, f"{found} is there")

    def _rewritten_error(self, expected: Fingerprint, found: str) -> MissingRowsError:
        return MissingRowsError(
            f"the log of stream {self._stream!r} has been rewritten: where {expected} was, {found}. The stream was deleted and created "
            "again, or its log was cut, and its offsets now mean other rows: read it from the first one",
            queue=self._stream,
        )

    def _skip(self, begin: int, end: int, why: str) -> None:
        if not self._count_missing:
            raise MissingRowsError(
                f"stream {self._stream!r} {why}, or pass on_missing='count'",
                queue=self._stream,
                offsets=range(begin, end),
            )
        self.missing += end - begin


class DamagedReads:
    """The deliveries of a damaged chunk. Another replica may have it undamaged.

    Attributes:
        nodes: the nodes that delivered it.
    """

    def __init__(self, stream: str) -> None:
        self.nodes: list[Node | None] = []
        self._stream = stream
        self._offset = 0

    @property
    def may_retry(self) -> bool:
        """Whether the chunk may be read again."""
        return len(self.nodes) < _MAX_DAMAGED_READS

    def note(self, cause: DamagedChunkError, offset: int, node: Node | None) -> DamagedChunkError:
        """Note which node delivered the damaged chunk at an offset, and return an error with all such nodes."""
        self._offset = offset
        self.nodes.append(node)
        nodes = ", ".join(str(node or "a node without an address") for node in self.nodes)
        return DamagedChunkError(f"stream {self._stream!r}: {cause} (read {len(self.nodes)} times: {nodes})")

    def forget_before(self, offset: int) -> None:
        """Forget the chunk once everything before an offset after it was read."""
        if offset > self._offset:
            self.nodes.clear()
