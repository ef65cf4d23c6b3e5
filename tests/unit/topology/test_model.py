"""A topology is a value, which equals another that says the same. Each call refuses a value of the other side."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from one_hash_exchange import hashing
from topologies import topologies

from rabbit_chx import ExchangeRef, HashRing, Release, Topology
from rabbit_chx.errors import InputError, TopologyError
from rabbit_chx.routing.bindings import UNORDERED, OrderKnowledge
from rabbit_chx.topology import (
    ExchangeDefinition,
    LiveTopology,
    QueueDefinition,
    RingMember,
    arrange,
    check,
    healed,
    plan,
)
from rabbit_chx.topology.objects import OBJECT_LISTS

TYPE = "x-consistent-hash"


@given(topologies(), st.randoms())
def test_order_does_not_count_but_that_of_a_ring(topology: Topology, random: Any) -> None:
    lists = {name: getattr(topology, name) for name in OBJECT_LISTS}
    shuffled = replace(topology, **{name: random.sample(some, len(some)) for name, some in lists.items()})
    assert shuffled == topology
    assert hash(shuffled) == hash(topology)
    for exchange in topology.exchanges:
        if exchange.ring and len(exchange.ring) > 1:
            turned = replace(exchange, ring=exchange.ring[::-1])
            others = tuple(other for other in topology.exchanges if other != exchange)
            assert replace(topology, exchanges=(*others, turned)) != topology


def test_objects_are_found_by_name_and_shown_by_number() -> None:
    topology = Topology((ExchangeDefinition("x"),), (QueueDefinition("q.10"), QueueDefinition("q.9")))
    assert topology.queue("q.9") == QueueDefinition("q.9")
    assert topology.exchange("x") == ExchangeDefinition("x")
    assert topology.queue("x") is None
    assert topology.exchange("q.9") is None
    assert [queue.name for queue in topology.queues] == ["q.9", "q.10"]
    assert repr(topology) == "<Topology 1 exchanges, 2 queues, 0 bindings, 0 policies>"
    assert pickle.loads(pickle.dumps(topology)) == topology  # noqa: S301


def test_owned_names_match_whole_and_stars_alone() -> None:
    topology = Topology(owns=("orders.*", "a?", "*.x*y"))
    owned = ("orders.", "orders.1", "orders.1\n", "a?", ".xy", "1.x2y")
    assert all(map(topology.owned, owned))
    assert not any(map(topology.owned, ("orders", "my.orders.1", "ab", "1.x2yz", "")))
    assert not Topology().owned("orders.1")


def test_a_ring_that_was_read_orders_the_members() -> None:
    members = tuple(RingMember(name) for name in ("a", "b", "silent", "c"))
    listed = Topology(
        (ExchangeDefinition("x", TYPE, ring=members), ExchangeDefinition("y", TYPE, ring=members))
    )
    ring = HashRing.from_buckets(["c", ExchangeRef("a"), "b", "c", "a"], Release("4.3.6"))
    live = listed.with_rings({"x": ring, "gone": ring})
    (first, second) = live.exchanges
    assert [member.destination for member in first.ring or ()] == ["c", "b", "a", "silent"]
    assert second == listed.exchange("y")
    assert live.rings["x"].provenance == "read"
    assert Topology.from_toml(live.to_toml()) == live.as_wanted()
    assert live.as_wanted() != listed


def test_a_topology_made_in_python_is_validated() -> None:
    wrong = Topology(queues=(QueueDefinition("q"), QueueDefinition("amq.x")))
    assert [problem.subject for problem in wrong.problems] == ['queues[0].name = "amq.x"']
    assert Topology(queues=(QueueDefinition("q"),)).problems == ()


def test_a_file_of_windows_is_read() -> None:
    text = '\ufeff[[queues]]\r\nname = "q"\r\ntype = "x"\r\n'
    with pytest.raises(TopologyError, match=r"line 3, queues\[0\].type"):
        Topology.from_toml(text)
    assert Topology.from_toml(text.replace('"x"', '"quorum"')).queues == (QueueDefinition("q", "quorum"),)


WANTED, LIVE = Topology(), LiveTopology()
NO_SHARES: tuple[Any, ...] = (20, -1, float("nan"), "0.3", True)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: Topology.from_toml(Path("topology.toml")), r"is not the text of a topology file: pass .*from_file"),  # type: ignore[arg-type]
        (lambda: Topology.from_toml("", release="4.3"), r"the release is '4\.3': pass a Release"),  # type: ignore[arg-type]
        (lambda: Topology(exchanges=[QueueDefinition("q")]), "exchanges contains .*: pass a tuple of "),  # type: ignore[arg-type]
        (lambda: Topology(queues="abc"), "queues contains .*: pass a tuple of "),  # type: ignore[arg-type]
        (lambda: Topology(bindings=[None]), "bindings contains .*: pass a tuple of "),  # type: ignore[arg-type]
        *(
            (lambda share=share: plan(WANTED, LIVE).refused(allow_moved=share), "allow_moved is .*: pass a share from 0 to 1")
            for share in NO_SHARES
        ),
    ],
)  # fmt: skip
def test_a_value_of_another_kind_is_refused(call: Callable[[], object], says: str) -> None:
    with pytest.raises(InputError, match=says):
        call()


@pytest.mark.parametrize("wrong", [None, "orders.toml", LIVE], ids=str)
def test_only_what_a_file_says_is_wanted_and_only_what_a_broker_has_is_live(wrong: Any) -> None:
    """The reverse of a plan would undo what is wanted."""
    wanted: list[Callable[[], object]] = [partial(plan, wrong, LIVE), partial(arrange, wrong, LIVE)]
    if wrong is not None:
        wanted.append(partial(check, LIVE, wrong))
    live: list[Callable[[], object]] = [partial(plan, WANTED, wrong), partial(arrange, WANTED, wrong)]
    live += [partial(check, wrong), partial(check, wrong, WANTED), partial(healed, wrong, "x")]
    for side, calls, source in (
        ("wanted", wanted, "Topology, of Topology.from_toml"),
        ("live", [] if wrong is LIVE else live, "LiveTopology, of broker.topology"),
    ):
        for call in calls:
            with pytest.raises(InputError, match=f"{side} is a {type(wrong).__name__}: pass a {source}"):
                call()


def test_a_type_checker_refuses_exchanged_sides() -> None:
    """An ignored error that is none is an error of mypy (``warn_unused_ignores``)."""
    for call in (
        lambda: plan(LIVE, WANTED),  # type: ignore[arg-type]
        lambda: arrange(LIVE, WANTED),  # type: ignore[arg-type]
        lambda: check(WANTED, LIVE),  # type: ignore[arg-type]
    ):
        with pytest.raises(InputError, match="wanted is a LiveTopology"):
            call()
    assert check(WANTED).findings == ()  # type: ignore[arg-type]


def test_a_file_is_the_live_side_of_another_file() -> None:
    file = hashing("a", "b")
    live = LiveTopology.of_file(file)
    assert live.as_wanted() == file
    assert plan(file, live).changes == ()
    assert plan(hashing("a"), file) == plan(hashing("a"), live)  # type: ignore[arg-type]
    assert plan(file, live).rings["orders"].before.provenance == "replayed"
    assert [change.name for change in plan(hashing("a"), live).changes] == ["orders -> b (key 1)"]
    assert LiveTopology.of_file(file, Release("4.0.5")).ring("orders").release == Release("4.0.5")


def test_an_assumed_ring_stays_assumed_among_the_objects() -> None:
    """What nobody has read is nothing that a plan restores."""
    live = hashing("a", "b").with_rings({"orders": HashRing.from_buckets(["b", "a"])})
    assert not live.as_wanted().is_unordered("orders")
    assert live.as_wanted().ring("orders").provenance == "replayed"
    guessed = replace(live, rings={"orders": replace(live.rings["orders"], order=OrderKnowledge(None))})
    assert guessed.as_wanted().is_unordered("orders")
    assert guessed.as_wanted().ring("orders").provenance is None
    assert plan(guessed.as_wanted(), live).changes == ()


HEAVY = """{"rabbit_version": "4.2.6", "exchanges": [{"name": "x", "type": "x-consistent-hash"}], "queues": [{"name": "a"}],
"bindings": [{"source": "x", "destination": "a", "destination_type": "queue", "routing_key": "20000"}]}"""


def test_a_weight_that_the_file_s_release_refuses_is_that_of_the_release_that_is_asked_for() -> None:
    """A broker keeps such a binding when it is upgraded."""
    file = Topology.from_definitions(HEAVY)
    ring = file.ring("x", Release("3.10.8"))
    assert (ring.bucket_count, ring.provenance) == (20_000, None)
    assert file.key_map("x", Release("3.10.8")) == ring
    for release, version in ((None, "4.2.6"), (Release("4.3.6"), "4.3.6")):
        with pytest.raises(InputError, match=f"{version} takes at most"):
            file.ring("x", release)
    assert LiveTopology.of_file(file).rings == {}
    old = LiveTopology.of_file(file, Release("3.10.8"))
    assert old.rings["x"].release == Release("3.10.8")
    older = Topology.from_definitions(HEAVY.replace("4.2.6", "3.10.8"))
    assert LiveTopology.of_file(older, Release("4.3.6")).rings == {}


def test_the_objects_of_a_broker_keep_the_slots_of_an_assumed_ring() -> None:
    text = '[[exchanges]]\nname = "x"\ntype = "x-consistent-hash"\nslots = 8\nmembers = [{ queue = "a" }]\n[[queues]]\nname = "a"\n'
    live = LiveTopology.of_file(Topology.from_toml(text))
    assumed = replace(live, rings={"x": replace(live.ring("x"), order=UNORDERED)})
    assert assumed.as_wanted().ring("x").bucket_count == 8
    assert assumed.as_wanted().slots("x").owners
