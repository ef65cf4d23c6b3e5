"""A process that forks while a client is open: the child is refused, every row is sent once, and the parent keeps its connection."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from types import ModuleType
from typing import Any

import forked_client
import forked_publisher
import pika
import pytest

from rabbit_chx.streams.connection import StreamConnection
from rabbit_chx.streams.nodes import stream_settings
from rabbit_chx.streams.publisher import StreamPublisher
from rabbit_chx.streams.reader import StreamReader
from rabbit_chx.testing import RunningBroker

pytestmark = pytest.mark.broker


def fork_with(kind: str, url: str, program: ModuleType = forked_publisher, **arguments: object) -> list[str]:
    """Run the program and return the lines that it prints."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(program.__file__)],
        input=json.dumps([kind, url, arguments]),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert not done.returncode, done.stderr
    assert not done.stderr
    return done.stdout.splitlines()


def test_a_publisher_is_refused_in_a_forked_process(
    consumed: Callable[[], list[Any]], vhost_url: str
) -> None:
    child, parent = fork_with("Publisher", vhost_url, exchange="x")
    assert "the Publisher of exchange 'x' was opened by process" in child
    assert parent == "reconnects: 0"
    assert [message.body for message in consumed()] == [b"before the fork", b"after the fork"]


@pytest.mark.chx_broker(">=3.9", "streams")
def test_a_stream_publisher_is_refused_in_a_forked_process(vhost: RunningBroker) -> None:
    with closing(StreamConnection(stream_settings(vhost.stream_url))) as connection:
        connection.create_stream("s")
    child, parent = fork_with("StreamPublisher", vhost.stream_url, stream="s")
    assert "the StreamPublisher of 's' was opened by process" in child
    assert parent == "reconnects: 0"
    with StreamReader(vhost.stream_url, "s") as reader:
        bodies = [body for batch in reader for body in batch["value"].to_pylist()]
    assert bodies == [b"before the fork", b"after the fork"]


@pytest.mark.chx_broker(">=3.9", "streams")
def test_a_stream_reader_is_refused_in_a_forked_process(vhost: RunningBroker) -> None:
    rows = 20_000
    with closing(StreamConnection(stream_settings(vhost.stream_url))) as connection:
        connection.create_stream("s")
    with StreamPublisher(vhost.stream_url, stream="s") as publisher:
        publisher.publish_many(["k"] * rows, ["x" * 1_000] * rows)
    arguments = {"stream": "s", "batch_rows": 1_000, "name": "reader"}
    child, parent = fork_with("StreamReader", vhost.stream_url, forked_client, **arguments)
    assert "the StreamReader of 's' was opened by process" in child
    assert int(parent) == rows


def test_a_broker_is_refused_in_a_forked_process(vhost_url: str) -> None:
    child, parent = fork_with("Broker", vhost_url, forked_client)
    assert child.startswith("refused: the Broker of amqp")
    assert "was opened by process" in child
    assert parent == "1"


@pytest.mark.chx_broker(">=3.11", "streams")
@pytest.mark.parametrize("kind", ["ConsumerGroup", "StreamGroup"])
def test_a_group_is_refused_in_a_forked_process(vhost: RunningBroker, kind: str) -> None:
    if kind == "StreamGroup":
        with closing(StreamConnection(stream_settings(vhost.stream_url))) as connection:
            connection.create_stream("s")
        arguments: dict[str, object] = {"streams": ["s"], "name": "group"}
        url = vhost.stream_url
    else:
        arguments, url = {"queues": ["q"]}, vhost.url
        with closing(pika.BlockingConnection(pika.URLParameters(url))) as declaring:
            fit = {"x-queue-type": "quorum", "x-single-active-consumer": True, "x-delivery-limit": -1}
            declaring.channel().queue_declare("q", durable=True, arguments=fit)
    child, parent = fork_with(kind, url, forked_client, member="pod-1", **arguments)
    assert f"refused: the {kind} of member 'pod-1' was opened by process" in child
    assert parent == "ran"
