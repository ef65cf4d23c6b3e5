"""``plan``, ``arrange`` and ``apply`` on a real broker."""

from __future__ import annotations

import re
import subprocess

import pytest
from command_line import PROGRAM
from topology_commands import SHOP, WITHOUT_Q3, Topologies

pytestmark = pytest.mark.broker


@pytest.mark.core
@pytest.mark.usefixtures("quick_plans")
def test_arranging_changes_the_ring_in_the_file_alone(topologies: Topologies) -> None:
    text = WITHOUT_Q3.replace("\n", "\r\n") + "# the end"
    path = topologies.file(text)
    topologies.path.chmod(0o640)
    (as_written,) = topologies.document("plan", path, code=1)["rings"]
    out, _ = topologies.run("arrange", path)
    assert topologies.run("arrange", path, "--write")[0] == ""
    assert topologies.path.read_bytes().decode() == out
    around = [re.sub(r"ring = \[[^]]*\]", "ring = ?", said) for said in (text, out)]
    assert around[0] == around[1] != text
    assert topologies.path.stat().st_mode & 0o777 == 0o640
    assert [path.name for path in topologies.path.parent.iterdir()] == [topologies.path.name]
    (arranged,) = topologies.document("plan", path, code=1)["rings"]
    assert arranged["moved"] < as_written["moved"]
    assert "is unchanged" in topologies.run("arrange", path, "--write")[1]


def test_an_interruption_reports_how_far_it_got_and_is_resumed(topologies: Topologies) -> None:
    queues = '[[queues]]\nname = "many.{1..220}"\ntype = "quorum"\n'
    path = topologies.file(SHOP + queues)
    command = [PROGRAM, "apply", path, "--yes", "--verbose", *topologies.options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        while (
            "done 1 of 220: create queue many.1" not in process.stderr.readline()
        ):  # a slow machine shows progress
            assert process.poll() is None
        process.terminate()
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "of 220 changes were done: run the command again for the others" in errors
    assert "at least 0" not in errors
    left = topologies.document("apply", path, "--yes")
    assert 0 < left["planned"] < 220
    assert topologies.document("plan", path)["changes"] == []
