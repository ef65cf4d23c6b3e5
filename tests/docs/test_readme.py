"""The README, read as a new user reads it: from top to bottom, in a fresh virtual environment that is not activated, on a clean broker."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sys
import sysconfig
from pathlib import Path
from typing import Any

import pika
import pytest
from blocks import ROOT, check_output, console_examples, page, replaced
from terminal import Terminal

from rabbit_chx import HashRing
from rabbit_chx.testing import RunningBroker

pytestmark = pytest.mark.core

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
PLAN = "venv/bin/rabbit-chx plan topology.toml"


def new_user(folder: Path) -> tuple[Path, dict[str, str]]:
    """Make a clone, and a `python3` other than the one of these tests; return the clone and the environment of its user."""
    clone, tools = folder / "clone", folder / "bin"
    for each in (clone, tools):
        each.mkdir()
    for name in CLONE:
        (shutil.copytree if (ROOT / name).is_dir() else shutil.copy)(ROOT / name, clone / name)
    python = tools / "python3"
    python.write_text(f'#!/bin/sh\nexec {shlex.quote(os.path.realpath(sys.executable))} "$@"\n')
    python.chmod(0o755)
    ours = Path(sys.executable).parent
    path = [part for part in os.environ["PATH"].split(os.pathsep) if Path(part) != ours]
    # PIP_NO_BUILD_ISOLATION=0 is as if the flag were given.
    without_index = {"PIP_NO_INDEX": "1", "PIP_NO_BUILD_ISOLATION": "0"}
    return clone, {"PATH": os.pathsep.join([str(tools), *path]), **without_index}


def patch(file: Path, block: str) -> None:
    """Change a file as a block of a diff says."""
    before, after = (
        "".join(f"{line[1:]}\n" for line in block.splitlines() if line[0] in kept) for kept in (" -", " +")
    )
    assert before in file.read_text()
    file.write_text(file.read_text().replace(before, after))


@pytest.mark.extended
@pytest.mark.spark
@pytest.mark.broker
@pytest.mark.pyspark("4.0", "format('rabbitmq')")
@pytest.mark.timeout(400)
@pytest.mark.chx_broker(">=3.9", "streams, for the journal of a group")
def test_it_runs_from_top_to_bottom(vhost: RunningBroker, tmp_path: Path) -> None:
    """The dependencies are those of the environment of these tests: they are not downloaded again."""
    assert vhost.management_url is not None
    assert vhost.ring_via is not None
    words = {
        "amqp://localhost": vhost.url,
        "http://localhost:15672": vhost.management_url,
        "docker exec rabbitmq": shlex.join(vhost.ring_via),
    }
    clone, environment = new_user(tmp_path)
    file, printed = clone / "topology.toml", []
    with Terminal(clone, environment) as terminal:

        def types(command: str, code: int = 0) -> str:
            said, ended_with = terminal.types(replaced(command, words))
            assert ended_with == code, f"{command}\n{said}{terminal.stderr}"
            return said

        types("unset VIRTUAL_ENV PYTHONPATH PYSPARK_PYTHON PYSPARK_DRIVER_PYTHON")
        for language, block in BLOCKS:
            if language == "toml":
                file.write_text(block)
            elif language == "diff":
                patch(file, block)
                types(PLAN, 4)
            elif language == "python":
                (clone / "job.py").write_text(replaced(block, words))
                printed.append(types("venv/bin/python job.py").strip())
            elif language == "console":
                for command, shown in console_examples(f"```console\n{block}```\n"):
                    for part in command.partition("  #")[0].split(" && "):
                        said = types(part)
                        for packages in clone.glob("venv/lib/*/site-packages"):
                            (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib"))
                    check_output(said, shown)
            else:
                assert language in {"pycon", "sh"}  # doctests, and programs that take minutes
        types(PLAN)  # the file is applied

    assert printed == re.findall(r"print\(.*\)  # (.*)", page(README))
    with pika.BlockingConnection(pika.URLParameters(vhost.url)) as connection:
        channel = connection.channel()
        waiting: list[Any] = [
            channel.queue_declare(f"orders.{n}", passive=True).method.message_count for n in range(1, 6)
        ]
    assert sum(waiting) == 101_000


def test_its_figures_are_exact() -> None:
    ring = HashRing.from_bindings([(f"q{number}", 1) for number in range(1, 11)])
    first, last = (f"{100 * ring.share_moved(ring.unbind(queue)):.1f}%" for queue in ("q1", "q10"))
    (row,) = re.findall(r"Unbind the first, and ([\d.]+%) .*unbind the last, and ([\d.]+%)", page(README))
    assert row == (first, last)


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


def test_it_is_short() -> None:
    lines = page(README).splitlines()
    assert len(lines) <= 120
    assert len(page(README).split()) <= 600
    assert [line for line in lines if len(line) > 118] == []
