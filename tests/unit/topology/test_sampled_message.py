"""Messages of a sample."""

from __future__ import annotations

import pytest

from rabbit_chx.amqp import AmqpField
from rabbit_chx.analysis import Hashing
from rabbit_chx.errors import InputError
from rabbit_chx.topology.upgrade_exchange import SampledMessage


def test_a_value_is_where_the_exchange_looks() -> None:
    assert SampledMessage.with_value("k", Hashing(), "k") == SampledMessage("k", "k")
    assert SampledMessage.with_value("k", Hashing(None, "message_id"), "k").properties == {"message_id": "k"}
    sent = SampledMessage.with_value("5", Hashing("n", field_type="long"), 5)
    assert sent.headers == ((b"n", AmqpField("long", 5)),)


def test_a_header_in_an_array_keeps_its_type_and_leaves_others() -> None:
    sent = SampledMessage("k", "", ((b"n", AmqpField("long", 5)), (b"other", AmqpField("bool", True))))
    assert sent.with_array(b"n").headers == (
        (b"n", AmqpField("array", [AmqpField("long", 5)])),
        (b"other", AmqpField("bool", True)),
    )


def test_a_value_that_cannot_be_sent_is_refused() -> None:
    with pytest.raises(InputError):
        SampledMessage.with_value("x", Hashing("n", field_type="long"), "x")
