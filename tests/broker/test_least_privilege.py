"""The table of docs/security.md: with exactly these rights each works, and with one less the error names it."""

from __future__ import annotations

import asyncio
import io
import re
import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pika
import pytest
from blocks import page
from canary import CANARY, canary_user
from declared import with_login
from fuzzing import told
from pika.adapters.blocking_connection import BlockingChannel
from quick_rings import quick_prefix
from slotted import declare_slots

from rabbit_chx import ConsumerGroup, Publisher, Release, SharedPublisher, StreamGroup, Topology
from rabbit_chx.amqp import ConnectionSettings
from rabbit_chx.broker import Broker, pika_parameters
from rabbit_chx.broker.management import Management
from rabbit_chx.cli import main
from rabbit_chx.consuming.journal import JOURNAL
from rabbit_chx.errors import AccessRefusedError, PublishError
from rabbit_chx.testing import RunningBroker
from rabbit_chx.topology import plan

pytestmark = pytest.mark.broker

FILE = """
[[exchanges]]
name = "orders"
type = "x-consistent-hash"
ring = [{ queue = "orders.{1..2}" }]
[[queues]]
name = "orders.{1..2}"
type = "quorum"
arguments = { x-single-active-consumer = true }
"""
KINDS = ("configure", "write", "read")


@dataclass(frozen=True)
class Site:
    """The vhost, and a user whose rights change."""

    vhost: RunningBroker
    management: Management
    user: str
    file: str

    @property
    def name(self) -> str:
        """The name of the vhost."""
        return ConnectionSettings.from_uri(self.vhost.url).vhost

    @property
    def url(self) -> str:
        """The AMQP URI of the user."""
        return with_login(self.vhost.url, self.user, CANARY)

    @property
    def live(self) -> list[str]:
        """The options of a command that the user runs."""
        management_url = with_login(str(self.vhost.management_url), self.user, CANARY)
        via = shlex.join(quick_prefix(self.vhost))
        return ["--url", self.url, "--management-url", management_url, "--ring-via", via]

    @property
    def names_permissions(self) -> bool:
        """Whether the broker says which permission is missing, and not only on what."""
        return Release(self.vhost.version) >= Release("4.0.0")

    def permit(self, rights: set[tuple[str, str]], tag: str) -> None:
        """Pass the user these rights, and no others."""
        self.management.request("PUT", "users", self.user, body={"password": CANARY, "tags": tag})
        patterns = {
            kind: f"^({'|'.join(name if '*' in name else re.escape(name) for of, name in rights if of == kind)})$"
            for kind in KINDS
        }
        self.management.request("PUT", "permissions", self.name, self.user, body=patterns)


@pytest.fixture
def site(vhost: RunningBroker, tmp_path: Path) -> Iterator[Site]:
    file = tmp_path / "topology.toml"
    file.write_text(FILE)
    with Broker(vhost.url, vhost.management_url) as broker:
        broker.apply(plan(Topology.from_toml(FILE), broker.topology()))
    with pika.BlockingConnection(pika_parameters(vhost.url)) as connection:
        declare_slots(connection.channel(), "events", 4, ("events.1", "events.2"))
    management = Management(str(vhost.management_url))
    with canary_user(management, ConnectionSettings.from_uri(vhost.url).vhost) as user:
        yield Site(vhost, management, user, str(file))


class RefusedCommandError(Exception):
    """A command that ended with the exit code of a refusal, and what it said."""


def command(line: str) -> Callable[[Site], None]:
    def run(site: Site) -> None:
        with redirect_stderr(io.StringIO()) as stderr, redirect_stdout(io.StringIO()) as stdout:
            code = main([*(word.format(file=site.file) for word in line.split()), *site.live])
        if code == 77:
            raise RefusedCommandError(stderr.getvalue())
        assert code in {0, 1}, (code, stdout.getvalue(), stderr.getvalue())

    return run


def publish(site: Site) -> None:
    with Publisher(site.url, "orders") as publisher:
        assert publisher.publish_many(["k"], ["b"]).complete
    with SharedPublisher(site.url, "orders") as shared:
        shared.submit("k", "b").result(60)


@contextmanager
def admin(site: Site) -> Iterator[BlockingChannel]:
    """A channel of a user who may do everything."""
    with pika.BlockingConnection(pika_parameters(site.vhost.url)) as connection:
        yield connection.channel()


async def consumed(group: ConsumerGroup | StreamGroup) -> None:
    """Run a group until it has handled a message."""

    async def handle(*_: object) -> None:
        group.stop()

    async with group, asyncio.timeout(60):
        await group.run(handle)


