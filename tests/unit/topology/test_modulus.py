"""Exchanges that hash modulo the number of their bindings: what the bindings of a super stream say about its order."""

from __future__ import annotations

import pytest

from rabbit_chx import Release, SuperStream
from rabbit_chx.topology.modulus import modulo_map_of
from rabbit_chx.topology.objects import (
    PARTITION_ORDER,
    SUPER_STREAM,
    BindingDefinition,
    ExchangeDefinition,
    QueueDefinition,
)

EXCHANGE = ExchangeDefinition("s", "direct", arguments={SUPER_STREAM: True})


@pytest.mark.parametrize(
    ("orders", "provenance"),
    [
        ((1, 0), "read"),
        ((None,), "read"),
        ((None, None), None),
        ((0, None), None),
        ((0, 0), None),
        ((0, "1"), None),
    ],
)
def test_the_order_of_partitions_is_known_only_if_each_binding_has_its_number(
    orders: tuple[object, ...], provenance: str
) -> None:
    bound = [
        BindingDefinition("s", f"s-{number}", str(number), {} if order is None else {PARTITION_ORDER: order})
        for number, order in enumerate(orders)
    ]
    read = modulo_map_of(EXCHANGE, bound, Release("4.3.6"), "read")
    assert isinstance(read, SuperStream)
    assert read.order.origin == provenance
    assert modulo_map_of(EXCHANGE, bound, Release("4.3.6")) == read, "that of a file is as the file says"


def test_a_queue_that_is_no_stream_is_no_partition() -> None:
    """A classic queue that is bound to a super stream: the broker does not return it to clients."""
    bound = [
        BindingDefinition("s", f"s-{number}", str(number), {PARTITION_ORDER: number}) for number in range(3)
    ]
    queues = [
        QueueDefinition("s-0", "stream"),
        QueueDefinition("s-1", "classic"),
        QueueDefinition("s-2", ""),
    ]
    read = modulo_map_of(EXCHANGE, bound, Release("4.3.6"), "read", queues)
    assert read is not None
    assert read.destinations == ("s-0", "s-2")
