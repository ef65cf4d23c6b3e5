"""Secrets and settings as values."""

from __future__ import annotations

import copy
import pickle
from dataclasses import FrozenInstanceError, replace
from typing import Any

import pytest

from rabbit_chx.amqp import ConnectionSettings, Secret, TlsSettings
from rabbit_chx.amqp.settings import ManagementUrl
from rabbit_chx.errors import InputError

SETTINGS = ConnectionSettings(
    host="::1",
    port=5671,
    vhost="a/b",
    username="us er",
    password=Secret("c4nary"),
    tls=TlsSettings(cert_file="c.pem", key_file="k.pem", key_password=Secret("c4nary-too")),
    auth_mechanisms=("EXTERNAL", "PLAIN"),
    connection_name="nightly load",
)


@pytest.mark.parametrize("text", ["{0}", "{0!r}", "{0!s}", "{0:>10}"])
def test_a_secret_is_masked_however_it_is_formatted(text: str) -> None:
    assert text.format(Secret("c4nary")).strip() in {"***", "Secret('***')"}


def test_a_secret_reveals_compares_and_travels() -> None:
    secret = Secret("c4nary")

    assert secret.reveal() == "c4nary"
    assert secret == Secret("c4nary")
    assert secret != Secret("other")
    assert len({secret, Secret("c4nary")}) == 1
    assert pickle.loads(pickle.dumps(secret)) == secret  # noqa: S301
    assert copy.deepcopy(secret) == secret


def test_a_secret_of_something_else_does_not_show_it() -> None:
    with pytest.raises(InputError, match="not bytes") as caught:
        Secret(b"c4nary")  # type: ignore[arg-type]

    assert "c4nary" not in str(caught.value)


def test_settings_show_no_password() -> None:
    assert "c4nary" not in f"{SETTINGS!r} {SETTINGS}"
    assert SETTINGS.masked_url == "amqps://us%20er:***@[::1]:5671/a%2Fb"
    streams = replace(SETTINGS, protocol="stream")
    assert streams.masked_url == "rabbitmq-stream+tls://us%20er:***@[::1]:5671/a%2Fb"
    assert replace(streams, tls=None).masked_url == "rabbitmq-stream://us%20er:***@[::1]:5671/a%2Fb"


def test_settings_are_values() -> None:
    with pytest.raises(FrozenInstanceError):
        SETTINGS.port = 1  # type: ignore[misc]
    assert replace(SETTINGS, port=1).port == 1
    assert pickle.loads(pickle.dumps(SETTINGS)) == SETTINGS  # noqa: S301


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"password": "c4nary"}, "password must be a Secret"),
        ({"host": ""}, "host is empty"),
        ({"port": 0}, "port is 0"),
        ({"heartbeat_s": -1}, "heartbeat_s is -1"),
        ({"channel_max": 65536}, "channel_max is 65536"),
        ({"frame_max": 4095}, "frame_max is 4095"),
        ({"connection_timeout_s": 0.0}, "connection_timeout_s is 0.0"),
        ({"connection_timeout_s": float("nan")}, "connection_timeout_s is nan"),
        ({"connection_timeout_s": float("inf")}, "connection_timeout_s is inf"),
        ({"vhost": "é" * 128}, "the vhost has 256 bytes: AMQP carries at most 255"),
        ({"username": "a\0b"}, "NUL"),
        ({"password": Secret("c4nary\0")}, "NUL"),
        ({"auth_mechanisms": ()}, "PLAIN, EXTERNAL or both"),
        ({"auth_mechanisms": ("AMQPLAIN",)}, "PLAIN, EXTERNAL or both"),
        ({"key_password": "c4nary"}, "key_password must be a Secret"),
        ({"key_file": "k.pem"}, "certfile"),
    ],
)
def test_settings_out_of_range_are_refused_without_their_password(values: dict[str, Any], words: str) -> None:
    kind: Any = TlsSettings if min(values).startswith("key") else ConnectionSettings
    with pytest.raises(InputError, match=words) as caught:
        kind(**values)

    assert "c4nary" not in str(caught.value)


def test_the_login_of_amqp_is_taken_where_a_management_url_has_none() -> None:
    settings = ConnectionSettings.from_uri("amqp://u:p@h")
    bare = ManagementUrl.of("https://h?cacertfile=/home/me%40work/ca.pem").with_login_of(settings)
    assert (bare.username, bare.password) == ("u", Secret("p"))
    assert ManagementUrl.of("http://v:c4nary@h").with_login_of(settings).username == "v"
    assert ManagementUrl.of("http://v@h").with_login_of(settings).password is None
    assert "c4nary" not in repr(ManagementUrl.of("https://v:c4nary@h?certfile=c&keyfile=k&password=c4nary"))
