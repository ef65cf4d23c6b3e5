"""The README, read as a new user reads it: from top to bottom, in a fresh virtual environment that is not activated, on a clean broker."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

import pika
import pytest
from blocks import ROOT, check_output, console_examples, page, replaced

from rabbit_chx import HashRing
from rabbit_chx.testing import RunningBroker

README = "README.md"
CLONE = (
    "pyproject.toml",
    "README.md",
    "LICENSE",
    "docs",
    "monitoring",
    "rabbit_chx",
    "spark_connector",
    "pyspark_rabbitmq",
)
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", page(README), re.DOTALL | re.MULTILINE)
PLAN = "venv/bin/rabbit-chx topology plan"


class NewUser:
    """A user with a clone, a shell, and an interpreter that has only what the README installs.

    The dependencies are those of the environment of these tests: they are not downloaded again.
    """

    def __init__(self, folder: Path, words: dict[str, str]) -> None:
        self.clone = folder / "clone"
        self.clone.mkdir()
        for name in CLONE:
            copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
            copy(ROOT / name, self.clone / name)
        self._words = words
        self._exports: list[str] = []
        tools = folder / "bin"
        tools.mkdir()
        (tools / "python3").write_text(
            f'#!/bin/sh\nexec {shlex.quote(os.path.realpath(sys.executable))} "$@"\n'
        )
        (tools / "python3").chmod(0o755)
        ours = Path(sys.executable).parent
        path = [part for part in os.environ["PATH"].split(os.pathsep) if Path(part) != ours]
        unset = ("VIRTUAL_ENV", "PYTHONPATH", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON")
        self._environment = {name: value for name, value in os.environ.items() if name not in unset}
        self._environment |= {"PATH": os.pathsep.join([str(tools), *path]), "PIP_NO_INDEX": "1"}
        self._environment |= {
            "PIP_NO_BUILD_ISOLATION": "0",
            "PYTHONIOENCODING": "utf-8",
        }  # 0: as if the flag were given

    def types(self, command: str) -> subprocess.CompletedProcess[str]:
        """Type a command. What it exports is there for the next ones."""
        if command.startswith("export "):
            self._exports.append(replaced(command, self._words))
        done = subprocess.run(
            ["bash", "-c", "\n".join([*self._exports, replaced(command, self._words)])],
            cwd=self.clone,
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )
        if command.startswith("python3 -m venv "):
            (packages,) = (self.clone / "venv").glob("lib/*/site-packages")
            (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib"))
        return done

    def runs(self, program: str) -> str:
        """Run a program, and return what it prints."""
        (self.clone / "job.py").write_text(replaced(program, self._words))
        done = self.types("venv/bin/python job.py")
        assert done.returncode == 0, f"{program}\n{done.stdout}{done.stderr}"
        return done.stdout


@pytest.mark.extended
@pytest.mark.spark
@pytest.mark.broker
@pytest.mark.pyspark("4.0", "format('rabbitmq')")
@pytest.mark.timeout(400)
@pytest.mark.chx_broker(">=3.9", "streams, for the journal of a group")
def test_it_runs_from_top_to_bottom(vhost: RunningBroker, tmp_path: Path) -> None:
    assert vhost.management_url is not None
    assert vhost.ring_via is not None
    words = {
        "amqp://localhost": vhost.url,
        "http://localhost:15672": vhost.management_url,
        "docker exec rabbitmq": shlex.join(vhost.ring_via),
    }
    user = NewUser(tmp_path, words)
    printed = []
    for language, block in BLOCKS:
        if language == "toml":
            (user.clone / "topology.toml").write_text(block)
        elif language == "diff":
            file = user.clone / "topology.toml"
            before, after = (
                "".join(f"{line[1:]}\n" for line in block.splitlines() if line[0] in kept)
                for kept in (" -", " +")
            )
            assert before in file.read_text()
            file.write_text(file.read_text().replace(before, after))
            assert user.types(f"{PLAN} topology.toml").returncode == 4
        elif language == "python":
            printed.append(user.runs(block))
        elif language == "console":
            for command, shown in console_examples(f"```console\n{block}```\n"):
                for part in command.partition("  #")[0].split(" && "):
                    done = user.types(part)
                    assert done.returncode == 0, f"{part}\n{done.stdout}{done.stderr}"
                check_output(done.stdout, shown)
        else:
            assert language in {"pycon", "sh"}  # of which other tests are

    published, written = printed
    assert [published.strip(), written.strip()] == re.findall(r"print\(.*\)  # (.*)", page(README))
    with pika.BlockingConnection(pika.URLParameters(vhost.url)) as connection:
        channel = connection.channel()
        waiting: list[Any] = [
            channel.queue_declare(f"orders.{n}", passive=True).method.message_count for n in range(1, 6)
        ]
    assert sum(waiting) == 101_000
    assert user.types(f"{PLAN} topology.toml").returncode == 0, "the file is applied"


def test_its_figures_are_exact() -> None:
    ring = HashRing.from_bindings([(f"q{number}", 1) for number in range(1, 11)])
    first, last = (f"{100 * ring.share_moved(ring.unbind(queue)):.1f}%" for queue in ("q1", "q10"))
    (alternative,) = re.findall(r"alt=\".*first one moves ([\d.]+%).*last one moves ([\d.]+%)", page(README))
    (row,) = re.findall(r"Unbind the first, and ([\d.]+%) .*unbind the last,\nand ([\d.]+%)", page(README))
    assert alternative == row == (first, last)


def test_its_rates_are_those_of_the_benchmark() -> None:
    rates = re.findall(
        r"\b\d\d?,\d{3}\b(?! flights| of)", page(README).partition("## Publish")[2].replace("_", "")
    )
    assert len(rates) == 6
    assert all(f"| {rate} |" in page("bench/README.md") for rate in rates)


def test_the_messages_that_were_compared_are_those_of_the_table() -> None:
    said, right = re.findall(r"\[([\d,]+) of ([\d,]+) messages\]", page(README))[0]
    assert said == right
    table = page("docs/how-it-routes.md").partition("## What is compared")[2]
    assert f"compared {said} messages" in table
    counts = [
        int(count.replace(",", ""))
        for count in re.findall(r"^\| [\d.]+ \| \w+ \| ([\d,]+) \|$", table, re.MULTILINE)
    ]
    assert f"{sum(counts):,}" == said


def test_the_broker_of_the_page_is_the_container_of_the_ring_source() -> None:
    assert "`docker compose up --wait`" in page(README)
    assert 'RABBIT_CHX_RING_VIA="docker exec rabbitmq"' in page(README)
    service = page("docker-compose.yml")
    assert "container_name: ${RABBITMQ_CONTAINER:-rabbitmq}" in service
    assert all(f':{port}"\n' in service for port in ("5672", "15672", "5552"))


def test_a_block_has_the_commands_that_install_what_they_need() -> None:
    (block,) = (block for language, block in BLOCKS if language == "sh")
    assert [line.partition("  #")[0] for line in block.splitlines()] == ["make demo", "make test"]


def test_it_is_short() -> None:
    lines = page(README).splitlines()
    assert len(lines) <= 120
    assert len(page(README).split()) <= 700
    assert [line for line in lines if len(line) > 118] == []
