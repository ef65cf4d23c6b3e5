"""The least permissions for planning and for applying: they are enough, and without any one of them the error names it."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

import pytest
from blocks import page
from declared import with_login
from quick_rings import quick_prefix

from rabbit_chx import ConsistentHashExchange, Topology
from rabbit_chx.amqp import ConnectionSettings
from rabbit_chx.broker import Broker
from rabbit_chx.broker.management import Management
from rabbit_chx.errors import AccessRefusedError, ApplyError, NotFoundError
from rabbit_chx.testing import RunningBroker, temporary_vhost
from rabbit_chx.topology import Plan, plan

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


@dataclass(frozen=True)
class Rights:
    """The tags and the permissions of a user."""

    tags: str
    permissions: dict[str, str]


@dataclass(frozen=True)
class Users:
    """The users that docs/security.md creates, with other names, and who may change them."""

    vhost: RunningBroker
    management: Management
    prefix: str

    def named(self, user: str, *, rings: bool = False) -> Broker:
        """Return a broker for one of them."""
        return Broker(self.url(user), self.management_url(user), quick_prefix(self.vhost) if rings else None)

    def url(self, user: str) -> str:
        """Return the AMQP URL of one of them."""
        return with_login(self.vhost.url, self.prefix + user, "pw")

    def management_url(self, user: str) -> str:
        """Return the URL of the management API for one of them."""
        return with_login(str(self.vhost.management_url), self.prefix + user, "pw")

    def permit(self, user: str, configure: str, write: str, read: str) -> None:
        """Pass one of them these permissions, and no others."""
        path = ("permissions", ConnectionSettings.from_uri(self.vhost.url).vhost, self.prefix + user)
        self.management.request("PUT", *path, body={"configure": configure, "write": write, "read": read})

    def tag(self, user: str, tags: str) -> None:
        """Pass one of them these tags, and no others."""
        self.management.request("PUT", "users", self.prefix + user, body={"password": "pw", "tags": tags})


@pytest.fixture(scope="module")
def as_on_the_page(broker: RunningBroker) -> dict[str, Rights]:
    """What the commands of the page give each user: they run once, since each takes a second of CPU time."""
    section = page("docs/security.md").partition("## Users for plans")[2].partition("\n## ")[0]
    commands = [
        line for block in re.findall(r"```sh\n(.*?)```", section, re.DOTALL) for line in block.splitlines()
    ]
    assert len(commands) == 6
    with temporary_vhost(broker) as inside:
        name = ConnectionSettings.from_uri(inside.url).vhost
        management = Management(str(inside.management_url))
        for command in commands:
            words = [re.sub("^(planner|applier)$", rf"{name}-\1", word) for word in shlex.split(command)]
            inside.run(*({"shop": name, "$PASSWORD": "pw"}.get(word, word) for word in words))
        rights = {}
        for user in ("planner", "applier"):
            tags = management.request("GET", "users", f"{name}-{user}")["tags"]
            permissions = management.request("GET", "permissions", name, f"{name}-{user}")
            rights[user] = Rights(
                tags if isinstance(tags, str) else ",".join(tags),
                {kind: permissions[kind] for kind in ("configure", "write", "read")},
            )
            with Broker(with_login(inside.url, f"{name}-{user}", "pw")):
                pass  # the password is the one that was given
            management.request("DELETE", "users", f"{name}-{user}")
    return rights


@pytest.fixture
def users(vhost: RunningBroker, as_on_the_page: dict[str, Rights]) -> Iterator[Users]:
    """The users of the page, on the vhost of the test."""
    name = ConnectionSettings.from_uri(vhost.url).vhost
    users = Users(vhost, Management(str(vhost.management_url)), f"{name}-")
    for user, rights in as_on_the_page.items():
        users.tag(user, rights.tags)
        users.permit(user, **rights.permissions)
    yield users
    for user in as_on_the_page:
        users.management.request("DELETE", "users", users.prefix + user)


def pattern(names: str) -> str:
    return f"^({'|'.join(map(re.escape, names.split()))})$"


def test_the_users_of_the_page_can_do_what_the_page_tells(users: Users) -> None:
    with (
        users.named("planner", rings=True) as planner,
        users.named("applier", rings=True) as applier,
    ):
        made = plan(Topology.from_toml(FILE + POLICY), planner.topology())
        assert len(applier.apply(made).changes) == 9
        assert planner.topology().rings["orders"].provenance == "read"
        exchange = planner.exchange("orders")
        assert isinstance(exchange, ConsistentHashExchange)
        assert exchange.ring == planner.ring("orders")
        assert plan(made.wanted, planner.topology()).changes == ()
        with pytest.raises(AccessRefusedError, match=f"configure on queue {LOCK}: .*nothing was changed"):
            planner.apply(plan(LESS, planner.topology()), allow_moved=1, allow_delete=True)
        emptied = applier.apply(plan(LESS, planner.topology()), allow_moved=1, allow_delete=True)
        assert emptied.changes
        assert planner.topology().queues == ()


#: Exactly what the plan of FILE needs.
CONFIGURE, WRITE, READ = (
    f"orders audit orders.1 orders.2 {LOCK}",
    "orders audit orders.1 orders.2",
    "orders audit orders.1 orders.2",
)
ONE_AWAY = [
    (kind, name)
    for kind, names in (("configure", CONFIGURE), ("write", WRITE), ("read", READ))
    for name in names.split()
]


def made_by(users: Users, wanted: Topology, *, rings: bool = False) -> Plan:
    with users.named("planner", rings=rings) as planner:
        return plan(wanted, planner.topology())


def test_without_one_permission_nothing_is_applied(users: Users) -> None:
    for kind, name in ONE_AWAY:
        left = {
            permission: pattern(
                " ".join(each for each in names.split() if (permission, each) != (kind, name))
            )
            for permission, names in (("configure", CONFIGURE), ("write", WRITE), ("read", READ))
        }
        users.permit("applier", **left)
        made = made_by(users, WANTED)
        with users.named("applier") as applier, pytest.raises((AccessRefusedError, ApplyError)) as caught:
            applier.apply(made, allow_moved=1)
        said = str(caught.value)
        needed = {
            "configure": rf"configure on (exchange|queue) {name}",
            "write": rf"write on (exchange|queue) {name}",
        }
        assert re.search(
            rf"access to (exchange|queue) '{name}' .*refused for user '{users.prefix}applier'", said
        ), said
        assert re.search(needed.get(kind, r"read on (it|exchange " + name + ")"), said), said
        assert "rabbitmqctl set_permissions" in said
        assert caught.value.reply_code == 403
        left_to_do = made_by(users, WANTED)
        assert left_to_do.changes, (kind, name)
        if isinstance(caught.value, AccessRefusedError):
            assert left_to_do.checksum == made.checksum, "something was changed"
        clean(users)
    users.permit("applier", pattern(CONFIGURE), pattern(WRITE), pattern(READ))
    with users.named("applier") as applier:
        assert len(applier.apply(made_by(users, WANTED)).changes) == 8


def clean(users: Users) -> None:
    vhost = ConnectionSettings.from_uri(users.vhost.url).vhost
    for kind, names in (("exchanges", ("orders", "audit")), ("queues", ("orders.1", "orders.2"))):
        for name in names:
            with suppress(NotFoundError):
                users.management.request("DELETE", kind, vhost, name)


def test_deleting_needs_configure(users: Users) -> None:
    with users.named("applier", rings=True) as applier:
        applier.apply(made_by(users, WANTED), allow_moved=1)
    users.permit("applier", r"^rabbit-chx\..*$", pattern(WRITE), pattern(READ))
    with (
        users.named("applier", rings=True) as applier,
        pytest.raises(ApplyError, match="configure on queue orders") as caught,
    ):
        applier.apply(made_by(users, LESS, rings=True), allow_moved=1, allow_delete=True)
    assert {change.action for change in caught.value.applied.changes} == {"unbind"}
    users.permit("applier", pattern(CONFIGURE), "^$", "^$")
    with users.named("applier", rings=True) as applier:
        assert applier.apply(made_by(users, LESS, rings=True), allow_moved=1, allow_delete=True).changes


def test_policies_need_a_tag(users: Users) -> None:
    policy = Topology.from_toml(POLICY)
    users.tag("applier", "management")
    with users.named("applier") as applier:
        with pytest.raises(
            AccessRefusedError, match=r"PUT /api/policies/.* 401 \(.*policymaker to change policies"
        ):
            applier.apply(made_by(users, policy))
        users.tag("applier", "policymaker")
        assert len(applier.apply(made_by(users, policy)).changes) == 1
