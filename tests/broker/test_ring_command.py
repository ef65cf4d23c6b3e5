"""``rabbit-chx ring`` on a real broker."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from shop import Shop, declare

from rabbit_chx.cli import main

pytestmark = pytest.mark.broker


def test_a_shown_ring_reports_what_is_hashed(
    shop: Shop, answer: Callable[..., Any], capsys: pytest.CaptureFixture[str]
) -> None:
    declare(shop.channel, "x", {"hash-header": "tenant"})
    document = answer("ring", "show", "x", *shop.live, *shop.via)
    assert document["arguments"] == {"hash-header": "tenant"}
    assert answer("ring", "show", "orders", *shop.live, *shop.via)["arguments"] == {}
    assert answer("ring", "show", "x", *shop.live[:2], *shop.via)["arguments"] is None
    assert main(["ring", "show", "x", *shop.live, *shop.via]) == 0
    assert "hashes    hash-header 'tenant'" in capsys.readouterr().out
