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


@pytest.mark.slow
def test_no_password_in_anything_that_a_program_writes(vhost: RunningBroker, tmp_path: Path) -> None:
    management = Management(str(vhost.management_url))
    name = ConnectionSettings.from_uri(vhost.url).vhost
    with canary_user(management, name, "administrator") as user:
        given = [
            with_login(vhost.url, user, CANARY),
            with_login(str(vhost.management_url), user, CANARY),
            shlex.join(quick_prefix(vhost)),
        ]
        with (tmp_path / "stdout").open("w") as stdout, (tmp_path / "stderr").open("w") as stderr:
            done = subprocess.run(
                [sys.executable, "-X", "dev", PROGRAM],
                input=json.dumps(given),
                cwd=tmp_path,
                stdout=stdout,
                stderr=stderr,
                text=True,
                timeout=170,
                check=False,
                env={**os.environ, "PYTHONASYNCIODEBUG": "1"},
            )
    assert done.returncode == 0, (tmp_path / "stderr").read_text()[-2_000:]
    assert traces_of_canary(tmp_path) == []
    outcomes = (tmp_path / "outcomes").read_text()
    for expected in (
        "publisher: 50 of 50 messages confirmed",
        "shared publisher: 50 of 50 messages confirmed",
        "publisher with wrong password: amqp://canary-",
        "cut off: 50 of 50 messages confirmed",
        "rabbit-chx topology apply other.toml --yes --allow-moved 1: 0 0",
        "rabbit-chx verify orders --count 50: 0 0",
    ):
        assert expected in outcomes, outcomes
    log = (tmp_path / "log").read_text()
    assert all(f":DEBUG:{library}" in log for library in ("asyncio", "aiormq", "pika", "aio_pika")), log[:500]


DYING = """
import json, os, resource, signal, sys
from rabbit_chx import Publisher

(url, soft), how = json.load(sys.stdin), sys.argv[1]
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
    management, name = Management(str(vhost.management_url)), ConnectionSettings.from_uri(vhost.url).vhost
    with canary_user(management, name) as user, (tmp_path / "stderr").open("w") as stderr:
        done = subprocess.run(
            [sys.executable, "-c", DYING, how],
            input=json.dumps([with_login(vhost.url, user, CANARY), limit]),
            cwd=tmp_path,
            stderr=stderr,
            text=True,
            timeout=60,
            check=False,
        )
    assert done.returncode == -getattr(signal, how)
    assert bool(traces_of_canary(tmp_path)) == shows
