"""The examples without Spark, with fewer messages than they have by themselves."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from contextlib import closing, suppress
from http.client import HTTPConnection

import pytest
from blocks import ROOT, example
from bounded import until
from pika.adapters.blocking_connection import BlockingChannel
from tcp_proxy import Proxy

from rabbit_chx.testing import RunningBroker
from rabbit_chx.testing.running_broker import free_ports

pytestmark = pytest.mark.broker


@pytest.mark.extended
@pytest.mark.parametrize(
    ("client", "way"), [("pika", "by-key"), ("pika", "by-property"), ("aio_pika", "by-header")]
)
def test_the_counts_of_the_plugins_readme_are_as_predicted(
    vhost: RunningBroker, client: str, way: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert example(f"plugin_readme_{client}").run(vhost, way, 1_000)
    said = capsys.readouterr().out
    assert "1,000 messages confirmed in " in said
    assert f"{way}.4        2" in said
    assert "predicted and counted are equal" in said


@pytest.mark.chx_broker(">=3.11")
def test_members_share_streams_and_count_each_row_once(
    vhost: RunningBroker, capsys: pytest.CaptureFixture[str]
) -> None:
    assert example("stream_group").run(vhost, 1_000) == 12_000
    said = capsys.readouterr().out
    assert said.count("c reads ") == 2
    assert "12,000 rows counted once" in said


def test_a_probe_shows_the_health_of_a_member(vhost_url: str, channel: BlockingChannel, proxy: Proxy) -> None:
    arguments = {"x-queue-type": "quorum", "x-single-active-consumer": True}
    channel.queue_declare("probed", durable=True, arguments=arguments)
    (port,) = free_ports(1)
    program = subprocess.Popen(
        [
            sys.executable,
            ROOT / "examples" / "probes.py",
            re.sub(r":\d+/", f":{proxy.port}/", vhost_url),
            "probed",
        ],
        env={**os.environ, "PROBE_PORT": str(port)},
    )

    def probe(status: int) -> bytes:
        with suppress(OSError), closing(HTTPConnection("127.0.0.1", port, timeout=10)) as line:
            line.request("GET", "/")
            reply = line.getresponse()
            return reply.read() if reply.status == status else b""
        return b""

    def probe_until(status: int) -> bytes:
        return until(lambda: probe(status), f"it answers {status}")

    try:
        assert b"connected=True" in probe_until(200)
        proxy.refuse()
        proxy.cut()
        assert b"connected=False" in probe_until(503)
        proxy.accept()
        assert b"connected=True" in probe_until(200)
    finally:
        program.terminate()
        assert program.wait(60) == 0
