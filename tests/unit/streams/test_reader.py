"""What a reader refuses before it connects, and how long it waits."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime, timedelta

import pytest
from stream_bytes import chunk_bytes, entry

from rabbit_chx.errors import InputError
from rabbit_chx.installation import install_command
from rabbit_chx.streams import Fingerprint, StreamReader
from rabbit_chx.streams.chunks import read_chunk
from rabbit_chx.streams.reader import RangeReader

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)


def test_a_chunk_that_was_read_before_gives_no_more_time() -> None:
    with RangeReader("rabbitmq-stream://host", "s", start=0, end=80) as reader:
        chunks = [memoryview(chunk_bytes([entry(b"")] * 10, offset=offset)) for offset in (0, 10)]
        reader._reading.progress.advance(read_chunk(chunks[0]))
        reader._reading.subscription.waiting.append(chunks[0])
        assert reader._reading.take_chunk(5.0) == 5.0
        reader._reading.subscription.waiting.append(chunks[1])
        assert reader._reading.take_chunk(5.0) > 5.0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"start": datetime(2026, 1, 31)}, "no time zone"),  # noqa: DTZ001
        ({"end": datetime(2026, 1, 31)}, "end is datetime"),  # noqa: DTZ001
        ({"start": NOON, "end": NOON - timedelta(seconds=1)}, "before the start"),
        ({"expect": Fingerprint(5, 1, 1)}, "start is 'first': start at an offset after that chunk"),
        ({"expect": Fingerprint(5, 1, 1), "start": 5}, "start is 5"),
        ({"filters": ["x" * 32_768]}, "has 32768 bytes: pass 1 to 32767"),
        ({"start": 0, "end": "never", "landmarks": ()}, "end is 'never': pass two offsets"),
        ({"end": 80, "landmarks": ()}, "start is 'first' and end is 80: pass two offsets"),
        ({"start": 0, "end": 9, "landmarks": None}, "landmarks is None: pass the fingerprints"),
    ],
)
def test_what_cannot_be_read_is_refused_before_anything_is_connected(arguments, words):
    """`refusals.txt` has the others."""
    kind = RangeReader if "landmarks" in arguments else StreamReader
    with pytest.raises(InputError, match=words):
        kind(**{"url": "rabbitmq-stream://no-such-host.invalid", "stream": "s"} | arguments)


def test_without_arrow_the_extra_is_named():
    code = "import sys; sys.modules['pyarrow'] = None; from rabbit_chx import StreamReader"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.stderr.endswith(
        f"MissingExtraError: StreamReader needs pyarrow, which is not installed: {install_command('streams')}\n"
    )
