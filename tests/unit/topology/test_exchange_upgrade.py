"""What an upgrade does to one exchange."""

from __future__ import annotations

import pytest
from upgrade_topologies import keys, numbers

from rabbit_chx.analysis import Hashing
from rabbit_chx.routing import Binding, HashedOn, ModulusHashExchange, Release
from rabbit_chx.topology.upgrade_exchange import SampledMessage, hash_arguments, hash_upgrade, modulus_upgrade

OLD, NEW = Release("3.12.14"), Release("4.3.6")
FOUR: tuple[Binding, ...] = (("q1", "1"), ("q2", "1"), ("q3", "1"), ("q4", "1"))


@pytest.mark.parametrize("sample", [keys(400, Hashing("h")), numbers(400, "h")], ids=["longstr", "long"])
def test_header_values_move_and_stay_in_an_array(sample: list[SampledMessage]) -> None:
    upgrade = hash_upgrade("x", FOUR, None, HashedOn("header", b"h"), sample, releases=(OLD, NEW))
    assert upgrade.sample is not None
    assert upgrade.verdict == "moves"
    assert upgrade.exact is None
    assert upgrade.expected == pytest.approx(0.75, abs=0.001)
    assert 250 < len(upgrade.sample.moved) < 350
    assert upgrade.kept_in_array == 400


def test_header_values_of_one_destination_do_not_move() -> None:
    upgrade = hash_upgrade(
        "x", FOUR[:1], None, HashedOn("header", b"h"), keys(20, Hashing("h")), releases=(OLD, NEW)
    )
    assert (upgrade.verdict, upgrade.expected) == ("safe", 0.0)


def test_nothing_moves_by_routing_key_or_property() -> None:
    for hashed in (HashedOn("routing-key"), HashedOn("property", b"message_id")):
        name = "message_id" if hashed.name else None
        upgrade = hash_upgrade("x", FOUR, None, hashed, keys(200, Hashing(None, name)), releases=(OLD, NEW))
        assert upgrade.exact is not None
        assert upgrade.sample is not None
        assert (upgrade.exact.moved, len(upgrade.sample.moved), upgrade.verdict) == (0, 0, "repair")
        assert upgrade.kept_in_array is None


def test_headers_are_safe_where_both_releases_hash_alike_and_keep_the_ring() -> None:
    upgrade = hash_upgrade(
        "x", FOUR, None, HashedOn("header", b"h"), keys(50, Hashing("h")), releases=(Release("4.2.9"), NEW)
    )
    assert (upgrade.verdict, upgrade.exact is not None and upgrade.exact.moved) == ("safe", 0)


def test_second_bindings_move_an_exact_share() -> None:
    twice: tuple[Binding, ...] = (("a", "1"), ("b", "1"), ("a", "2"))
    releases = (Release("3.8.9"), Release("3.10.25"))
    upgrade = hash_upgrade("x", twice, None, HashedOn("routing-key"), keys(500), releases=releases)
    assert upgrade.rings is not None
    assert (upgrade.rings.before.buckets, upgrade.rings.after.buckets) == (("a", "b", "a", "a"), ("a", "b"))
    assert upgrade.exact is not None
    assert upgrade.sample is not None
    assert upgrade.exact.moved == upgrade.rings.before.share_moved(upgrade.rings.after) > 0.2
    assert len(upgrade.sample.moved) / 500 == pytest.approx(upgrade.exact.moved, abs=0.08)


def test_modulus_bindings_are_counted_by_name_from_4_3_on() -> None:
    bindings: tuple[Binding, ...] = (("b", "1"), ("a", "2"), ("c", "3"))
    upgrade = modulus_upgrade("x", bindings, keys(300), releases=(Release("4.0.9"), NEW))
    assert upgrade.exact is not None
    assert upgrade.sample is not None
    assert upgrade.exact.moved == pytest.approx(2 / 3, abs=1e-6)
    assert sum(upgrade.exact.amounts.values()) == 1
    assert upgrade.sample.matrix.amounts.keys() == {("b", "a"), ("a", "b"), ("c", "c")}
    mirror = ModulusHashExchange("x", bindings, NEW)
    assert list(upgrade.sample.after) == [mirror.route(key.routing_key) for key in keys(300)]


def test_modulus_bindings_in_the_order_of_names_are_safe() -> None:
    upgrade = modulus_upgrade("x", (("a", "1"), ("b", "2")), keys(50), releases=(Release("4.0.9"), NEW))
    assert upgrade.verdict == "safe"


def test_modulus_bindings_on_khepri_before_4_3_are_not_known() -> None:
    upgrade = modulus_upgrade("x", (("a", "1"), ("b", "2")), keys(5), releases=(Release("4.2.9"), NEW))
    assert (upgrade.verdict, upgrade.sample, upgrade.exact) == ("unknown", None, None)


def test_the_arguments_of_what_is_hashed() -> None:
    assert hash_arguments(HashedOn("routing-key")) == {}
    assert hash_arguments(HashedOn("header", b"t")) == {"hash-header": "t"}
    assert hash_arguments(HashedOn("property", b"message_id")) == {"hash-property": "message_id"}
