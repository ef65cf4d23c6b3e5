"""Everything that uses pika, with warnings as errors: with the pika that is installed, or with that of `make long WHAT=pika-matrix`."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from rabbit_chx.testing import RunningBroker

pytestmark = pytest.mark.broker

SCENARIO = Path(__file__).parents[1] / "support" / "pika_scenario.py"
#: A folder with another pika; its name ends with the version.
OTHER = os.environ.get("RABBIT_CHX_TEST_PIKA")


def test_everything_that_uses_pika_warns_of_nothing(vhost: RunningBroker) -> None:
    path = [OTHER] if OTHER else []
    done = subprocess.run(
        [sys.executable, "-W", "error", SCENARIO, vhost.url, str(vhost.management_url)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([*path, os.environ.get("PYTHONPATH", "")])},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    expected = OTHER.rsplit("-", 1)[1] if OTHER else version("pika")
    assert f"pika {expected}\n" in done.stdout
    assert "Warning" not in done.stderr
