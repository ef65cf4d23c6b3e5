"""The URI table, its errors, and no password in them."""

from __future__ import annotations

import string
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rabbit_chx.amqp import ConnectionSettings, Secret, TlsSettings
from rabbit_chx.amqp.settings import ManagementUrl, parse_stream_uri
from rabbit_chx.errors import InputError, UriError

parse = ConnectionSettings.from_uri


# Appendix A of RabbitMQ's URI specification, with our defaults where it has empty cells.
@pytest.mark.parametrize(
    ("text", "username", "password", "host", "port", "vhost"),
    [
        ("amqp://user:pass@host:10000/vhost", "user", "pass", "host", 10000, "vhost"),
        ("amqp://user%61:%61pass@ho%61st:10000/v%2fhost", "usera", "apass", "hoast", 10000, "v/host"),
        ("amqp://", "guest", "guest", "localhost", 5672, "/"),
        ("amqp://:@/", "", "", "localhost", 5672, "/"),
        ("amqp://user@", "user", "guest", "localhost", 5672, "/"),
        ("amqp://user:pass@", "user", "pass", "localhost", 5672, "/"),
        ("amqp://host", "guest", "guest", "host", 5672, "/"),
        ("amqp://:10000", "guest", "guest", "localhost", 10000, "/"),
        ("amqp:///vhost", "guest", "guest", "localhost", 5672, "vhost"),
        ("amqp://host/", "guest", "guest", "host", 5672, "/"),
        ("amqp://host/%2f", "guest", "guest", "host", 5672, "/"),
        ("amqp://[::1]", "guest", "guest", "::1", 5672, "/"),
        # and beyond it
        ("amqps://host", "guest", "guest", "host", 5671, "/"),
        ("AMQP://host", "guest", "guest", "host", 5672, "/"),
        ("amqp://host:/v", "guest", "guest", "host", 5672, "v"),
        ("amqp://[fe80::1%25eth0]:5673/v", "guest", "guest", "fe80::1%eth0", 5673, "v"),
        ("amqp://u:a:b@h", "u", "a:b", "h", 5672, "/"),
        ("amqp://u:a+b%2Bc@h/a+b", "u", "a+b+c", "h", 5672, "a+b"),
        ("amqp://%C3%A9:%E2%98%83@h/%C3%A9", "é", "☃", "h", 5672, "é"),
        ("amqp://u:%40%2F%3F%23%25%3A@h", "u", "@/?#%:", "h", 5672, "/"),
        ("amqp://host?", "guest", "guest", "host", 5672, "/"),
    ],
)
def test_a_uri_becomes_settings(
    *, text: str, username: str, password: str, host: str, port: int, vhost: str
) -> None:
    settings = parse(text)

    found = (settings.username, settings.password.reveal(), settings.host, settings.port, settings.vhost)
    assert found == (username, password, host, port, vhost)


@pytest.mark.parametrize(
    ("text", "tls", "host", "port", "vhost"),
    [
        ("rabbitmq-stream://", False, "localhost", 5552, "/"),
        ("rabbitmq-stream://host:5553/v%2Fw", False, "host", 5553, "v/w"),
        ("RabbitMQ-Stream+TLS://host", True, "host", 5551, "/"),
        ("rabbitmq-stream+tls://[::1]:5550/v", True, "::1", 5550, "v"),
        ("amqp://host:5672/v", False, "host", 5552, "v"),
        ("amqps://host:5671", True, "host", 5551, "/"),
    ],
)
def test_a_uri_of_streams_becomes_settings(*, text: str, tls: bool, host: str, port: int, vhost: str) -> None:
    settings = parse_stream_uri(text)

    found = (settings.protocol, settings.tls is not None, settings.host, settings.port, settings.vhost)
    assert found == ("stream", tls, host, port, vhost)


