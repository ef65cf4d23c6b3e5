"""The first program of docs/stream-groups.md, run on a real broker but for its address."""

from __future__ import annotations

import subprocess
import sys
from contextlib import closing

import pytest
from blocks import python_blocks, replaced
from super_streams import create_super_stream

from rabbit_chx import StreamPublisher
from rabbit_chx.streams.nodes import open_any, settings_of
from rabbit_chx.testing import RunningBroker

pytestmark = [pytest.mark.broker, pytest.mark.chx_broker(">=3.13")]


def test_the_program_of_the_page_handles_batches(vhost: RunningBroker) -> None:
    partitions = [f"orders-{number}" for number in range(3)]
    with closing(open_any(settings_of(vhost.stream_url))) as connection:
        create_super_stream(connection, "orders", partitions, ["0", "1", "2"])
    keys = [str(number) for number in range(100)]
    with StreamPublisher(vhost.stream_url, super_stream="orders") as publisher:
        publisher.publish_many(keys, keys)
    program = replaced(
        python_blocks("docs/stream-groups.md")[0], {"rabbitmq-stream://localhost": vhost.stream_url}
    )
    with subprocess.Popen(
        [sys.executable, "-u", "-c", program], stdout=subprocess.PIPE, text=True
    ) as running:
        assert running.stdout is not None
        try:
            said = set[str]()
            while len(said) < len(partitions):
                line = running.stdout.readline()
                assert line, "it has ended"
                if line.split()[1] == "0":
                    said.add(line.split()[0])
        finally:
            running.terminate()
    assert said == set(partitions)
