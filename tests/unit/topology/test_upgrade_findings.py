"""What an upgrade does to an exchange beside moving keys."""

from __future__ import annotations

from dataclasses import replace

from upgrade_topologies import keys

from rabbit_chx import Topology
from rabbit_chx.analysis import Finding, Hashing
from rabbit_chx.routing import HashRing, Release
from rabbit_chx.topology import ExchangeDefinition, QueueDefinition, RingMember
from rabbit_chx.topology.upgrade import predict_upgrade

NEW = Release("4.3.6")


def found(
    members: list[tuple[str, str]],
    before: str,
    after: Release = NEW,
    queues: tuple[QueueDefinition, ...] = (),
    **arguments: str,
) -> dict[str, Finding]:
    """Return the findings about one exchange, by kind."""
    ring = tuple(RingMember(*member) for member in members)
    named = {name.replace("_", "-"): value for name, value in arguments.items()}
    exchange = ExchangeDefinition("x", "x-consistent-hash", arguments=named, ring=ring)
    sample = {"x": keys(20, Hashing(arguments.get("hash_header")))}
    prediction = predict_upgrade(Topology((exchange,), queues), sample, Release(before), after, file="t.toml")
    return {finding.kind: finding for finding in prediction.exchanges[0].findings}


def test_a_lost_order_is_cured_by_a_repair() -> None:
    order = found([("a", "1"), ("b", "1")], "3.12.14")["order"]
    assert "rabbit-chx ring repair x --file t.toml" in order.cure
    assert "3.12.14 (mnesia)" in order.says
    assert found([("a", "1"), ("b", "1")], "4.2.9") == {}


def test_without_a_file_the_order_is_saved_before() -> None:
    ring = tuple(map(RingMember, "ab"))
    topology = Topology((ExchangeDefinition("the x", "x-consistent-hash", ring=ring),))
    (upgrade,) = predict_upgrade(topology, {}, Release("3.12.14"), NEW).exchanges
    assert upgrade.findings[0].cure == (
        "before the upgrade, run: rabbit-chx topology export --exchange 'the x' > 'the x.toml'; and after it: "
        "rabbit-chx ring repair 'the x' --file 'the x.toml' --apply"
    )


def test_headers_stay_in_an_array() -> None:
    hashed = found([("a", "1"), ("b", "1")], "3.12.14", hash_header="tenant")["hashed-differently"]
    assert "3.12.14 hashes the value of the header with its wire type" in hashed.says
    assert "no order of the ring keeps these keys" in hashed.cure
    assert "20 of 20 sampled keys then stay" in hashed.cure


def test_a_crash_on_a_message_is_told() -> None:
    refused = found([("a", "1"), ("b", "1")], "3.12.14", Release("3.13.6"), hash_header="tenant")
    assert "closes the connection" in refused["refused-message"].says
    assert "refused-message" not in found([("a", "1"), ("b", "1")], "3.12.14", Release("3.13.6"))


def test_second_bindings_are_cured_before_the_upgrade() -> None:
    twice = [("a", "1"), ("a", "3"), ("b", "1")]
    second = found(twice, "3.8.9", Release("3.10.25"))["second-binding"]
    assert "that moves 0.000% of the keys" in second.cure  # both of its bindings are beside each other
    apart = found([("a", "1"), ("b", "1"), ("a", "2")], "3.8.9", Release("3.10.25"))["second-binding"]
    assert "that moves 49." in apart.cure
    assert "depends on the order" in found(twice, "3.12.14")["second-binding"].says


def test_a_heavy_weight_cannot_be_bound_again() -> None:
    heavy = found([("a", "20000"), ("b", "1")], "3.12.14")["weight"]
    assert "a (key 20000)" in heavy.says


def test_transient_members_are_told() -> None:
    exclusive = (QueueDefinition("b", exclusive=True),)
    ghosts = found([("a", "1"), ("b", "1")], "4.2.9", queues=exclusive)["transient-destination"]
    assert "are unroutable until they go" in ghosts.says
    gone = found([("a", "1"), ("b", "1")], "3.12.14", Release("4.0.9"), exclusive)["transient-destination"]
    assert "its buckets go with it" in gone.says


def test_a_ring_with_ghosts_is_told() -> None:
    ring = tuple(map(RingMember, "ab"))
    topology = Topology((ExchangeDefinition("x", "x-consistent-hash", ring=ring),))
    read = HashRing.from_buckets(["a", "gone", "b"], Release("4.2.9"))
    live = replace(topology, rings={"x": read})
    (upgrade,) = predict_upgrade(live, {}, Release("4.2.9"), NEW).exchanges
    assert [finding.kind for finding in upgrade.findings] == ["ring-differs"]
