"""Declared options, and what follows from them."""

from __future__ import annotations

import inspect
import math
import re
from dataclasses import MISSING
from typing import Any

import pytest
from frame_secrets import locals_with

from rabbit_chx import ConsumerGroup, Publisher, SharedPublisher, StreamGroup, StreamPublisher, StreamReader
from rabbit_chx.broker import Broker
from rabbit_chx.consuming import FailurePolicy, GroupReading
from rabbit_chx.consuming.settings import QueueGroupOptions, StreamGroupOptions
from rabbit_chx.errors import InputError, UnreachableError
from rabbit_chx.options import (
    BYTES,
    COUNT,
    POSITIVE_SECONDS,
    SECONDS,
    SHARE,
    ValueKind,
    one_of,
    options_of,
    takes,
    whole,
)
from rabbit_chx.publishing import Limits, Retries
from rabbit_chx.publishing.options import PublishOptions, SharedOptions
from rabbit_chx.streams import ReadLimits, WriteLimits
from rabbit_chx.streams.options import RangeOptions, ReaderOptions, WriterOptions
from rabbit_chx.streams.reader import RangeReader

CLASSES: list[tuple[Any, Any]] = [
    (Publisher, PublishOptions),
    (SharedPublisher, SharedOptions),
    (StreamReader, ReaderOptions),
    (RangeReader, RangeOptions),
    (StreamPublisher, WriterOptions),
    (ConsumerGroup, QueueGroupOptions),
    (StreamGroup, StreamGroupOptions),
]
VALUES: list[Any] = [Limits, Retries, ReadLimits, WriteLimits, FailurePolicy, GroupReading]
SECRET = "canary-4711"  # noqa: S105
STREAM_URL = f"rabbitmq-stream://user:{SECRET}@127.0.0.1:1"


@pytest.mark.parametrize("values", VALUES + [options for _, options in CLASSES])
def test_each_option_says_what_it_is(values: Any) -> None:
    for option in options_of(values).values():
        assert option.kind.label
        assert option.meaning == option.meaning.rstrip(".")
        assert option.default is not None or option.otherwise or "`None`" in option.type_text
        assert option.name.endswith("_s") == ("seconds" in option.kind.label), "units are in names"
        if option.default not in (MISSING, None):
            option.kind.check(option.name, option.default)


@pytest.mark.parametrize(
    ("documented", "section", "values"),
    [(one, "Args", options) for one, options in CLASSES] + [(one, "Attributes", one) for one in VALUES],
)
def test_arguments_and_docstring_are_those_of_the_declaration(
    documented: Any, section: str, values: Any
) -> None:
    declared = options_of(values)
    arguments = inspect.signature(documented).parameters
    assert list(arguments) == list(declared)
    for name, argument in arguments.items():
        default = inspect.Parameter.empty if declared[name].default is MISSING else declared[name].default
        assert argument.default is default
    text = (inspect.getdoc(documented) or "").split(f"\n{section}:\n")[1].split("\n\n")[0]
    assert re.findall(r"^    (\w+) \(", text, re.MULTILINE) == list(declared)
    assert "](" not in text, "a link of a page"


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (COUNT, "0", 0),
        (whole(1, 7), "8", 8),
        (BYTES, "0k", 0),
        (POSITIVE_SECONDS, "0ms", 0.0),
        (SECONDS, "9" * 400, math.inf),
        (SHARE, "-0.1", -0.1),
        (SHARE, "nan", math.nan),
        (one_of("a", "b"), "c", "c"),
    ],
)
def test_a_text_has_the_bounds_of_a_value(kind: ValueKind, text: str, value: object) -> None:
    with pytest.raises(InputError, match=f"^x is .*: pass {kind.remedy}$"):
        kind.check("x", value)
    with pytest.raises(ValueError, match=text):
        kind.value_of(text)


# -- options of values by their own names


