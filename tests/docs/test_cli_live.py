"""Every example of docs/reference/commands that needs a broker is run as it is written, but for addresses, vhost and release."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pika
import pytest
from blocks import COMMAND_PAGES, console_examples, page, replaced, run_command
from exchange_types import CHX, MODULUS
from group_members import ORDERED, consuming, wait_for_figures
from output_documents import check_document
from pika.adapters.blocking_connection import BlockingChannel
from quick_rings import quick_prefix
from slotted import declare_slots

from rabbit_chx.amqp import ConnectionSettings
from rabbit_chx.broker import pika_parameters
from rabbit_chx.broker.management import Management
from rabbit_chx.broker.reading import read_release
from rabbit_chx.routing import Release
from rabbit_chx.testing import RunningBroker

pytestmark = pytest.mark.broker

TEXT = "".join(map(page, COMMAND_PAGES))
TOPOLOGY = re.findall(r"^```toml\n(max_share.*?)^```$", TEXT, re.DOTALL | re.MULTILINE)[0]
#: The checksum of a plan, which is another one for another broker, when somebody connected, and how long it took.
OF_THE_MOMENT = re.compile(r"[0-9a-f]{64}|(?<=seconds) +\d+\.\d|\d{4}-\d\d-\d\d[ T][\d:.]+(?:Z|\+00:00)")
EXAMPLES = console_examples(TEXT, "console live")


def declare_shards(vhost: RunningBroker, channel: BlockingChannel) -> None:
    """Declare `images` of the page, which had three shards on each node and has two."""
    management = Management(str(vhost.management_url))
    channel.exchange_declare("images", MODULUS, durable=True)
    for count in (3, 2):
        policy = {
            "pattern": "^images$",
            "definition": {"shards-per-node": count},
            "apply-to": "exchanges",
        }
        name = ConnectionSettings.from_uri(vhost.url).vhost
        management.request("PUT", "policies", name, "shards", body=policy)


def declare_group(vhost: RunningBroker, channel: BlockingChannel, open_things: ExitStack) -> None:
    """The slots of the page, with messages, and two members that consume their queues."""
    queues = ("events.1", "events.2", "events.3")
    declare_slots(channel, "events", 8, queues, ORDERED)
    open_things.enter_context(consuming(vhost.url, "pod-1", {"events.1": 2, "events.2": 1, "events.3": 2}))
    open_things.enter_context(consuming(vhost.url, "pod-2", {"events.1": 1, "events.2": 2, "events.3": 1}))
    channel.confirm_delivery()
    for n in range(40):
        channel.basic_publish("events", f"user-{n}", b"")
    name = ConnectionSettings.from_uri(vhost.url).vhost
    wait_for_figures(Management(str(vhost.management_url)), name, active=len(queues), messages=40)


@pytest.fixture
def open_things() -> Iterator[ExitStack]:
    """What stays open until the example has run."""
    with ExitStack() as stack:
        yield stack


def of_node(printed: str, node: str) -> str:
    """Return the output of `show` as it is for a node of another name."""
    more = len(node) - len("rabbit@rabbitmq")
    printed = re.sub(r"^( shard +)(?=type)", lambda found: found[1] + " " * more, printed, flags=re.MULTILINE)
    printed = re.sub(
        r"^ (─+)$", lambda found: " " + "─" * (len(found[1]) + more), printed, flags=re.MULTILINE
    )
    return printed.replace("rabbit@rabbitmq", node)


#: Examples whose output is another one on older releases, by the beginning of the command.
RELEASES = {
    "rabbit-chx check orders": (">=4.2", "the metadata store is Khepri"),
    "rabbit-chx show events --consumers": (
        ">=4.0",
        "a quorum queue with a single active consumer obeys priorities",
    ),
}


def example_of(command: str, printed: str) -> Any:
    """Return the parameters of an example, with the marker for its release."""
    marks = [pytest.mark.chx_broker(*needs) for start, needs in RELEASES.items() if command.startswith(start)]
    return pytest.param(command, printed, id=command[:90], marks=marks)


@pytest.mark.parametrize(("command", "printed"), [example_of(*example) for example in EXAMPLES])
def test_the_example_prints_the_output_of_the_page(
    vhost: RunningBroker, tmp_path: Path, open_things: ExitStack, command: str, printed: str
) -> None:
    assert vhost.management_url is not None, "this needs RABBIT_CHX_TEST_MANAGEMENT_URL"
    with pika.BlockingConnection(pika_parameters(vhost.url)) as connection:
        channel = connection.channel()
        channel.exchange_declare("orders", CHX, durable=True)
        for queue, weight in (("q3", 2), ("q1", 10), ("q2", 1)):
            channel.queue_declare(queue, durable=True)
            channel.queue_bind(queue, "orders", str(weight))
        if "--consumers" in command:
            declare_group(vhost, channel, open_things)
        elif "events" in command:
            declare_slots(channel, "events", 8, ("events.1", "events.2", "events.3"))
        if "images" in command:
            declare_shards(vhost, channel)
    management = Management(vhost.management_url)
    # The pages have a broker in environment variables; this one shows what AMQP alone answers.
    has_management = "show orders --ring-via" not in command
    release = read_release(management) if has_management else Release(vhost.version)
    name = ConnectionSettings.from_uri(vhost.url).vhost
    command, printed = (re.sub(r"(vhost\W+)shop", rf"\1{name}", text) for text in (command, printed))
    if "images" in command:  # whose columns are as wide as the name of the node
        printed = of_node(printed, next(node["name"] for node in management.request("GET", "nodes")))
    here = {
        "4.3.6 (khepri)": str(release),
        "4.3.6 (khepri?)": str(Release(vhost.version)),
        '"version": "4.3.6"': f'"version": "{release.version}"',
        '"store": "khepri"': f'"store": "{release.store}"',
        '"store_known": true': f'"store_known": {json.dumps(release.store_known)}',
        "RabbitMQ 4.3.6\n": f"RabbitMQ {vhost.version}\n",
        "localhost:5672": "{0.host}:{0.port}".format(ConnectionSettings.from_uri(vhost.url)),
        "rabbit@prod": management.request("GET", "cluster-name")["name"],
    }
    addresses = {
        "http://guest:guest@localhost:15672": vhost.management_url,
        "docker exec rabbitmq": shlex.join(quick_prefix(vhost)),
    }
    environment = {"AMQP_URL": vhost.url}
    (tmp_path / "topology.toml").write_text(TOPOLOGY)
    if has_management:
        environment["RABBIT_CHX_MANAGEMENT_URL"] = vhost.management_url
        environment["RABBIT_CHX_RING_VIA"] = shlex.join(quick_prefix(vhost))
    ran = run_command(replaced(command, addresses), 90, tmp_path, **environment)
    assert OF_THE_MOMENT.sub("", ran.stdout.decode()) == OF_THE_MOMENT.sub("", replaced(printed, here))
    # A slow machine shows progress.
    said = re.sub(r"^[a-z ]+(: .* after| \.\.\.) \d+ s\n", "", ran.stderr.decode(), flags=re.MULTILINE)
    said = re.sub(
        r"^rabbit-chx: (stored on|no record on) the broker.* the order of .*\n", "", said, flags=re.MULTILINE
    )
    begins = {
        "arrange": "rabbit-chx: orders: in this order 23.074% of the keys move",
    }
    assert said == "" or any(word in command and said.startswith(line) for word, line in begins.items())

    as_json = re.sub(r"(rabbit-chx [^|]*).*", r"\1 --output json", replaced(command, addresses))
    document = run_command(as_json, 90, tmp_path, **environment).stdout.decode()
    check_document(json.loads(document))
