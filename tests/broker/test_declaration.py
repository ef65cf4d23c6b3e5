"""Declaring rings on a real broker: what is declared, recorded and compared first, and what is refused."""

from __future__ import annotations

import copy
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pika
import pytest
from bounded import Beside, until
from canary import CANARY, canary_user
from declared import BINDINGS, with_login
from pika.adapters.blocking_connection import BlockingChannel
from pika.exchange_type import ExchangeType

from rabbit_chx.amqp import ConnectionSettings
from rabbit_chx.broker import Broker, declaring, facade, pika_parameters, recording
from rabbit_chx.broker.live_broker import LiveBroker
from rabbit_chx.broker.management import Management
from rabbit_chx.broker.reading import LiveObjects, read_topology
from rabbit_chx.errors import (
    AccessRefusedError,
    InputError,
    MismatchError,
    NotFoundError,
    PlanOutdatedError,
    UnknownOrderError,
)
from rabbit_chx.records.live_rings import evidence_of
from rabbit_chx.routing import Destination, ExchangeRef, HashRing
from rabbit_chx.testing import RunningBroker
from rabbit_chx.topology import LiveTopology, Topology

pytestmark = pytest.mark.broker

FILE = Topology.from_toml("""
[[exchanges]]
name = "x"
type = "x-consistent-hash"
ring = [{ queue = "q3", weight = 2 }, { queue = "q1", weight = 10 }, { queue = "q2", weight = 1 }]
[[queues]]
name = "q{1..3}"
""")
MORE: list[tuple[Destination, int | str]] = [*BINDINGS, ("q4", 1)]


def test_a_broker_is_opened_and_closed_again_and_again(vhost_url: str) -> None:
    broker = Broker(vhost_url).open()
    assert broker.open() is broker
    broker.declare("x", BINDINGS)
    broker.close()
    broker.close()
    with pytest.raises(InputError, match="not connected"):
        broker.declare("x", BINDINGS)
    with broker.open() as again:
        assert again.release.version


