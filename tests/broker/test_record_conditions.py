"""A record is known on a condition, which stands beside each answer; what can be known is no condition."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pika
import pytest

from rabbit_chx.broker import Broker, pika_parameters
from rabbit_chx.cli import main
from rabbit_chx.errors import BrokerRefusedError
from rabbit_chx.routing.bindings import RECORD_CONDITION
from rabbit_chx.testing import RunningBroker
from rabbit_chx.topology import Topology, check, plan

pytestmark = pytest.mark.broker

MEMBERS = [("b", 3), ("a", 3), ("c", 3)]
FILE = """
[[exchanges]]
name = "x"
type = "x-consistent-hash"
ring = [{ queue = "b", weight = 3 }, { queue = "a", weight = 3 }, { queue = "c", weight = 3 }]
[[queues]]
name = "a"
[[queues]]
name = "b"
[[queues]]
name = "c"
"""
PLUGIN = "rabbitmq_consistent_hash_exchange"


@pytest.fixture
def recorded(vhost: RunningBroker) -> RunningBroker:
    """A broker with the record of a ring."""
    with Broker(vhost.url, vhost.management_url) as broker:
        assert not broker.declare("x", MEMBERS).unrecorded
    return vhost


@pytest.fixture
def run(
    recorded: RunningBroker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str, str]]:
    """Runs a command without a ring source, and returns its exit code and both outputs. FILE is the topology file."""
    file = tmp_path / "topology.toml"
    file.write_text(FILE)

    def run_command(*words: str) -> tuple[int, str, str]:
        given = [str(file) if word == "FILE" else word for word in words]
        code = main([*given, "--url", recorded.url, "--management-url", str(recorded.management_url)])
        said = capsys.readouterr()
        return code, " ".join(said.out.split()), " ".join(said.err.split())

    return run_command


COMMANDS = [
    ("show", "x"),
    ("show",),
    ("route", "x", "k1"),
    ("compare", "x"),
    ("compare", "x", "--add", "d=1"),
    ("check", "x"),
    ("check", "FILE"),
    ("plan", "FILE"),
    ("apply", "FILE", "--yes"),
    ("repair", "x", "--dry-run"),
    ("verify", "x", "--keys", "k{1..20}"),
]


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_the_condition_stands_beside_each_answer(
    run: Callable[..., tuple[int, str, str]], words: tuple[str, ...]
) -> None:
    assert RECORD_CONDITION in run(*words)[1]
    if words[0] in ("show", "compare", "check", "plan", "verify"):  # those with pages
        assert RECORD_CONDITION in run(*words, "-o", "html")[1]


def conditions(value: Any) -> list[tuple[Any, Any]]:
    """Return each provenance of a JSON value with the condition beside it."""
    if isinstance(value, list):
        return [pair for each in value for pair in conditions(each)]
    if not isinstance(value, dict):
        return []
    own = [(value["provenance"], value.get("condition", "missing"))] if "provenance" in value else []
    return own + [pair for each in value.values() for pair in conditions(each)]


@pytest.mark.parametrize("words", [words for words in COMMANDS if words[0] != "apply"], ids=" ".join)
def test_json_has_the_condition_beside_the_provenance(
    run: Callable[..., tuple[int, str, str]], words: tuple[str, ...]
) -> None:
    found = conditions(json.loads(run(*words, "-o", "json")[1]))
    if words[0] not in ("plan", "repair"):
        assert ("recorded", RECORD_CONDITION) in found
    assert all(
        condition == (RECORD_CONDITION if provenance == "recorded" else None)
        for provenance, condition in found
    )


def test_where_the_output_has_no_place_for_it_the_condition_is_a_note(
    run: Callable[..., tuple[int, str, str]], tmp_path: Path
) -> None:
    keys = tmp_path / "keys.txt"
    keys.write_text("k1\nk2\n")
    for words in (("export", "x"), ("route", "x", "--keys", str(keys)), ("route", "x", "--reaching", "a")):
        assert RECORD_CONDITION in run(*words)[2], words


def test_verify_says_that_a_copy_of_a_record_is_not_this_ring(
    run: Callable[..., tuple[int, str, str]],
) -> None:
    said = run("verify", "x", "--keys", "k{1..20}")[1]
    assert "not this ring: compare that with rabbit-chx verify x --trace 10" in said


# -- what can be known


def test_a_record_goes_before_bindings_are_added_over_amqp_alone(recorded: RunningBroker) -> None:
    connection = pika.BlockingConnection(pika_parameters(recorded.url))
    connection.channel().queue_delete("b")
    connection.close()
    with Broker(recorded.url) as broker:
        broker.declare("x", MEMBERS, allow_existing=True)
    with Broker(recorded.url, recorded.management_url, recorded.ring_via) as broker:
        truth = broker.ring("x")
    assert [*dict.fromkeys(truth.buckets)] == ["a", "c", "b"]
    with Broker(recorded.url, recorded.management_url) as broker:
        assert "recorded" not in {ring.provenance for ring in broker.topology().rings.values()}


def test_a_member_that_others_only_removed_leaves_one_ring(recorded: RunningBroker) -> None:
    connection = pika.BlockingConnection(pika_parameters(recorded.url))
    connection.channel().queue_delete("a")
    connection.close()
    with Broker(recorded.url, recorded.management_url, recorded.ring_via) as broker:
        truth = broker.ring("x")
    with Broker(recorded.url, recorded.management_url) as broker:
        for ring in (broker.ring("x"), broker.topology().rings["x"]):
            assert (ring.provenance, ring.buckets) == ("recorded", truth.buckets)
        assert [finding.kind for finding in check(broker.topology()).findings] == ["different"]


@pytest.mark.own_broker
@pytest.mark.restarts
def test_an_exchange_whose_plugin_is_off_routes_nothing(
    recorded: RunningBroker, run: Callable[..., tuple[int, str, str]]
) -> None:
    recorded.run("rabbitmq-plugins", "disable", PLUGIN)
    try:
        code, said, _ = run("check", "x")
        assert (code, "plugin-off" in said) == (1, True)
        for words in (("route", "x", "k1"), ("compare", "x")):
            code, _, noted = run(*words)
            assert (code, "refuses every publish to it (406)" in noted) == (77, True), words
        code, said, _ = run("plan", "FILE")
        assert (code, "whose plugin is not enabled" in said) == (4, True)
        with Broker(recorded.url, recorded.management_url) as broker:
            live = broker.topology()
            assert check(live).unroutable == {"x": 1.0}
            assert plan(Topology.from_toml(FILE), live).refusals
            with pytest.raises(BrokerRefusedError, match="plugin is not enabled"):
                broker.exchange("x")
    finally:
        recorded.run("rabbitmq-plugins", "enable", PLUGIN)
    assert run("check", "x")[0] == 0
