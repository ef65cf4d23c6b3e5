"""The programs of examples/other_languages: their messages are where the mirror predicts, and are handled in order."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pika
import pytest
from blocks import page
from bounded import until
from command_line import ended
from placed_rows import count_placed
from programs import PROGRAMS, program

from rabbit_chx import Topology
from rabbit_chx.broker import pika_parameters
from rabbit_chx.cli import main
from rabbit_chx.testing import RunningBroker, skip_unless_ci, temporary_vhost

pytestmark = [pytest.mark.broker, pytest.mark.extended]

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "other_languages"
FILE = (EXAMPLES / "orders.toml").read_text()
RING_OF_STREAMS = """
[[exchanges]]
name = "orders"
type = "x-consistent-hash"
ring = [{ queue = "orders.{1..4}" }]
[[queues]]
name = "orders.{1..4}"
type = "stream"
"""
#: The command of the page.
(APPLY,) = re.findall(r"^ *rabbit-chx (.*)$", page("docs/publish/other-languages.md"), re.MULTILINE)
COUNT = 400


def needed(path: Path) -> Path:
    """Return the path of a library; without it the test is skipped, in CI it fails."""
    if not path.exists():
        skip_unless_ci(f"NOT TRIED: {path} is missing; as root on Debian .ci/run installs it")
    return path


def java(folder: Path) -> list[str]:
    """Compile the program into a folder, and return the command that runs it."""
    names = ("amqp-client", "slf4j-api", "slf4j-nop")
    jars = [str(needed(Path("/usr/share/java", f"{name}.jar"))) for name in names]
    path = ":".join([*jars, str(folder)])
    run(program("javac"), "-cp", path, "-d", str(folder), str(EXAMPLES / "java" / "Orders.java"))
    return [program("java"), "-cp", path, "Orders"]


def node(folder: Path) -> list[str]:
    """Put the program next to its package, and return the command that runs it."""
    (folder / "node_modules").symlink_to(needed(PROGRAMS / "node_modules" / "amqplib").parent)
    shutil.copy(EXAMPLES / "node" / "orders.js", folder)
    return [program("node"), str(folder / "orders.js")]


def go(folder: Path) -> list[str]:
    """Compile the program into a folder, and return the command that runs it."""
    needed(Path("/usr/share/gocode/src/github.com/rabbitmq/amqp091-go"))
    settings = {
        "GO111MODULE": "off",
        "GOPATH": "/usr/share/gocode",
        "GOCACHE": str(folder / "cache"),
        "CGO_ENABLED": "0",
    }
    run(program("go"), "build", "-o", str(folder / "orders"), str(EXAMPLES / "go" / "orders.go"), **settings)
    return [str(folder / "orders")]


def run(*command: str, **settings: Any) -> str:
    """Run a command, and return its output."""
    done = ended(*command, timeout_s=120, **settings)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def live(vhost: RunningBroker) -> tuple[str, ...]:
    """Return the options that name the broker."""
    return ("--url", vhost.url, "--management-url", str(vhost.management_url))


def declare(vhost: RunningBroker, folder: Path, text: str) -> None:
    """Apply a topology file."""
    file = folder / "orders.toml"
    file.write_text(text)
    assert main([*(str(file) if word == file.name else word for word in APPLY.split()), *live(vhost)]) == 0


@pytest.fixture(scope="module", params=[java, node, go], ids=lambda language: language.__name__)
def command(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """What runs the program of a language."""
    language: Callable[[Path], list[str]] = request.param
    return language(tmp_path_factory.mktemp("program"))


def test_each_message_is_in_the_predicted_queue_and_handled_in_order(
    vhost: RunningBroker,
    command: list[str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    declare(vhost, tmp_path, FILE)
    run(*command, "publish", str(COUNT), AMQP_URL=vhost.url)
    lines = [line.split() for line in run(*command, "consume", str(COUNT), AMQP_URL=vhost.url).splitlines()]

    handled: dict[str, list[int]] = defaultdict(list)
    for _, key, number in lines:
        handled[key].append(int(number))
    assert handled == {f"customer-{n}": list(range(n, COUNT, 50)) for n in range(50)}
    capsys.readouterr()
    assert main(["route", "orders", *handled, "--output", "json", *live(vhost)]) == 0
    answers: Any = json.loads(capsys.readouterr().out)["answers"]
    predicted = {answer["key"]: answer["destination"] for answer in answers}
    assert {key: queue for queue, key, _ in lines} == predicted
    assert len({queue for queue, _, _ in lines}) == 4

    with temporary_vhost(vhost) as streams:
        declare(streams, tmp_path, RING_OF_STREAMS)
        run(*command, "publish", str(COUNT), AMQP_URL=streams.url)
        ring = Topology.from_toml(RING_OF_STREAMS).ring("orders")
        found = [count_placed(streams.stream_url, str(stream), ring) for stream in ring.destinations]
        assert sum(right for right, _ in found) == COUNT


def test_a_consumer_whose_queue_is_deleted_ends_and_an_unroutable_message_is_an_error(
    vhost: RunningBroker, command: list[str], tmp_path: Path
) -> None:
    declare(vhost, tmp_path, FILE)
    with (
        pika.BlockingConnection(pika_parameters(vhost.url)) as connection,
        subprocess.Popen(
            [*command, "consume", "1"], env={**os.environ, "AMQP_URL": vhost.url}, stderr=subprocess.DEVNULL
        ) as process,
    ):
        channel = connection.channel()
        until(
            lambda: channel.queue_declare("orders.4", passive=True).method.consumer_count, "it has a consumer"
        )
        channel.queue_delete("orders.4")
        assert process.wait(60) not in (0, None)
        for number in (1, 2, 3):
            channel.queue_delete(f"orders.{number}")
    with pytest.raises(AssertionError, match="20 messages are unroutable"):
        run(*command, "publish", "20", AMQP_URL=vhost.url)
