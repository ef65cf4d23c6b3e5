"""Keys that an upgrade moves, and what else it does to a hash exchange."""

from __future__ import annotations

import pytest
from sides import as_live
from upgrade_topologies import MIXED

from rabbit_chx import AmqpField, ConsistentHashExchange, HashRing, Topology
from rabbit_chx.analysis import Finding
from rabbit_chx.cli.printed import in_words
from rabbit_chx.errors import InputError
from rabbit_chx.routing import Release
from rabbit_chx.topology import (
    BindingDefinition,
    ExchangeDefinition,
    LiveTopology,
    QueueDefinition,
    RingMember,
)
from rabbit_chx.topology.upgrade import ExchangeUpgrade, predict_upgrade

OLD, NEW = Release("3.12.14"), Release("4.3.6")
PAIR = [("a", "1"), ("b", "1")]
FOUR = [(queue, "1") for queue in "abcd"]


def upgraded(
    members: list[tuple[str, str]],
    before: str | Release = OLD,
    after: Release = NEW,
    queues: tuple[QueueDefinition, ...] = (),
    **arguments: str,
) -> ExchangeUpgrade:
    """Return the upgrade of one consistent-hash exchange."""
    ring = tuple(RingMember(*member) for member in members)
    named = {name.replace("_", "-"): value for name, value in arguments.items()}
    exchange = ExchangeDefinition("x", "x-consistent-hash", arguments=named, ring=ring)
    before = Release(before) if isinstance(before, str) else before
    (upgrade,) = predict_upgrade(Topology((exchange,), queues), before, after, file="t.toml")
    return upgrade


def findings(*arguments: object, **named: str) -> dict[str, Finding]:
    """Return the findings about one exchange, by kind. Arguments as in `upgraded`."""
    return {finding.kind: finding for finding in upgraded(*arguments, **named).findings}  # type: ignore[arg-type]


def modulus(bindings: list[tuple[str, str]], before: Release) -> ExchangeUpgrade:
    """Return the upgrade of an x-modulus-hash exchange to the newest release."""
    bound = tuple(BindingDefinition("x", queue, key) for queue, key in bindings)
    (upgrade,) = predict_upgrade(
        Topology((ExchangeDefinition("x", "x-modulus-hash"),), (), bound), before, NEW
    )
    return upgrade


ALL_REPAIR = dict.fromkeys(("accounts", "images", "mails", "orders", "tenants"), "repair")


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (OLD, NEW, ALL_REPAIR | dict.fromkeys(("accounts", "images", "tenants"), "moves")),
        (Release("4.0.9"), NEW, ALL_REPAIR | {"images": "moves"}),
        (Release("4.3.0"), NEW, dict.fromkeys(ALL_REPAIR, "safe")),
        (Release("4.0.9", "mnesia"), Release("4.0.9", "khepri"), ALL_REPAIR | {"images": "unknown"}),
    ],
)
def test_an_upgrade_moves_keys_or_needs_a_repair_or_is_safe(
    before: Release, after: Release, expected: dict[str, str]
) -> None:
    found = {upgrade.name: upgrade.verdict for upgrade in predict_upgrade(MIXED, before, after)}
    assert found == expected


@pytest.mark.parametrize(
    "values",
    [
        [f"key-{n}" for n in range(400)],
        [AmqpField("long", n) for n in range(400)],
        [AmqpField("double", n / 7) for n in range(400)],
    ],
    ids=["longstr", "long", "double"],
)
def test_the_share_of_header_values_is_that_of_a_sample_and_all_stay_in_an_array(
    values: list[object],
) -> None:
    upgrade = upgraded(FOUR, hash_header="h")
    assert (upgrade.verdict, upgrade.exact) == ("moves", None)
    assert upgrade.moved == pytest.approx(0.75, abs=1e-3)
    ring = HashRing.from_bindings(FOUR, OLD)
    old, new = (ConsistentHashExchange("x", ring.with_release(to), {"hash-header": "h"}) for to in (OLD, NEW))
    before = [old.route(headers={"h": value}) for value in values]
    after = [new.route(headers={"h": value}) for value in values]
    moved = sum(place != other for place, other in zip(before, after, strict=True))
    assert moved / len(values) == pytest.approx(upgrade.moved, abs=0.08)
    assert before == [new.route(headers={"h": [value]}) for value in values]


