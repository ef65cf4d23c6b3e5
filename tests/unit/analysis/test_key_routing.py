"""Where an exchange routes a sample of what it hashes."""

from __future__ import annotations

from typing import Any

import pytest

from rabbit_chx.amqp.fields import AmqpField
from rabbit_chx.analysis.key_routing import Hashing
from rabbit_chx.errors import InputError
from rabbit_chx.routing import ConsistentHashExchange, HashRing, Release

OLD, CRASHING, NEW = Release("3.12.14"), Release("3.13.7"), Release("4.3.6")
RING = HashRing.from_bindings([("q1", 1), ("q2", 2), ("q3", 3)])
KEYS = [f"key-{n}" for n in range(1000)]
TENANT = Hashing(hash_header="tenant")


def test_a_field_type_is_that_of_bare_header_values() -> None:
    ring = RING.with_release(OLD)
    hashing = Hashing(hash_header="tenant", field_type="long")
    fields = [AmqpField("long", n) for n in range(100)]
    assert hashing.route_all(range(100), ring) == TENANT.route_all(fields, ring)
    assert hashing.route_all(range(100), ring) != TENANT.route_all(range(100), ring)
    exchange = ConsistentHashExchange("x", ring, {"hash-header": "tenant"})
    assert exchange.route(**hashing.message(5)) == exchange.route(headers={"tenant": fields[5]})


def test_a_field_type_that_is_unknown_or_without_a_header_is_refused() -> None:
    unknown: Any = "int"
    with pytest.raises(InputError, match="not an AMQP field type"):
        Hashing(hash_header="h", field_type=unknown)
    with pytest.raises(InputError, match="pass hash_header too"):
        Hashing(field_type="long")


def test_the_client_decides_what_a_bare_number_is_before_3_13() -> None:
    ring = RING.with_release(OLD)
    by_pika, by_aio_pika = (
        Hashing(hash_header="tenant", client=client).route_all(range(200), ring)
        for client in ("pika", "aio-pika")
    )
    assert by_pika != by_aio_pika
    assert Hashing(hash_header="tenant").route_all(range(200), ring.with_release(NEW)) == Hashing(
        hash_header="tenant", client="aio-pika"
    ).route_all(range(200), ring.with_release(NEW))
