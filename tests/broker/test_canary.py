"""A password in everything that a program does with a broker, and no trace of it in anything that the program writes."""

from __future__ import annotations

import json
import os
import resource
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from canary import CANARY, canary_user, traces_of_canary
from declared import with_login
from quick_rings import quick_prefix

from rabbit_chx.amqp import ConnectionSettings
from rabbit_chx.broker.management import Management
from rabbit_chx.testing import RunningBroker

pytestmark = pytest.mark.broker

PROGRAM = Path(__file__).parents[1] / "support" / "canary_run.py"
CORE_PATTERN = Path("/proc/sys/kernel/core_pattern")


def ran(
    command: list[str], vhost: RunningBroker, folder: Path, tags: str, *given: object, **options: Any
) -> int:
    """Run a program in a folder, where it writes its output, and return its exit code; stdin tells it the URLs of a user."""
    urls = (vhost.url, str(vhost.management_url))
    management, name = Management(urls[1]), ConnectionSettings.from_uri(vhost.url).vhost
    with (
        canary_user(management, name, tags) as user,
        (folder / "stdout").open("w") as stdout,
        (folder / "stderr").open("w") as stderr,
    ):
        given = (*(with_login(url, user, CANARY) for url in urls), *given)
        return subprocess.run(
            command,
            input=json.dumps(given),
            cwd=folder,
            stdout=stdout,
            stderr=stderr,
            text=True,
            timeout=170,
            check=False,
            **options,
        ).returncode


@pytest.mark.slow
def test_no_password_in_anything_that_a_program_writes(vhost: RunningBroker, tmp_path: Path) -> None:
    command = [sys.executable, "-X", "dev", str(PROGRAM)]
    environment = {**os.environ, "PYTHONASYNCIODEBUG": "1"}
    code = ran(command, vhost, tmp_path, "administrator", shlex.join(quick_prefix(vhost)), env=environment)
    assert code == 0, (tmp_path / "stderr").read_text()[-2_000:]
    assert traces_of_canary(tmp_path) == []
    outcomes = (tmp_path / "outcomes").read_text()
    for expected in (
        "Publisher: 50 of 50 messages confirmed",
        "SharedPublisher: 50 of 50 messages confirmed",
        "Publisher with wrong password: amqp://canary-",
        "rabbit-chx topology apply other.toml --yes --allow-moved 1: 0 0",
        "rabbit-chx verify orders --count 50: 0 0",
    ):
        assert expected in outcomes, outcomes
    log = (tmp_path / "log").read_text()
    assert all(f":DEBUG:{library}" in log for library in ("asyncio", "aiormq", "pika", "aio_pika")), log[:500]


DYING = """
import json, os, resource, signal, sys
from rabbit_chx import Publisher

(url, _, soft), how = json.load(sys.stdin), sys.argv[1]
resource.setrlimit(resource.RLIMIT_CORE, (soft, resource.getrlimit(resource.RLIMIT_CORE)[1]))
with Publisher(url, "amq.fanout", on_unroutable="report") as publisher:
    publisher.publish_many(["k"], ["b"])
    os.kill(os.getpid(), getattr(signal, how))
"""


@pytest.mark.skipif(
    not CORE_PATTERN.exists()
    or CORE_PATTERN.read_text().strip() != "core"
    or resource.getrlimit(resource.RLIMIT_CORE)[1] == 0,
    reason="NO CORES HERE: this system does not write them into the current folder",
)
@pytest.mark.parametrize(
    ("how", "limit", "shows"),
    [
        ("SIGKILL", resource.RLIM_INFINITY, False),  # as an executor is killed, or who takes too much memory
        ("SIGABRT", 0, False),
        ("SIGABRT", resource.RLIM_INFINITY, True),  # SECURITY.md says so
    ],
    ids=["killed", "crashed, no cores", "crashed"],
)
def test_the_core_of_a_worker_shows_the_password_only_without_the_limit(
    vhost: RunningBroker,
    tmp_path: Path,
    how: str,
    limit: int,
    shows: bool,  # noqa: FBT001
) -> None:
    code = ran([sys.executable, "-c", DYING, how], vhost, tmp_path, "", limit)
    assert code == -getattr(signal, how)
    assert bool(traces_of_canary(tmp_path)) == shows
