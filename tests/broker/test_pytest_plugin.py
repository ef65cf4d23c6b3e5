"""The plugin and `assert_parity` on a real broker, as a user meets them, and the example of a user's own parity test."""

from __future__ import annotations

import os
import re
import secrets
import shutil
import sys
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from command_line import ended
from found_broker import need

from rabbit_chx import Topology
from rabbit_chx.broker.management import Management
from rabbit_chx.errors import InputError
from rabbit_chx.testing import (
    NoBrokerError,
    RunningBroker,
    assert_parity,
    containers,
    docker_broker,
    skip_unless_ci,
)

if TYPE_CHECKING:
    RunPytest = Callable[..., str]

pytestmark = [pytest.mark.broker, pytest.mark.timeout(400)]

ROOT = Path(__file__).resolve().parents[2]

NEEDS = """
import pytest

@pytest.mark.chx_broker(">=3.10")
def test_that_runs(chx_vhost):
    assert "/rabbit_chx-" in chx_vhost.url

@pytest.mark.chx_broker("<3.10")
def test_of_another_release(chx_broker): pass
"""


@pytest.fixture
def named(broker: RunningBroker) -> dict[str, str]:
    """The session's broker, as one that a user has named."""
    assert broker.management_url is not None
    return {"RABBIT_CHX_TEST_URL": broker.url, "RABBIT_CHX_TEST_MANAGEMENT_URL": broker.management_url}


def test_requirements_that_the_named_broker_lacks_are_reported(
    run_pytest: RunPytest, broker: RunningBroker, named: dict[str, str]
) -> None:
    """Also of several workers once."""
    ran_on = f"from RABBIT_CHX_TEST_URL (RabbitMQ {broker.version})"
    said = run_pytest(NEEDS, **named)
    assert "1 passed, 1 skipped" in said
    assert said.count(ran_on) >= 2  # in the header, at the end
    assert "guest:guest" not in said
    assert f"1 test needs RabbitMQ before 3.10: this one is {broker.version}" in said

    said = run_pytest(NEEDS + "def test_more(chx_broker): pass", "-n", "2", **named)
    assert "2 passed, 1 skipped" in said
    end = said.partition("= rabbit_chx =")[2]
    assert len(re.findall(f"^ran on .*{re.escape(ran_on)}", end, re.MULTILINE)) == end.count("ran on ") == 1
    assert end.count("1 test needs RabbitMQ before 3.10") == 1


LOGIN_FAILS = """
import pika, pytest
def test_one(chx_vhost):
    url = chx_vhost.url.replace("guest:guest", "guest:wrong")
    with pytest.raises(pika.exceptions.AMQPConnectionError):
        pika.BlockingConnection(pika.URLParameters(url))
    assert not chx_vhost
"""


def test_a_failed_test_shows_the_warnings_and_errors_of_its_broker_of_an_image(run_pytest: RunPytest) -> None:
    need("docker")
    said = run_pytest(LOGIN_FAILS, "--chx-image", "rabbitmq:4.3-management")
    assert "1 failed" in said
    (log,) = re.findall(
        r"^- warnings and errors of container rabbitmq:4.3-management .* -\n(.*?)^=",
        said,
        re.DOTALL | re.MULTILINE,
    )
    assert "PLAIN login refused" in log
    assert "[info]" not in log


def test_without_management_there_is_no_vhost(run_pytest: RunPytest, broker: RunningBroker) -> None:
    said = run_pytest("def test_one(chx_vhost): pass", RABBIT_CHX_TEST_URL=broker.url)
    assert "1 skipped" in said
    assert "set RABBIT_CHX_TEST_MANAGEMENT_URL as well" in said


def test_the_example_holds(run_pytest: RunPytest, named: dict[str, str]) -> None:
    assert "1 passed" in run_pytest((ROOT / "examples/parity/test_orders.py").read_text(), **named)


#: Everything that a file may have and a vhost for a test not: another cluster, owners, limits of queues, exchanges behind rings.
SHOP = """
cluster = "rabbit@prod"
owns = ["*"]
[[exchanges]]
name = "orders"
type = "x-consistent-hash"
owner = "external"
arguments = { alternate-exchange = "lost" }
ring = [
  { queue = "orders.{1..2}", weight = 1 }, { exchange = "audit", weight = 1 }, { exchange = "events", weight = 2 },
]
[[exchanges]]
name = "events"
type = "x-consistent-hash"
slots = 16
members = [{ queue = "events.{1..3}", weight = 1 }]
[[exchanges]]
name = "tenants"
type = "x-consistent-hash"
arguments = { hash-header = "tenant" }
ring = [{ queue = "orders.{1..2}", weight = 3 }]
[[exchanges]]
name = "bills"
type = "x-modulus-hash"
queues = ["bills.{1..8}"]
[[exchanges]]
name = "audit"
type = "topic"
[[queues]]
name = "orders.{1..2}"
type = "quorum"
owner = "external"
arguments = { x-max-length = 1, x-message-ttl = 1 }
[[queues]]
name = "events.{1..3}"
[[queues]]
name = "bills.{1..8}"
[[queues]]
name = "audit.all"
[[bindings]]
source = "audit"
queue = "audit.all"
routing_key = "#"
[[policies]]
name = "short"
pattern = ".*"
definition = { max-length = 1 }
"""
KEYS = [f"customer-{number}" for number in range(500)]


