"""Refusals: each names the thing, its value and what to do, and the flag that lifts it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from sides import as_live

from rabbit_chx.analysis.findings import Finding
from rabbit_chx.routing import HashRing, Release
from rabbit_chx.topology import (
    ExchangeDefinition,
    LiveTopology,
    QueueDefinition,
    Topology,
    plan,
)
from rabbit_chx.topology.planning.refusals import is_allowed, movement_refusal, replacement
from rabbit_chx.topology.planning.ring_plan import Moment, RingPlan

_REMEDIES = (
    "add",
    "allow",
    "ask",
    "connect",
    "correct",
    "declare",
    "divide",
    "keep",
    "leave",
    "pass",
    "take",
    "write",
)


def test_each_refusal_of_a_stored_plan_reports_what_to_do() -> None:
    stored = [
        json.loads(path.read_text("utf-8")) for path in (Path(__file__).parent / "plans").glob("*.json")
    ]
    refusals = [refusal for plan in stored for refusal in plan["refusals"]]
    assert len(refusals) > 20
    for refusal in refusals:
        text = f"{refusal['message']}; {refusal['fix']}"
        assert any(f" {word} " in text for word in _REMEDIES), text
        assert refusal["allow_with"] is None or refusal["allow_with"] in text


def test_the_share_of_the_flag_is_enough() -> None:
    ring = HashRing.from_buckets(["a"])
    for share in (0.1, 1 / 3, 2 / 3, 1 / 2**21, 1.0):
        refusal = movement_refusal(RingPlan("x", ring, ring, moments=(Moment(share, 0.0),), limit=0.0))
        assert refusal.allow_with is not None
        assert is_allowed(refusal, float(refusal.allow_with.split()[1]), allow_delete=False)
        assert not is_allowed(refusal, None, allow_delete=True)


def test_no_flag_lifts_what_has_none() -> None:
    assert not is_allowed(Finding("ring", "no"), 1.0, allow_delete=True)


_BARE = QueueDefinition("q")
_LIMITED = QueueDefinition("q", arguments={"x-max-length": 5, "x-message-ttl": 1})


@pytest.mark.parametrize(
    ("live", "wanted", "words"),
    [
        (_BARE, _LIMITED, "set max-length and message-ttl by a policy"),
        (_BARE, QueueDefinition("q", "quorum", arguments={"x-max-length": 5}), "holding"),
        (_LIMITED, _BARE, "holding"),  # a policy takes no argument away
        (
            ExchangeDefinition("x"),
            ExchangeDefinition("x", arguments={"alternate-exchange": "lost"}),
            "set alternate-exchange by a policy",
        ),
    ],
)
def test_a_policy_is_named_only_if_it_sets_all_that_differs(live: Any, wanted: Any, words: str) -> None:
    assert words in replacement(live, wanted).text


def on_broker(release: str, *types: str) -> LiveTopology:
    return as_live(
        Topology(), release=Release(release), exchange_types=frozenset(("direct", "fanout", *types))
    )


@pytest.mark.parametrize(
    ("type_", "release", "remedy"),
    [
        (
            "x-consistent-hash",
            "4.3.6",
            "run rabbitmq-plugins enable rabbitmq_consistent_hash_exchange on every node",
        ),
        ("x-modulus-hash", "4.0.5", "run rabbitmq-plugins enable rabbitmq_sharding on every node"),
        ("x-random", "4.3.6", "run rabbitmq-plugins enable rabbitmq_random_exchange on every node"),
        (
            "x-delayed-message",
            "4.0.5",
            "RabbitMQ does not contain its plugin: install it, and run rabbitmq-plugins enable rabbitmq_delayed_message_exchange on every node",
        ),
        ("x-local-random", "3.10.8", "update to RabbitMQ 4.0 or later"),
        ("Fanout", "4.3.6", "did you mean fanout?"),
        ("x-nonsense", "4.3.6", "correct it, or install and enable the plugin that has it"),
    ],
)
def test_a_type_that_the_broker_does_not_have(type_: str, release: str, remedy: str) -> None:
    wanted = Topology((ExchangeDefinition("x", type_, ring=() if type_ == "x-consistent-hash" else None),))
    (refusal,) = plan(wanted, on_broker(release)).refusals
    assert refusal.fix == remedy
    assert refusal.allow_with is None
    assert plan(wanted, on_broker("4.3.6", type_)).refusals == ()
    # An exchange that is there is not declared.
    assert (
        plan(wanted, as_live(wanted, release=Release("4.3.6"), exchange_types=frozenset(("direct",)))).changes
        == ()
    )
