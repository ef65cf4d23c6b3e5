"""The permissions of docs/operate/security.md: with exactly these each works, and without any one of them the error names it."""

from __future__ import annotations

import asyncio
import io
import re
import shlex
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from blocks import page
from canary import CANARY, canary_user
from declared import with_login
from fuzzing import told
from pika.adapters.blocking_connection import BlockingChannel
from quick_rings import quick_prefix
from slotted import declare_slots

from rabbit_chx import (
    ConsistentHashExchange,
    ConsumerGroup,
    Publisher,
    Release,
    SharedPublisher,
    StreamGroup,
    Topology,
)
from rabbit_chx.amqp import ConnectionSettings
from rabbit_chx.broker import Broker
from rabbit_chx.broker.management import Management
from rabbit_chx.cli import main
from rabbit_chx.consuming.journal import JOURNAL
from rabbit_chx.errors import AccessRefusedError, ApplyError, PlanRefusedError, PublishError
from rabbit_chx.testing import RunningBroker
from rabbit_chx.topology import plan

pytestmark = pytest.mark.broker

FILE = """
owns = ["orders*", "audit"]
[[exchanges]]
name = "orders"
type = "x-consistent-hash"
ring = [{ queue = "orders.{1..2}" }, { exchange = "audit" }]
[[exchanges]]
name = "audit"
type = "topic"
arguments = { alternate-exchange = "orders" }
[[queues]]
name = "orders.{1..2}"
arguments = { x-dead-letter-exchange = "audit" }
[[bindings]]
source = "audit"
queue = "orders.1"
routing_key = "a.b"
"""
POLICY = """
[[policies]]
name = "limit"
pattern = "^orders"
apply_to = "queues"
definition = { max-length = 3 }
"""
WANTED, LESS = Topology.from_toml(FILE), Topology.from_toml('owns = ["orders*", "audit"]')
LOCK = "rabbit-chx.apply"
KINDS = ("configure", "write", "read")


@dataclass(frozen=True)
class Site:
    """A vhost, and a user whose rights change."""

    vhost: RunningBroker
    channel: BlockingChannel  # of a user who may do everything
    management: Management
    name: str
    user: str
    file: Path

    def urls(self, user: str = "", password: str = CANARY) -> tuple[str, str]:
        """The AMQP URI and the URL of the management API of the user, or of another one."""
        user = user or self.user
        management_url = with_login(str(self.vhost.management_url), user, password)
        return with_login(self.vhost.url, user, password), management_url

    def permit(self, rights: set[tuple[str, str]], tag: str) -> None:
        """Pass the user these rights, of a kind and on a name each, and no others."""
        self.management.request("PUT", "users", self.user, body={"password": CANARY, "tags": tag})
        patterns = {
            kind: f"^({'|'.join(name if '*' in name else re.escape(name) for of, name in rights if of == kind)})$"
            for kind in KINDS
        }
        self.management.request("PUT", "permissions", self.name, self.user, body=patterns)


@pytest.fixture
def site(vhost: RunningBroker, bare_channel: BlockingChannel, tmp_path: Path) -> Iterator[Site]:
    name, management = ConnectionSettings.from_uri(vhost.url).vhost, Management(str(vhost.management_url))
    with canary_user(management, name) as user:
        yield Site(vhost, bare_channel, management, name, user, tmp_path / "topology.toml")


def test_the_users_of_the_page_can_do_what_the_page_tells(site: Site) -> None:
    section = page("docs/operate/security.md").partition("## Users for plans")[2].partition("\n## ")[0]
    commands = "".join(re.findall(r"```sh\n(.*?)```", section, re.DOTALL)).splitlines()
    assert len(commands) == 6
    named = {user: f"{site.name}-{user}" for user in ("planner", "applier")}
    given = {"shop": site.name, "$PASSWORD": "pw", **named}
    via = quick_prefix(site.vhost)
    try:
        for command in commands:
            site.vhost.run(*(given.get(word, word) for word in shlex.split(command)))
        check_page_users(*(Broker(*site.urls(user, "pw"), via) for user in named.values()))
    finally:
        for user in named.values():
            site.management.request("DELETE", "users", user)


def check_page_users(planner: Broker, applier: Broker) -> None:
    with planner, applier:
        made = plan(Topology.from_toml(FILE + POLICY), planner.topology())
        assert len(applier.apply(made).changes) == 9
        assert planner.topology().rings["orders"].provenance == "read"
        exchange = planner.exchange("orders")
        assert isinstance(exchange, ConsistentHashExchange)
        assert exchange.ring == planner.ring("orders")
        assert plan(made.wanted, planner.topology()).changes == ()
        less = plan(LESS, planner.topology())
        with pytest.raises(AccessRefusedError, match=f"configure on queue {LOCK}: .*nothing was changed"):
            planner.apply(less, allow_moved=1, allow_delete=True)
        assert applier.apply(less, allow_moved=1, allow_delete=True).changes
        assert planner.topology().queues == ()


