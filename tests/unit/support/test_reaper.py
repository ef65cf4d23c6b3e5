"""What we started goes when we die."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import reaper as reaper_file
from bounded import until
from reaper import kill_group

SUPPORT = str(Path(reaper_file.__file__).parent)
OWNER = """
import subprocess, sys, time
sys.path.insert(0, sys.argv[2])
from reaper import Reaper
reaper = Reaper("server", sys.argv[1])
program = f"{sys.argv[3]}; echo $$ >server.pid || exit 1; exec sleep 1000"  # as the program of a local server
server = subprocess.Popen(["sh", "-c", program], cwd=sys.argv[1], start_new_session=True)
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


@pytest.mark.extended
@pytest.mark.parametrize("before", [":", "sleep 1"], ids=["running", "not yet begun"])
def test_the_death_of_the_owner_ends_the_server_and_removes_its_folder(folder: Path, before: str) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", OWNER, str(folder), SUPPORT, before], stdout=subprocess.PIPE, text=True
    ) as owner:
        assert owner.stdout is not None
        server = int(owner.stdout.readline())
        assert runs(server)
        if before == ":":
            file = folder / "server.pid"
            until(lambda: file.exists() and file.read_text(), f"{file} is written", 15)
        owner.kill()
    until(lambda: not runs(server) and not folder.exists(), "the server and its folder are gone", 15)
