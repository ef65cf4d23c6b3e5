"""Every example of docs/cli.md that needs a broker is run as it is written, but for addresses, vhost and release."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pika
import pytest

from rabbit_chx.amqp import ConnectionSettings
from rabbit_chx.broker import pika_parameters
from rabbit_chx.broker.live_exchange import read_release
from rabbit_chx.broker.management import Management
from rabbit_chx.routing import Release

if TYPE_CHECKING:
    from rabbit_chx.testing import RunningBroker

pytestmark = pytest.mark.broker

CHX: Any = "x-consistent-hash"
TEXT = (Path(__file__).resolve().parents[2] / "docs" / "cli.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```console live\n(.*?)^```$", TEXT, re.DOTALL | re.MULTILINE)
EXAMPLES = [
    example
    for block in BLOCKS
    for example in re.findall(r"^\$ ((?:.*\\\n)*.*)\n((?:(?!\$ ).*\n)*)", block, re.MULTILINE)
]


def publish_when_traced(management: Management, url: str, done: threading.Event) -> None:
    name = ConnectionSettings.from_uri(url).vhost
    while not management.request("GET", "vhosts", name)["tracing"]:
        if done.wait(0.05):
            return
    with pika.BlockingConnection(pika_parameters(url)) as connection:
        channel = connection.channel()
        for n in range(600):
            channel.basic_publish("orders", f"user-{n}", b"")


@pytest.mark.parametrize(("command", "printed"), EXAMPLES, ids=[command[:90] for command, _ in EXAMPLES])
def test_the_example_prints_what_the_page_says(vhost: RunningBroker, command: str, printed: str) -> None:
    assert vhost.management_url is not None, "this needs RABBIT_CHX_TEST_MANAGEMENT_URL"
    assert vhost.ring_via is not None, "this needs RABBIT_CHX_TEST_RING_VIA"
    with pika.BlockingConnection(pika_parameters(vhost.url)) as connection:
        channel = connection.channel()
        channel.exchange_declare("orders", CHX, durable=True)
        for queue, weight in (("q3", 2), ("q1", 10), ("q2", 1)):
            channel.queue_declare(queue, durable=True)
            channel.queue_bind(queue, "orders", str(weight))
    management = Management(vhost.management_url)
    release = read_release(management) if "--management-url" in command else Release(vhost.version)
    name = ConnectionSettings.from_uri(vhost.url).vhost
    here = (
        ("4.3.6 (khepri)", str(release)),
        ('"version": "4.3.6"', f'"version": "{release.version}"'),
        ('"store": "khepri"', f'"store": "{release.store}"'),
        ('"store_known": true', f'"store_known": {json.dumps(release.store_known)}'),
        ("vhost     shop", f"vhost     {name}"),
        ("vhost       shop", f"vhost       {name}"),
        ('"vhost": "shop"', f'"vhost": "{name}"'),
    )
    for word, its in here:
        printed = printed.replace(word, its)
    command = command.replace("http://guest:guest@localhost:15672", vhost.management_url)
    command = command.replace("docker exec rabbitmq", shlex.join(vhost.ring_via))
    done = threading.Event()
    publisher = threading.Thread(target=publish_when_traced, args=(management, vhost.url, done))
    publisher.start()
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "AMQP_URL": vhost.url, "PYTHONIOENCODING": "utf-8"}
    try:
        ran = subprocess.run(
            ["bash", "-c", command], env=environment, capture_output=True, text=True, timeout=90, check=False
        )
    finally:
        done.set()
        publisher.join(60)
    assert ran.stdout == printed
    said = re.sub(
        r"^(compared|traced): [0-9,]+ of .*\n", "", ran.stderr, flags=re.MULTILINE
    )  # on a slow machine
    assert said == "" or ("--passive" in command and said.startswith("tracing vhost"))
