"""A password in everything that a program does with a broker, and no trace of it in anything that the program writes."""

from __future__ import annotations

import json
import os
import shlex
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


@pytest.mark.slow
def test_no_password_in_anything_that_a_program_writes(vhost: RunningBroker, tmp_path: Path) -> None:
    """It writes its output into a folder, and reads the URLs of a user from stdin."""
    urls = (vhost.url, str(vhost.management_url))
    name = ConnectionSettings.from_uri(vhost.url).vhost
    with (
        canary_user(Management(urls[1]), name, "administrator") as user,
        (tmp_path / "stdout").open("w") as stdout,
        (tmp_path / "stderr").open("w") as stderr,
    ):
        given = (*(with_login(url, user, CANARY) for url in urls), shlex.join(quick_prefix(vhost)))
        code = subprocess.run(
            [sys.executable, "-X", "dev", str(PROGRAM)],
            input=json.dumps(given),
            cwd=tmp_path,
            env={**os.environ, "PYTHONASYNCIODEBUG": "1"},
            stdout=stdout,
            stderr=stderr,
            text=True,
            timeout=170,
            check=False,
        ).returncode
    assert code == 0, (tmp_path / "stderr").read_text()[-2_000:]
    assert traces_of_canary(tmp_path) == []
    outcomes = (tmp_path / "outcomes").read_text()
    for expected in (
        "Publisher: 50 of 50 messages confirmed",
        "SharedPublisher: 50 of 50 messages confirmed",
        "Publisher with wrong password: amqp://canary-",
        "rabbit-chx apply other.toml --yes --allow moved=1: 0 0",
        "rabbit-chx verify orders --keys key-{1..50}: 0 0",
    ):
        assert expected in outcomes, outcomes
    log = (tmp_path / "log").read_text()
    assert all(f":DEBUG:{library}" in log for library in ("asyncio", "aiormq", "pika", "aio_pika")), log[:500]