@pytest.mark.parametrize(
    ("kind", "arguments", "value", "expected"),
    [
        (ReaderOptions, {"batch_rows": 7}, "limits", ReadLimits(batch_rows=7)),
        (
            WriterOptions,
            {"window": 7, "confirm_timeout_s": 5},
            "limits",
            WriteLimits(window=7, confirm_timeout_s=5),
        ),
        (
            QueueGroupOptions,
            {"retries": 0, "on_failure": "dead-letter"},
            "failures",
            FailurePolicy(0, 0.2, "dead-letter"),
        ),
        (StreamGroupOptions, {"start": "next"}, "reading", GroupReading("next")),
        (StreamGroupOptions, {"backoff_s": 0, "failures": FailurePolicy(3)}, "failures", FailurePolicy(3, 0)),
    ],
)
def test_an_option_of_a_value_is_given_by_its_name(
    kind: Any, arguments: dict[str, Any], value: str, expected: object
) -> None:
    given: list[Any] = []

    class Taker:
        __init__ = takes(kind)(lambda _, options: given.append(options))

    required = {name: "x" for name, option in options_of(kind).items() if option.default is MISSING}
    Taker(**required, **arguments)
    assert getattr(given[0], value) == expected


@pytest.mark.parametrize(
    ("made", "arguments"),
    [
        (StreamReader, {"stream": "s", "batch_rows": 0}),
        (StreamReader, {"stream": "s", "limits": 5}),
        (StreamReader, {"stream": 5}),
        (RangeReader, {"stream": "s", "start": "first"}),
        (StreamPublisher, {"stream": "s", "window": 0}),
        (StreamPublisher, {"stream": "s", "limits": 5, "management_url": f"http://a:{SECRET}@b"}),
        (StreamPublisher, {"stream": "s", "window": 0, "management_url": f"http://a:{SECRET}@b"}),
        (StreamGroup, {"name": "g", "streams": ["s"], "batch_rows": 0}),
        (StreamGroup, {"name": "g", "streams": ["s"], "on_failure": "dead-letter"}),
        (ConsumerGroup, {"queues": ["q"], "retries": -1}),
        (ConsumerGroup, {"queues": [], "member": "a"}),
        (ConsumerGroup, {"queues": ["q"], "concurrent": 2}),
        (Publisher, {"exchange": "orders", "properties": 5}),
        (SharedPublisher, {"exchange": "orders", "routing": "nowhere"}),
        (Broker, {"ring_source": 5, "management_url": f"http://user:{SECRET}@localhost"}),
    ],
)
def test_no_error_shows_the_password(made: Any, arguments: dict[str, Any]) -> None:
    url = (
        STREAM_URL if "Stream" in made.__name__ or made is RangeReader else f"amqp://user:{SECRET}@localhost"
    )
    with pytest.raises((InputError, TypeError, UnreachableError)) as caught:
        made(url=url, **arguments)
    assert locals_with(SECRET, caught.value) == []


@pytest.mark.parametrize(
    ("made", "name", "remedy"),
    [
        (SharedPublisher, "exchnage", "did you mean 'exchange'?"),
        (Publisher, "max_inflight", "did you mean 'max_in_flight'?"),
        (StreamPublisher, "super-stream", "did you mean 'super_stream'?"),
        (StreamReader, "zebra", "leave it out"),
        (ConsumerGroup, "onlost", "did you mean 'on_lost'?"),
        (ConsumerGroup, "lanes", "leave it out"),
    ],
)
def test_an_unknown_argument_is_rejected_with_the_similar_one(made: Any, name: str, remedy: str) -> None:
    with pytest.raises(InputError) as caught:
        made("amqp://localhost", **{name: "x"})
    assert str(caught.value) == f"{made.__name__} has no argument {name!r}: {remedy}"


@pytest.mark.parametrize("flag", ["false", 0, None])
def test_a_flag_is_true_or_false_and_nothing_that_counts_as_one(flag: Any) -> None:
    with pytest.raises(InputError, match=r"mandatory is .*: pass True or False"):
        SharedPublisher("amqp://h", exchange="x", mandatory=flag)
