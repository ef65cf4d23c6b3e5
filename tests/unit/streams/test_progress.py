"""How a reading goes on from chunk to chunk: which are taken, which are missing, and when the log is another one."""

from __future__ import annotations

import pytest

from rabbit_chx.errors import MissingRowsError
from rabbit_chx.streams import Fingerprint
from rabbit_chx.streams.chunks import Chunk
from rabbit_chx.streams.log_lookup import Progress


def chunk(offset: int, records: int = 10, *, kind="user", epoch: int = 1, crc: int | None = None) -> Chunk:
    crc = offset * 7 + 1 if crc is None else crc
    return Chunk(offset, records, 0, epoch, crc, kind, memoryview(b""), memoryview(b""), records)


def progress(start: int, end: int, log_end: int | None = None, *, count_missing: bool = False) -> Progress:
    made = Progress("s", count_missing=count_missing)
    made.set_range(start, end, end if log_end is None else log_end)
    return made


def test_the_chunks_of_the_range_are_taken_once_and_those_of_the_broker_passed_over():
    """A replica that lags behind returns older chunks first."""
    reading = progress(5, 35)
    assert (reading.last, reading.next) == (None, 5)
    chunks = [chunk(0), chunk(10, 1, kind="delta"), chunk(11), chunk(21, 1, kind="snapshot"), chunk(22, 20)]
    assert [reading.advance(one) for one in chunks] == [True, False, True, False, True]
    assert (reading.next, reading.end, reading.missing) == (42, 35, 0)
    assert reading.last == Fingerprint(22, 1, 22 * 7 + 1)
    assert not any(reading.advance(one) for one in [*chunks, chunk(42, 1, kind="delta")])
    assert reading.next == 43


@pytest.mark.parametrize(
    ("before", "after", "gone"),
    [
        ([], chunk(20), range(5, 20)),  # retention ran past the start
        ([chunk(0)], chunk(30), range(10, 30)),  # a hole
        ([chunk(0), chunk(10)], chunk(30), range(20, 30)),
        ([chunk(0)], chunk(30, 1, kind="delta"), range(10, 30)),
        ([chunk(0)], chunk(90), range(10, 50)),  # nothing up to the end
    ],
)
def test_offsets_that_are_jumped_over_are_missing(before, after, gone):
    reading, counting = progress(5, 50), progress(5, 50, count_missing=True)
    for one in before:
        reading.advance(one)
        counting.advance(one)
    words = f"stream 's' does not have the offsets {gone[0]} to {gone[-1]} any more, it continues at {after.offset}"
    with pytest.raises(MissingRowsError, match=words) as error:
        reading.advance(after)
    assert (error.value.offsets, error.value.queue) == (gone, "s")
    assert counting.advance(after) == (after.kind == "user" and after.offset < 50)
    assert (counting.missing, (counting.next >= counting.end)) == (len(gone), after.end >= 50)
    counting.advance(chunk(after.end + 1))
    assert counting.missing == len(gone) + (after.end < 50), "gaps are added"


def test_an_end_after_the_log_is_missing_and_a_start_is_always_an_error():
    with pytest.raises(MissingRowsError, match="the offsets 40 to 49, it ends at 40: end there, or pass"):
        progress(5, 50, 40)
    for count_missing in (False, True):
        with pytest.raises(
            MissingRowsError, match="'s' ends at offset 40, before the start, 41: it was deleted"
        ):
            progress(41, 41, 40, count_missing=count_missing)
    counting = progress(5, 50, 40, count_missing=True)
    assert (counting.end, counting.missing) == (40, 10)
    nothing = progress(45, 50, 40, count_missing=True)
    assert ((nothing.next >= nothing.end), nothing.missing) == (True, 5)


def test_chunks_that_were_there_when_the_reading_began_are_known_again():
    for landmark in (chunk(10), chunk(30)):
        reading = progress(0, 40)
        reading.landmarks = [Fingerprint(landmark.offset, landmark.epoch, landmark.crc)]
        for offset in range(0, landmark.offset, 10):
            assert reading.advance(chunk(offset))
        with pytest.raises(MissingRowsError, match="has been rewritten"):
            reading.advance(chunk(landmark.offset, epoch=2))
        reading.check_reached_by(40)
        with pytest.raises(MissingRowsError, match=r"rewritten: where .* was, it ends at "):
            reading.check_reached_by(landmark.end - 1)
        assert reading.advance(landmark)
        reading.landmarks = []
        for other in (
            chunk(landmark.offset, epoch=2),
            chunk(landmark.offset, crc=5),
            chunk(landmark.offset - 5, 10),
            chunk(landmark.offset, 1, kind="delta", crc=6),
        ):
            words = rf"log of stream 's' has been rewritten: where .*offset={landmark.offset}, epoch=1"
            with pytest.raises(MissingRowsError, match=words):
                reading.advance(other)


def test_what_was_before_the_start_is_compared():
    expected = Fingerprint(10, 1, 71)
    reading = progress(20, 40)
    reading.check_chunk(expected, chunk(10), 40)
    reading.check_chunk(expected, chunk(20), 40)  # retention
    for found, log_end in ((chunk(10, crc=1), 40), (chunk(0, 15), 40), (None, 20), (chunk(0), 10)):
        with pytest.raises(MissingRowsError, match="has been rewritten"):
            reading.check_chunk(expected, found, log_end)
