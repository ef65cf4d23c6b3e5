"""What a check finds on topologies that are values."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Literal

import pytest

from rabbit_chx.errors import InputError, MismatchError, NotFoundError
from rabbit_chx.routing import HashRing, Release
from rabbit_chx.routing.arrays import seeds
from rabbit_chx.topology import (
    Topology,
    check,
)
from rabbit_chx.topology.check import CHECK_KINDS

RELEASE = Release("4.3.6")
FILE = """
[[exchanges]]
name = "orders"
type = "x-consistent-hash"
ring = [{ queue = "q1", weight = 2 }, { queue = "q2" }, { queue = "q3" }]
[[queues]]
name = "q{1..3}"
"""
WANTED = Topology.from_toml(FILE)
RING = ("q1", "q1", "q2", "q3")


def live(text: str = FILE) -> Topology:
    topology = replace(Topology.from_toml(text), release=RELEASE)
    read = HashRing.from_buckets(RING, RELEASE)
    return topology.with_rings(dict.fromkeys((exchange.name for exchange in topology.exchanges), read))


def test_of_a_sound_ring_only_the_shares_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """To count more takes a second a ring, and `ring list` checks all rings of a broker."""

    def count(*_: object) -> None:
        pytest.fail("more is counted")

    monkeypatch.setattr(HashRing, "indices_of_all_seeds", count)
    monkeypatch.setattr(seeds, "stays_of_seeds", count)
    found = check(live())
    assert found.sound
    assert found.unroutable == {"orders": 0.0}


@pytest.mark.parametrize("provenance", ["assumed", "replayed", None])
def test_a_ring_that_was_not_read_is_refused(provenance: Literal["assumed", "replayed"] | None) -> None:
    ring = HashRing.from_bindings([("q1", 2), ("q2", 1), ("q3", 1)], RELEASE)
    rings = {} if provenance is None else {"orders": replace(ring, provenance=provenance)}
    unread = replace(live(), rings=rings)
    for wanted in (WANTED, None):
        with pytest.raises(InputError, match=r"prove nothing: give --ring-via PREFIX"):
            check(unread, wanted)


def test_one_exchange_by_name() -> None:
    there = live()
    assert check(there, exchange="orders").sound
    with pytest.raises(NotFoundError, match="there is no exchange 'other'"):
        check(there, exchange="other")
    plain = Topology.from_toml(FILE + '[[exchanges]]\nname = "x"\n')
    with pytest.raises(MismatchError, match="type direct"):
        check(plain, exchange="x")
    for name, type_ in (("amq.direct", "direct"), ("amq.topic", "topic"), ("", "direct")):
        with pytest.raises(
            MismatchError, match=f"exchange '{name}' is of type {type_}, not x-consistent-hash"
        ):
            check(there, exchange=name)
    with pytest.raises(NotFoundError, match=r"there is no exchange 'amq\.other'"):
        check(there, exchange="amq.other")


def test_several_exchanges_by_name() -> None:
    other = FILE.replace('"orders"', '"other"').partition("[[queues]]")[0]
    there = live(text=FILE + other)
    assert check(there, exchange=["other", "orders", "other"]).exchanges == ("other", "orders")
    assert check(there).exchanges == ("orders", "other")


def test_the_page_names_each_kind() -> None:
    folder = Path(__file__).resolve().parents[3] / "docs" / "commands"
    pages = [(folder / name).read_text(encoding="utf-8") for name in ("ring-check.md", "topology-check.md")]
    assert [kind for kind in CHECK_KINDS if f"| `{kind}` |" not in "".join(pages)] == []
