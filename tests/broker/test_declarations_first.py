"""Declarations come before the first step of a ring: what the broker refuses, a lost connection or a kill leaves each ring as it was.

The message says what was declared, and that the same command does the rest.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest
from changed_site import ChangedSite
from declared import with_login
from dying_applier import dying_applier

from rabbit_chx import Topology
from rabbit_chx.broker.live_broker import Operation
from rabbit_chx.broker.pika_connection import PikaConnection
from rabbit_chx.errors import ApplyError, BrokerRefusedError
from rabbit_chx.planning import refusals
from rabbit_chx.routing.bindings import Place
from rabbit_chx.topology import ExchangeDefinition, QueueDefinition, RingMember

pytestmark = [pytest.mark.broker, pytest.mark.timeout(300)]

CHX = "x-consistent-hash"
SAME = "and no ring was changed: the same command does the rest"


def file_of(rings: Mapping[str, str], *queues: QueueDefinition) -> Topology:
    """Return a file with hash exchanges and their queues, such as ``{"h": "h.1 h.0"}``; `queues` are those with arguments."""
    special = {queue.name: queue for queue in queues}
    members = {name: names.split() for name, names in rings.items()}
    exchanges = [
        ExchangeDefinition(name, CHX, ring=tuple(map(RingMember, names))) for name, names in members.items()
    ]
    names = sorted({name for names in members.values() for name in names})
    return Topology(
        (*exchanges,), tuple(special.get(name, QueueDefinition(name)) for name in names), owns=("h*", "g*")
    )


BEFORE = file_of({"h": "h.0 h.1 h.2", "g": "g.0"})
#: Each ring changes, the last queue that is declared is h.9, and an exchange is new.
RINGS = {"h": "h.1 h.9 h.0", "g": "g.1 g.0", "h2": "h.0"}
AFTER = file_of(RINGS)


def buckets(site: ChangedSite) -> dict[str, tuple[Place, ...]]:
    """The buckets of the two rings, as they are read."""
    live = site.live()
    return {name: live.rings[name].buckets for name in ("h", "g")}


def refused_as(code: int, monkeypatch: pytest.MonkeyPatch) -> Topology:
    """What is wanted: the broker refuses its last queue with a code."""
    arguments: dict[str, Any] = {"x-max-length": -1}
    if code == 541:
        # The broker lists what it denies, so the plan would be refused. Not every user may list it.
        monkeypatch.setattr(refusals, "_find_deprecated_use", lambda _: None)
        arguments = {"x-queue-master-locator": "client-local"}
    return file_of(RINGS, QueueDefinition("h.9", arguments=arguments))


@pytest.mark.parametrize(
    "code", [406, pytest.param(541, marks=pytest.mark.chx_broker(">=4.3", "a denied deprecated feature"))]
)
def test_a_refused_declaration_leaves_each_ring(
    site: ChangedSite, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.apply(BEFORE)
    before = buckets(site)
    wanted = refused_as(code, monkeypatch)
    for _ in range(2):
        with pytest.raises((ApplyError, BrokerRefusedError)) as caught:
            site.apply(wanted)
        assert caught.value.reply_code == code
        assert caught.value.queue == "h.9"
        assert buckets(site) == before
    # The first run declared the others, which are there in the second.
    site.apply(AFTER)
    site.check_done(AFTER)


def test_the_message_says_what_was_declared(site: ChangedSite, monkeypatch: pytest.MonkeyPatch) -> None:
    site.apply(BEFORE)
    with pytest.raises(ApplyError) as caught:
        site.apply(refused_as(406, monkeypatch))
    assert str(caught.value).endswith(f"; declared exchange h2, queue g.1, {SAME}")
    assert [change.name for change in caught.value.applied.changes] == ["h2", "g.1"]


def test_a_missing_permission_leaves_each_ring_and_its_owner_goes_on(site: ChangedSite) -> None:
    site.apply(BEFORE)
    before = buckets(site)
    site.admin("PUT", "users", "some", body={"password": "some", "tags": "management"})
    try:
        body = {"configure": "^(?!h[.]9$)", "write": ".*", "read": ".*"}
        site.request("PUT", "permissions", "some", body=body)
        url = with_login(site.broker.url, "some", "some")
        limited = ChangedSite(replace(site.broker, url=url), site.channel)
        with pytest.raises(ApplyError, match=r"needs configure on queue h\.9") as caught:
            limited.apply(AFTER)
        assert str(caught.value).endswith(f"; declared exchange h2, queue g.1, {SAME}")
        assert caught.value.reply_code == 403
        assert buckets(site) == before
        site.request("PUT", "permissions", "some", body={**body, "configure": ".*"})
        limited.apply(AFTER)
    finally:
        site.admin("DELETE", "users", "some")
    site.check_done(AFTER)


def test_a_lost_connection_leaves_each_ring(site: ChangedSite, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is lost when the last queue is to be declared."""
    site.apply(BEFORE)
    before = buckets(site)
    together = PikaConnection.perform_together

    def lose(self: PikaConnection, operations: Any) -> bool:
        if Operation("declare", QueueDefinition("h.9")) in operations:
            transport = self._connection._impl._transport
            transport._sock.shutdown(socket.SHUT_RDWR)
        return together(self, operations)

    monkeypatch.setattr(PikaConnection, "perform_together", lose)
    with pytest.raises(ApplyError) as caught:
        site.apply(AFTER)
    assert str(caught.value).endswith(SAME)
    monkeypatch.undo()
    site.wait_until_unlocked()
    assert buckets(site) == before
    site.apply(AFTER)
    site.check_done(AFTER)


