"""Ranges of offsets: how a micro-batch is bounded, and how a batch is split into tasks. No I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from rabbit_chx.streams.chunks import Fingerprint


@dataclass(frozen=True, slots=True)
class Range:
    """The rows that a task reads.

    Attributes:
        stream: the stream.
        start: the first offset.
        end: the offset before which it ends.
        before: the fingerprint of the chunk that was read before; None where there is none.
        landmarks: fingerprints of other chunks that the stream had when the range was planned.
    """

    stream: str
    start: int
    end: int
    before: Fingerprint | None = None
    landmarks: tuple[Fingerprint, ...] = ()


def split(ranges: Sequence[Range], least: int | None) -> list[Range]:
    """Return at least so many ranges, if they have as many offsets: each is split by its share of the offsets.

    Args:
        ranges: what is to be read; empty ones are left out.
        least: how many there should be at least; None for no splitting.
    """
    ranges = [each for each in ranges if each.end > each.start]
    if least is None or least <= len(ranges):
        return ranges
    size = sum(each.end - each.start for each in ranges)
    found = []
    for each in ranges:
        rows = each.end - each.start
        parts = min(rows, -(-rows * least // size))
        cuts = [each.start + rows * part // parts for part in range(parts + 1)]
        found += [
            replace(each, start=start, end=end, before=each.before if start == each.start else None)
            for start, end in pairwise(cuts)
        ]
    return found


def bounded(available: Mapping[str, int], most: int) -> dict[str, int]:
    """Return how many offsets of each stream to read: all, or so many together, shared by what each stream has.

    Args:
        available: how many offsets each stream has to read.
        most: how many all streams may give together.
    """
    total = sum(available.values())
    if total <= most:
        return dict(available)
    shares = {stream: count * most // total for stream, count in available.items()}
    # What rounding leaves goes to those that lost most by it, so that there is progress with any bound.
    by_loss = sorted(available, key=lambda stream: (-(available[stream] * most % total), stream))
    for stream in by_loss[: most - sum(shares.values())]:
        shares[stream] += 1
    return shares


def bounded_by_bytes(
    available: Mapping[str, int], row_bytes: Mapping[str, float], most: int
) -> dict[str, int]:
    """Return how many offsets of each stream to read for about so many bytes, and at least one.

    Args:
        available: how many offsets each stream has to read.
        row_bytes: the size of a row of each stream.
        most: how many bytes all streams may give together.
    """
    total = sum(count * row_bytes[stream] for stream, count in available.items())
    if total <= most:
        return dict(available)
    return bounded(available, max(1, int(sum(available.values()) * most / total)))
