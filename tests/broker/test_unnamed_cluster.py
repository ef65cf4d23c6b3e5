"""A cluster whose name nobody has set, so that each node reports its own: asked at one node, at another, and at a mix of them."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pika
import pytest
from bounded import until
from broker_faults import faults_of
from cluster import RunningCluster, docker_cluster
from found_broker import need
from quick_rings import quick_prefix

from rabbit_chx import Broker, Topology, errors
from rabbit_chx.cli import main
from rabbit_chx.testing import RunningBroker
from rabbit_chx.topology import check, plan

pytestmark = [
    pytest.mark.broker,
    pytest.mark.docker,
    pytest.mark.restarts,
    pytest.mark.timeout(600),
]

FILE = """
[[exchanges]]
name = "orders"
type = "x-consistent-hash"
ring = [{ queue = "orders.{1..3}" }]
[[queues]]
name = "orders.{1..3}"
"""


@pytest.fixture(scope="module", params=[("4.3", 3), ("3.10", 2)], ids=["4.3", "3.10"])
def cluster(request: pytest.FixtureRequest) -> Iterator[RunningCluster]:
    need("docker")
    with docker_cluster(*request.param) as running:
        yield running


@pytest.fixture
def run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str, str]]:
    """Runs a command on some addresses, and returns its exit code, stdout and stderr."""

    def run_on(broker: RunningBroker, *arguments: str) -> tuple[int, str, str]:
        monkeypatch.setenv("AMQP_URL", broker.url)
        for name, value in (
            ("RABBIT_CHX_MANAGEMENT_URL", broker.management_url),
            ("RABBIT_CHX_RING_VIA", broker.ring_via and " ".join(broker.ring_via)),
        ):
            monkeypatch.delenv(name, raising=False)
            if value:
                monkeypatch.setenv(name, value)
        code = main([*arguments])
        return code, *capsys.readouterr()

    return run_on


def mixed(cluster: RunningCluster) -> Iterator[RunningBroker]:
    """Yield the addresses of AMQP, of the management API and of rabbitmqctl, each of any of the first two nodes, and without the last."""
    nodes = cluster.nodes[:2]
    for amqp, api, via in itertools.product(nodes, nodes, (*map(quick_prefix, nodes), None)):
        yield replace(amqp, management_url=api.management_url, ring_via=via)


def reported(node: RunningBroker) -> str:
    """Return the name that a node reports over AMQP."""
    with Broker(node.url, node.management_url) as broker:
        return str(broker.cluster)


def test_each_node_and_each_mix_of_them_is_the_same_broker(
    cluster: RunningCluster, run: Callable[..., tuple[int, str, str]], tmp_path: Path
) -> None:
    first, second = cluster.nodes[:2]
    assert reported(first) != reported(second)  # nobody has set a name
    file, exported = tmp_path / "orders.toml", tmp_path / "exported.toml"
    file.write_text(FILE)
    alone = replace(first, ring_via=None)
    assert run(alone, "apply", str(file), "--yes")[0] == 0
    code, text, _ = run(alone, "export")
    assert code == 0
    exported.write_text(text)
    assert f'cluster = "{min(cluster.names)}"' in text
    answers = set()
    for addresses in mixed(cluster):
        for command in (
            ("check",),
            ("check", str(exported)),
            ("plan", str(exported)),
            ("show",),
            ("show", "orders"),
            ("compare", "orders"),
            ("record", "orders", "--yes"),
            ("apply", str(exported), "--yes"),
        ):
            code, out, err = run(addresses, *command)
            assert code == 0, f"{command} {out} {err} at {addresses.management_url} {addresses.ring_via}"
        code, out, err = run(addresses, "route", "orders", "k1", "k2", "k3", "-o", "json")
        assert code == 0, (addresses, err)
        answers.add(tuple(each["destination"] for each in json.loads(out)["answers"]))
        assert json.loads(out)["ring"]["provenance"] == ("recorded" if addresses.ring_via is None else "read")
        with Broker(addresses.url, addresses.management_url) as broker:
            assert broker.topology().cluster == min(cluster.names)
    assert len(answers) == 1
    # The file of the other node's name, which an earlier version wrote, is of this cluster, too.
    exported.write_text(text.replace(min(cluster.names), cluster.names[1]))
    assert run(alone, "plan", str(exported))[0] == 0
    exported.write_text(text.replace(min(cluster.names), "rabbit@elsewhere"))
    assert run(alone, "plan", str(exported))[0] == 4


@pytest.mark.parametrize("is_killed", [False, True], ids=["stopped", "killed"])
@pytest.mark.parametrize("cluster", [("4.3", 3)], indirect=True, ids=["4.3"])
def test_a_queue_whose_node_is_down_is_a_finding_with_its_share(
    cluster: RunningCluster, *, is_killed: bool
) -> None:
    """Releases before 4.0 take such a queue out of the ring."""
    first, last = cluster.nodes[0], cluster.nodes[-1]
    with closing(pika.BlockingConnection(pika.URLParameters(last.url))) as connection:
        connection.channel().queue_declare("bills.3", durable=True)
    wanted = Topology.from_toml(FILE.replace("orders", "bills"))
    with Broker(first.url, first.management_url) as broker:
        broker.apply(plan(wanted, broker.topology()))
        assert check(broker.topology(), exchange="bills").sound
        share = broker.topology().key_map("bills").shares()["bills.3"]
        faults_of(last).kill() if is_killed else last.run("rabbitmqctl", "stop_app")

        def found() -> list[tuple[str, object, float | None]]:
            findings = check(broker.topology(), exchange="bills").findings
            return [(one.kind, one.destination, one.share) for one in findings]

        until(
            lambda: found() == [("down-destination", "bills.3", share)], "it is reported as down", every_s=1
        )
        assert not plan(wanted, broker.topology()).changes  # it is not made anew
        faults_of(last).start() if is_killed else last.run("rabbitmqctl", "start_app")
        cluster.wait_until_together()
        until(lambda: found() == [], "it is there again", every_s=1)


def test_what_a_killed_node_has_is_neither_empty_nor_unbound(cluster: RunningCluster) -> None:
    """A quorum queue without a leader answers that it is empty, and 3.10 lists no bindings of the classic queue."""
    first, last = cluster.nodes[0], cluster.nodes[-1]
    with closing(pika.BlockingConnection(pika.URLParameters(last.url))) as connection:
        channel = connection.channel()
        channel.queue_declare("notes.3", durable=True)
        alone = {"x-queue-type": "quorum", "x-quorum-initial-group-size": 1}
        channel.queue_declare("notes.old", durable=True, arguments=alone)
        channel.confirm_delivery()
        channel.basic_publish("", "notes.old", b"kept")
    file = FILE.replace("orders", "notes")
    owning = Topology.from_toml(f'owns = ["notes.old"]\n{file}')
    with Broker(first.url, first.management_url) as broker:
        broker.apply(plan(Topology.from_toml(file), broker.topology()))
        faults_of(last).kill()
        until(
            lambda: {"notes.3", "notes.old"} <= broker.topology().facts.queues.down.keys(),
            "both are down",
            every_s=1,
        )
        live = broker.topology()
        findings = check(live, exchange="notes").findings
        assert len(findings) == 1, [(each.kind, each.message) for each in findings]
        (found,) = findings
        assert (found.kind, found.destination) == ("down-destination", "notes.3")
        assert live.release is not None
        if live.release.numbers >= (4, 0, 0):
            assert found.share == pytest.approx(1 / 3, abs=0.001)
        else:
            assert found.share is None
        made = plan(owning, live)
        assert "loss" in {refusal.kind for refusal in made.refused(allow_moved=1.0, allow_delete=True)}
        with pytest.raises(errors.PlanRefusedError, match=r"notes\.old is to be deleted.*nobody can count"):
            broker.apply(made, allow_moved=1.0, allow_delete=True)
        faults_of(last).start()
        cluster.wait_until_together()
        until(lambda: not broker.topology().facts.queues.down, "both run again", every_s=1)
        assert "notes.old" in {queue.name for queue in broker.topology().queues}
