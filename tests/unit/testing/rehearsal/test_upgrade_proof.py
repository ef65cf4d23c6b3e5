"""The prediction beside what brokers did. What they did is made up here, to have brokers that disagree."""

from __future__ import annotations

from dataclasses import replace

from upgrade_topologies import keys

from rabbit_chx.analysis import Hashing
from rabbit_chx.routing import HashedOn, HashRing, Place, Release
from rabbit_chx.testing.rehearsal.upgrade_proof import IN_ARRAYS, Trial, UpgradeProof, exchange_proof
from rabbit_chx.topology.upgrade_exchange import hash_upgrade

OLD, NEW = Release("3.12.14"), Release("4.3.6")
UPGRADE = hash_upgrade(
    "x",
    (("a", "1"), ("b", "1")),
    None,
    HashedOn("header", b"h"),
    keys(10, Hashing("h")),
    releases=(OLD, NEW),
)


def trial(*, after: bool) -> Trial:
    """Return what a broker does that agrees with the mirror."""
    assert UPGRADE.sample is not None
    assert UPGRADE.rings is not None
    places: dict[int, Place] = {}
    for number in range(10):
        side = UPGRADE.sample.after if after else UPGRADE.sample.before
        place = side[number]
        assert isinstance(place, str)
        places[number] = place
        if after:
            stays = UPGRADE.sample.before[number]
            assert isinstance(stays, str)
            places[number + IN_ARRAYS] = stays
    ring = UPGRADE.rings.after if after else UPGRADE.rings.before
    return Trial(NEW if after else OLD, len(places), places, ring)


def test_brokers_that_agree() -> None:
    assert UPGRADE.sample is not None
    proof = exchange_proof(UPGRADE, trial(after=False), trial(after=True))
    assert (proof.published, proof.compared, proof.in_arrays, proof.mismatches) == (30, 10, 10, ())
    assert proof.predicted == proof.measured == len(UPGRADE.sample.moved)
    assert UpgradeProof(OLD, NEW, ("", ""), True, (proof,)).complete
    assert not UpgradeProof(OLD, NEW, ("", ""), False, (proof,)).complete


def test_a_message_elsewhere_and_a_message_nowhere_are_mismatches() -> None:
    there = trial(after=True)
    places = dict(there.places)
    places[3] = "elsewhere"
    del places[4]
    proof = exchange_proof(UPGRADE, trial(after=False), replace(there, places=places))
    assert [(one.key, one.found) for one in proof.mismatches] == [
        ("key-3", "elsewhere"),
        ("key-4", "(neither in a queue nor returned)"),
    ]
    whole = UpgradeProof(OLD, NEW, ("", ""), True, (proof,))
    assert (whole.mismatches, whole.complete) == (2, False)


def test_another_ring_is_a_mismatch() -> None:
    there = replace(trial(after=True), ring=HashRing.from_buckets(["b", "a"], NEW))
    (mismatch,) = exchange_proof(UPGRADE, trial(after=False), there).mismatches
    assert (mismatch.key, mismatch.release) == (None, NEW)
