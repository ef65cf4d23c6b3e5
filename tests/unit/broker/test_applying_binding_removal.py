"""What is still bound after an unbind is taken away by the key that the management API gives it.

tests/parity/test_topology_changes.py does it on real brokers.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

from rabbit_chx.broker.applying import remove_binding
from rabbit_chx.errors import NotFoundError
from rabbit_chx.routing import ExchangeRef
from rabbit_chx.topology import BindingDefinition

TO_QUEUE = BindingDefinition("x", "q", "k", {"n": 5})
PATH = ("bindings", "shop", "e", "x", "q", "q")
LISTED = [
    {"routing_key": "k", "arguments": {"n": 6}, "properties_key": "k~six"},
    {"routing_key": "other", "arguments": {"n": 5}, "properties_key": "other~five"},
    {"routing_key": "k", "arguments": {"n": 5}, "properties_key": "k~five"},
]


def asked(
    binding: BindingDefinition, listed: object, *, has_management: bool = True
) -> list[tuple[str, ...]]:
    """Return the requests to a management API that lists these bindings, or knows none of their ends."""
    api = Mock()
    api.get_list.side_effect = [listed]
    broker: Any = SimpleNamespace(vhost="shop", has_management=has_management, api=api)
    remove_binding(binding, broker)
    return [(name, *path) for name, path, _ in api.mock_calls]


def test_a_binding_that_is_left_is_deleted_by_its_key() -> None:
    assert asked(TO_QUEUE, LISTED) == [("get_list", *PATH), ("delete", *PATH, "k~five")]
    for listed in (LISTED[:2], NotFoundError("no queue")):  # it, or an end of it, is gone
        assert asked(TO_QUEUE, listed) == [("get_list", *PATH)]
    (request,) = asked(BindingDefinition("x", ExchangeRef("y"), "k", {"n": 5}), [])
    assert request == ("get_list", "bindings", "shop", "e", "x", "e", "y")


def test_nothing_is_asked_where_nothing_can_be_left_or_nothing_can_be_asked() -> None:
    for binding in (BindingDefinition("x", "q", "k"), BindingDefinition("x", "..", "k", {"n": 5})):
        assert asked(binding, LISTED) == []
    assert asked(TO_QUEUE, LISTED, has_management=False) == []
