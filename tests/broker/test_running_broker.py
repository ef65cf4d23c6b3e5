"""The same questions to a broker in a container and to one of the machine's own rabbitmq-server."""

from __future__ import annotations

import ast
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit
from uuid import uuid4

import pika
import pytest
import reaper
from bounded import until
from broker_faults import disconnected, faults_of, paused
from found_broker import need
from local_server import local_broker

from rabbit_chx.errors import BrokerRefusedError, BrokerTimeoutError, InputError
from rabbit_chx.testing import NoBrokerError, RunningBroker, docker_broker
from rabbit_chx.testing.containers import docker
from rabbit_chx.testing.running_broker import amqp_version, check_management, free_ports

Kind = Literal["docker", "local"]
KINDS = {"docker": docker_broker, "local": local_broker}

pytestmark = [
    pytest.mark.broker,
    pytest.mark.restarts,
    pytest.mark.timeout(400),
    pytest.mark.parametrize(
        "kind", [pytest.param("docker", marks=pytest.mark.docker), "local"], scope="module"
    ),
]

OWNER = """
import sys, time
sys.path.insert(0, {support!r})
from reaper import watch_containers
from {module} import {kind}_broker
watch_containers()
with {kind}_broker() as broker:
    print(repr(broker.ring_via), flush=True)
    time.sleep(1000)
"""


@pytest.fixture(scope="module")
def broker(kind: Kind) -> Iterator[RunningBroker]:
    need(kind)
    with KINDS[kind]() as running:
        yield running


def address(broker: RunningBroker) -> tuple[str, int]:
    parts = urlsplit(broker.url)
    return str(parts.hostname), int(parts.port or 0)


def put(broker: RunningBroker) -> str:
    queue = f"kept-{uuid4()}"
    with pika.BlockingConnection(pika.URLParameters(broker.url)) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.queue_declare(queue, durable=True)
        channel.basic_publish("", queue, b"kept", pika.BasicProperties(delivery_mode=2), mandatory=True)
    return queue


def get(broker: RunningBroker, queue: str) -> Any:
    with pika.BlockingConnection(pika.URLParameters(broker.url)) as connection:
        return connection.channel().basic_get(queue, auto_ack=True)[2]


def remains(kind: Kind, ring_via: tuple[str, ...]) -> list[str]:
    """What is still there of a broker: its container, or its folder and the processes that know the folder."""
    if kind == "docker":
        command = ["docker", "ps", "--all", "--quiet", "--filter", f"id={ring_via[-1]}"]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    folder = Path(ring_via[0]).parent
    return [str(folder)] * folder.exists() + list(processes_of(folder))


def processes_of(folder: Path) -> Iterator[str]:
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if os.fsencode(folder) in (process / "environ").read_bytes():
                yield (process / "cmdline").read_text().replace("\0", " ")


def test_its_tools_run_through_the_prefix_and_fail_without_secrets(broker: RunningBroker) -> None:
    assert broker.ring_via is not None
    command = [*broker.ring_via, "rabbitmqctl", "-q", "eval", "1 + 1."]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip() == "2"
    with pytest.raises(BrokerRefusedError, match="rabbitmqctl change_password exited with") as caught:
        broker.run("rabbitmqctl", "change_password", "nobody", "s3cret", "surplus")
    assert "s3cret" not in str(caught.value)
    with pytest.raises(BrokerTimeoutError, match="did not end within 1 s"):
        broker.run("rabbitmqctl", "eval", "timer:sleep(5000).", timeout_s=1)
    for check, url, says in (
        (amqp_version, broker.url, "no AMQP login"),
        (check_management, str(broker.management_url), "401"),
    ):
        with pytest.raises(NoBrokerError, match=says) as refused:
            check(url.replace(":guest@", ":wr0ng@"))
        assert "wr0ng" not in str(refused.value)


@pytest.mark.slow
def test_ports_and_data_are_kept_over_a_kill_a_pause_and_a_restart(broker: RunningBroker) -> None:
    """Each may be done twice."""
    queue = put(broker)
    faults_of(broker).kill()
    faults_of(broker).kill()
    with pytest.raises(NoBrokerError):
        amqp_version(broker.url)
    faults_of(broker).start()
    broker.run("rabbitmqctl", "-q", "list_queues")  # its startup is complete, also for its own tools
    faults_of(broker).start()
    assert get(broker, queue) == b"kept"

    queue = put(broker)
    with paused(broker):
        faults_of(broker).pause()
        with socket.create_connection(address(broker), timeout=60) as client:
            client.settimeout(1)
            client.sendall(b"AMQP\0\0\x09\x01")
            with pytest.raises(TimeoutError):
                client.recv(1)
    faults_of(broker).resume()
    assert get(broker, queue) == b"kept"

    queue = put(broker)
    faults_of(broker).pause()
    faults_of(broker).restart()
    assert get(broker, queue) == b"kept"


def test_cut_off_it_refuses_clients_and_later_listens_on_the_same_ports(
    broker: RunningBroker, kind: Kind
) -> None:
    if kind == "local":
        with pytest.raises(InputError, match="no network of its own"):
            faults_of(broker).disconnect()
        return
    assert broker.ring_via is not None
    queue, container = put(broker), broker.ring_via[-1]
    image = docker("inspect", "--format", "{{.Config.Image}}", container).strip()
    with disconnected(broker):
        faults_of(broker).disconnect()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(address(broker), timeout=60)
        # It has the address that the broker had.
        neighbour = docker("run", "--detach", "--rm", "--entrypoint", "sleep", image, "100").strip()
    docker("rm", "--force", neighbour)
    faults_of(broker).reconnect()
    assert get(broker, queue) == b"kept"
    assert len(set(docker("exec", container, "hostname", "-i").split())) == 1


@pytest.mark.slow
def test_a_port_that_was_taken_meanwhile_is_given_up_and_stop_removes_everything(
    kind: Kind, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stop may be called again."""
    need(kind)
    module = "rabbit_chx.testing.containers" if kind == "docker" else "local_server"
    with socket.create_server(("127.0.0.1", 0)) as holder:
        taken: list[int] = [holder.getsockname()[1]]

        def ports_of_which_one_is_taken(count: int) -> list[int]:
            first = [taken.pop()] if taken else []
            return first + free_ports(count - len(first))

        monkeypatch.setattr(f"{module}.free_ports", ports_of_which_one_is_taken)
        with KINDS[kind]() as broker:
            assert not taken
            assert str(holder.getsockname()[1]) not in broker.url
            assert amqp_version(broker.url) == broker.version
            assert broker.ring_via is not None
            assert remains(kind, broker.ring_via)
            broker.stop()
            assert remains(kind, broker.ring_via) == []
            broker.stop()
            with pytest.raises(NoBrokerError, match="stopped and removed"):
                faults_of(broker).start()


@pytest.mark.slow
def test_nothing_remains_of_a_broker_whose_owner_was_killed(kind: Kind) -> None:
    need(kind)
    module = "rabbit_chx.testing" if kind == "docker" else "local_server"
    program = OWNER.format(kind=kind, module=module, support=str(Path(reaper.__file__).parent))
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        ring_via = ast.literal_eval(owner.stdout.readline())
        assert remains(kind, ring_via)
        owner.kill()
    until(lambda: not remains(kind, ring_via), "nothing remains", every_s=0.2)
