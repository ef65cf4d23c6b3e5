"""``rabbit-chx topology`` on a real broker: plan, arrange, apply."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import subprocess
import time
from pathlib import Path

import pytest
from command_line import PROGRAM
from declared import with_login
from pika.adapters.blocking_connection import BlockingChannel
from topology_commands import SHOP, WITHOUT_Q3, Topologies

from rabbit_chx.cli import main

pytestmark = pytest.mark.broker

NEW = '[[queues]]\nname = "new.{1..3}"\n'


def test_without_a_ring_source_the_order_is_said_to_be_assumed(
    topologies: Topologies, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["topology", "export", *topologies.shop.live]) == 0
    assert "the order of orders is assumed" in capsys.readouterr().err
    assert main(["topology", "plan", topologies.file(WITHOUT_Q3), *topologies.shop.live]) == 4
    assert "give --ring-via PREFIX" in capsys.readouterr().out
    assert main(["topology", "arrange", topologies.file(WITHOUT_Q3), *topologies.shop.live]) == 0
    assert "orders: the ring was not read but is assumed: give --ring-via" in capsys.readouterr().err


def test_planning_changes_nothing(topologies: Topologies, tmp_path: Path) -> None:
    before = topologies.definitions()
    stored = tmp_path / "plan.json"
    out, errors = topologies.run("plan", topologies.file(WITHOUT_Q3 + NEW), "--plan-out", str(stored), code=1)
    assert errors == ""
    assert "3 queues created, 1 binding removed" in out
    assert f"Apply it with: rabbit-chx topology apply {topologies.path}" in out
    document = topologies.document("plan", str(topologies.path), code=1)
    assert document == json.loads(stored.read_text())
    page, _ = topologies.run("plan", str(topologies.path), "--output", "markdown", code=1)
    assert "| 1-3 | create queue | `new.{1..3}` | `type: classic` |" in page
    assert topologies.definitions() == before
    assert (
        topologies.run("plan", topologies.file(SHOP))[0].count("none: what is there is as the file says") == 1
    )


def test_arranging_changes_the_ring_in_the_text_alone(topologies: Topologies) -> None:
    text = WITHOUT_Q3.replace("\n", "\r\n") + "# the end"
    out, errors = topologies.run("arrange", topologies.file(text))
    assert errors.startswith("rabbit-chx: orders: ")
    around = [re.sub(r"ring = \[[^]]*\]", "ring = ?", said) for said in (text, out)]
    assert around[0] == around[1] != text
    as_written = topologies.document("plan", topologies.file(text), code=1)["rings"][0]
    shown = topologies.document("arrange", str(topologies.path))
    assert shown["text"] == out
    assert shown["rings"][0]["before"]["moved"] == as_written["moved"]
    assert topologies.path.read_bytes().decode() == text
    topologies.path.chmod(0o640)
    assert topologies.run("arrange", str(topologies.path), "--write")[0] == ""
    assert topologies.path.read_bytes().decode() == out
    assert topologies.path.stat().st_mode & 0o777 == 0o640
    assert [path.name for path in topologies.path.parent.iterdir()] == [topologies.path.name]
    arranged = topologies.document("plan", str(topologies.path), code=1)["rings"][0]
    assert arranged["moved"] == shown["rings"][0]["after"]["moved"] < as_written["moved"]
    assert "stays as it is" in topologies.run("arrange", str(topologies.path), "--write")[1]


@pytest.mark.core
def test_what_was_applied_is_there_and_a_second_time_there_is_nothing_to_do(topologies: Topologies) -> None:
    path = topologies.file(WITHOUT_Q3 + NEW)
    out, errors = topologies.run("apply", path, "--yes", "--verbose")
    assert "applied  4 changes: 3 queues created, 1 binding removed" in out
    assert "ring     orders: read from a broker" in out
    assert "rabbit-chx: done 1 of 4: create queue new.1\n" in errors
    out, _ = topologies.run("apply", path, "--yes")
    assert "nothing: what is there is as the file says" in out
    again = topologies.document("apply", path, "--yes")
    assert (again["format"], again["state"], again["changes"]) == ("rabbit-chx/apply", "unchanged", [])


def test_messages_are_not_deleted_without_being_asked(topologies: Topologies) -> None:
    topologies.shop.channel.queue_declare("old", durable=True)
    topologies.shop.channel.basic_publish("", "old", b"message")
    path = topologies.file('owns = ["old"]\n' + SHOP)
    assert "--allow-delete" in topologies.run("apply", path, "--yes", code=4)[0]
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline and not count(topologies.shop.channel, "old"):
        time.sleep(0.05)
    _, errors = topologies.run("apply", path, "--yes", "--allow-delete", code=4)
    assert "--allow-loss" in errors
    document = topologies.document("apply", path, "--yes", "--allow-delete", code=4)
    assert [refusal["allow_with"] for refusal in document["refusals"]] == ["--allow-loss"]
    topologies.run("apply", path, "--yes", "--allow-delete", "--allow-loss")


def count(channel: BlockingChannel, queue: str) -> int:
    """How many messages a queue has."""
    return channel.queue_declare(queue, passive=True).method.message_count or 0


def test_what_is_done_in_part_is_shown_and_resumed(topologies: Topologies) -> None:
    management, vhost = topologies.shop.management, topologies.shop.settings.vhost
    management.request("PUT", "users", "half", body={"password": "way", "tags": "administrator"})
    try:
        rights = {"configure": "^new.[12]$|^rabbit-chx.apply$", "write": ".*", "read": ".*"}
        management.request("PUT", "permissions", vhost, "half", body=rights)
        path = topologies.file(SHOP + NEW)
        url = with_login(topologies.shop.broker.url, "half", "way")
        document = topologies.document("apply", path, "--yes", "--url", url, code=3)
    finally:
        management.request("DELETE", "users", "half")
    assert document["state"] == "partly"
    assert [change["name"] for change in document["changes"]] == ["new.1", "new.2"]
    assert "new.3" in document["says"]
    assert [change["name"] for change in topologies.document("apply", path, "--yes")["changes"]] == ["new.3"]


def answered(command: list[str], answer: str) -> tuple[int, str]:
    """Run a command on a terminal, answer its question, and give the exit code and what it shows."""
    leader, follower = pty.openpty()
    with subprocess.Popen(command, stdin=follower, stdout=follower, stderr=follower) as process:
        os.close(follower)
        seen = b""
        asked = False
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            if not select.select([leader], [], [], 1)[0]:
                continue
            try:
                data = os.read(leader, 65536)
            except OSError:  # how Linux says that the other end is closed
                break
            if not data:
                break
            seen += data
            if b"[y/N]" in seen and not asked:
                asked = True
                os.write(leader, answer.encode())
        code = process.wait(60)
    os.close(leader)
    return code, seen.decode()


def test_on_a_terminal_it_asks(topologies: Topologies) -> None:
    path = topologies.file(WITHOUT_Q3)
    command = [PROGRAM, "topology", "apply", path, *topologies.options]
    code, shown = answered(command, "y\n")
    assert code == 0
    assert "Do this 1 change? [y/N]" in shown
    assert "applied  1 change: 1 binding removed" in shown
    assert topologies.document("plan", path)["changes"] == []


def test_an_interruption_says_how_far_it_got_and_is_resumed(topologies: Topologies) -> None:
    queues = '[[queues]]\nname = "many.{1..220}"\ntype = "quorum"\n'
    path = topologies.file(SHOP + queues)
    command = [PROGRAM, "topology", "apply", path, "--yes", "--verbose", *topologies.options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        while (
            "done 1 of 220: create queue many.1" not in process.stderr.readline()
        ):  # a slow machine shows progress
            assert process.poll() is None
        process.terminate()
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "of 220 changes were done: apply again, which does the rest" in errors
    assert "at least 0" not in errors
    left = topologies.document("apply", path, "--yes")
    assert 0 < left["planned"] < 220
    assert topologies.document("plan", path)["changes"] == []