def test_stream_uris_have_the_parameters_of_amqp() -> None:
    settings = parse_stream_uri(
        "rabbitmq-stream+tls://u:p@h?heartbeat=5&cacertfile=ca.pem&auth_mechanism=external"
    )

    assert settings == ConnectionSettings(
        host="h",
        port=5551,
        username="u",
        password=Secret("p"),
        heartbeat_s=5,
        tls=TlsSettings(ca_file="ca.pem"),
        auth_mechanisms=("EXTERNAL",),
        protocol="stream",
    )


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("http://h", "must begin with rabbitmq-stream:// or rabbitmq-stream\\+tls:// or amqp:// or amqps://"),
        ("rabbitmq-stream://u:c4nary@h/a/b", "%2F"),
        ("rabbitmq-stream://h?cacertfile=x", r"write rabbitmq-stream\+tls:// instead of rabbitmq-stream://"),
        ("amqp://h?cacertfile=x", "write amqps:// instead of amqp://"),
        ("rabbitmq-stream+tls://h?keyfile=x", "keyfile without certfile"),
    ],
)
def test_stream_uris_that_cannot_be_followed(text: str, words: str) -> None:
    with pytest.raises(UriError, match=f"^stream URI: .*{words}") as caught:
        parse_stream_uri(text)

    assert "c4nary" not in str(caught.value)


def test_who_speaks_amqp_takes_no_stream_uri() -> None:
    with pytest.raises(UriError, match="must begin with amqp:// or amqps://"):
        parse("rabbitmq-stream://host")


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        (
            "heartbeat=5&connection_timeout=10000",
            ConnectionSettings(heartbeat_s=5, connection_timeout_s=10.0),
        ),
        ("connection_timeout=1", ConnectionSettings(connection_timeout_s=0.001)),
        ("heartbeat=0", ConnectionSettings(heartbeat_s=0)),
        ("heartbeat=65535", ConnectionSettings(heartbeat_s=65535)),
        ("connection_timeout=86400000", ConnectionSettings(connection_timeout_s=86_400.0)),
        ("channel_max=7&frame_max=8192", ConnectionSettings(channel_max=7, frame_max=8192)),
        ("channel_max=0&frame_max=0", ConnectionSettings()),
        ("auth_mechanism=plain", ConnectionSettings()),
        ("auth_mechanism=plain&auth_mechanism=amqplain", ConnectionSettings()),
        ("auth_mechanism=EXTERNAL", ConnectionSettings(auth_mechanisms=("EXTERNAL",))),
        (
            "auth_mechanism=external&auth_mechanism=plain&auth_mechanism=external",
            ConnectionSettings(auth_mechanisms=("EXTERNAL", "PLAIN")),
        ),
        ("&heartbeat=%35&", ConnectionSettings(heartbeat_s=5)),
    ],
)
def test_parameters_of_a_uri_become_settings(query: str, expected: ConnectionSettings) -> None:
    assert parse(f"amqp://?{query}") == expected


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("", TlsSettings(verify=True)),
        ("cacertfile=/etc/my%20ca.pem", TlsSettings(ca_file="/etc/my ca.pem")),
        (
            "certfile=c.pem&keyfile=k.pem&password=s%26p",
            TlsSettings(cert_file="c.pem", key_file="k.pem", key_password=Secret("s&p")),
        ),
        ("verify=verify_peer&server_name_indication=mq.example", TlsSettings(server_name="mq.example")),
        ("verify=verify_none", TlsSettings(verify=False)),
        ("server_name_indication=disable", TlsSettings(check_server_name=False)),
        ("fail_if_no_peer_cert=true&customize_hostname_check=https", TlsSettings()),
    ],
)
def test_tls_parameters_of_a_uri_become_tls_settings(query: str, expected: TlsSettings) -> None:
    assert parse(f"amqps://?{query}").tls == expected


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "must begin with amqp:// or amqps://"),
        ("http://host", "must begin with"),
        ("amqp:host", "must begin with"),
        ("amqp://host/a/b", "%2F"),
        ("amqp://host\n", "white space"),
        ("amqp://host/a#b", "'#'"),
        ("amqp://host/a@b", "%40"),
        ("amqp://a@b@c", "%40"),
        ("amqp://host:0", "1 to 65535"),
        ("amqp://host:" + "9" * 5000, "1 to 65535"),
        ("amqp://host:port", "host:port"),
        ("amqp://::1", "brackets"),
        ("amqp://[nonsense]", "IPv6"),
        ("amqp://ho%00st", "host name"),
        ("amqp://u:%00@h", "NUL"),
        ("amqp://host/%zz", "hexadecimal"),
        ("amqp://host/%ff", "vhost is not UTF-8"),
        ("amqp://host/" + "v" * 256, "the vhost has 256 bytes: AMQP carries at most 255"),
        ("amqp://?heartbaet=5", "did you mean heartbeat?"),
        ("amqps://?cafile=x", "did you mean cacertfile?"),
        ("amqp://?qqq=5", "known are auth_mechanism"),
        ("amqp://?heartbeat=5&heartbeat=6", "heartbeat is given twice"),
        ("amqp://?heartbeat", "heartbeat has no value"),
        ("amqp://?heartbeat=5s", "heartbeat='5s'"),
        ("amqp://?heartbeat=65536", "0 to 65535"),
        ("amqp://?heartbeat=-1", "heartbeat='-1'"),
        ("amqp://?heartbeat=%D9%A5", "whole number"),
        ("amqp://?connection_timeout=0", "milliseconds"),
        ("amqp://?frame_max=100", "4096"),
        ("amqp://?auth_mechanism=amqplain", "plain logs in with the same password"),
        ("amqp://?auth_mechanism=kerberos", "plain and external are supported"),
        ("amqp://?cacertfile=x", "amqps://"),
        ("amqps://?verify=none", "verify_peer or verify_none"),
        ("amqps://?keyfile=k", "certfile"),
        ("amqps://?depth=3", "depth is not supported"),
        ("amqps://?fail_if_no_peer_cert=1", "true or false"),
    ],
)
def test_what_cannot_be_followed(text: str, words: str) -> None:
    with pytest.raises(UriError) as caught:
        parse(text)

    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_uri_that_is_not_text() -> None:
    wrong: Any
    for wrong in (None, 5, b"amqp://h", ["amqp://h"]):
        with pytest.raises(UriError, match=r"not (bytes|NoneType|int|list)"):
            parse(wrong)
        with pytest.raises(InputError):
            ManagementUrl.of(wrong)


