"""The options of queues: what each text becomes, and what contradicts what."""

from __future__ import annotations

import pickle

import pytest
from blocks import page

from rabbit_chx.errors import InputError
from spark_connector.options.read_options import QUEUE_OPTIONS, QueueOptions

URL = "amqp://u:c4nary@h"


def parsed(**texts: str) -> QueueOptions:
    return QueueOptions.parse({"url": URL, **texts})


def test_what_is_not_given_has_a_default() -> None:
    options = parsed(queue="a")
    assert (options.queues, options.include, options.max_rows, options.max_bytes) == (
        ("a",),
        (),
        10_000,
        64 << 20,
    )


def test_texts_become_values() -> None:
    options = parsed(
        QUEUE="a, b", include="headers,exchange", maxRows="7", maxBytes="1k", includeHeaders="true"
    )
    assert (options.queues, options.max_rows, options.max_bytes) == (("a", "b"), 7, 1024)
    assert options.include == ("exchange", "headers")


def test_no_password_is_shown() -> None:
    options = parsed(exchange="x", managementUrl="http://me:c4nary-2@h:15672")
    assert "c4nary" not in repr(options)
    again = pickle.loads(pickle.dumps(options))  # noqa: S301
    assert again.brokers.resolve()[0].password.reveal() == "c4nary"


@pytest.mark.parametrize(
    ("texts", "words"),
    [
        ({}, "option 'queue' is missing: name the queue to drain, or pass exchange"),
        ({"queue": ""}, "option 'queue' is missing"),
        ({"queue": "a,,b"}, "'' names no queue"),
        ({"queue": "a,a"}, "option 'queue' names 'a' twice"),
        ({"queue": "a" * 256}, "256 bytes: AMQP carries at most 255"),
        ({"queue": "a", "exchange": "x"}, "options 'queue' and 'exchange' are both given"),
        ({"exchange": "x"}, "option 'exchange' needs the option 'managementUrl'"),
        ({"queue": "a", "managementUrl": "http://h"}, "option 'managementUrl' needs the option 'exchange'"),
        ({"queue": "a", "mode": "peek"}, "unknown option 'mode'"),
        ({"queue": "a", "maxRows": "0"}, "option 'maxRows' is '0'"),
        ({"queue": "a", "maxBytes": "2g"}, "option 'maxBytes' is 2,147,483,648: .* pass 1GiB at most"),
        ({"queue": "a", "include": "offset"}, "option 'include' is 'offset'"),
        ({"queue": "a", "startingOffsets": "earliest"}, "unknown option 'startingoffsets'"),
    ],
)
def test_what_cannot_be_used(texts: dict[str, str], words: str) -> None:
    with pytest.raises(InputError, match=words):
        parsed(**texts)


def test_every_option_has_a_line() -> None:
    for option in QUEUE_OPTIONS:
        assert f"- `{option.name}` (" in page("docs/spark-options.md")
