"""The properties of a message: their names in AMQP 0-9-1, with their flags on the wire, and in AMQP 1.0."""

from __future__ import annotations

#: The flag of each property of AMQP 0-9-1 (class basic, 4.2.6.1), in the order of the wire.
PROPERTY_FLAGS: dict[str, int] = {
    "content_type": 1 << 15,
    "content_encoding": 1 << 14,
    "headers": 1 << 13,
    "delivery_mode": 1 << 12,
    "priority": 1 << 11,
    "correlation_id": 1 << 10,
    "reply_to": 1 << 9,
    "expiration": 1 << 8,
    "message_id": 1 << 7,
    "timestamp": 1 << 6,
    "type": 1 << 5,
    "user_id": 1 << 4,
    "app_id": 1 << 3,
    "cluster_id": 1 << 2,  # reserved; the clients still have it
}

#: The properties section of AMQP 1.0 (3.2.4), in its order.
PROPERTIES_10 = (
    "message_id", "user_id", "to", "subject", "reply_to", "correlation_id", "content_type", "content_encoding",
    "absolute_expiry_time", "creation_time", "group_id", "group_sequence", "reply_to_group_id",
)  # fmt: skip
