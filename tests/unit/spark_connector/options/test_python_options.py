"""Options as Python values become the texts that Spark has."""

from __future__ import annotations

import pytest

from rabbit_chx.errors import InputError
from rabbit_chx.routing import HashRing
from spark_connector.options.python_options import texts

RING = HashRing.from_bindings([("q1", 1)])


def test_values_become_the_texts_that_spark_has() -> None:
    given = texts({"maxInFlight": 5, "mandatory": False, "url": "amqp://h", "routingKey": None}, None)
    assert given == {"maxInFlight": "5", "mandatory": "false", "url": "amqp://h"}
    assert HashRing.from_json(texts({}, RING)["ring"]) == RING
    assert texts({}, RING.to_json()) == texts({}, RING)
    assert repr(texts({"url": "amqp://u:c4nary@h"}, None)) == "<options url>"


def test_what_is_no_option_is_refused_without_being_shown() -> None:
    with pytest.raises(InputError, match="option 'password' is a bytes: give a text") as caught:
        texts({"password": b"c4nary"}, None)
    assert "c4nary" not in str(caught.value)
    with pytest.raises(InputError, match="the ring is given twice"):
        texts({"RING": RING.to_json()}, RING)
    with pytest.raises(InputError, match="the ring has no buckets"):
        texts({}, HashRing.from_buckets([]))
