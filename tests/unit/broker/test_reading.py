"""What the management API lists becomes a live topology. AMQP counts the parked messages, because the API may be late."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any
from unittest.mock import Mock

import pytest
from model_broker import ModelBroker
from model_client import ModelClient
from sides import as_live
from slot_files import slotted

from rabbit_chx.broker.live_broker import APPLY_LOCK, QueueCounts
from rabbit_chx.errors import AccessRefusedError, NotFoundError, UnreachableError
from rabbit_chx.planning.refusals import DEPRECATED_FEATURES
from rabbit_chx.planning.slot_layout import expand
from rabbit_chx.routing import HashRing, Release
from rabbit_chx.topology import (
    ExchangeDefinition,
    LiveTopology,
    PolicyDefinition,
    QueueDefinition,
    RingMember,
    Topology,
    check,
    plan,
)

PLAIN = expand(slotted(8, '[{ queue = "events.{1..2}" }]', "events.{1..2}"), LiveTopology())
BY_POLICY = replace(
    PLAIN,
    exchanges=tuple(replace(exchange, arguments={}) for exchange in PLAIN.exchanges),
    policies=(PolicyDefinition("park", r"\.slot\.", "exchanges", {"alternate-exchange": "events.park"}, 0),),
)


class Listing(ModelClient):
    """A client whose management API lists something else: by the kind, what a function makes of the list of the model."""

    def __init__(self, topology: Topology, changes: Mapping[str, Callable[[Any], Any]]) -> None:
        super().__init__(ModelBroker.holding(topology, Release("4.3.6")))
        self._changes = changes

    def _listed(self, kind: str, *path: str) -> Any:
        listed = super()._listed(kind, *path)
        return self._changes[kind](listed) if kind in self._changes else listed


def each(**fields: Any) -> Callable[[Any], Any]:
    """Return a function that gives each entry of a list these fields."""
    return lambda listed: [{**entry, **fields} for entry in listed]


@pytest.mark.parametrize("there", [PLAIN, BY_POLICY], ids=["argument", "policy"])
@pytest.mark.parametrize(
    ("answer", "parked"),
    [(QueueCounts(0, 0), 0), (QueueCounts(12, 0), 12), (UnreachableError("down", reply_code=404), 9)],
    ids=str,
)
def test_what_is_parked_is_asked_of_the_queue_itself(
    there: Topology, answer: object, parked: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    count, nine = Mock(side_effect=[answer]), {"queues": each(messages=9)}
    monkeypatch.setattr(Listing, "count", count)
    live = Listing(there, nine).live()
    assert live.facts.queues.messages == {"events.1": 9, "events.2": 9, "events.park": parked}
    assert check(live).parked == {"events": parked}
    assert check(live).sound is (parked == 0)
    without_slots = Topology(queues=(QueueDefinition("q"),))
    assert Listing(without_slots, nine).live().facts.queues.messages == {"q": 9}
    count.assert_called_once_with("events.park")


@pytest.mark.parametrize("flag", [None, "yes"])
def test_an_exchange_with_a_flag_that_is_none_exists_and_is_odd(flag: object) -> None:
    """An import makes it. Without it a plan would create it, which the broker refuses."""
    wanted = Topology.from_toml("[[exchanges]]\nname = 'x'\n")
    live = Listing(wanted, {"exchanges": each(durable=flag, internal=flag)}).live()
    assert [exchange.name for exchange in live.exchanges] == ["x"]
    assert not plan(wanted, live).changes
    (odd,) = live.facts.oddities
    assert (odd.kind, "exchange 'x' (its durable is" in odd.message) == ("odd-object", True)


@pytest.mark.parametrize("name", [None, True])
def test_an_exchange_whose_name_is_no_text_is_odd_and_hides_no_other(name: object) -> None:
    """An import makes it, and no client can name it."""
    wanted = Topology.from_toml("[[exchanges]]\nname = 'x'\n")
    odd = {"name": name, "type": "direct", "durable": True, "auto_delete": False, "internal": False}
    live = Listing(wanted, {"exchanges": lambda listed: [*listed, odd]}).live()
    assert [exchange.name for exchange in live.exchanges] == ["x"]
    (found,) = live.facts.oddities
    assert found.kind == "odd-object"


def test_operator_policies_are_read_but_are_not_part_of_the_live_topology() -> None:
    caps = {"name": "caps", "pattern": "^q", "apply-to": "queues", "definition": {"max-length": 5}}
    topology = Topology.from_toml("[[queues]]\nname = 'q'\n")
    live = Listing(topology, {"operator-policies": lambda _: [caps]}).live()
    assert live.facts.operator_policies == (PolicyDefinition("caps", "^q", "queues", {"max-length": 5}),)
    assert live.policies == ()


@pytest.mark.parametrize(
    ("listed", "denied", "unclear"),
    [
        ([{"name": "a", "state": "denied", "deprecation_phase": "permitted_by_default"}], {"a"}, set()),
        ([{"name": "a", "state": "permitted", "deprecation_phase": "denied_by_default"}], set(), set()),
        ([{"name": "a", "deprecation_phase": "permitted_by_default"}], set(), set()),
        ([{"name": "a", "deprecation_phase": "denied_by_default"}], set(), {"a"}),
        ([{"name": "a", "deprecation_phase": "removed"}], {"a"}, set()),
        (NotFoundError("no such path"), set(), set()),
        (AccessRefusedError("not permitted"), set(), set(DEPRECATED_FEATURES)),
    ],
)
def test_denied_features_are_read(listed: Any, denied: set[str], unclear: set[str]) -> None:
    live = Listing(Topology(), {"deprecated-features": Mock(side_effect=[listed])}).live()
    assert live.facts.limits.denied_features == dict.fromkeys(denied, True) | dict.fromkeys(unclear, False)


def test_a_plan_refuses_queues_whose_feature_flag_is_disabled() -> None:
    listed = [{"name": "quorum_queue", "state": "disabled"}, {"name": "stream_queue", "state": "enabled"}]
    live = Listing(Topology(), {"feature-flags": Mock(side_effect=[listed])}).live()
    types = ("classic", "quorum", "stream")
    wanted = Topology.from_toml(
        "".join(f"[[queues]]\nname = '{type_}'\ntype = '{type_}'\n" for type_ in types)
    )
    (refusal,) = plan(wanted, live=live).refusals
    assert "queue quorum is of type quorum, and the feature flag quorum_queue" in refusal.message
    assert refusal.fix == "run rabbitmqctl enable_feature_flag quorum_queue"


_PLAIN_QUEUES = "[[queues]]\nname = 'q{1..3}'\n"
_RING = "[[exchanges]]\nname = 'x'\ntype = 'x-consistent-hash'\nring = [{ queue = 'q{1..3}' }]\n"


@pytest.mark.parametrize(
    ("text", "most", "expected"),
    [
        (_PLAIN_QUEUES, 5, None),  # one queue is there, and an apply declares its lock
        (_PLAIN_QUEUES, 4, "adds 3 queues, .* room for 2 beside the lock of an apply; .*raise.* by 1"),
        (_PLAIN_QUEUES, 0, "room for 0 .* by 3"),
        (_PLAIN_QUEUES, -1, None),
        (_PLAIN_QUEUES + _RING, 6, None),
        (
            _PLAIN_QUEUES + _RING,
            5,
            "room for 2 beside the lock and the mark of an apply; .*raise.* by 1, or .*records=False",
        ),
        (_PLAIN_QUEUES + _RING, 4, "room for 1 beside the lock and the mark of an apply; .*raise.* by 2$"),
        ("owns = ['old']\n" + _PLAIN_QUEUES, 4, "room for 2"),  # what goes does so after what comes
        ("[[exchanges]]\nname = 'x'\n", 0, None),  # nothing is added
    ],
)
def test_a_plan_refuses_more_queues_than_the_limit_of_the_vhost(
    text: str, most: int, expected: str | None
) -> None:
    there = Topology(queues=(QueueDefinition("old"),))
    limits = [{"vhost": "/", "value": {"max-queues": most, "max-connections": 1}}]
    live = Listing(there, {"vhost-limits": lambda _: limits}).live()
    made = plan(Topology.from_toml(text), live)
    said = [f"{refusal.message}; {refusal.fix}" for refusal in made.refusals if refusal.kind == "limit"]
    assert len(said) == (expected is not None)
    assert expected is None or re.search(expected, said[0]), said
    is_for_mark = expected is not None and "records=False" in expected
    assert (len(made.refused(records=False)) < len(made.refusals)) is is_for_mark


@pytest.mark.parametrize("answer", [AccessRefusedError("no"), NotFoundError("no"), []], ids=str)
def test_without_a_limit_that_is_readable_nothing_is_refused(answer: Any) -> None:
    live = Listing(Topology(), {"vhost-limits": Mock(side_effect=[answer])}).live()
    assert live.facts.limits.queues_left is None


@pytest.mark.parametrize(
    ("listed", "argument", "expected"),
    [
        ("classic", "undefined", "classic"),
        ("quorum", "", "quorum"),
        ("stream", "stream", "stream"),
        ("delayed", "delayed", "delayed"),
        ("rabbit_plugin_queue", None, "rabbit_plugin_queue"),
    ],
)
def test_the_type_of_a_queue_is_that_of_the_api_and_an_unknown_one_is_left_alone(
    listed: str, argument: str | None, expected: str
) -> None:
    arguments = {} if argument is None else {"x-queue-type": argument}
    ring = '[[exchanges]]\nname = "h"\ntype = "x-consistent-hash"\nring = [{ queue = "q" }]\nowner = "external"\n'
    there = Topology.from_toml(f'{ring}[[queues]]\nname = "q"\n')
    live = Listing(there, {"queues": each(type=listed, arguments=arguments)}).live()
    (queue,) = live.queues
    assert (queue.type, dict(queue.arguments)) == (expected, {})
    assert check(live).findings == ()
    assert plan(Topology.from_toml(ring), live).changes == ()
    (change,) = plan(there, live).changes or (None,)
    assert (change is None) is (expected == "classic")
    if change is not None:
        assert (str(change), change.fields[0].old) == ("replace queue q", expected)


def test_settings_of_a_queue_of_an_unknown_type_are_not_judged() -> None:
    """A plugin decides what they mean."""
    numbers = dict.fromkeys(("max-length", "expires", "message-ttl", "consumer-timeout"), 5)
    settings = {"overflow": "drop-head", **numbers}
    exchange = ExchangeDefinition("h", "x-consistent-hash", ring=(RingMember("q"),))
    policy = PolicyDefinition("p", "^q$", definition=settings)
    as_arguments = {f"x-{name}": value for name, value in settings.items()}
    for arguments, policies in ((as_arguments, ()), ({}, (policy,))):
        queue = QueueDefinition("q", "delayed", arguments=arguments)
        there = Topology((exchange,), (queue,), policies=policies)
        live = as_live(there, operator_policies=policies, release=Release("4.3.6"))
        assert check(live.with_rings({"h": HashRing.from_buckets(["q"], live.release)})).findings == ()


def test_the_lock_of_an_apply_is_not_part_of_the_topology() -> None:
    lock = {"name": APPLY_LOCK, "durable": False, "exclusive": True, "auto_delete": True, "arguments": {}}
    live = Listing(PLAIN, {"queues": lambda listed: [*listed, lock]}).live()
    assert {queue.name for queue in live.queues} == {queue.name for queue in PLAIN.queues}
    assert live.facts.left_out == ()


def test_a_flag_that_is_not_listed_is_false() -> None:
    def without_flag(listed: Any) -> Any:
        return [{name: value for name, value in entry.items() if name != "auto_delete"} for entry in listed]

    there = Topology(queues=(QueueDefinition("q"),))
    (queue,) = Listing(there, {"queues": without_flag}).live().queues
    assert queue == QueueDefinition("q")