def test_a_forked_process_neither_uses_nor_closes_a_broker(
    live: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    child = copy.copy(live)
    with monkeypatch.context() as patched:
        patched.setattr(os, "getpid", lambda: -1)
        with pytest.raises(InputError, match=r"the Broker of .* was opened by process .* after the fork"):
            child.declare("y", {})
        child.close()
    assert live.declare("y", {"q": 1}).bound


def test_the_ring_has_the_order_of_the_bindings_and_changes_are_reported(live: Broker) -> None:
    done = live.declare("x", dict(BINDINGS))
    assert done.created == (ExchangeRef("x"), "q3", "q1", "q2")
    assert done.bound == (("q3", "2"), ("q1", "10"), ("q2", "1"))
    assert (done.ring, done.ring.provenance) == (live.ring("x"), "replayed")
    assert done.ring.buckets == ("q3",) * 2 + ("q1",) * 10 + ("q2",)
    assert done.ring == HashRing.from_bindings(BINDINGS, release=live.release)

    again = live.declare("x", BINDINGS)
    assert (again.created, again.bound) == ((), ())
    assert (again.ring, again.ring.provenance) == (done.ring, "read")

    more = live.declare("x", MORE)
    assert (more.created, more.bound) == (("q4",), (("q4", "1"),))
    assert more.ring == live.ring("x") == HashRing.from_bindings(MORE, live.release)
    assert more.ring.provenance == "read"


def test_bad_input_is_refused_here_and_the_connection_goes_on(live: Broker) -> None:
    wrong: tuple[tuple[dict[str, Any], str], ...] = (
        ({"exchange": ""}, "exchange"),
        ({"bindings": "a1"}, r"pass (a list of )?\(destination, weight\) pairs"),
        ({"bindings": [("a\nb", 1)]}, "line break"),
        ({"arguments": {"x": object()}}, "use a string, a number"),
        ({"arguments": {"hash_header": "tenant"}}, "did you mean 'hash-header'"),
        ({"arguments": {"n" * 256: 1}}, "cannot be sent"),
        ({"queue_arguments": {"x": 1.5}}, "cannot be sent"),
    )
    for values, words in wrong:
        with pytest.raises(InputError, match=words):
            live.declare(**{"exchange": "x", "bindings": BINDINGS, **values})
    with pytest.raises(NotFoundError):
        live.ring("x")
    live.declare("fine", BINDINGS)


def test_arguments_reach_the_broker_which_does_not_compare_hash_header(
    live: Broker, bare_channel: BlockingChannel
) -> None:
    live.declare("x", [("q", 1)], arguments={"hash-header": "tenant"}, queue_arguments={"x-max-length": 1})
    bare_channel.confirm_delivery()
    for body in (b"old", b"new"):
        bare_channel.basic_publish(
            "x", "k", body, pika.BasicProperties(headers={"tenant": "t"}), mandatory=True
        )
    assert bare_channel.queue_declare("q", passive=True).method.message_count == 1
    live.declare("x", [("q", 1)], queue_arguments={"x-max-length": 1})  # a management URL would tell


def test_what_the_broker_has_with_other_arguments_stops_all_before_anything_is_made(
    live: Broker, bare_channel: BlockingChannel
) -> None:
    bare_channel.queue_declare("q2", durable=True, arguments={"x-max-length": 5})
    bare_channel.exchange_declare("direct", ExchangeType("direct"), durable=True)

    with pytest.raises(MismatchError, match=r"inequivalent arg 'x-max-length' for queue 'q2'") as caught:
        live.declare("x", BINDINGS)
    assert caught.value.queue == "q2"
    with pytest.raises(NotFoundError):
        live.ring("x")
    with pytest.raises(MismatchError, match=r"inequivalent arg 'type' for exchange 'direct'") as caught:
        live.declare("direct", BINDINGS)
    assert (caught.value.exchange, caught.value.reply_code) == ("direct", 406)
    with pytest.raises(MismatchError, match="not of type x-consistent-hash"):
        live.ring("direct")
    with pytest.raises(AccessRefusedError, match=r"amq\.mine"):
        live.declare("amq.mine", [("q", 1)])


def test_without_anything_to_compare_an_exchange_that_exists_is_refused(vhost_url: str, live: Broker) -> None:
    with Broker(vhost_url) as broker:
        fresh = broker.declare("x", BINDINGS)
        assert (len(fresh.bound), fresh.ring.provenance) == (3, "replayed")
        with pytest.raises(
            InputError, match=r"'x' exists.* ring_source or a management_url .*allow_existing=True"
        ):
            broker.declare("x", [("q3", 5)])
        assert live.ring("x") == fresh.ring

        again = broker.declare("x", BINDINGS, allow_existing=True)
    assert (again.created, len(again.bound), again.ring.provenance) == ((), 3, None)
    assert live.ring("x").buckets == fresh.ring.buckets


def test_the_management_api_returns_the_bindings_and_the_hashed_field(managed: Broker, live: Broker) -> None:
    managed.declare("x", BINDINGS, arguments={"hash-header": "tenant"}, records=False)
    again = managed.declare("x", BINDINGS, arguments={"hash-header": "tenant"})
    assert (again.created, again.bound, again.ring.provenance) == ((), (), None)
    more = managed.declare("x", MORE, arguments={"hash-header": "tenant"})
    assert (more.created, more.bound) == (("q4",), (("q4", "1"),))
    with pytest.raises(
        MismatchError, match=r"'x' has the ring .* q4 x1>, and .* new bindings \(unbind x -> q4"
    ):
        managed.declare("x", BINDINGS, arguments={"hash-header": "tenant"})
    with pytest.raises(
        MismatchError, match=r"exchange x cannot be changed in place .*hash-header 'tenant' -> unset"
    ):
        managed.declare("x", MORE)
    # The order is not known without a record: the members are, and their numbers of buckets.
    assert more.ring.provenance is None
    assert Counter(live.ring("x").buckets) == Counter(more.ring.buckets)


def test_a_declared_ring_and_its_additions_are_recorded(managed: Broker, live: Broker) -> None:
    made = managed.declare("x", BINDINGS)
    assert (made.ring.provenance, made.unrecorded) == ("recorded", ())
    with pytest.raises(MismatchError, match="'x' has the ring <HashRing recorded, "):
        managed.declare("x", [*BINDINGS[::-1], ("q4", 1)])
    assert managed.ring("x") == made.ring == live.ring("x")
    more = managed.declare("x", [*MORE, ("q0", 2)])
    assert more.bound == (("q4", "1"), ("q0", "2"))
    assert managed.ring("x") == more.ring == live.ring("x")
    assert managed.ring("x").provenance == more.ring.provenance == "recorded"


def test_bindings_after_unknown_ones_delete_the_old_record(
    managed: Broker, live: Broker, bare_channel: BlockingChannel
) -> None:
    managed.declare("x", [("a", 1), ("b", 1)])
    for queue in ("d", "c"):
        bare_channel.queue_declare(queue, durable=True)
        bare_channel.queue_bind(queue, "x", "1")
    with pytest.raises(UnknownOrderError) as caught:
        managed.ring("x")
    assert {place for place, _ in caught.value.members} == {*"abcd"}
    with pytest.raises(UnknownOrderError):
        managed.exchange("x").route(routing_key="k")

    done = managed.declare("x", [(queue, 1) for queue in "abcde"])
    assert done.bound == (("e", "1"),)
    assert "it was not known before" in done.unrecorded[0]
    assert evidence_of(managed.topology()).records == {}
    assert live.ring("x").buckets == ("a", "b", "d", "c", "e")


@pytest.mark.chx_broker(">=4")
def test_a_queue_without_a_type_gets_the_default_of_the_vhost(
    vhost: RunningBroker, managed: Broker, live: Broker
) -> None:
    management, name = Management(str(vhost.management_url)), ConnectionSettings.from_uri(vhost.url).vhost
    management.put("vhosts", name, body={"default_queue_type": "quorum"})
    for _ in range(2):
        live.declare("x", [("a", 1)])
        managed.declare("y", [("b", 1)])
        managed.declare("z", [("c", 1)], queue_arguments={"x-queue-type": "classic"})
    types = {queue.name: queue.type for queue in managed.topology().queues}
    assert types == {"a": "quorum", "b": "quorum", "c": "classic"}


def test_programs_that_declare_at_the_same_time_wait_for_each_other(
    vhost: RunningBroker, managed: Broker, live: Broker
) -> None:
    def declare(_: int) -> str | None:
        with Broker(vhost.url, vhost.management_url) as broker:
            return broker.declare("x", BINDINGS).ring.provenance

    with ThreadPoolExecutor(4) as threads:
        assert [*threads.map(declare, range(4))] == ["recorded"] * 4
    assert managed.ring("x") == live.ring("x")


#: What a program does with the exchange `x`, which has the ring BINDINGS: with the management API, and by AMQP alone.
WRITERS: dict[str, Callable[[Broker], object]] = {
    "declare": lambda broker: broker.declare("x", BINDINGS),
    "declare more": lambda broker: broker.declare("x", MORE),
    "apply": lambda broker: broker.apply(FILE),
}
BY_AMQP: dict[str, Callable[[Broker], object]] = {
    "declare by AMQP": lambda broker: broker.declare("x", BINDINGS, allow_existing=True)
}


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Set when a `Broker` waits."""
    begun = threading.Event()

    def sleep(_self: object, seconds: float) -> None:
        begun.set()
        time.sleep(seconds)

    monkeypatch.setattr(facade._Connected, "sleep", sleep)
    return begun


@contextmanager
def applying(vhost: RunningBroker, go_on: Callable[[], object]) -> Iterator[None]:
    """Beside the block, apply FILE, and call `go_on` after the last change, before its records are final."""
    is_there = threading.Event()

    def progress(done: int, total: int) -> None:
        if done == total:
            is_there.set()
            go_on()

    def apply() -> None:
        with Broker(vhost.url, vhost.management_url) as other:
            assert other.apply(FILE, progress=progress).rings["x"].provenance == "recorded"

    beside = Beside(apply)
    beside.start()
    until(is_there.is_set, "all changes are made")
    yield
    beside.finish()


@pytest.mark.parametrize("way", [*WRITERS, *BY_AMQP])
def test_a_program_that_finds_an_apply_in_progress_waits_for_its_end(
    vhost: RunningBroker, managed: Broker, live: Broker, waits: threading.Event, way: str
) -> None:
    with applying(vhost, lambda: waits.wait(60)):
        try:
            with Broker(vhost.url) as bare:
                BY_AMQP[way](bare) if way in BY_AMQP else WRITERS[way](managed)
            assert waits.is_set()
        finally:
            waits.set()
        # AMQP alone does not show which bindings are new: the record goes before they are added.
        assert [*evidence_of(managed.topology()).records] == ([] if way in BY_AMQP else ["x"])
    if way in BY_AMQP:
        with pytest.raises(UnknownOrderError):
            managed.ring("x")
    else:
        assert managed.ring("x").provenance == "recorded"
        assert managed.ring("x") == live.ring("x")


def test_a_record_that_is_stored_between_two_lists_is_read_again(
    vhost: RunningBroker, managed: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed, goes_on = threading.Event(), threading.Event()
    read = LiveObjects.read
    with applying(vhost, lambda: goes_on.wait(60)):

        def read_late(self: LiveObjects, *of: Any) -> Any:
            """End the apply between the list of exchanges and that of queues."""
            if not listed.is_set() and threading.current_thread() is threading.main_thread():
                listed.set()
                goes_on.set()
                until(lambda: "rabbit-chx.apply" not in queues_of(vhost), "the apply ends")
            return read(self, *of)

        monkeypatch.setattr(LiveObjects, "read", read_late)
        assert managed.declare("x", BINDINGS).ring.provenance == "recorded"
        assert listed.is_set()


def queues_of(vhost: RunningBroker) -> set[str]:
    name = ConnectionSettings.from_uri(vhost.url).vhost
    listed = Management(str(vhost.management_url)).request("GET", "queues", name)
    return {queue["name"] for queue in listed}


@pytest.mark.parametrize("way", [*WRITERS, *BY_AMQP])
def test_the_wait_for_another_program_is_bounded(
    vhost: RunningBroker, managed: Broker, live: Broker, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    made = managed.declare("x", BINDINGS).ring
    monkeypatch.setattr(recording, "WAIT_S", 0.3)
    with pika.BlockingConnection(pika_parameters(vhost.url)) as other, Broker(vhost.url) as bare:
        other.channel().queue_declare("rabbit-chx.apply", exclusive=True)
        with pytest.raises(
            PlanOutdatedError,
            match=r"another connection .* or close it, and try again; given up after 0\.3 s",
        ):
            BY_AMQP[way](bare) if way in BY_AMQP else WRITERS[way](managed)
    assert live.ring("x") == made


KILLED = """
import os, signal, sys
from rabbit_chx import Broker, Topology

def progress(done, total):
    if done == total:
        os.kill(os.getpid(), signal.SIGKILL)

with Broker(*sys.argv[1:3]) as broker:
    broker.apply(Topology.from_toml(sys.argv[3]), progress=progress)
"""


def kill_an_apply(vhost: RunningBroker) -> None:
    """Kill an apply of FILE after its last change, before its records are final."""
    arguments = (vhost.url, str(vhost.management_url), FILE.to_toml())
    killed = subprocess.run([sys.executable, "-c", KILLED, *arguments], check=False, timeout=120)
    assert killed.returncode == -signal.SIGKILL


@pytest.mark.parametrize("way", WRITERS)
def test_an_apply_that_was_killed_keeps_nobody_waiting(
    vhost: RunningBroker, managed: Broker, live: Broker, way: str
) -> None:
    """What they declare is there. The order is known when the file is applied again."""
    kill_an_apply(vhost)
    WRITERS[way](managed)
    if way == "apply":
        assert managed.ring("x").provenance == "recorded"
    else:
        with pytest.raises(UnknownOrderError):
            managed.ring("x")
    managed.apply(FILE, allow_moved=1.0, allow_delete=True)
    assert managed.ring("x").provenance == "recorded"
    assert managed.ring("x") == live.ring("x")


def test_a_ring_that_an_apply_changes_is_recorded_only_by_who_reads_it(
    vhost: RunningBroker, managed: Broker
) -> None:
    kill_an_apply(vhost)
    with pytest.raises(UnknownOrderError):
        managed.ring("x")
    with pytest.raises(InputError, match=r"the ring of x is of an unknown order .*, so it is not recorded"):
        managed.record({"x": managed.topology().rings["x"]})
    with Broker(vhost.url, vhost.management_url, vhost.ring_via) as reading:
        reading.record({"x": reading.ring("x")})
    assert managed.ring("x").provenance == "recorded"


def test_programs_that_apply_one_file_at_the_same_time_wait_for_each_other(
    vhost: RunningBroker, managed: Broker, live: Broker
) -> None:
    def apply(_: int) -> int:
        with Broker(vhost.url, vhost.management_url) as broker:
            return len(broker.apply(FILE).changes)

    with ThreadPoolExecutor(4) as threads:
        assert sorted(threads.map(apply, range(4))) == [0, 0, 0, 7]
    assert managed.ring("x") == live.ring("x")
    assert managed.ring("x").provenance == "recorded"


@pytest.mark.parametrize(
    ("others", "made"),
    [(("x", BINDINGS), ((), 0)), (("y", [("q1", 1)]), ((ExchangeRef("x"), "q3", "q2"), 3))],
    ids=["the same", "one of the queues"],
)
def test_what_another_program_declares_just_before_is_not_reported_as_done(
    vhost: RunningBroker, managed: Broker, monkeypatch: pytest.MonkeyPatch, others: Any, made: Any
) -> None:
    def read_after_another(live: LiveBroker, **how: Any) -> LiveTopology:
        monkeypatch.undo()
        with Broker(vhost.url, vhost.management_url) as other:
            other.declare(*others)
        return read_topology(live, **how)

    monkeypatch.setattr(declaring, "read_topology", read_after_another)
    done = managed.declare("x", BINDINGS)
    assert ((done.created, len(done.bound)), done.ring.provenance) == (made, "recorded")


def test_a_user_without_the_permission_declares_and_is_told(vhost: RunningBroker, managed: Broker) -> None:
    management, name = Management(str(vhost.management_url)), ConnectionSettings.from_uri(vhost.url).vhost
    permissions = dict.fromkeys(("configure", "write", "read"), "^(q.*|x|y)$")
    with canary_user(management, name, "management", **permissions) as user:
        urls = (with_login(url, user, CANARY) for url in (vhost.url, str(vhost.management_url)))
        with Broker(*urls) as broker:
            done = broker.declare("x", BINDINGS)
            assert (done.ring.provenance, len(done.bound)) == ("replayed", 3)
            assert "may not declare queue rabbit-chx.apply" in done.unrecorded[0]

            managed.declare("y", BINDINGS)
            with pytest.raises(AccessRefusedError, match=r"rabbit-chx\.apply"):
                broker.declare("y", MORE)
            assert broker.declare("y", BINDINGS).bound == ()
