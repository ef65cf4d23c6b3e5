"""How long a reader waits, and what it needs. `refusals.txt` has what it refuses."""

from __future__ import annotations

import subprocess
import sys

from stream_bytes import chunk_bytes, entry

from rabbit_chx.streams.chunks import read_chunk
from rabbit_chx.streams.reader import RangeReader
from rabbit_chx.version import install_command


def test_a_chunk_that_was_read_before_gives_no_more_time() -> None:
    with RangeReader("rabbitmq-stream://host", "s", start=0, end=80) as reader:
        chunks = [memoryview(chunk_bytes([entry(b"")] * 10, offset=offset)) for offset in (0, 10)]
        reader._reading.progress.advance(read_chunk(chunks[0]))
        reader._reading.subscription.waiting.append(chunks[0])
        assert reader._reading.take_chunk(5.0) == 5.0
        reader._reading.subscription.waiting.append(chunks[1])
        assert reader._reading.take_chunk(5.0) > 5.0


def test_without_arrow_the_extra_is_named():
    code = "import sys; sys.modules['pyarrow'] = None; from rabbit_chx import StreamReader"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.stderr.endswith(
        f"MissingExtraError: StreamReader needs pyarrow, which is not installed: {install_command('streams')}\n"
    )
