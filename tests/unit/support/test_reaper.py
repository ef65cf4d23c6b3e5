"""What we started goes when we die."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import reaper as reaper_file
from reaper import kill_group

SUPPORT = str(Path(reaper_file.__file__).parent)
OWNER = """
import subprocess, sys, time
sys.path.insert(0, sys.argv[2])
from reaper import Reaper
reaper = Reaper("server", sys.argv[1])
server = subprocess.Popen(["sh", "-c", "echo $$ >server.pid; exec sleep 1000"], cwd=sys.argv[1], start_new_session=True)
print(server.pid, flush=True)
time.sleep(1000)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "server"
    folder.mkdir()
    yield folder
    kill_group(str(folder))


def runs(pid: int) -> bool:
    with suppress(ProcessLookupError):
        os.kill(pid, 0)
        return True
    return False


def wait_until_gone(pid: int, folder: Path) -> None:
    deadline = time.monotonic() + 15
    while runs(pid) or folder.exists():
        assert time.monotonic() < deadline, f"process {pid} runs: {runs(pid)}, folder: {folder.exists()}"
        time.sleep(0.05)


def test_the_death_of_the_owner_ends_the_server_and_removes_its_folder(folder: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", OWNER, str(folder), SUPPORT], stdout=subprocess.PIPE, text=True
    ) as owner:
        assert owner.stdout is not None
        server = int(owner.stdout.readline())
        assert runs(server)
        owner.kill()
    wait_until_gone(server, folder)