def test_nothing_moves_by_routing_key_or_property_or_to_another_of_one_destination() -> None:
    single = upgraded(FOUR[:1], hash_header="h")
    assert (single.verdict, single.moved) == ("safe", 0)
    for upgrade in (upgraded(FOUR), upgraded(FOUR, hash_property="message_id")):
        assert upgrade.exact is not None
        assert (upgrade.exact.moved, upgrade.moved, upgrade.verdict) == (0, 0, "repair")


@pytest.mark.parametrize(
    ("before", "after"), [("3.8.9", OLD), ("3.13.7", NEW), ("4.2.9", NEW), ("4.0.9", Release("4.2.9"))]
)
def test_most_releases_hash_headers_alike(before: str, after: Release) -> None:
    upgrade = upgraded(FOUR, before, after, hash_header="h")
    assert upgrade.exact is not None
    assert upgrade.moved == 0


@pytest.mark.parametrize(
    ("before", "after", "order"),
    [
        (OLD, NEW, "lost"),
        (Release("4.0.9"), NEW, "lost"),  # on Mnesia
        (Release("4.0.9", "khepri"), NEW, "kept"),
        (Release("4.2.9"), NEW, "kept"),
        (Release("4.2.9", "mnesia"), NEW, "lost"),
        (Release("3.8.9"), Release("3.10.25"), "lost"),
    ],
)
def test_khepri_alone_keeps_the_order(before: Release, after: Release, order: str) -> None:
    assert upgraded([("a", "1"), ("b", "2"), ("c", "1")], before, after).order == order
    for one in ([("a", "5")], []):
        assert upgraded(one, before, after).order == "none"


def test_keys_of_slots_are_counted_by_queue() -> None:
    text = """
[[exchanges]]
name = "e"
type = "x-consistent-hash"
arguments = { hash-header = "h" }
slots = 64
members = [{ queue = "q{1..2}" }]
"""
    (upgrade,) = predict_upgrade(Topology.from_toml(text), OLD, NEW)
    assert upgrade.order == "lost"
    assert upgrade.moved == pytest.approx(0.5, abs=1e-3)
    (upgrade,) = predict_upgrade(Topology.from_toml(text), Release("3.13.7"), NEW)
    assert upgrade.exact is not None
    assert set(upgrade.exact.before) == {"q1", "q2"}


def test_second_bindings_move_an_exact_share() -> None:
    twice = [("a", "1"), ("b", "1"), ("a", "2")]
    upgrade = upgraded(twice, "3.8.9", Release("3.10.25"))
    before, after = (HashRing.from_buckets(list(buckets)) for buckets in ("abaa", "ab"))
    assert upgrade.moved == before.share_moved(after) > 0.2


def test_second_bindings_of_a_definitions_file_are_replayed_on_both_releases() -> None:
    ring = (RingMember("a", "1"), RingMember("b", "1"), RingMember("a", "2"))
    assumed = HashRing.from_bindings([member.binding for member in ring], NEW, "assumed")
    topology = Topology((ExchangeDefinition("x", "x-consistent-hash", ring=ring),))
    (upgrade,) = predict_upgrade(
        as_live(topology, rings={"x": assumed}).objects, Release("3.8.9"), Release("3.10.25")
    )
    assert upgrade.moved


def test_modulus_bindings_are_counted_by_name_from_4_3_on() -> None:
    upgrade = modulus([("b", "1"), ("a", "2"), ("c", "3")], Release("4.0.9"))
    assert upgrade.exact is not None
    assert upgrade.moved == upgrade.exact.moved == pytest.approx(2 / 3, abs=1e-6)
    assert upgrade.exact.amounts.keys() == {("b", "a"), ("a", "b"), ("c", "c")}
    (finding,) = upgrade.findings
    assert "binding keys cannot restore the old order" in finding.fix