#: Exactly what the plan of FILE needs.
NAMES = ("orders", "audit", "orders.1", "orders.2")
NEEDED = {(kind, name) for kind in KINDS for name in NAMES} | {("configure", LOCK)}


def test_a_missing_permission_is_named_and_with_it_the_same_apply_does_the_rest(site: Site) -> None:
    """This user may not store records, so an order that was begun is not known without a ring source."""
    allowed: dict[str, Any] = {"allow_moved": 1, "allow_delete": True}
    with Broker(site.vhost.url, site.vhost.management_url, quick_prefix(site.vhost)) as everything:
        for kind, name in sorted(NEEDED):
            site.permit(NEEDED - {(kind, name)}, "management")
            with Broker(*site.urls()) as applier:
                with pytest.raises((AccessRefusedError, ApplyError)) as caught:
                    applier.apply(WANTED, **allowed)
                said = str(caught.value)
                needed = rf"{kind} on (exchange|queue) {name}"
                if kind == "read":
                    needed = rf"read on (it|exchange {name})"
                assert re.search(needed, said), said
                assert "rabbitmqctl set_permissions" in said
                assert caught.value.reply_code == 403
                site.permit(NEEDED, "management")
                applier.apply(WANTED, **allowed)
            assert plan(WANTED, everything.topology()).changes == ()
            everything.apply(LESS, **allowed)


def test_a_hand_over_in_order_without_its_permissions_changes_nothing(site: Site) -> None:
    file = "[[exchanges]]\nname = 'events'\ntype = 'x-consistent-hash'\nslots = 2\nmembers = [{{ queue = 'events.{}' }}]\n"
    queues = "[[queues]]\nname = 'events.{1..2}'\n"
    before, after = (Topology.from_toml(file.format(number) + queues) for number in (1, 2))
    with Broker(site.vhost.url, site.vhost.management_url) as everything:
        everything.apply(plan(before, everything.topology()))
    for queue in ("events.1", "events.2"):
        site.channel.basic_consume(queue, lambda *_: None, consumer_tag=f"rabbit-chx.group.m.{queue[-1]}")
    allowed = {(kind, "events.*") for kind in KINDS} | {("configure", "rabbit-chx.*")}
    needed = {
        ("configure", "amq.gen.*"),
        ("write", "amq.gen.*"),
        ("read", "amq.gen.*"),
        ("write", "amq.default"),
    }
    site.permit(allowed | needed, "management")
    with Broker(*site.urls()) as applier:
        made = plan(after, applier.topology())
        with pytest.raises(
            PlanRefusedError, match=r"events.1 has consumers that the user cannot list, .*monitoring"
        ):
            applier.apply(made, hand_over="in-order")
    for missing in (("write", "amq.default"), ("configure", "amq.gen.*"), ("read", "amq.gen.*")):
        site.permit(allowed | (needed - {missing}), "monitoring")
        with Broker(*site.urls()) as applier:
            made = plan(after, applier.topology())
            with pytest.raises(
                AccessRefusedError, match=r"hand-over in order needs write.*; nothing was changed"
            ):
                applier.apply(made, hand_over="in-order")
            assert plan(after, applier.topology()).checksum == made.checksum


def test_policies_need_a_tag(site: Site) -> None:
    everything = {(kind, ".*") for kind in KINDS}
    site.permit(everything, "management")
    with Broker(*site.urls()) as applier:
        made = plan(Topology.from_toml(POLICY), applier.topology())
        with pytest.raises(
            AccessRefusedError, match=r"PUT /api/policies/.* 401 \(.*policymaker to change policies"
        ):
            applier.apply(made)
        site.permit(everything, "policymaker")
        assert len(applier.apply(made).changes) == 1


QUORUM = """
[[exchanges]]
name = "orders"
type = "x-consistent-hash"
ring = [{ queue = "orders.{1..2}" }]
[[queues]]
name = "orders.{1..2}"
type = "quorum"
arguments = { x-single-active-consumer = true }
"""


class RefusedCommandError(Exception):
    """A command that ended with the exit code of a refusal, and what it said."""


def command(line: str) -> Callable[[Site], None]:
    def run(site: Site) -> None:
        with redirect_stderr(io.StringIO()) as stderr, redirect_stdout(io.StringIO()) as stdout:
            words = [word.format(file=site.file) for word in line.split()]
            url, management_url = site.urls()
            via = shlex.join(quick_prefix(site.vhost))
            code = main([*words, "--url", url, "--management-url", management_url, "--ring-via", via])
        if code == 77:
            raise RefusedCommandError(stderr.getvalue())
        # This user does not see the consumers of others; the statistics, which come after seconds, show that there are none.
        is_counted = "not visible" not in stdout.getvalue()
        sees_others = "--consumers" not in words or is_counted
        assert code in ({0, 1} if sees_others else {3}), (code, stdout.getvalue(), stderr.getvalue())

    return run


