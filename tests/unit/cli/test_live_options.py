"""Where the broker is, by options and environment."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
import pytest

from rabbit_chx.broker import DiagnosticsRing
from rabbit_chx.cli.live_options import LiveBroker, live_options
from rabbit_chx.cli.outcome import Outcome

if TYPE_CHECKING:
    from collections.abc import Callable

URL = "amqp://ann:s%40crt@host:5673/shop?heartbeat=5"


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Callable[..., LiveBroker]:
    """The broker that options name, under an environment."""
    for name in ("AMQP_URL", "RABBIT_CHX_MANAGEMENT_URL", "RABBIT_CHX_RING_VIA"):
        monkeypatch.delenv(name, raising=False)

    def ask(*options: str, **environment: str) -> LiveBroker:
        found: list[LiveBroker] = []

        def command(*, broker: LiveBroker) -> Outcome:
            found.append(broker)
            return Outcome("table")

        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        click.command()(live_options(command)).main(list(options), standalone_mode=False)
        return found[0]

    return ask


def test_the_environment_says_what_would_show_in_the_list_of_processes(
    asked: Callable[..., LiveBroker],
) -> None:
    broker = asked(
        AMQP_URL=URL,
        RABBIT_CHX_MANAGEMENT_URL="http://bob:pw@host:15672",
        RABBIT_CHX_RING_VIA="docker exec r",
    )
    assert (broker.url, broker.settings.vhost) == (URL, "shop")
    assert broker.management("it").masked_url == "http://bob:***@host:15672"
    assert repr(broker.ring_source) == repr(DiagnosticsRing("docker exec r"))


def test_options_go_before_the_environment(asked: Callable[..., LiveBroker]) -> None:
    broker = asked(
        *("--management-url", "http://carl:pw@there:1", "--ring-via", ""),
        AMQP_URL=URL,
        RABBIT_CHX_MANAGEMENT_URL="http://bob:pw@host:15672",
        RABBIT_CHX_RING_VIA="docker exec r",
    )
    assert broker.management("it").masked_url == "http://carl:***@there:1"
    assert repr(broker.ring_source) == repr(DiagnosticsRing(""))


def test_a_vhost_goes_before_that_of_the_url(asked: Callable[..., LiveBroker]) -> None:
    broker = asked("--url", URL, "--vhost", "a/b c")
    assert broker.url == "amqp://ann:s%40crt@host:5673/a%2Fb%20c?heartbeat=5"
    assert (broker.settings.vhost, broker.settings.heartbeat_s) == ("a/b c", 5)
    assert asked("--url", "amqp://host", "--vhost", "v").url == "amqp://host/v"


def test_a_management_url_without_a_user_has_the_login_of_the_amqp_url(
    asked: Callable[..., LiveBroker],
) -> None:
    own, shared = (
        asked("--url", URL, "--management-url", url).management("it")
        for url in ("http://ann:s%40crt@host:15672/api2", "http://host:15672/api2")
    )
    assert shared.masked_url == "http://ann:***@host:15672"
    assert shared._login.reveal() == own._login.reveal()
    assert "s@crt" not in repr(shared)


def test_a_broker_has_all_that_the_options_tell(asked: Callable[..., LiveBroker]) -> None:
    via = ("--ring-via", "docker exec r")
    broker = asked("--url", URL, "--vhost", "v", "--management-url", "http://host:15672", *via).broker()
    assert repr(broker) == (
        "Broker('amqp://ann:***@host:5673/v', management_url='http://ann:***@host:15672')"
    )
    assert repr(broker._ring_source) == repr(DiagnosticsRing("docker exec r"))
    assert repr(asked("--url", URL).broker()) == "Broker('amqp://ann:***@host:5673/shop')"
