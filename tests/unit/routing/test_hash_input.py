"""What an x-consistent-hash exchange hashes, by its arguments."""

from __future__ import annotations

from typing import Any

import pytest
from hash_exchanges import NEW, by_header, ring

from rabbit_chx.amqp import AmqpField
from rabbit_chx.errors import InputError
from rabbit_chx.routing import ConsistentHashExchange


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"hash-header": "a", "hash-property": "message_id"}, "both given"),
        ({"hash-property": "app_id"}, "cannot hash the property 'app_id'"),
        ({"hash-property": ""}, "cannot hash the property ''"),
        ({"hash-header": b"a"}, "hash-header is a binary"),
        ({"hash-header": 5}, "hash-header is a signedint"),
        ({"hash-header": None}, "hash-header is a void"),
        ({"hash-property": AmqpField("binary", "message_id")}, "hash-property is a binary"),
        ({"hash-header": "a", "hash-property": None}, "hash-property is a void"),
        ({"hash-header": 1.5}, "cannot send 1.5"),
        ({"hash-header": "a", b"hash-header": "a"}, "hash-header is given twice"),
        ([("hash-header", "a"), ("hash-property", "timestamp")], "both given"),
        ({"hash_header": "a"}, "'hash_header' .*did you mean 'hash-header'"),
        ({"hashHeader": "a"}, "did you mean 'hash-header'"),
        ({"HASH-PROPERTY": "timestamp"}, "did you mean 'hash-property'"),
        ([(b"x-hash-header", "a")], "did you mean 'hash-header'"),
        ({"hash-headers": "a"}, "did you mean 'hash-header'"),
        ("hash-header", "no table"),
        (5, "no table"),
        (["hash-header"], "no pair of name and value"),
        ({5: "a"}, "the name of an argument is 5"),
    ],
)
def test_arguments_that_the_broker_refuses(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        ConsistentHashExchange("x", ring(1, NEW), arguments)


@pytest.mark.parametrize(
    "arguments",
    [
        {b"hash-header": "t"},
        [("hash-header", "t")],
        [("x-other", 5), (b"hash-header", "t"), ("header", 1), ("hash-on", 1)],
    ],
)
def test_arguments_are_pairs_and_their_names_text_or_bytes(arguments: Any) -> None:
    assert ConsistentHashExchange("x", ring(1, NEW), arguments).hashed_on == by_header(NEW).hashed_on


def test_other_arguments_do_not_matter() -> None:
    arguments = {"alternate-exchange": "ae", "x-anything": 1.5}
    assert str(ConsistentHashExchange("x", ring(1, NEW), arguments).hashed_on) == "routing-key"
    assert str(by_header(NEW).hashed_on) == "header 't'"
