"""Weights, destinations and pairs that a ring takes and refuses."""

from __future__ import annotations

from typing import Any

import pytest

from rabbit_chx.errors import InputError
from rabbit_chx.routing import ExchangeRef, HashRing, Release


@pytest.mark.parametrize(("text", "count"), [("1", 1), ("007", 7), ("+5", 5), (3, 3), ("10000", 10_000)])
def test_weights_that_the_broker_takes(text: int | str, count: int) -> None:
    assert len(HashRing.from_bindings([("q", text)]).buckets) == count


WRONG_TEXTS = ["0", "-1", "1.5", "", " 1", "1 ", "1\n", "abc", "1_0", "0x1", "++1", "٣", "9" * 300]


@pytest.mark.parametrize("weight", [*WRONG_TEXTS, 0, -3, 1.0, True, None])
def test_weights_that_the_broker_refuses(weight: Any) -> None:
    with pytest.raises(InputError, match="queue 'q9' is bound with the weight") as caught:
        HashRing.from_bindings([("q9", weight)])
    assert caught.value.queue == "q9"
    with pytest.raises(InputError, match="queue 'q9'"):
        HashRing.from_buckets([]).bind("q9", weight)


def test_the_cap_is_a_matter_of_release() -> None:
    assert len(HashRing.from_bindings([("q", 10_001)], Release("4.2.5")).buckets) == 10_001
    with pytest.raises(InputError, match=r"4\.2\.6 takes at most 10000"):
        HashRing.from_bindings([("q", 10_001)], Release("4.2.6"))


def test_a_binding_over_the_cap_can_still_go() -> None:
    old = HashRing.from_bindings([("big", 10_001), ("q", 1)], Release("4.2.5"))
    assert old.with_release(Release("4.3.6")).unbind("big", 10_001).buckets == ("q",)


@pytest.mark.parametrize("name", ["", 5, None, b"q", "q" * 256, "\ud800", ["q"]])
def test_an_invalid_destination_is_refused(name: Any) -> None:
    with pytest.raises(InputError):
        HashRing.from_bindings([(name, 1)])
    if name is not None:
        with pytest.raises(InputError):
            HashRing.from_buckets(["q", name])
    with pytest.raises(InputError):
        HashRing.from_buckets(["q"]).unbind(name)
    with pytest.raises(InputError):
        ExchangeRef(name)
