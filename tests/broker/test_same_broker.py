"""The management API and rabbitmqctl of another cluster are refused, and those of another cluster of the same name before anything is written."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from found_broker import need
from quick_rings import quick_broker

from rabbit_chx import Topology, errors
from rabbit_chx.amqp import ConnectionSettings
from rabbit_chx.broker import Broker, SavedRing
from rabbit_chx.broker.management import Management
from rabbit_chx.broker.ring_source import eval_expression
from rabbit_chx.cli import main
from rabbit_chx.records.live_rings import evidence_of
from rabbit_chx.testing import RunningBroker, docker_broker
from rabbit_chx.testing.running_broker import in_vhost
from rabbit_chx.topology import plan

pytestmark = [pytest.mark.broker, pytest.mark.docker, pytest.mark.timeout(300)]
HERE, THERE = ("a", "b", "c", "d"), ("d", "c", "b", "a")
FILE = """
[[exchanges]]
name = "orders"
type = "x-consistent-hash"
ring = [{ queue = "d" }, { queue = "c" }, { queue = "b" }, { queue = "a" }]
[[exchanges]]
name = "news"
type = "fanout"
"""


@pytest.fixture(scope="module")
def another(broker: RunningBroker) -> Iterator[RunningBroker]:
    """A second broker of the same release."""
    need("docker")
    with docker_broker(broker.version.rpartition(".")[0]) as started:
        yield quick_broker(started)


def declare(broker: RunningBroker, order: tuple[str, ...]) -> RunningBroker:
    with Broker(broker.url, broker.management_url) as live:
        live.declare("orders", [(name, 1) for name in order], records=False)
    return broker


@pytest.fixture
def both(vhost: RunningBroker, another: RunningBroker) -> tuple[RunningBroker, RunningBroker]:
    """Two brokers with the same vhost, exchange and queues, which are bound in another order."""
    name = ConnectionSettings.from_uri(vhost.url).vhost
    api = Management(str(another.management_url))
    with suppress(errors.NotFoundError):
        api.delete("vhosts", name)
    api.put("vhosts", name, body={})
    api.put("permissions", name, "guest", body={"configure": ".*", "write": ".*", "read": ".*"})
    return declare(vhost, HERE), declare(in_vhost(another, name), THERE)


def mixed(here: RunningBroker, there: RunningBroker) -> list[RunningBroker]:
    """The AMQP address of one broker with one or two of the other ways of the second."""
    return [
        replace(here, management_url=there.management_url),
        replace(here, ring_via=there.ring_via),
        replace(here, management_url=None, ring_via=there.ring_via),
    ]


def opened(broker: RunningBroker) -> Broker:
    return Broker(broker.url, broker.management_url, broker.ring_via)


@pytest.fixture
def run(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., tuple[int, str]]:
    """Runs a command on some addresses, and returns its exit code and stderr."""

    def run_on(broker: RunningBroker, *arguments: str) -> tuple[int, str]:
        monkeypatch.setenv("AMQP_URL", broker.url)
        for name, value in (
            ("RABBIT_CHX_MANAGEMENT_URL", broker.management_url),
            ("RABBIT_CHX_RING_VIA", broker.ring_via and " ".join(broker.ring_via)),
        ):
            monkeypatch.delenv(name, raising=False)
            if value:
                monkeypatch.setenv(name, value)
        return main([*arguments]), capsys.readouterr().err

    return run_on


def stored(broker: RunningBroker) -> tuple[Any, ...]:
    with opened(broker) as live:
        topology = live.topology()
    return topology.exchanges, topology.bindings, topology.rings, evidence_of(topology).records


def rename(broker: RunningBroker, name: str) -> None:
    broker.run("rabbitmqctl", "set_cluster_name", name)


def test_the_ways_of_another_cluster_are_refused_by_every_command(
    both: tuple[RunningBroker, RunningBroker], run: Callable[..., tuple[int, str]], tmp_path: Path
) -> None:
    here, there = both
    rename(there, "there")
    before = stored(here)
    file = tmp_path / "orders.toml"
    file.write_text(FILE)
    commands = [
        ("show", "orders"),
        ("route", "orders", "k"),
        ("compare", "orders", "--add", "e=1"),
    ]
    more = [
        ("show",),
        ("show", "orders", "--consumers"),
        ("check",),
        ("verify", "orders"),
        ("record", "orders", "--yes"),
        ("repair", "orders", "--yes"),
        ("plan", str(file)),
        ("apply", str(file), "--yes", "--allow", "moved=1"),
        ("arrange", str(file)),
        ("export",),
    ]
    for addresses in mixed(here, there):
        for command in [*commands, *(more if addresses.management_url else ())]:
            if command[-1] == "--consumers" and addresses.management_url == here.management_url:
                continue  # it reads no ring
            code, said = run(addresses, *command)
            assert (code, "is there: pass the addresses of one broker" in said) == (2, True), (command, said)
            assert "amqp://guest:***@" in said
            assert "guest:guest" not in said
        with opened(addresses) as live:
            for use in (lambda: live.ring("orders"), live.topology):
                with pytest.raises(
                    errors.MismatchError if addresses.management_url else errors.RabbitChxError
                ):
                    use()
    assert stored(here) == before


def test_before_anything_is_written_clusters_of_one_name_are_told_apart(
    both: tuple[RunningBroker, RunningBroker], run: Callable[..., tuple[int, str]], tmp_path: Path
) -> None:
    here, there = both
    with Broker(here.url, here.management_url) as live:
        rename(there, str(live._live.overview()["cluster_name"]))
    before = stored(here), stored(there)
    file = tmp_path / "orders.toml"
    file.write_text(FILE)
    new = Topology.from_toml(FILE.replace('"orders"', '"bills"'))
    for addresses in mixed(here, there):
        for command in (
            ("route", "orders", "k"),
            ("show", "orders"),
            *([("check",)] * bool(addresses.management_url)),
        ):
            code, said = run(addresses, *command)
            assert (code, "are two brokers, although both are called" in said) == (2, True), said
        with opened(addresses) as live, pytest.raises(errors.MismatchError, match="are two brokers"):
            live.ring("orders")
        if addresses.management_url:
            for command in (
                ("record", "orders", "--yes"),
                ("apply", str(file), "--yes", "--allow", "moved=1"),
            ):
                code, said = run(addresses, *command)
                assert (code, "are two brokers, although both are called" in said) == (2, True), said
            with opened(addresses) as live, pytest.raises(errors.MismatchError, match="are two brokers"):
                live.apply(plan(new, live.topology()))
        order = HERE if addresses.ring_via == here.ring_via else THERE  # what --ring-via reads
        more = [(name, 1) for name in (*order, "e")]
        with opened(addresses) as live, pytest.raises(errors.MismatchError, match="are two brokers"):
            live.declare("orders", more, allow_existing=True)
    assert (stored(here), stored(there)) == before
    with opened(here) as live:  # the ways of one broker
        assert live.record({"orders": live.ring("orders")})
        assert live.apply(plan(new, live.topology())).changes


def test_for_saved_output_the_caller_vouches(both: tuple[RunningBroker, RunningBroker]) -> None:
    here, there = both
    name = ConnectionSettings.from_uri(here.url).vhost
    text = there.run("rabbitmqctl", "-q", "eval", eval_expression(name, "orders"))
    with Broker(here.url, here.management_url, SavedRing(text)) as live:
        assert live.ring("orders").buckets == THERE