def test_all_that_hashes_is_compared_and_nothing_remains(broker: RunningBroker) -> None:
    before = _vhosts(broker)
    assert_parity(Topology.from_toml(SHOP), KEYS, broker=broker)
    assert _vhosts(broker) == before


def test_a_failure_names_the_key_and_both_queues(
    broker: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mirror swaps two queues."""
    before, right = _vhosts(broker), Topology.key_map

    def swapped(topology: Topology, *arguments: Any) -> Any:
        ring: Any = right(topology, *arguments)
        return type(ring).from_buckets(ring.buckets[::-1], release=ring.release)

    monkeypatch.setattr(Topology, "key_map", swapped)
    exchange = '[[exchanges]]\nname = "orders"\ntype = "x-consistent-hash"\nring = [{ queue = "q{1..2}" }]\n'
    with pytest.raises(AssertionError) as caught:
        assert_parity(
            Topology.from_toml(f'{exchange}[[queues]]\nname = "q{{1..2}}"'), KEYS[:100], broker=broker
        )
    _, first, *lines = str(caught.value).splitlines()
    assert "100 of 100 keys of exchange orders, first:" in first
    assert len(lines) == 20
    assert all(line.strip().startswith("exchange orders, key 'customer-") for line in lines)
    assert {line.partition(": ")[2] for line in lines} == {"expected q1, actual q2", "expected q2, actual q1"}
    assert "guest:guest" not in str(caught.value)
    assert _vhosts(broker) == before


def test_nothing_to_compare_and_no_broker_are_errors(
    broker: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = Topology.from_toml(SHOP)
    for topology, keys, reason in (
        (Topology(), KEYS, "no exchange of type x-consistent-hash or x-modulus-hash"),
        (shop, [], "no keys"),
    ):
        with pytest.raises(InputError, match=reason):
            assert_parity(topology, keys, broker=broker)
    monkeypatch.setattr(containers, "broker_of_test", None)
    with pytest.raises(InputError, match="take chx_broker"):
        assert_parity(shop, KEYS)


def _vhosts(broker: RunningBroker) -> set[str]:
    assert broker.management_url is not None
    return {vhost["name"] for vhost in Management(broker.management_url).request("GET", "vhosts")}


@pytest.mark.docker
def test_an_image_that_is_not_to_be_had_is_named() -> None:
    need("docker")
    nowhere = "127.0.0.1:1/no-registry:0"
    with (
        pytest.raises(NoBrokerError, match=f"the image {nowhere} is not here and cannot be pulled"),
        docker_broker(image=nowhere),
    ):
        pass


_IN_DOCKER = "from rabbit_chx.testing import docker_broker\nwith docker_broker('4.3') as broker:\n    print(broker.url)\n"


@pytest.mark.docker
def test_a_container_that_cannot_be_reached_is_an_error_with_the_ways_out() -> None:
    """A namespace of the network stands for a container that has the Docker socket of its host."""
    need("docker")
    if os.geteuid() or shutil.which("unshare") is None:
        skip_unless_ci("NOT TRIED: a namespace of the network takes root and unshare")
    done = ended("unshare", "--net", sys.executable, "-c", _IN_DOCKER, timeout_s=140)
    if "Operation not permitted" in done.stderr:
        skip_unless_ci(f"NOT TRIED: {done.stderr}")
    said = done.stderr.splitlines()[-1]
    assert "the server runs and listens, and its container cannot be reached from here" in said
    for way in ("--network host", "TESTCONTAINERS_HOST_OVERRIDE", "RABBIT_CHX_TEST_URL"):
        assert way in said


_USERS = '{"users": [{"name": "app", "password": "app", "tags": "administrator"}], "vhosts": [{"name": "/"}], "permissions": []}'
_IMPORT = "definitions.import_backend = local_filesystem\\ndefinitions.local.path = /etc/rabbitmq/users.json"


@pytest.mark.docker
@pytest.mark.parametrize(
    ("line", "serves"),
    [
        ("ENV RABBITMQ_DEFAULT_USER=app RABBITMQ_DEFAULT_PASS=app", True),
        (
            f"RUN echo '{_USERS}' >/etc/rabbitmq/users.json && printf '{_IMPORT}' >/etc/rabbitmq/conf.d/30-users.conf",
            False,
        ),
    ],
    ids=["by variables", "by definitions"],
)
def test_an_image_with_a_user_of_its_own_serves_or_is_an_error_that_says_so(
    tmp_path: Path, line: str, *, serves: bool
) -> None:
    need("docker")
    (tmp_path / "Dockerfile").write_text(f"FROM rabbitmq:4.3-management\n{line}\n")
    image = f"rabbit-chx-own-user-{secrets.token_hex(4)}:4.3"
    assert ended("docker", "build", "--quiet", "--tag", image, str(tmp_path), timeout_s=100).returncode == 0
    expected: Any = (
        nullcontext() if serves else pytest.raises(NoBrokerError, match="refuses the user of amqp")
    )
    try:
        with expected, docker_broker(image=image) as broker:
            assert broker.owned
    finally:
        ended("docker", "image", "rm", image, timeout_s=60)