def publish(site: Site) -> None:
    with Publisher(site.urls()[0], "orders") as publisher:
        assert publisher.publish_many(["k"], ["b"]).complete
    with SharedPublisher(site.urls()[0], "orders") as shared:
        shared.submit("k", "b").result(60)


async def consumed(group: ConsumerGroup | StreamGroup) -> None:
    """Run a group until it has handled a message."""

    async def handle(*_: object) -> None:
        group.stop()

    async with group, asyncio.timeout(60):
        await group.run(handle)


def consume(site: Site, *, has_journal: bool) -> None:
    if has_journal:
        site.channel.queue_declare(JOURNAL, durable=True, arguments={"x-queue-type": "stream"})
    else:
        site.channel.queue_delete(JOURNAL)
    site.channel.basic_publish("", "orders.1", b"")
    asyncio.run(consumed(ConsumerGroup(site.urls()[0], ["orders.1", "orders.2"], member="one")))


def consume_streams(site: Site) -> None:
    streams = ["orders-0", "orders-1"]
    for stream in streams:
        site.channel.queue_declare(stream, durable=True, arguments={"x-queue-type": "stream"})
        site.channel.basic_publish("", stream, b"")
    url = with_login(site.vhost.stream_url, site.user, CANARY)
    asyncio.run(consumed(StreamGroup(url, streams=streams, name="one", member="one")))


def repair(site: Site) -> None:
    """The ring in another order than the record says, so that there is something to repair."""

    def bind(*queues: str) -> None:
        for queue in queues:
            site.channel.queue_unbind(queue, "orders", "1")
        for queue in queues:
            site.channel.queue_bind(queue, "orders", "1")

    bind("orders.1", "orders.2")
    command("record orders --yes")(site)
    bind("orders.2", "orders.1")
    command("repair orders --allow moved=1 --yes")(site)


#: What each row of the table stands for.
ACTIONS: dict[str, list[Callable[[Site], None]]] = {
    "`Publisher`, `SharedPublisher`, a write from Spark": [publish],
    "`ConsumerGroup` with an existing journal": [partial(consume, has_journal=True)],
    "`ConsumerGroup`": [partial(consume, has_journal=False)],
    "`StreamGroup` of `orders-0`, `orders-1`": [consume_streams],
    "`route`, `compare`": [
        command("route orders k"),
        command("route orders --reaching orders.1"),
        command("compare orders"),
    ],
    "`show`, `check`, `repair`": [
        *map(
            command,
            (
                "show",
                "show --all-vhosts",
                "show orders",
                "show events",
                "check orders",
                "repair orders --dry-run",
            ),
        ),
    ],
    "`repair` that moves `orders.2`": [repair],
    "`plan`, `check`, `arrange`, `export`": [
        command("export"),
        *map(command, ("plan {file}", "check {file}", "arrange {file}")),
    ],
    "`show --consumers`": [command("show orders --consumers")],
    "`verify`": [command("verify orders --keys k{{1..20}}")],
}
ROWS = re.findall(
    r"^\| (.+?) \| (.*?) ?\| (.*?) ?\| (.*?) ?\| (.*?) ?\|$",
    page("docs/operate/security.md").partition("## Permissions")[2].partition("| --- |")[2],
    re.MULTILINE,
)


@pytest.mark.core
def test_each_row_is_tried() -> None:
    assert [row[0] for row in ROWS] == list(ACTIONS)


def refused(action: Callable[[Site], None], site: Site) -> str:
    with pytest.raises((AccessRefusedError, PublishError, RefusedCommandError)) as caught:
        action(site)
    return str(caught.value)


_SINCE = {
    "StreamGroup": pytest.mark.chx_broker(">=3.11", "single active consumers of streams"),
}


@pytest.mark.extended
@pytest.mark.usefixtures("quick_plans")
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
    site.file.write_text(QUORUM)
    with Broker(site.vhost.url, site.vhost.management_url) as broker:
        broker.apply(plan(Topology.from_toml(QUORUM), broker.topology()))
    declare_slots(site.channel, "events", 4, ("events.1", "events.2"))
    title, *cells, tag_cell = row
    is_old = Release(site.vhost.version) < Release("4.0.0")  # which does not name the kind of the permission
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
            assert re.search(rf"{right[0]}\b", said) or is_old, (right, said)
            assert re.search(right[1], said), (right, said)
        if tag:
            site.permit(rights, "management" if tag == "administrator" else "")
            assert f"set_user_tags USER {tag}" in refused(action, site)
