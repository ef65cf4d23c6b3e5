"""What is still bound after an unbind is taken away by the key that the management API gives it.

tests/parity/test_topology_changes.py does it on real brokers.
"""

from __future__ import annotations

from typing import Any

import pytest

from rabbit_chx.drive import drive
from rabbit_chx.errors import NotFoundError
from rabbit_chx.routing import ExchangeRef
from rabbit_chx.topology import BindingDefinition
from rabbit_chx.topology.applying import binding_removed
from rabbit_chx.topology.operations import ApiRequest
from rabbit_chx.topology.steps import Access

ACCESS = Access("amqp://host", "shop", has_management=True)
TO_QUEUE = BindingDefinition("x", "q", "k", {"n": 5})
PATH = ("bindings", "shop", "e", "x", "q", "q")
LISTED = [
    {"routing_key": "k", "arguments": {"n": 6}, "properties_key": "k~six"},
    {"routing_key": "other", "arguments": {"n": 5}, "properties_key": "other~five"},
    {"routing_key": "k", "arguments": {"n": 5}, "properties_key": "k~five"},
]


def asked(binding: BindingDefinition, listed: list[Any], access: Access = ACCESS) -> list[ApiRequest]:
    requests: list[ApiRequest] = []

    def do(request: ApiRequest) -> Any:
        requests.append(request)
        return listed if request.method == "GET" else None

    drive(binding_removed(binding, access), do)
    return requests


def test_what_is_left_goes() -> None:
    assert asked(TO_QUEUE, LISTED) == [ApiRequest("GET", PATH), ApiRequest("DELETE", (*PATH, "k~five"))]
    assert asked(TO_QUEUE, LISTED[:2]) == [ApiRequest("GET", PATH)]


def test_an_exchange_is_another_end_than_a_queue() -> None:
    (get,) = asked(BindingDefinition("x", ExchangeRef("y"), "k", {"n": 5}), [])
    assert get.path == ("bindings", "shop", "e", "x", "e", "y")


@pytest.mark.parametrize(
    ("binding", "access"),
    [
        (BindingDefinition("x", "q", "k"), ACCESS),
        (TO_QUEUE, Access("amqp://host", "shop")),
        (BindingDefinition("x", "..", "k", {"n": 5}), ACCESS),
    ],
)
def test_nothing_is_asked_where_nothing_can_be_left_or_nothing_can_be_asked(
    binding: BindingDefinition, access: Access
) -> None:
    assert asked(binding, LISTED, access) == []


def test_what_went_meanwhile_is_gone() -> None:
    def do(_: ApiRequest) -> Any:
        raise NotFoundError("no queue")

    drive(binding_removed(TO_QUEUE, ACCESS), do)
