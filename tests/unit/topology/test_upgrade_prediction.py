"""What an upgrade does to the exchanges of a topology."""

from __future__ import annotations

import pytest
from upgrade_topologies import MIXED, samples

from rabbit_chx import Topology
from rabbit_chx.errors import InputError
from rabbit_chx.routing import ExchangeRef, Release
from rabbit_chx.topology.upgrade import bound_to, hash_exchanges, predict_upgrade


def verdicts(before: Release, after: Release) -> dict[str, str]:
    prediction = predict_upgrade(MIXED, samples(100), before, after)
    return {exchange.name: exchange.verdict for exchange in prediction.exchanges}


def test_an_upgrade_to_4_3() -> None:
    moves = dict.fromkeys(("accounts", "images", "tenants"), "moves")
    repair = dict.fromkeys(("mails", "orders"), "repair")
    assert verdicts(Release("3.12.14"), Release("4.3.6")) == moves | repair
    assert verdicts(Release("4.0.9"), Release("4.3.6")) == {
        "images": "moves", "accounts": "repair", "mails": "repair", "orders": "repair", "tenants": "repair",
    }  # fmt: skip


def test_a_patch_of_4_3_is_safe() -> None:
    prediction = predict_upgrade(MIXED, samples(50), Release("4.3.0"), Release("4.3.6"))
    assert {exchange.verdict for exchange in prediction.exchanges} == {"safe"}
    assert not prediction.moves


def test_khepri_in_place_of_mnesia_is_an_upgrade_too() -> None:
    assert verdicts(Release("4.0.9", "mnesia"), Release("4.0.9", "khepri"))["orders"] == "repair"


def test_an_older_release_is_refused() -> None:
    with pytest.raises(InputError, match=r"3\.12\.14 is older than 4\.3\.6"):
        predict_upgrade(MIXED, {}, Release("4.3.6"), Release("3.12.14"))


def test_slots_are_the_ring_of_their_exchange() -> None:
    text = '[[exchanges]]\nname = "e"\ntype = "x-consistent-hash"\nslots = 64\nmembers = [{ queue = "q" }]\n'
    topology = Topology.from_toml(text)
    bound = bound_to(topology, hash_exchanges(topology)[0])
    assert (len(bound), bound[0], bound[-1]) == (
        64, (ExchangeRef("e.slot.00"), "1"), (ExchangeRef("e.slot.63"), "1"),
    )  # fmt: skip