def test_modulus_bindings_in_the_order_of_names_are_safe() -> None:
    assert modulus([("a", "1"), ("b", "2")], Release("4.0.9")).verdict == "safe"
    assert modulus([], Release("4.0.9")).verdict == "safe"


def test_modulus_bindings_on_khepri_before_4_3_are_not_known() -> None:
    upgrade = modulus([("a", "1"), ("b", "2")], Release("4.2.9"))
    assert (upgrade.verdict, upgrade.moved, upgrade.exact) == ("unknown", None, None)
    assert "assume that most keys move" in upgrade.findings[0].fix


def test_a_lost_order_is_cured_by_a_repair() -> None:
    order = findings(PAIR)["order"]
    assert "rabbit-chx ring repair x --file t.toml" in in_words(order.fix)
    assert "3.12.14 (mnesia)" in order.message
    assert findings(PAIR, "4.2.9") == {}


def test_without_a_file_the_order_is_saved_before() -> None:
    ring = tuple(map(RingMember, "ab"))
    topology = Topology((ExchangeDefinition("the x", "x-consistent-hash", ring=ring),))
    (upgrade,) = predict_upgrade(topology, OLD, NEW)
    assert in_words(upgrade.findings[0].fix) == (
        "before the upgrade, run: rabbit-chx topology export --exchange 'the x' > 'the x.toml'; and after it: "
        "rabbit-chx ring repair 'the x' --file 'the x.toml' --apply"
    )


def test_what_a_broker_has_is_replayed_as_its_objects() -> None:
    ring = tuple(map(RingMember, "ab"))
    topology = Topology((ExchangeDefinition("x", "x-consistent-hash", ring=ring),))
    live = LiveTopology.of_file(topology, OLD).with_rings({"x": HashRing.from_buckets(["a", "b"], OLD)})
    assert predict_upgrade(live, OLD, NEW) == predict_upgrade(topology, OLD, NEW)


def test_headers_stay_in_an_array() -> None:
    hashed = findings(PAIR, hash_header="tenant")["hashed-differently"]
    assert "3.12.14 hashes the value of the header with its wire type" in hashed.message
    assert "no order of the ring keeps these keys" in hashed.fix
    assert "the header 'tenant' as an array" in hashed.fix


def test_a_crash_on_a_message_is_reported() -> None:
    refused = findings(PAIR, "3.12.14", Release("3.13.6"), hash_header="tenant")
    assert "closes the connection" in refused["refused-message"].message
    assert "refused-message" not in findings(PAIR, "3.12.14", Release("3.13.6"))


def test_second_bindings_are_cured_before_the_upgrade() -> None:
    twice = [("a", "1"), ("a", "3"), ("b", "1")]
    second = findings(twice, "3.8.9", Release("3.10.25"))["second-binding"]
    assert "that moves 0.000% of the keys" in second.fix  # both bindings of `a` are adjacent
    apart = findings([("a", "1"), ("b", "1"), ("a", "2")], "3.8.9", Release("3.10.25"))["second-binding"]
    assert "that moves 49." in apart.fix
    assert "depends on the order" in findings(twice)["second-binding"].message


def test_a_heavy_weight_stays_and_cannot_be_bound_again() -> None:
    heavy = [("a", "20000"), ("b", "1")]
    assert "a (key 20000)" in findings(heavy)["weight"].message
    assert upgraded(heavy).moved == 0
    assert "weight" not in findings(heavy, "3.10.8", OLD)
    with pytest.raises(InputError):
        upgraded(heavy, NEW)


def test_transient_members_are_reported() -> None:
    exclusive = (QueueDefinition("b", exclusive=True),)
    ghosts = findings(PAIR, "4.2.9", NEW, exclusive)["transient-destination"]
    assert "are unroutable until they go" in ghosts.message
    gone = findings(PAIR, "3.12.14", Release("4.0.9"), exclusive)["transient-destination"]
    assert "its buckets are removed with it" in gone.message