@pytest.mark.extended
def test_a_kill_before_the_last_declaration_leaves_each_ring(site: ChangedSite) -> None:
    """Before each operation of an apply in turn: where a ring differs, all that is wanted was declared."""
    site.apply(BEFORE)
    before = buckets(site)
    are_declared = []
    with dying_applier(site) as applier:
        number = 1
        while applier.killed(AFTER, number):
            site.wait_until_unlocked()
            live = site.live()
            declared = {queue.name for queue in live.queues} | {exchange.name for exchange in live.exchanges}
            are_declared.append({"h2", "g.1", "h.9"} <= declared)
            if not are_declared[-1]:
                assert buckets(site) == before
            site.apply(BEFORE)
            number += 1
    assert set(are_declared) == {True, False}


@pytest.mark.parametrize("kind", ["queue", "exchange"])
def test_what_replaces_another_is_declared_before_that_is_deleted(site: ChangedSite, kind: str) -> None:
    """The message names the object that would be replaced, and the one that is there keeps its messages."""
    site.apply(BEFORE)
    before = buckets(site)
    site.channel.basic_publish("", "h.0", b"kept")
    wanted: Callable[[], Topology] = {
        "queue": lambda: file_of(
            {"h": "h.0 h.1 h.2", "g": "g.0"}, QueueDefinition("h.0", arguments={"x-max-length": -1})
        ),
        "exchange": lambda: replace(
            BEFORE,
            exchanges=tuple(
                replace(exchange, arguments={"hash-header": "a", "hash-property": "message_id"})
                for exchange in BEFORE.exchanges
            ),
        ),
    }[kind]
    with pytest.raises(BrokerRefusedError, match=rf"{kind} [hg.0]+ would be deleted .*nothing was changed"):
        site.apply(wanted(), allow_loss=True)
    assert buckets(site) == before
    assert site.channel.queue_declare("h.0", passive=True).method.message_count == 1
    assert "rabbit-chx.trial" not in {queue["name"] for queue in site.request("GET", "queues")}


def test_what_a_killed_apply_has_tried_is_not_in_the_way_of_the_next_one(site: ChangedSite) -> None:
    """The kill came between the declaration under the name for trials and the deletion, and the file has changed since."""
    site.apply(BEFORE)
    site.channel.queue_declare("rabbit-chx.trial", durable=True, arguments={"x-max-length": 5})
    wanted = QueueDefinition("h.0", arguments={"x-max-length": 9})
    site.apply(file_of({"h": "h.0 h.1 h.2", "g": "g.0"}, wanted))
    queues = {
        queue["name"]: queue["arguments"].get("x-max-length") for queue in site.request("GET", "queues")
    }
    assert queues["h.0"] == 9
    assert "rabbit-chx.trial" not in queues
