"""What is still bound after an unbind is taken away by the key that the management API gives it.

tests/parity/test_topology_changes.py does it on real brokers.
"""

from __future__ import annotations

from typing import Any

import pytest

from rabbit_chx.errors import NotFoundError
from rabbit_chx.routing import ExchangeRef
from rabbit_chx.topology import BindingDefinition
from rabbit_chx.topology.live.applying import remove_binding

TO_QUEUE = BindingDefinition("x", "q", "k", {"n": 5})
PATH = ("bindings", "shop", "e", "x", "q", "q")
LISTED = [
    {"routing_key": "k", "arguments": {"n": 6}, "properties_key": "k~six"},
    {"routing_key": "other", "arguments": {"n": 5}, "properties_key": "other~five"},
    {"routing_key": "k", "arguments": {"n": 5}, "properties_key": "k~five"},
]


class Script:
    """A management API that lists these bindings, or knows none of their ends."""

    vhost = "shop"

    def __init__(self, listed: list[Any] | None, *, has_management: bool = True) -> None:
        self._listed, self.has_management = listed, has_management
        self.asked: list[tuple[str, ...]] = []
        self.api = self

    def get_list(self, *path: str, fields: object) -> Any:  # noqa: ARG002
        self.asked.append(("get", *path))
        if self._listed is None:
            raise NotFoundError("no queue")
        return self._listed

    def delete(self, *path: str) -> None:
        self.asked.append(("delete", *path))


def asked(
    binding: BindingDefinition, listed: list[Any] | None, *, has_management: bool = True
) -> list[tuple[str, ...]]:
    script: Any = Script(listed, has_management=has_management)
    remove_binding(binding, script)
    requests: list[tuple[str, ...]] = script.asked
    return requests


def test_a_binding_that_is_left_is_deleted_by_its_key() -> None:
    assert asked(TO_QUEUE, LISTED) == [("get", *PATH), ("delete", *PATH, "k~five")]
    for listed in (LISTED[:2], None):  # it, or an end of it, is gone
        assert asked(TO_QUEUE, listed) == [("get", *PATH)]
    (get,) = asked(BindingDefinition("x", ExchangeRef("y"), "k", {"n": 5}), [])
    assert get == ("get", "bindings", "shop", "e", "x", "e", "y")


@pytest.mark.parametrize(
    ("binding", "has_management"),
    [
        (BindingDefinition("x", "q", "k"), True),
        (TO_QUEUE, False),
        (BindingDefinition("x", "..", "k", {"n": 5}), True),
    ],
)
def test_nothing_is_asked_where_nothing_can_be_left_or_nothing_can_be_asked(
    binding: BindingDefinition,
    has_management: bool,  # noqa: FBT001
) -> None:
    assert asked(binding, LISTED, has_management=has_management) == []
