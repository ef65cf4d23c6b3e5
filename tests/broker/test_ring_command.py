"""``rabbit-chx ring`` on a real broker."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from shop import BUCKETS, Shop, declare

from rabbit_chx.cli import main
from rabbit_chx.routing import HashRing

pytestmark = pytest.mark.broker


def test_the_true_ring_is_shown(shop: Shop, answer: Callable[..., Any]) -> None:
    document = answer("ring", "show", "orders", *shop.live, *shop.via)
    ring = HashRing.from_json(json.dumps(document))
    assert (ring.buckets, ring.provenance) == (BUCKETS, "read")
    assert ring.release.version == shop.broker.version
    assert (
        answer("ring", "show", "orders", "--url", shop.live[1], *shop.via)["buckets"] == document["buckets"]
    )


def test_a_shown_ring_says_what_is_hashed(
    shop: Shop, answer: Callable[..., Any], capsys: pytest.CaptureFixture[str]
) -> None:
    declare(shop.channel, "x", {"hash-header": "tenant"})
    document = answer("ring", "show", "x", *shop.live, *shop.via)
    assert document["arguments"] == {"hash-header": "tenant"}
    assert answer("ring", "show", "orders", *shop.live, *shop.via)["arguments"] == {}
    assert answer("ring", "show", "x", *shop.live[:2], *shop.via)["arguments"] is None
    assert main(["ring", "show", "x", *shop.live, *shop.via]) == 0
    assert "hashes    hash-header 'tenant'" in capsys.readouterr().out
