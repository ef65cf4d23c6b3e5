"""What is wrong with a live ring, as the commands tell it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from exchange_types import CHX
from shop import Shop

from rabbit_chx.cli import main

pytestmark = pytest.mark.broker


def test_a_binding_without_buckets_is_found(
    shop: Shop, answer: Callable[..., Any], capsys: pytest.CaptureFixture[str]
) -> None:
    shop.channel.exchange_declare("x", CHX, durable=True)
    for queue, weight in (("q1", "10"), ("q2", "2"), ("q2", "3")):
        shop.channel.queue_bind(queue, "x", weight)
    (second,) = answer("verify", "x", *shop.live, *shop.via, "--count", "100", code=1)["findings"]
    assert (second["kind"], second["destination"]) == ("second-binding", "q2")
    shop.channel.queue_unbind("q2", "x", "3")
    document = answer("verify", "x", *shop.live, *shop.via, "--count", "100", code=1)
    assert document["mismatches"] == 0
    (silent,) = (finding for finding in document["findings"] if finding["kind"] == "silent-binding")
    assert silent == {
        "kind": "silent-binding",
        "destination": "q2",
        "share": 0.0,
        "message": "q2 is bound with weight 2 and has no bucket: no message reaches it",
        "fix": "",
    }
    assert main(["ring", "show", "x", *shop.live, *shop.via]) == 0
    assert f"rabbit-chx: exchange 'x': {silent['message']}\n" in capsys.readouterr().err