def consume(site: Site, *, has_journal: bool) -> None:
    with admin(site) as channel:
        if has_journal:
            channel.queue_declare(JOURNAL, durable=True, arguments={"x-queue-type": "stream"})
        else:
            channel.queue_delete(JOURNAL)
        channel.basic_publish("", "orders.1", b"")
    asyncio.run(consumed(ConsumerGroup(site.url, ["orders.1", "orders.2"], member="one")))


def consume_streams(site: Site) -> None:
    streams = ["orders-0", "orders-1"]
    with admin(site) as channel:
        channel.queue_delete(JOURNAL)
        for stream in streams:
            channel.queue_declare(stream, durable=True, arguments={"x-queue-type": "stream"})
            channel.basic_publish("", stream, b"")
    url = with_login(site.vhost.stream_url, site.user, CANARY)
    asyncio.run(consumed(StreamGroup(url, streams=streams, name="one", member="one")))


def repair(site: Site) -> None:
    """The ring in another order than the file says, so that there is something to repair."""
    with admin(site) as channel:
        for queue in ("orders.1", "orders.2"):
            channel.queue_unbind(queue, "orders", "1")
        for queue in ("orders.2", "orders.1"):
            channel.queue_bind(queue, "orders", "1")
    command("ring repair orders --file {file} --allow-moved 1 --apply")(site)


#: What each row of the table stands for.
ACTIONS: dict[str, list[Callable[[Site], None]]] = {
    "`Publisher`, `SharedPublisher`, a write from Spark": [publish],
    "`ConsumerGroup` with an existing journal": [partial(consume, has_journal=True)],
    "`ConsumerGroup`": [partial(consume, has_journal=False)],
    "`StreamGroup` of `orders-0`, `orders-1`": [consume_streams],
    "`route`, `keys`, `simulate` with `--exchange`": [
        command("route --exchange orders k"),
        command("keys --exchange orders orders.1 --count 1"),
        command("simulate --exchange orders"),
    ],
    "`ring list`, `ring show`, `ring check`, `ring repair`": [
        command("ring list"),
        command("ring list --all-vhosts"),
        *(command(f"ring {name} orders") for name in ("show", "check", "repair")),
    ],
    "`ring repair --apply` that moves `orders.2`": [repair],
    "`topology plan`, `check`, `arrange`, `export`": [
        command("topology export"),
        *(command(f"topology {name} {{file}}") for name in ("plan", "check", "arrange")),
    ],
    "`group show`, `slots show`, `slots balance`": [
        command("group show orders"),
        command("slots show events"),
        command("slots balance events --pattern k{{n}}"),
    ],
    "`verify`": [command("verify orders --count 20")],
}
ROWS = re.findall(
    r"^\| (.+?) \| (.*?) ?\| (.*?) ?\| (.*?) ?\| (.*?) ?\|$",
    page("docs/security.md").partition("## Permissions")[2].partition("| --- |")[2],
    re.MULTILINE,
)


def test_each_row_is_tried() -> None:
    assert [row[0] for row in ROWS] == list(ACTIONS)


def refused(action: Callable[[Site], None], site: Site) -> str:
    with pytest.raises((AccessRefusedError, PublishError, RefusedCommandError)) as caught:
        action(site)
    return str(caught.value)


_SINCE = {
    "StreamGroup": pytest.mark.chx_broker(">=3.11", "single active consumers of streams"),
    "ConsumerGroup": pytest.mark.chx_broker(">=3.9", "streams, for the journal of a group"),
}


@pytest.mark.extended
@pytest.mark.parametrize(
    "row",
    [
        pytest.param(
            row,
            id=re.sub("[^a-zA-Z -]", "", row[0]),
            marks=[mark for name, mark in _SINCE.items() if row[0].startswith(f"`{name}`")],
        )
        for row in ROWS
    ],
)
def test_each_right_of_the_table_is_needed_and_no_other(site: Site, row: tuple[str, ...]) -> None:
    title, *cells, tag_cell = row
    rights = {
        (kind, name)
        for kind, cell in zip(KINDS, cells, strict=True)
        for name in re.findall(r"`([^`]+)`", cell)
    }
    tag = tag_cell.strip("`")
    for action in ACTIONS[title]:
        site.permit(rights, tag)
        action(site)
        for right in sorted(rights):
            site.permit(rights - {right}, tag)
            with told(right):
                said = refused(action, site)
            assert re.search(rf"{right[0]}\b", said) or not site.names_permissions, (right, said)
            assert re.search(right[1], said), (right, said)
        if tag:
            site.permit(rights, "management" if tag == "administrator" else "")
            assert f"set_user_tags USER {tag}" in refused(action, site)
