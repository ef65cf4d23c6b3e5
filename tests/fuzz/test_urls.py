"""AMQP URIs and URLs of the management API, mutated: a value that can be written again, or an error without the password."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

import pytest
from fuzzing import Mutator, any_letter, inputs, shares, told

from rabbit_chx.amqp import ConnectionSettings
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
    *("%2F", "%00", "%ff", "%C3%A9", "//", "://", "amqp", "amqps", "http", "https", "::1", "[::1%25eth0]"),
    *("65536", "0"),
    *("verify=verify_none", "verfy=", "heartbeat=", "=", "&&", "password=", "depth=1", "-1", "hush"),
    "9" * 5_000,
)
KINDS: dict[str, tuple[Callable[[str], Any], Mutator[str]]] = {
    "AMQP": (ConnectionSettings.from_uri, Mutator(AMQP, TOKENS, any_letter)),
    "stream": (parse_stream_uri, Mutator(STREAMS, [*TOKENS, "rabbitmq-stream", "+tls"], any_letter)),
    "management": (ManagementUrl.of, Mutator(HTTP, TOKENS, any_letter)),
}


@pytest.mark.parametrize("kind", KINDS)
@shares()
def test_a_url_is_read_or_refused_without_its_password(share: range, kind: str) -> None:
    parse, mutator = KINDS[kind]
    for chance in inputs(share):
        text = mutator.mutated(chance)
        with told(text):
            try:
                url = parse(text)
            except InputError as error:
                check_error(error, text)
                continue
            masked = url.masked if kind == "management" else url.masked_url
            assert parse(masked).host == url.host
            assert not password_is_where_it_was(text) or HUSH not in repr(url) + masked
            if kind == "AMQP":
                assert parse(written(url)) == url


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
