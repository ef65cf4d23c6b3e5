"""URLs as settings, their errors, and no password in them."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest
from stored_cases import cases_of_sections

from rabbit_chx.amqp import ConnectionSettings, Secret
from rabbit_chx.amqp.settings import ManagementUrl, parse_stream_uri
from rabbit_chx.errors import InputError, UriError

parse = ConnectionSettings.from_uri
PARSERS: dict[str, Any] = {
    "AMQP": parse,
    "streams": parse_stream_uri,
    "management API": ManagementUrl.of,
}
CANARIES = "c4nary", "hush"


def fields_of(value: Any) -> dict[str, Any]:
    """The fields that are not as by default, with passwords in clear."""
    given_ = {field.name: (getattr(value, field.name), field.default) for field in dataclasses.fields(value)}
    return {
        name: found.reveal() if isinstance(found, Secret) else fields_of(found) if name == "tls" else found
        for name, (found, default) in given_.items()
        if found not in (None, default)
    }


@pytest.mark.parametrize(("kind", "text", "said"), cases_of_sections(__file__, "urls.txt", r"^(.+)\n-> (.*)"))
def test_what_is_stored_is_said_of_a_url(kind: str, text: str, said: str) -> None:
    """The masked form of a URL and its fields, or its error without the password."""
    try:
        url = PARSERS[kind](text)
    except InputError as error:
        assert_no_canary(error)
        result = f"{type(error).__name__}: {error}"
    else:
        masked = url.masked if kind == "management API" else url.masked_url
        result = f"{masked} {json.dumps(fields_of(url), ensure_ascii=False)}"
    assert result == said


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "must begin with amqp:// or amqps://"),
        ("amqp://host\n", "white space"),
        ("amqp://host:" + "9" * 5000, "1 to 65535"),
        ("amqp://host/" + "v" * 256, "the vhost has 256 bytes: AMQP carries at most 255"),
        *((wrong, "not (bytes|NoneType|int|list)") for wrong in (None, 5, b"amqp://h", ["amqp://h"])),
    ],
)
def test_what_is_no_line_of_text_or_too_long_is_refused(text: Any, words: str) -> None:
    with pytest.raises(UriError, match=words) as caught:
        parse(text)
    assert "\n" not in str(caught.value)
    with pytest.raises(InputError):
        ManagementUrl.of(text)


def assert_no_canary(error: BaseException | None) -> None:
    while error is not None:
        shown = f"{error!s} {error!r} {error.args!r}"
        assert [canary for canary in CANARIES if canary in shown] == []
        error = error.__cause__ or error.__context__
