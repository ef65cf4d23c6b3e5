"""Keys that an upgrade moves, and what else it does to a hash exchange.

``PYTHONPATH=tests/support python tests/unit/planning/test_upgrade.py`` writes `upgrades.txt` again.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from one_hash_exchange import hashing
from sides import as_live
from stored_scenarios import stored_sections, write_sections

from rabbit_chx import AmqpField, ConsistentHashExchange, HashRing, Topology
from rabbit_chx.errors import InputError
from rabbit_chx.planning.upgrade import ExchangeUpgrade, predict_upgrade
from rabbit_chx.routing import Release
from rabbit_chx.topology import LiveTopology, RingMember

OLD, NEW = Release("3.12.14"), Release("4.3.6")
FOUR = [(queue, "1") for queue in "abcd"]


#: Topology files, and what an upgrade does to their exchanges.
STORED = Path(__file__).with_name("upgrades.txt")


def judge(case: str) -> str:
    """Return a file with what the upgrade of its first line does to each exchange."""
    text = re.sub("^-> .*\n", "", case, flags=re.MULTILINE)
    (ends,) = re.findall("^# from: (.*), to: (.*)", text)
    before, after = (Release(*end.split()) for end in ends)
    said = []
    for upgrade in predict_upgrade(Topology.from_toml(text, release=before), before, after, file="t.toml"):
        moved = "unknown" if upgrade.moved is None else f"{upgrade.moved:.3%}"
        by = sorted(map(str, upgrade.exact.before)) if upgrade.exact else "a sample"
        said.append(f"{upgrade.name}: {upgrade.verdict}; order {upgrade.order}; moved {moved}, by {by}")
        said += [f"{found.kind}: {found.message}; {found.fix}" for found in upgrade.findings]
    return text + "".join(f"-> {line}\n" for line in said)


@pytest.mark.all_seeds
@pytest.mark.parametrize("title", stored_sections(STORED))
def test_an_upgrade_does_what_is_stored(title: str) -> None:
    case = stored_sections(STORED)[title] + "\n"
    assert judge(case) == case, "run this file, and review the difference"


def upgraded(
    *members: tuple[str, str], before: Release = OLD, after: Release = NEW, **about: object
) -> ExchangeUpgrade:
    """Return the upgrade of one consistent-hash exchange with a ring that no file can say."""
    topology = hashing(*(RingMember(*member) for member in members), **about)
    (upgrade,) = predict_upgrade(topology, before, after)
    return upgrade


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
    upgrade = upgraded(*FOUR, arguments={"hash-header": "h"})
    assert (upgrade.verdict, upgrade.exact) == ("moves", None)
    assert upgrade.moved == pytest.approx(0.75, abs=1e-3)
    ring = HashRing.from_bindings(FOUR, OLD)
    old, new = (ConsistentHashExchange("x", ring.with_release(to), {"hash-header": "h"}) for to in (OLD, NEW))
    before = [old.route(headers={"h": value}) for value in values]
    after = [new.route(headers={"h": value}) for value in values]
    moved = sum(place != other for place, other in zip(before, after, strict=True))
    assert moved / len(values) == pytest.approx(upgrade.moved, abs=0.08)
    assert before == [new.route(headers={"h": [value]}) for value in values]


@pytest.mark.all_seeds
def test_second_bindings_move_an_exact_share_and_are_cured_before_the_upgrade() -> None:
    twice, adjacent = (("a", "1"), ("b", "1"), ("a", "2")), (("a", "1"), ("a", "3"), ("b", "1"))
    old, new = Release("3.10.5"), Release("3.10.25")
    upgrade = upgraded(*twice, before=old, after=new)
    before, after = (HashRing.from_buckets(list(buckets)) for buckets in ("abaa", "ab"))
    assert upgrade.moved == before.share_moved(after) > 0.2
    unordered = HashRing.unordered(twice, NEW)
    topology = hashing(*(RingMember(*member) for member in twice))
    (of_file,) = predict_upgrade(as_live(topology, rings={"orders": unordered}).as_wanted(), old, new)
    assert of_file.moved is None, (
        "which of two bindings counts depends on an order that the file does not have"
    )
    for members, release, says in (
        (twice, old, "that moves 49."),
        (adjacent, old, "that moves 0.000% of the keys"),
        (adjacent, OLD, "depends on the order"),
    ):
        found = upgraded(*members, before=release, after=new if release is old else NEW).findings
        (second,) = (finding for finding in found if finding.kind == "second-binding")
        assert says in f"{second.message}; {second.fix}"
    with pytest.raises(InputError):
        upgraded(("a", "20000"), ("b", "1"), before=NEW)


def test_without_a_file_the_order_is_saved_before() -> None:
    (upgrade,) = predict_upgrade(hashing(*"ab", name="the x"), OLD, NEW)
    assert upgrade.findings[0].fix == (
        "before the upgrade, run: `rabbit-chx export 'the x' > 'the x.toml'` (`Broker.topology().to_toml()`); and after it: "
        "`rabbit-chx apply 'the x.toml'` (`Broker.apply(plan(wanted, live))`)"
    )


def test_what_a_broker_has_is_replayed_as_its_objects() -> None:
    topology, ring = hashing(*"ab"), HashRing.from_buckets(["a", "b"], OLD)
    live = LiveTopology.of_file(topology, OLD).with_rings({"orders": ring})
    assert predict_upgrade(live, OLD, NEW) == predict_upgrade(topology, OLD, NEW)


if __name__ == "__main__":
    write_sections(
        STORED, {title: judge(f"{case}\n").rstrip("\n") for title, case in stored_sections(STORED).items()}
    )
