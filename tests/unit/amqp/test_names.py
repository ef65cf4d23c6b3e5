"""Names and short texts of at most 255 bytes."""

from __future__ import annotations

from typing import Any

import pytest

from rabbit_chx.amqp.names import bytes_of, check_name, short_string
from rabbit_chx.errors import InputError


@pytest.mark.parametrize(
    ("text", "data"), [("", b""), ("é", b"\xc3\xa9"), (b"\xff", b"\xff"), ("k" * 255, b"k" * 255)]
)
def test_text_is_its_utf_8(text: str | bytes, data: bytes) -> None:
    assert bytes_of(text, "the key") == short_string(text, "the key") == data


@pytest.mark.parametrize("text", ["é" * 128, b"k" * 256])
def test_256_bytes_are_too_long(text: str | bytes) -> None:
    with pytest.raises(
        InputError, match=r"^the key .*\.\.\. has 256 bytes: AMQP carries at most 255$"
    ) as error:
        short_string(text, "the key", exchange="x")
    assert error.value.exchange == "x"
    assert len(bytes_of(text, "the key")) == 256


@pytest.mark.parametrize(
    ("text", "words"), [(5, "give str or bytes"), ("\ud800", "half of a surrogate pair")]
)
def test_a_value_without_bytes_is_refused(text: Any, words: str) -> None:
    for check in (bytes_of, short_string):
        with pytest.raises(InputError, match=words):
            check(text, "the key")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("", "'' names no queue"),
        (None, "None names no queue"),
        (b"q", "b'q' names no queue"),
        ("q" * 256, "the queue name 'q{40}'... has 256 bytes: AMQP carries at most 255"),
        ("\ud800", "the queue name .* holds half of a surrogate pair"),
    ],
)
def test_an_empty_name_is_refused(name: Any, words: str) -> None:
    check_name("é" * 127, "queue")
    with pytest.raises(InputError, match=words):
        check_name(name, "queue")
