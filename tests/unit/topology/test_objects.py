"""Exchanges, queues, bindings and policies are values, and sort as people sort."""

from __future__ import annotations

from dataclasses import FrozenInstanceError
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from topologies import bindings, names

from rabbit_chx import ExchangeRef
from rabbit_chx.errors import InputError
from rabbit_chx.topology import BindingDefinition, ExchangeDefinition, QueueDefinition, RingMember
from rabbit_chx.topology.objects import natural_order, order_of_name


def test_names_sort_by_their_numbers() -> None:
    in_order = ["", "a", "a.01", "a.1", "a.2", "a.10", "a.10b", "a.x", "b"]
    by_text = ["", "a", "a.01", "a.1", "a.10", "a.10b", "a.2", "a.x", "b"]
    assert sorted(by_text, key=order_of_name) == in_order


@given(st.lists(names | st.text()), st.randoms())
def test_any_names_have_one_order(some: list[str], random: Any) -> None:
    shuffled = random.sample(some, len(some))
    assert sorted(shuffled, key=order_of_name) == sorted(some, key=order_of_name)


@given(st.lists(bindings(names), max_size=5), st.randoms())
def test_bindings_have_one_order(some: list[BindingDefinition], random: Any) -> None:
    shuffled = random.sample(some, len(some))
    assert sorted(shuffled, key=natural_order) == sorted(some, key=natural_order)


def test_a_member_keeps_the_binding_key_as_it_is() -> None:
    assert RingMember("q", 7) == RingMember("q", "7") != RingMember("q", "007")  # type: ignore[arg-type]
    assert RingMember("q").binding == ("q", "1")
    with pytest.raises(InputError, match="neither int nor text"):
        RingMember("q", 1.5)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="not a destination"):
        RingMember(5)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="not a destination"):
        BindingDefinition("x", None)  # type: ignore[arg-type]


def test_the_type_of_a_queue_is_reported_once() -> None:
    quorum = QueueDefinition("q", arguments={"x-queue-type": "quorum", "x-delivery-limit": 5})
    assert quorum == QueueDefinition("q", "quorum", arguments={"x-delivery-limit": 5})
    assert quorum.declared_arguments == {"x-queue-type": "quorum", "x-delivery-limit": 5}
    classic = QueueDefinition("q", arguments={"x-queue-type": "classic"})
    assert classic == QueueDefinition("q")
    assert classic.declared_arguments == {"x-queue-type": "classic"}
    contradiction = QueueDefinition("q", "quorum", arguments={"x-queue-type": "stream"})
    assert contradiction.type == "quorum"
    assert contradiction.arguments == {"x-queue-type": "stream"}


def test_objects_are_values() -> None:
    exchange = ExchangeDefinition("x", "x-consistent-hash", ring=[RingMember(ExchangeRef("y"), "2")])  # type: ignore[arg-type]
    assert exchange.ring == (RingMember(ExchangeRef("y"), "2"),)
    assert len({exchange, ExchangeDefinition("x", "x-consistent-hash", ring=exchange.ring)}) == 1
    with pytest.raises(FrozenInstanceError):
        exchange.name = "z"  # type: ignore[misc]
