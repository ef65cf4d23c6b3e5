"""The URL of the management API: what it says, and that nothing in it is passed over."""

from __future__ import annotations

import pytest

from rabbit_chx.amqp import ConnectionSettings, Secret, TlsSettings
from rabbit_chx.amqp.settings import ManagementUrl
from rabbit_chx.errors import InputError


@pytest.mark.parametrize(
    ("text", "url", "masked"),
    [
        ("http://h", ManagementUrl("h", None), "http://guest:***@h"),
        ("http://a%2Fb@h", ManagementUrl("h", None, "", "a/b"), "http://a%2Fb:***@h"),
        ("http://h:15672/", ManagementUrl("h", 15672), "http://guest:***@h:15672"),
        ("HTTP://[::1]:1", ManagementUrl("::1", 1), "http://guest:***@[::1]:1"),
        (
            "http://u%40:p%2F@h:1/a/b/",
            ManagementUrl("h", 1, "/a/b", "u@", Secret("p/")),
            "http://u%40:***@h:1",
        ),
        ("https://h", ManagementUrl("h", None, tls=TlsSettings()), "https://guest:***@h"),
        (
            "https://u@h?cacertfile=/a%20b&certfile=c&keyfile=k&password=p%26&verify=verify_peer",
            ManagementUrl("h", None, "", "u", tls=TlsSettings("/a b", "c", "k", Secret("p&"))),
            "https://u:***@h",
        ),
        (
            "https://h/p?verify=verify_none&server_name_indication=other",
            ManagementUrl("h", None, "/p", tls=TlsSettings(verify=False, server_name="other")),
            "https://guest:***@h",
        ),
    ],
)
def test_a_url_becomes_settings_and_shows_no_password(text: str, url: ManagementUrl, masked: str) -> None:
    assert ManagementUrl.of(text) == url
    assert url.masked == masked
    assert "p%26" not in repr(url)
    assert "p&" not in repr(url)


# The parser is that of AMQP URIs, so test_settings_uri.py has the other rules.
@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("amqp://h", "it must begin with http:// or https://"),
        ("http://", "it names no host"),
        ("https://h?cacertfiel=/ca", "unknown parameter 'cacertfiel': did you mean cacertfile"),
        ("https://h?heartbeat=5", "unknown parameter 'heartbeat': known are cacertfile"),
        ("https://h?password=hush&er", "an '&' inside that password is written %26"),
        ("http://h?cacertfile=/ca", "cacertfile is for TLS: write https:// instead of http://"),
        ("http://h?x=1", "unknown parameter 'x'"),
        ("http://u:1/hush@h", "an '@' too many"),
        ("http://u:hush%ff@h", "password is not UTF-8"),
        ("https://h?u:hush=1", "^management URL: unknown parameter: known are"),
        ("https://u:hush@h?certfile=%ff", "value of certfile is not UTF-8"),
    ],
)
def test_what_cannot_be_followed_is_refused(text: str, says: str) -> None:
    with pytest.raises(InputError, match=says) as caught:
        ManagementUrl.of(text)
    assert "hush" not in str(caught.value)
    assert caught.value.__context__ is None


def test_the_login_of_amqp_is_taken_where_there_is_none() -> None:
    settings = ConnectionSettings.from_uri("amqp://u:p@h")
    bare = ManagementUrl.of("https://h?cacertfile=/home/me%40work/ca.pem").with_login_of(settings)
    assert (bare.username, bare.password) == ("u", Secret("p"))
    assert ManagementUrl.of("http://v:q@h").with_login_of(settings).username == "v"
    assert ManagementUrl.of("http://v@h").with_login_of(settings).password is None