CANARY = "c4nary"


@pytest.mark.parametrize(
    "text",
    [
        "amqp://user:c4nary/c4nary@host/vhost",
        "amqp://user:c4nary%ff@host/vhost",
        "amqp://user:c4nary@host:c4nary/vhost",
        "amqp://user:1/c4nary@host",
        "amqp://user:1?c4nary=@host",
        "ampq://user:c4nary@host",
        "user:c4nary@host",
        "amqp://user:c4nary@host?heartbeat=x",
        "amqp://user:c4nary@host?cacertfile=x",
        "amqps://h?password=c4nary&c4nary=1&certfile=x",
        "amqps://h?password=c4nary&password=c4nary",
        "amqps://h?password=c4nary%ff",
        "amqps://h?password=c4nary&keyfile=k",
    ],
)
def test_errors_never_show_a_password(text: str) -> None:
    with pytest.raises(UriError) as caught:
        parse(text)

    assert_no_canary(caught.value)


def assert_no_canary(error: BaseException | None) -> None:
    while error is not None:
        assert CANARY not in f"{error!s} {error!r} {error.args!r}"
        error = error.__cause__ or error.__context__


TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=40)


@given(username=TEXT, password=TEXT, vhost=TEXT.filter(bool), port=st.integers(1, 65535))
def test_percent_encoded_parts_are_read_back(username: str, password: str, vhost: str, port: int) -> None:
    def encoded(text: str) -> str:
        return quote(text, safe="")

    settings = parse(f"amqp://{encoded(username)}:{encoded(password)}@host:{port}/{encoded(vhost)}")

    found = (settings.username, settings.password.reveal(), settings.port, settings.vhost)
    assert found == (username, password, port, vhost)
    assert parse(settings.masked_url.replace("***", encoded(password))) == settings


NOISE = st.text(st.sampled_from(string.punctuation + "ab1é\n"), max_size=6)


@given(
    head=st.sampled_from(["amqp://", "amqps://", "amqp:/", ""]),
    user=NOISE,
    before=NOISE,
    after=NOISE,
    tail=st.sampled_from(["@host/v", "@host:5672", "@:1?heartbeat=1", "@h?x", "@h?password=1", "@"]),
    end=NOISE,
)
def test_any_invalid_text_is_a_uri_error_without_a_password(
    *, head: str, user: str, before: str, after: str, tail: str, end: str
) -> None:
    text = f"{head}{user}:{before}{CANARY}{after}{tail}{end}"
    try:
        settings = parse(text)
    except UriError as error:
        assert_no_canary(error)
    else:
        shown = f"{settings!r} {settings.masked_url}"
        assert CANARY not in shown
