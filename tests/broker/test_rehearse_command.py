"""Upgrades rehearsed on two real brokers."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from command_line import PROGRAM
from shop import Shop
from upgrade_topologies import FILE, MIXED, samples

from rabbit_chx.cli import main
from rabbit_chx.routing import Release
from rabbit_chx.testing import need, skip_unless_ci
from rabbit_chx.testing.containers import docker, image_version
from rabbit_chx.topology.upgrade import predict_upgrade

pytestmark = [pytest.mark.broker, pytest.mark.docker, pytest.mark.timeout(400)]

COUNT = 400
#: What 4.3 refuses.
HEAVY = """
[[exchanges]]
name = "heavy"
type = "x-consistent-hash"
ring = [{ queue = "heavy.1", weight = 10001 }, { queue = "heavy.2" }]
"""
MESSAGES = re.compile(r"RabbitMQ [0-9.]+: publishing")


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "topology.toml"
    path.write_text(FILE)
    return str(path)


def need_images(*series: str) -> None:
    need("docker")
    for name in series:
        if image_version(name) is None:
            skip_unless_ci(f"the image of RabbitMQ {name} is not on this machine")


@pytest.mark.parametrize(
    ("releases", "moving", "refused"),
    [(("3.10", "4.3"), {"accounts", "images", "tenants"}, ""), (("4.0", "4.3"), {"images"}, HEAVY)],
    ids=["3.10-4.3", "4.0-4.3, which refuses a weight"],
)
def test_brokers_do_what_was_predicted(
    file: str,
    capsys: pytest.CaptureFixture[str],
    releases: tuple[str, str],
    moving: set[str],
    refused: str,
) -> None:
    before, after = releases
    need_images(*releases)
    with Path(file).open("a") as more:
        more.write(refused)
    command = [
        "rehearse",
        file,
        "--from",
        before,
        "--to",
        after,
        "--type",
        "account=long",
        "--count",
        str(COUNT),
    ]
    assert main([*command, "--output", "json"]) == 1
    found = capsys.readouterr()
    document = json.loads(found.out)
    assert (document["proven"], document["proof"]["mismatches"]) == (not refused, 0), found.err
    if refused:
        (heavy,) = (exchange for exchange in document["exchanges"] if exchange["exchange"] == "heavy")
        document["exchanges"].remove(heavy)
        assert "RabbitMQ 4.3.6 refuses it" in heavy["proof"]["left_out"]
        assert "weight" in [finding["kind"] for finding in heavy["findings"]]
    assert document["proof"]["from"]["version"] == image_version(before)
    prediction = predict_upgrade(MIXED, samples(COUNT), Release(before), Release(after))
    for exchange, said in zip(document["exchanges"], prediction.exchanges, strict=True):
        proof, in_array = exchange["proof"], exchange["kept_in_array"]
        assert said.sample is not None
        assert proof["left_out"] is None
        assert proof["compared"] == COUNT
        assert (
            proof["measured"] == proof["predicted"] == exchange["sample"]["moved"] == len(said.sample.moved)
        )
        assert (proof["measured"] > 0) == (exchange["exchange"] in moving)
        assert (proof["kept_in_array"], in_array) in {(None, None), (COUNT, COUNT)}
        assert proof["published"] == COUNT * (3 if in_array else 2)
    assert {
        exchange["exchange"] for exchange in document["exchanges"] if exchange["verdict"] == "moves"
    } == moving


def test_a_live_exchange_is_rehearsed(shop: Shop, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["rehearse", "--exchange", "orders", *shop.live, *shop.via, "--to", "4.3.6", "--count", "50"]
    code = main([*command, "--no-brokers", "--output", "json"])
    document = json.loads(capsys.readouterr().out)
    (orders,) = document["exchanges"]
    assert (orders["before"]["provenance"], orders["sample"]["moved"]) == ("read", 0)
    assert code == (0 if orders["order"] == "kept" else 1)
    assert document["from"]["version"] == shop.broker.version


@pytest.mark.parametrize(
    ("number", "moment"),
    [(signal.SIGINT, re.compile("starting RabbitMQ")), (signal.SIGTERM, MESSAGES)],
    ids=["interrupt at the start", "end while messages are published"],
)
def test_no_container_is_left_after_a_signal(
    file: str, number: signal.Signals, moment: re.Pattern[str]
) -> None:
    need_images("3.10", "4.3")
    command = [PROGRAM, "rehearse", file, "--from", "3.10", "--to", "4.3", "--count", "20000"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if moment.search(line):
                break
        container = wait_for(lambda: watched_container_of(process.pid))
        process.send_signal(number)
        process.send_signal(number)
        out, errors = process.communicate(timeout=120)
    assert (process.returncode, out) == (130, ""), errors
    assert errors.endswith("rabbit-chx: interrupted\n")
    assert docker("ps", "--all", "--quiet", "--filter", f"name={container}") == ""


def watched_container_of(owner: int) -> str | None:
    """Return the container that a process has started: its reaper names both."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().decode().split("\0")
        except OSError:  # that process has ended
            continue
        if str(owner) in words and "container" in words:
            return words[words.index("container") + 1]
    return None


def wait_for(found: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + 30
    while not (value := found()):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return value
