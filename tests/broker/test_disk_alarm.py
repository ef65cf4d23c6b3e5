"""A refusal during a disk alarm names the node, and the alarm is announced before a change."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from bounded import until
from broker_alarms import disk_alarm
from canary import CANARY, canary_user
from declared import with_login
from shop import Shop

from rabbit_chx.cli import main

pytestmark = [pytest.mark.broker, pytest.mark.restarts, pytest.mark.own_broker]

NAMED = "a full disk can cause this: node rabbit"


@pytest.fixture
def reader(shop: Shop) -> Iterator[tuple[str, ...]]:
    """The options of a user who sees everything and may change nothing."""
    with canary_user(shop.management, shop.settings.vhost, "monitoring", read=".*") as user:
        yield tuple(with_login(each, user, CANARY) if "//" in each else each for each in shop.live)


def test_the_disk_alarm_of_a_node_is_named(
    shop: Shop, reader: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "topology.toml"

    def applied(queue: str, at: tuple[str, ...]) -> tuple[int, str]:
        path.write_text(f'[[queues]]\nname = "{queue}"\n')
        code = main(["apply", str(path), "--yes", *at])
        return code, capsys.readouterr().err

    code, said = applied("q8", reader)
    assert (code, "disk" in said) == (77, False), said
    with disk_alarm(shop.broker):
        until(lambda: shop.management.request("GET", "nodes")[0]["disk_free_alarm"], "it is known")
        code, said = applied("q8", reader)
        assert code == 77
        assert NAMED in said
        code, said = applied("q9", shop.live)
        assert code == 0, "an alarm is no full disk yet"
        assert "has a disk alarm (" in said
        assert "RabbitMQ 4.3 refuses every login after a change" in said
    assert applied("q10", shop.live)[0] == 0
