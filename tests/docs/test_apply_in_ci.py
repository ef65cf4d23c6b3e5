"""docs/operate/pipelines.md, "From a change request to the apply": its commands, one job after the other; one is killed."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path
from time import sleep

import pika
import pytest
from blocks import check_output, console_examples, page, run_command
from pika.exceptions import ChannelClosedByBroker
from quick_rings import quick_prefix

from rabbit_chx.testing import RunningBroker

SECTION = page("docs/operate/pipelines.md").partition("## From a change request to the apply")[2]
TOPOLOGY = """
[[exchanges]]
name = "orders"
type = "x-consistent-hash"
ring = [{ queue = "orders.{1..60}" }]
[[queues]]
name = "orders.{1..60}"
"""


def kill_in_the_middle(command: str, folder: Path, url: str, environment: dict[str, str]) -> None:
    """Run a command, and kill it as soon as the first queue exists."""
    with (
        pika.BlockingConnection(pika.URLParameters(url)) as connection,
        subprocess.Popen(
            [sys.executable, "-m", "rabbit_chx", *shlex.split(command)[1:]],
            cwd=folder,
            env={**os.environ, **environment},
        ) as job,
    ):
        exists = False
        while not exists:
            assert job.poll() is None, "it ended before"
            try:
                connection.channel().queue_declare("orders.1", passive=True)
                exists = True
            except ChannelClosedByBroker:
                sleep(0.01)
        job.kill()


@pytest.mark.broker
def test_the_plan_of_one_job_is_applied_by_the_next_which_resumes_it(
    vhost: RunningBroker, tmp_path: Path
) -> None:
    (tmp_path / "topology.toml").write_text(TOPOLOGY)
    environment = {
        "AMQP_URL": vhost.url,
        "RABBIT_CHX_MANAGEMENT_URL": str(vhost.management_url),
        "RABBIT_CHX_RING_VIA": shlex.join(quick_prefix(vhost)),
    }

    def types(command: str, shown: str) -> bytes:
        done = run_command(command, 60, tmp_path, **environment)
        check_output(done.stdout.decode(), shown)
        return done.stdout + done.stderr

    planned, applied, checked = console_examples(SECTION)
    types(*planned)
    kill_in_the_middle(applied[0].partition(";")[0], tmp_path, vhost.url, environment)
    assert b"resumes" in types(*applied)
    types(*checked)
