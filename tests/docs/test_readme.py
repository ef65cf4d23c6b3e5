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


@pytest.mark.extended
@pytest.mark.spark
@pytest.mark.broker
@pytest.mark.pyspark("4.0", "format('rabbitmq')")
@pytest.mark.timeout(400)
@pytest.mark.chx_broker(">=4.0", "a delivery limit that is off")
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
    printed = []
    with Terminal(clone, environment) as terminal:

        def types(command: str) -> str:
            said, ended_with = terminal.types(replaced(command, words))
            assert ended_with == 0, f"{command}\n{said}{terminal.stderr}"
            return said

        types("unset VIRTUAL_ENV PYTHONPATH PYSPARK_PYTHON PYSPARK_DRIVER_PYTHON")
        for language, block in BLOCKS:
            if language == "python":
                (clone / "job.py").write_text(replaced(block, words))
                if "group.run" in block:  # until Ctrl-C
                    received = types(
                        "timeout -s INT 30 venv/bin/python -u job.py 2>errors | head -n 1000"
                    ).splitlines()
                    assert len({*received}) == 1000, (clone / "errors").read_text()
                else:
                    printed.append(types("venv/bin/python job.py").strip())
            elif language == "console":
                for command, shown in console_examples(f"```console\n{block}```\n"):
                    said = ""
                    for part in command.partition("  #")[0].split(" && "):
                        if part.startswith("docker compose"):
                            continue  # the broker of this test
                        said = types(part)
                        for packages in clone.glob("venv/lib/*/site-packages"):
                            (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib"))
                    check_output(said, shown)
            else:
                assert language == "sh"  # a program that takes minutes

    assert printed == re.findall(r"print\(.*\)  # (.*)", page(README))
    with pika.BlockingConnection(pika.URLParameters(vhost.url)) as connection:
        channel = connection.channel()
        waiting: list[Any] = [
            channel.queue_declare(name, passive=True).method.message_count
            for name in ("sales.1", "sales.2", "clicks.1", "clicks.2")
        ]
    assert sum(waiting) == 100_000


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


def test_the_broker_of_the_page_is_that_of_compose() -> None:
    service = page("docker-compose.yml")
    assert "docker compose up --wait" in page(README)
    assert all(f':{port}"\n' in service for port in ("5672", "15672"))


def test_each_door_works_by_itself() -> None:
    """Each program declares the exchange that it uses; only the consumer has that of the program before it."""
    declared = [
        re.findall(r'(?:declare\(|exchange=|"exchange": )"(\w+)"', block)
        for language, block in BLOCKS
        if language == "python"
    ]
    assert declared == [["sales", "sales"], ["clicks", "clicks"], []]


def test_its_source_can_be_read_on_a_screen() -> None:
    assert [line for line in page(README).splitlines() if len(line) > 150] == []
