"""Properties with a header table of ours."""

from __future__ import annotations

from rabbit_chx.amqp import AmqpField
from rabbit_chx.amqp.header_table import headers_in
from rabbit_chx.testing.rehearsal.wire_messages import wire_properties
from rabbit_chx.topology.upgrade_exchange import SampledMessage


def test_all_types_and_a_name_twice_are_sent() -> None:
    headers = (
        (b"h", AmqpField("unsignedbyte", 7)),
        (b"h", AmqpField("array", [AmqpField("float", 1.5)])),
    )
    properties = wire_properties(SampledMessage("k", "", headers, {"message_id": b"m1", "timestamp": 5}))
    wire = b"".join(properties.encode())
    assert headers_in(wire) == headers
    assert wire.endswith(b"\x02m1" + (5).to_bytes(8))


def test_properties_without_headers_are_those_of_pika() -> None:
    assert wire_properties(SampledMessage("k", properties={"message_id": "m"})).message_id == "m"
