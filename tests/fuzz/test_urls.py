"""AMQP URIs and URLs of the management API, mutated: a value that can be written again, or an error without the password."""

from __future__ import annotations

import random
import re
from urllib.parse import quote

import pytest
from fuzzing import Mutator, inputs, shares, told
from hypothesis import given
from hypothesis import strategies as st

from rabbit_chx.amqp import ConnectionSettings, Secret
from rabbit_chx.amqp.settings import ManagementUrl, parse_stream_uri
from rabbit_chx.errors import InputError

CODED = "hush%40hush"
HUSH = "hush"
AMQP = (
    f"amqp://user:{CODED}@host:5672/%2F",
    f"amqps://us%65r:{CODED}@[::1]:5671/vhost?heartbeat=30&connection_timeout=5000",
    f"amqps://:{CODED}@host?cacertfile=/ca.pem&certfile=/me.pem&keyfile=/me.key&password=of-the-key&verify=verify_peer",
    "amqp://guest:guest@localhost",
    "amqps://h/v?server_name_indication=disable&auth_mechanism=external&auth_mechanism=plain&frame_max=0&channel_max=7",
)
STREAMS = (
    f"rabbitmq-stream://user:{CODED}@host:5552/%2F",
    f"rabbitmq-stream+tls://us%65r:{CODED}@[::1]:5551/vhost?heartbeat=30&cacertfile=/ca.pem&verify=verify_peer",
    f"amqps://:{CODED}@host?certfile=/me.pem&keyfile=/me.key&password=of-the-key",
)
HTTP = (
    f"http://user:{CODED}@host:15672",
    f"https://user:{CODED}@[fe80::1]:15671/prefix/?cacertfile=/ca.pem&server_name_indication=broker",
    "https://host?certfile=/me.pem&password=of-the-key&verify=verify_none",
)
TOKENS = (
    *":/@?#[]%&=,; \t\0\n\\'\"+é\ud800\u2028İ",
    *(
        "%2F",
        "%00",
        "%ff",
        "%C3%A9",
        "//",
        "://",
        "amqp",
        "amqps",
        "http",
        "https",
        "::1",
        "[::1%25eth0]",
        "65536",
        "0",
    ),
    *(
        "verify=verify_none",
        "verfy=",
        "heartbeat=",
        "=",
        "&&",
        "password=",
        "depth=1",
        "-1",
        "9" * 5_000,
        "hush",
    ),
)


def any_letter(chance: random.Random) -> str:
    return chr(chance.choice((chance.randrange(128), chance.randrange(0x3000))))


@shares()
def test_an_amqp_uri(share: range) -> None:
    mutator = Mutator(AMQP, TOKENS, any_letter)
    for chance in inputs(share):
        text = mutator.mutated(chance)
        with told(text):
            try:
                settings = ConnectionSettings.from_uri(text)
            except InputError as error:
                check_error(error, text)
            else:
                assert ConnectionSettings.from_uri(written(settings)) == settings
                assert ConnectionSettings.from_uri(settings.masked_url).host == settings.host
                assert not password_is_where_it_was(text) or HUSH not in repr(settings) + settings.masked_url


@shares()
def test_a_stream_uri(share: range) -> None:
    mutator = Mutator(STREAMS, [*TOKENS, "rabbitmq-stream", "+tls"], any_letter)
    for chance in inputs(share):
        text = mutator.mutated(chance)
        with told(text):
            try:
                settings = parse_stream_uri(text)
            except InputError as error:
                check_error(error, text)
            else:
                assert parse_stream_uri(settings.masked_url).host == settings.host
                assert not password_is_where_it_was(text) or HUSH not in repr(settings) + settings.masked_url


@shares()
def test_a_url_of_the_management_api(share: range) -> None:
    mutator = Mutator(HTTP, TOKENS, any_letter)
    for chance in inputs(share):
        text = mutator.mutated(chance)
        with told(text):
            try:
                url = ManagementUrl.of(text)
            except InputError as error:
                check_error(error, text)
            else:
                assert ManagementUrl.of(url.masked).host == url.host
                assert not password_is_where_it_was(text) or HUSH not in repr(url) + url.masked


def check_error(error: InputError, text: str) -> None:
    assert "\n" not in str(error)
    assert error.__context__ is None
    assert not password_is_where_it_was(text) or HUSH not in str(error)


def password_is_where_it_was(text: str) -> bool:
    """Whether no change has put a part of it elsewhere, where it is shown."""
    return text.count(HUSH) == 2 and re.match(rf"[\w+-]+://[^/?#@]*:{CODED}@", text) is not None


def written(settings: ConnectionSettings) -> str:
    """The settings as a URI, by the specification and not by our own code."""
    host = f"[{quote(settings.host, safe=':')}]" if ":" in settings.host else quote(settings.host, safe="")
    login = f"{quote(settings.username, safe='')}:{quote(settings.password.reveal(), safe='')}"
    given: list[tuple[str, object]] = [
        *(("auth_mechanism", name.lower()) for name in settings.auth_mechanisms),
        ("connection_timeout", round(settings.connection_timeout_s * 1000)),
        ("heartbeat", settings.heartbeat_s),
        ("channel_max", settings.channel_max),
        ("frame_max", settings.frame_max),
    ]
    if settings.tls:
        tls = settings.tls
        given += [
            ("cacertfile", tls.ca_file),
            ("certfile", tls.cert_file),
            ("keyfile", tls.key_file),
            ("password", tls.key_password and tls.key_password.reveal()),
            ("verify", "verify_peer" if tls.verify else "verify_none"),
            ("server_name_indication", tls.server_name if tls.check_server_name else "disable"),
        ]
    query = "&".join(f"{name}={quote(str(value), safe='')}" for name, value in given if value is not None)
    scheme = "amqps" if settings.tls else "amqp"
    return f"{scheme}://{login}@{host}:{settings.port}/{quote(settings.vhost, safe='')}?{query}"


TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=40)


@given(TEXT, TEXT, st.text(max_size=60).filter(lambda name: len(name.encode("utf-8", "ignore")) < 250))
def test_any_login_and_vhost_can_be_written(user: str, password: str, vhost: str) -> None:
    vhost = vhost.encode("utf-8", "ignore").decode() or "/"
    settings = ConnectionSettings(username=user, password=Secret(password), vhost=vhost)
    assert ConnectionSettings.from_uri(written(settings)) == settings


@pytest.mark.parametrize("text", [None, 5, b"amqp://h", ["amqp://h"]])
def test_a_value_that_is_not_text(text: object) -> None:
    with pytest.raises(InputError):
        ConnectionSettings.from_uri(text)  # type: ignore[arg-type]
    with pytest.raises(InputError):
        ManagementUrl.of(text)  # type: ignore[arg-type]
