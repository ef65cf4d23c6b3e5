"""A process that forks while a client is open: the child is refused, every row is sent once, and the parent keeps its connection."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import forked_client
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from publishing_support import Consumed

from rabbit_chx.streams import StreamPublisher, StreamReader
from rabbit_chx.testing import RunningBroker

pytestmark = pytest.mark.broker

ROWS = 20_000
STREAMS = pytest.mark.chx_broker(">=3.9", "streams")
GROUPS = pytest.mark.chx_broker(">=3.11", "streams with a single active consumer")
FIT = {"x-queue-type": "quorum", "x-single-active-consumer": True, "x-delivery-limit": -1}


@pytest.mark.parametrize(
    ("kind", "arguments", "name", "outcome"),
    [
        ("Publisher", {"exchange": "x"}, "exchange 'x' was", "0"),
        pytest.param("StreamPublisher", {"stream": "s"}, "'s' was", "0", marks=STREAMS),
        pytest.param(
            "StreamReader",
            {"stream": "s", "batch_rows": 1_000, "name": "r"},
            "'s' was",
            f"{ROWS}",
            marks=STREAMS,
        ),
        ("Broker", {}, "amqp", "1"),
        pytest.param("ConsumerGroup", {"queues": ["q"]}, "member 'pod-1' was", "ran", marks=GROUPS),
        pytest.param(
            "StreamGroup", {"streams": ["s"], "name": "g"}, "member 'pod-1' was", "ran", marks=GROUPS
        ),
    ],
)
def test_a_client_is_refused_in_a_forked_process(
    vhost: RunningBroker,
    channel: BlockingChannel,
    consumed: Consumed,
    *,
    kind: str,
    arguments: dict[str, Any],
    name: str,
    outcome: str,
) -> None:
    url = vhost.url
    if kind.startswith("Stream"):
        url = vhost.stream_url
        channel.queue_declare("s", durable=True, arguments={"x-queue-type": "stream"})
    if kind == "StreamReader":
        with StreamPublisher(url, stream="s") as publisher:
            publisher.publish_many(["k"] * ROWS, ["x" * 1_000] * ROWS)
    if kind == "ConsumerGroup":
        channel.queue_declare("q", durable=True, arguments=FIT)
    if kind.endswith("Group"):
        arguments = {**arguments, "member": "pod-1"}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(forked_client.__file__)],
        input=json.dumps([kind, url, arguments]),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    child, parent = done.stdout.splitlines()
    assert child.startswith(f"refused: the {kind} of {name}")
    assert "was opened by process" in child
    assert parent == outcome
    if kind.endswith("Publisher"):
        found = [message.body for message in consumed()]
        if kind == "StreamPublisher":
            with StreamReader(url, "s") as reader:
                found = [body for batch in reader for body in batch["value"].to_pylist()]
        assert found == [b"before the fork", b"after the fork"]
