"""A refusal during a disk alarm names the node, and the alarm is announced before a change."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from broker_alarms import disk_alarm
from canary import CANARY, canary_user
from declared import with_login
from shop import Shop

from rabbit_chx.cli import main

pytestmark = [pytest.mark.broker, pytest.mark.restarts, pytest.mark.chx_broker(restartable=True)]


@pytest.fixture
def reader(shop: Shop) -> Iterator[tuple[str, ...]]:
    """The options of a user who sees everything and may change nothing."""
    vhost = shop.settings.vhost
    with canary_user(shop.management, vhost, "monitoring") as user:
        rights = {"configure": "^$", "write": "^$", "read": ".*"}
        shop.management.put("permissions", vhost, user, body=rights)
        urls = (shop.broker.url, str(shop.broker.management_url))
        amqp, management = (with_login(url, user, CANARY) for url in urls)
        yield "--url", amqp, "--management-url", management


def test_the_disk_alarm_of_a_node_is_named(
    shop: Shop, reader: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "topology.toml"

    def applied(queue: str, at: tuple[str, ...]) -> tuple[int, str]:
        path.write_text(f'[[queues]]\nname = "{queue}"\n')
        code = main(["topology", "apply", str(path), "--yes", *at])
        return code, capsys.readouterr().err

    code, said = applied("q8", reader)
    assert (code, "disk" in said) == (77, False), said
    with disk_alarm(shop.broker):
        deadline = time.monotonic() + 60
        while not shop.management.request("GET", "nodes")[0]["disk_free_alarm"]:
            assert time.monotonic() < deadline
            time.sleep(0.2)
        code, said = applied("q8", reader)
        assert code == 77
        assert "a full disk can cause this: node rabbit" in said
        code, said = applied("q9", shop.live)
        assert code == 0, "an alarm is no full disk yet"
        assert "has a disk alarm (" in said
        assert "RabbitMQ 4.3 refuses every login after a change" in said
    assert applied("q10", shop.live)[0] == 0
