"""Where the broker is, by options and environment."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextvars import copy_context
from typing import Any, TypeAlias

import pytest

from rabbit_chx.broker import DiagnosticsRing
from rabbit_chx.broker.exchange_report import why_nothing_hashes
from rabbit_chx.broker.management import Management
from rabbit_chx.cli.broker_options import (
    BrokerAddresses,
    BrokerOptions,
    _broker,
    found_hint,
)
from rabbit_chx.cli.command import CommandResult, command, options
from rabbit_chx.errors import InputError, NotFoundError

URL = "amqp://ann:s%40crt@host:5673/shop?heartbeat=5"
Asked: TypeAlias = Callable[..., BrokerAddresses]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Asked:
    """The broker that options name, under an environment."""
    for name in [name for name in os.environ if name.startswith(("AMQP_URL", "RABBIT_CHX_"))]:
        monkeypatch.delenv(name)

    def ask(*arguments: str, **environment: str) -> BrokerAddresses:
        found: list[BrokerAddresses] = []

        @command(example="it")
        def it(*, broker: BrokerOptions = options(BrokerOptions)) -> CommandResult:
            found.append(broker.live())
            return CommandResult()

        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        copy_context().run(it.main, list(arguments), standalone_mode=False)
        return found[0]

    return ask


def test_secrets_are_read_from_the_environment_and_options_go_before(asked: Asked) -> None:
    environment = {
        "AMQP_URL": URL,
        "RABBIT_CHX_MANAGEMENT_URL": "http://bob:pw@host:15672",
        "RABBIT_CHX_RING_VIA": "docker exec r",
    }
    broker = asked(**environment)
    assert (broker.url, broker.settings.vhost) == (URL, "shop")
    assert broker.management("it").masked_url == "http://bob:***@host:15672"
    assert repr(broker.ring_source) == repr(DiagnosticsRing("docker exec r"))
    broker = asked("--management-url", "http://carl:pw@there:1", "--ring-via", "", **environment)
    assert broker.management("it").masked_url == "http://carl:***@there:1"
    assert repr(broker.ring_source) == repr(DiagnosticsRing(""))


def test_a_vhost_goes_before_that_of_the_url(asked: Asked) -> None:
    broker = asked("--url", URL, "--vhost", "a/b c")
    assert broker.url == "amqp://ann:s%40crt@host:5673/a%2Fb%20c?heartbeat=5"
    assert (broker.settings.vhost, broker.settings.heartbeat_s) == ("a/b c", 5)
    for url, expected in {
        "amqp://host": "amqp://host/v",
        "amqp:///prod": "amqp:///v",
        "amqp://u:p[@h/prod": "amqp://u:p[@h/v",
        "amqps://h?heartbeat=5": "amqps://h/v?heartbeat=5",
    }.items():
        assert asked("--url", url, "--vhost", "v").url == expected


def test_a_management_url_without_a_user_has_the_login_of_the_amqp_url(asked: Asked) -> None:
    own, shared = (
        asked("--url", URL, "--management-url", url).management("it")
        for url in ("http://ann:s%40crt@host:15672/api2", "http://host:15672/api2")
    )
    assert shared.masked_url == "http://ann:***@host:15672"
    assert shared._url.authorization() == own._url.authorization()
    assert "s@crt" not in repr(shared)


def test_a_broker_has_all_that_the_options_tell(asked: Asked) -> None:
    via = ("--ring-via", "docker exec r")
    broker = asked("--url", URL, "--vhost", "v", "--management-url", "http://host:15672", *via).broker()
    assert repr(broker) == (
        "Broker('amqp://ann:***@host:5673/v', management_url='http://ann:***@host:15672')"
    )
    assert repr(broker._ring_source) == repr(DiagnosticsRing("docker exec r"))
    assert repr(asked("--url", URL).broker()) == "Broker('amqp://ann:***@host:5673/shop')"


def test_a_vhost_of_the_environment_does_not_change_a_url_of_the_command_line(asked: Asked) -> None:
    assert asked("--url", URL, RABBIT_CHX_VHOST="v").settings.vhost == "shop"
    assert asked("--url", URL, "--vhost", "w", RABBIT_CHX_VHOST="v").settings.vhost == "w"
    assert asked(AMQP_URL=URL, RABBIT_CHX_VHOST="v").settings.vhost == "v"


def test_a_token_command_that_cannot_be_used_is_refused_without_the_command(asked: Asked) -> None:
    with pytest.raises(InputError, match=r"^RABBIT_CHX_TOKEN_COMMAND cannot be split into words") as caught:
        asked("--url", "amqp://h", RABBIT_CHX_TOKEN_COMMAND="echo 'hidden")  # noqa: S106  # a command
    assert "hidden" not in str(caught.value)
    with pytest.raises(
        InputError, match="has a password, and RABBIT_CHX_TOKEN_COMMAND is given: take the pass"
    ):
        asked("--url", URL, RABBIT_CHX_TOKEN_COMMAND="cat /token")  # noqa: S106  # a command


@pytest.mark.parametrize(
    "url",
    [
        "amqp://user:s3cr3t/vhost", "u:s3cr3t", "amqp://user:s3cr3t%40host", "amqp://u:s3cr3t?heartbeat=1", "http://u:s3cr3t",
        "amqp://u@h?password=a&s3cr3t", "amqps://u@h?key_password=s3cr3t", "ftp://u:s3cr3t@h",
    ],
)  # fmt: skip
def test_a_wrong_url_is_named_by_its_option_without_its_password(asked: Asked, url: str) -> None:
    for name, words in {
        "--url": ("--url", url),
        "--management-url": ("--url", "amqp://h", "--management-url", url),
    }.items():
        if (name, url) == ("--management-url", "http://u:s3cr3t"):
            continue  # host and port, until the port is used
        with pytest.raises(InputError, match=f"^{name} begins with ") as caught:
            asked(*words)
        assert "s3cr3t" not in str(caught.value)


def test_a_wrong_management_url_in_the_environment_is_an_error_of_what_uses_it(asked: Asked) -> None:
    broker = asked("--url", URL, "--vhost", "w", RABBIT_CHX_MANAGEMENT_URL="ftp://u:s3cr3t@h")
    for use in (lambda: broker.management("it"), broker.broker):
        with pytest.raises(InputError, match=r"^\$RABBIT_CHX_MANAGEMENT_URL begins with ") as caught:
            use()
        assert "s3cr3t" not in str(caught.value)


@pytest.mark.parametrize(
    ("listed", "hint"),
    [
        ([{"a": 1}], ""),
        ([{"name": "orders", "vhost": "shop"}], "; did you mean orders?"),
        (
            [{"name": "order", "vhost": "v 1"}, {"name": "", "vhost": "shop"}],
            "; vhost v 1 has one: --vhost 'v 1'",
        ),
        ([{"name": "", "vhost": "/"}], "; the user 'ann' sees no vhost 'shop'"),
    ],
)
def test_what_may_be_meant_by_an_exchange_that_does_not_exist(
    asked: Asked, monkeypatch: pytest.MonkeyPatch, listed: list[dict[str, object]], hint: str
) -> None:
    broker = asked("--url", URL, "--management-url", "http://h:1")
    monkeypatch.setattr(Management, "request", lambda *_, **__: listed)
    context = copy_context()
    context.run(_broker.set, broker)
    error = NotFoundError("there is no exchange 'order'", exchange="order")
    assert context.run(found_hint, error) == hint


TYPES = [{"name": "direct", "enabled": True}, {"name": "x-consistent-hash", "enabled": True}]
LISTED = [{"name": "amq.direct", "vhost": "/", "type": "direct"}]
ORDERS = {"name": "orders", "vhost": "it's", "type": "x-consistent-hash"}


NONE = "no exchange of type x-consistent-hash or x-modulus-hash:"


@pytest.mark.parametrize(
    ("vhosts", "types", "exchanges", "why"),
    [
        ([], TYPES, [], "the user 'ops' may access no vhost: grant it permissions with rabbitmqctl set_permissions"),
        (["/"], TYPES[:1], LISTED, (
            "the broker does not have the exchange type x-consistent-hash: enable its plugin with "
            "rabbitmq-plugins enable rabbitmq_consistent_hash_exchange"
        )),
        (["/"], TYPES, LISTED, f"vhost / has {NONE} declare one"),
        (["/", "b"], TYPES, LISTED, f"the 2 vhosts of the user have {NONE} declare one"),
        (["/"], TYPES, [*LISTED, ORDERS], f"""vhost / has {NONE} pass the vhost "it's", which has one"""),
        (["/"], [], LISTED, f"vhost / has {NONE} declare one"),
    ],
    ids=["permission", "plugin", "vhost", "vhosts", "another-vhost", "types-not-listed"],
)  # fmt: skip
def test_without_an_exchange_that_hashes_the_reason_is_named(
    vhosts: list[str], types: list[dict[str, Any]], exchanges: list[dict[str, Any]], why: str
) -> None:
    assert why_nothing_hashes("ops", vhosts, types, exchanges) == why
