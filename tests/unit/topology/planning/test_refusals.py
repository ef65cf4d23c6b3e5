"""Refusals: each names the thing, its value and what to do, and the flag that lifts it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from sides import as_live

from rabbit_chx.analysis.findings import Finding
from rabbit_chx.routing import HashRing, Release
from rabbit_chx.topology import (
    ExchangeDefinition,
    LiveTopology,
    PolicyDefinition,
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


def test_a_policy_is_named_only_if_it_sets_all_that_differs() -> None:
    bare = QueueDefinition("q")
    limited = QueueDefinition("q", arguments={"x-max-length": 5, "x-message-ttl": 1})
    both = QueueDefinition("q", "quorum", arguments={"x-max-length": 5})

    assert "set max-length and message-ttl by a policy" in replacement(bare, limited).text
    assert "holding" in replacement(bare, both).text
    assert "holding" in replacement(limited, bare).text  # a policy takes no argument away


def test_an_alternate_exchange_can_be_set_by_a_policy() -> None:
    wanted = ExchangeDefinition("x", arguments={"alternate-exchange": "lost"})

    assert "set alternate-exchange by a policy" in replacement(ExchangeDefinition("x"), wanted).text


def test_what_the_broker_denies_is_refused_before_it_is_declared() -> None:
    wanted = Topology.from_toml(
        """
        [[queues]]
        name = "near"
        arguments = { x-queue-master-locator = "client-local" }
        [[queues]]
        name = "short"
        durable = false
        [[queues]]
        name = "own"
        durable = false
        exclusive = true
        [[policies]]
        name = "mirrors"
        pattern = "^near$"
        definition = { ha-mode = "all" }
        [[policies]]
        name = "leaders"
        pattern = "^near$"
        definition = { queue-master-locator = "min-masters" }
        """
    )
    release = Release("3.13.7")
    features = {"queue_master_locator", "transient_nonexcl_queues", "classic_queue_mirroring"}

    def refused(denied: set[str]) -> set[str]:
        live = as_live(Topology(), denied_features=frozenset(denied), release=release)
        return {refusal.message.partition(" and the broker")[0] for refusal in plan(wanted, live).refusals}

    assert refused(features) == {
        "queue near has x-queue-master-locator,",
        "queue short is not durable,",
        "policy mirrors sets ha-mode,",
        "policy leaders sets queue-master-locator,",
    }
    assert refused({"transient_nonexcl_queues"}) == {"queue short is not durable,"}
    assert refused(set()) == set()
    assert plan(wanted, as_live(wanted, denied_features=frozenset(features))).refusals == ()
    unclear = plan(wanted, as_live(Topology(), unclear_features=frozenset(features), release=release))
    assert (unclear.refusals, len(unclear.warnings)) == ((), 4)
    assert any(
        warning.startswith("queue short is not durable, and whether the broker denies")
        for warning in unclear.warnings
    )
    assert plan(wanted, LiveTopology()).warnings == ()


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


@pytest.mark.parametrize(
    ("setting", "value", "type_", "plugin", "until"),
    [
        ("shards-per-node", 4, "x-modulus-hash", "rabbitmq_sharding", "4.3.0"),
        ("federation-upstream-set", "all", "x-federation-upstream", "rabbitmq_federation", "4.1.0"),
    ],
)
def test_a_policy_of_a_plugin_that_the_broker_does_not_have(
    setting: str, value: object, type_: str, plugin: str, until: str
) -> None:
    wanted = Topology(policies=(PolicyDefinition("p", "^x", definition={setting: value}),))
    (refusal,) = plan(wanted, on_broker("4.0.5")).refusals
    assert refusal.fix == f"run rabbitmq-plugins enable {plugin} on every node"
    assert plan(wanted, on_broker("4.0.5", type_)).refusals == ()
    assert plan(wanted, on_broker(until)).refusals == ()  # the types do not show the plugin


def test_a_limit_that_loses_messages_is_refused_before_anything_is_declared() -> None:
    wanted = Topology(queues=(QueueDefinition("q", "quorum", arguments={"x-delivery-limit": -1}),))
    (refusal,) = plan(wanted, on_broker("3.10.8")).refusals
    assert (refusal.kind, refusal.destination) == ("delivery-limit", "q")
    assert "RabbitMQ 3.10.8 drops each message that is returned" in refusal.message
    assert plan(wanted, on_broker("4.0.5")).refusals == ()


def test_a_plan_names_the_arguments_that_the_broker_ignores() -> None:
    wanted = Topology((ExchangeDefinition("x", arguments={"x-hash-on": "k"}),))
    (warning,) = plan(wanted, on_broker("4.3.6")).warnings
    assert warning.startswith("exchange x has the argument x-hash-on, which RabbitMQ 4.3.6 ignores")
    assert plan(wanted, as_live(wanted)).warnings == (warning,)
