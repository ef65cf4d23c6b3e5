"""``rabbit-chx topology`` on a real broker: plan, arrange, apply."""

from __future__ import annotations

import re
import subprocess

import pika
import pytest
from checked_orders import shop_of
from command_line import PROGRAM
from shop import declare
from topology_commands import SHOP, WITHOUT_Q3, Topologies

from rabbit_chx.broker import pika_parameters
from rabbit_chx.cli import main
from rabbit_chx.testing import RunningBroker, temporary_vhost

pytestmark = pytest.mark.broker

NEW = '[[queues]]\nname = "new.{1..3}"\n'


def test_without_a_ring_source_the_order_is_reported_as_assumed(
    topologies: Topologies, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["topology", "export", *topologies.shop.live]) == 0
    assert "the order of orders is assumed" in capsys.readouterr().err
    assert main(["topology", "plan", topologies.file(WITHOUT_Q3), *topologies.shop.live]) == 4
    assert "pass --ring-via PREFIX" in capsys.readouterr().out
    assert main(["topology", "arrange", topologies.file(WITHOUT_Q3), *topologies.shop.live]) == 0
    assert (
        "orders: the ring was not read, it is assumed (its bindings are listed without their order): pass --ring-via"
        in capsys.readouterr().err
    )


def test_arranging_changes_the_ring_in_the_text_alone(topologies: Topologies) -> None:
    text = WITHOUT_Q3.replace("\n", "\r\n") + "# the end"
    out, errors = topologies.run("arrange", topologies.file(text))
    assert "rabbit-chx: orders: " in errors
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
    assert "is unchanged" in topologies.run("arrange", str(topologies.path), "--write")[1]


@pytest.mark.core
def test_what_was_applied_is_there_and_a_second_time_there_is_nothing_to_do(topologies: Topologies) -> None:
    path = topologies.file(WITHOUT_Q3 + NEW)
    out, errors = topologies.run("apply", path, "--yes", "--verbose")
    assert "applied  4 changes: 3 queues created, 1 binding removed" in out
    assert "ring     orders: read from a broker" in out
    assert "rabbit-chx: done 1 of 4: create queue new.1\n" in errors
    out, _ = topologies.run("apply", path, "--yes")
    assert "nothing: the broker matches the topology" in out
    again = topologies.document("apply", path, "--yes")
    assert (again["format"], again["state"], again["changes"]) == ("rabbit-chx/apply", "unchanged", [])


def test_an_interruption_reports_how_far_it_got_and_is_resumed(topologies: Topologies) -> None:
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
    assert "of 220 changes were done: run the command again for the others" in errors
    assert "at least 0" not in errors
    left = topologies.document("apply", path, "--yes")
    assert 0 < left["planned"] < 220
    assert topologies.document("plan", path)["changes"] == []


def test_a_checksum_of_one_vhost_is_refused_in_another_with_the_same_objects(
    topologies: Topologies, broker: RunningBroker, capsys: pytest.CaptureFixture[str]
) -> None:
    path = topologies.file(SHOP + NEW)
    reviewed = topologies.document("plan", path, code=1)
    with (
        temporary_vhost(broker) as other,
        pika.BlockingConnection(pika_parameters(other.url)) as connection,
    ):
        declare(connection.channel(), "orders")
        there = shop_of(other, connection.channel())
        command = ["topology", "apply", path, *there.live, *there.via, "--checksum", reviewed["checksum"]]
        assert main(command) == 4
        assert "checksum" in capsys.readouterr().err
        assert len(there.management.request("GET", "queues", there.settings.vhost)) == 4
    topologies.run("apply", path, "--checksum", reviewed["checksum"])
