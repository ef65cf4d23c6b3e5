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
from rabbit_chx.testing import RunningBroker
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
class Users:
    """Users of a vhost, whose names begin with its name, and who may change them."""

    vhost: RunningBroker
    management: Management
    name: str

    def named(self, user: str = "applier", *, rings: bool = False) -> Broker:
        """Return a broker for one of them."""
        urls = (self.vhost.url, str(self.vhost.management_url))
        url, management_url = (with_login(each, f"{self.name}-{user}", "pw") for each in urls)
        return Broker(url, management_url, quick_prefix(self.vhost) if rings else None)

    def permit(self, configure: str, write: str, read: str, tags: str = "policymaker") -> None:
        """Pass the applier these permissions, and no others."""
        user, body = f"{self.name}-applier", {"configure": configure, "write": write, "read": read}
        self.management.request("PUT", "users", user, body={"password": "pw", "tags": tags})
        self.management.request("PUT", "permissions", self.name, user, body=body)


@pytest.fixture
def users(vhost: RunningBroker) -> Iterator[Users]:
    """A planner, and an applier with all permissions."""
    name, management = ConnectionSettings.from_uri(vhost.url).vhost, Management(str(vhost.management_url))
    users = Users(vhost, management, name)
    management.request("PUT", "users", f"{name}-planner", body={"password": "pw", "tags": "management"})
    nothing = dict.fromkeys(("configure", "write", "read"), "^$")
    management.request("PUT", "permissions", name, f"{name}-planner", body=nothing)
    users.permit(".*", ".*", ".*")
    yield users
    for user in ("planner", "applier"):
        management.request("DELETE", "users", f"{name}-{user}")


def pattern(names: list[str], but: str = "") -> str:
    return f"^({'|'.join(re.escape(name) for name in names if name != but)})$"


def test_the_users_of_the_page_can_do_what_the_page_tells(users: Users) -> None:
    section = page("docs/security.md").partition("## Users for plans")[2].partition("\n## ")[0]
    commands = "".join(re.findall(r"```sh\n(.*?)```", section, re.DOTALL)).splitlines()
    assert len(commands) == 6
    for user in ("planner", "applier"):
        users.management.request("DELETE", "users", f"{users.name}-{user}")
    for command in commands:
        words = [re.sub("^(planner|applier)$", rf"{users.name}-\1", word) for word in shlex.split(command)]
        users.vhost.run(*({"shop": users.name, "$PASSWORD": "pw"}.get(word, word) for word in words))
    with users.named("planner", rings=True) as planner, users.named(rings=True) as applier:
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
NEEDED = {
    "configure": f"orders audit orders.1 orders.2 {LOCK}".split(),
    "write": ["orders", "audit", "orders.1", "orders.2"],
    "read": ["orders", "audit", "orders.1", "orders.2"],
}


def made_by(users: Users, wanted: Topology, *, rings: bool = False) -> Plan:
    with users.named("planner", rings=rings) as planner:
        return plan(wanted, planner.topology())


def test_without_one_permission_nothing_is_applied(users: Users) -> None:
    for kind, name in [(kind, name) for kind, names in NEEDED.items() for name in names]:
        users.permit(**{each: pattern(names, name if each == kind else "") for each, names in NEEDED.items()})
        made = made_by(users, WANTED)
        with users.named() as applier, pytest.raises((AccessRefusedError, ApplyError)) as caught:
            applier.apply(made, allow_moved=1)
        said, who = str(caught.value), f"{users.name}-applier"
        assert re.search(rf"access to (exchange|queue) '{name}' .*refused for user '{who}'", said), said
        needed = rf"{kind} on (exchange|queue) {name}" if kind != "read" else rf"read on (it|exchange {name})"
        assert re.search(needed, said), said
        assert "rabbitmqctl set_permissions" in said
        assert caught.value.reply_code == 403
        left_to_do = made_by(users, WANTED)
        assert left_to_do.changes, (kind, name)
        if isinstance(caught.value, AccessRefusedError):
            assert left_to_do.checksum == made.checksum, "something was changed"
        clean(users)
    users.permit(*map(pattern, NEEDED.values()))
    with users.named() as applier:
        assert len(applier.apply(made_by(users, WANTED)).changes) == 8


def clean(users: Users) -> None:
    for kind, names in (("exchanges", ("orders", "audit")), ("queues", ("orders.1", "orders.2"))):
        for name in names:
            with suppress(NotFoundError):
                users.management.request("DELETE", kind, users.name, name)


def test_deleting_needs_configure(users: Users) -> None:
    configure, write, read = map(pattern, NEEDED.values())
    with users.named(rings=True) as applier:
        applier.apply(made_by(users, WANTED), allow_moved=1)
    users.permit(r"^rabbit-chx\..*$", write, read)
    with (
        users.named(rings=True) as applier,
        pytest.raises(ApplyError, match="configure on queue orders") as caught,
    ):
        applier.apply(made_by(users, LESS, rings=True), allow_moved=1, allow_delete=True)
    assert {change.action for change in caught.value.applied.changes} == {"unbind"}
    users.permit(configure, "^$", "^$")
    with users.named(rings=True) as applier:
        assert applier.apply(made_by(users, LESS, rings=True), allow_moved=1, allow_delete=True).changes


def test_policies_need_a_tag(users: Users) -> None:
    policy = Topology.from_toml(POLICY)
    users.permit(".*", ".*", ".*", "management")
    with users.named() as applier:
        with pytest.raises(
            AccessRefusedError, match=r"PUT /api/policies/.* 401 \(.*policymaker to change policies"
        ):
            applier.apply(made_by(users, policy))
        users.permit(".*", ".*", ".*")
        assert len(applier.apply(made_by(users, policy)).changes) == 1
