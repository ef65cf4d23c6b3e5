"""Secrets and settings as values."""

from __future__ import annotations

import base64
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
OUT_OF_RANGE = [
    *(("port", 0), ("heartbeat_s", -1), ("channel_max", 65536), ("frame_max", 8191)),
    *(("connection_timeout_s", seconds) for seconds in (0.0, float("nan"), float("inf"))),
]


def test_a_secret_reveals_compares_and_travels_and_is_masked_however_it_is_formatted() -> None:
    secret = Secret("c4nary")
    assert secret.reveal() == "c4nary"
    assert secret == Secret("c4nary")
    assert secret != Secret("other")
    assert len({secret, Secret("c4nary")}) == 1
    assert pickle.loads(pickle.dumps(secret)) == secret  # noqa: S301
    assert copy.deepcopy(secret) == secret
    assert f"{secret} {secret!r} {secret!s} {secret:>5}" == "*** Secret('***') ***   ***"
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
        *(({name: value}, f"{name} is {value}") for name, value in OUT_OF_RANGE),
        ({"vhost": "é" * 128}, "the vhost has 256 bytes: AMQP carries at most 255"),
        *((values, "NUL") for values in ({"username": "a\0b"}, {"password": Secret("c4nary\0")})),
        *(({"auth_mechanisms": names}, "PLAIN, EXTERNAL or both") for names in ((), ("AMQPLAIN",))),
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
    assert bare.authorization().reveal() == f"Basic {base64.b64encode(b'u:p').decode()}"
    assert "c4nary" not in repr(ManagementUrl.of("https://v:c4nary@h?certfile=c&keyfile=k&password=c4nary"))
