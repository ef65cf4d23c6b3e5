"""The commands that read a ring store its order on the broker, if it has no record."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from shop import BUCKETS, Shop

from rabbit_chx.broker import Broker
from rabbit_chx.cli import main
from rabbit_chx.routing.rules import RESTART_KEEPS

pytestmark = pytest.mark.broker


def provenance(shop: Shop, answer: Callable[..., Any]) -> str:
    """Return the provenance of the ring without a ring source."""
    return str(answer("ring", "show", "orders", *shop.live)["provenance"])


@pytest.mark.parametrize("command", [("show", "orders"), ("list",), ("check", "orders"), ("check", "--all")])
def test_a_ring_that_was_read_is_known_without_a_ring_source(
    shop: Shop, answer: Callable[..., Any], capsys: pytest.CaptureFixture[str], command: tuple[str, ...]
) -> None:
    with Broker(shop.broker.url, shop.broker.management_url) as broker:
        keeps = broker.release.follows(RESTART_KEEPS)
    assert provenance(shop, answer) == "assumed"
    main(["ring", *command, *shop.live, *shop.via, "--no-record"])
    assert "stored" not in capsys.readouterr().err
    assert provenance(shop, answer) == "assumed"

    main(["ring", *command, *shop.live, *shop.via])
    said = "stored on the broker: the order of orders, in exchange rabbit-chx.ring.NAME"
    assert (said in capsys.readouterr().err) is keeps
    # On Mnesia a restart may have moved keys before the ring was read, which a record would hide.
    assert provenance(shop, answer) == ("recorded" if keeps else "assumed")
    if keeps:
        assert answer("ring", "show", "orders", *shop.live)["buckets"] == [
            place if isinstance(place, str) else {"exchange": place.name} for place in BUCKETS
        ]
    main(["ring", *command, *shop.live, *shop.via])
    assert "stored" not in capsys.readouterr().err
