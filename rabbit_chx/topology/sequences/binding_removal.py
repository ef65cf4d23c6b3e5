"""Bindings whose arguments the broker does not recognize when they are unbound.

A broker unbinds what has the same arguments with the same types. JSON does not tell types: 5 may have been sent in eight of
them. So a binding with arguments may still be there after an unbind, without any error. The management API takes it away by
its own key for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rabbit_chx.errors import NotFoundError
from rabbit_chx.routing import ExchangeRef
from rabbit_chx.topology.objects import ArgumentTable
from rabbit_chx.topology.sequences.steps import ApiRequest

if TYPE_CHECKING:
    from rabbit_chx.topology.objects import BindingDefinition
    from rabbit_chx.topology.sequences.steps import Access, ApiSequence

__all__ = ["binding_removed"]

#: Names that are no part of a path of HTTP.
_NO_SEGMENTS = {".", ".."}


def binding_removed(binding: BindingDefinition, access: Access) -> ApiSequence[None]:
    """Take a binding away that is still there after an unbind. A binding without arguments never is.

    Args:
        binding: the binding that was unbound.
        access: what the sequence may ask.

    Raises:
        AccessRefusedError: the user may not.
        UnreachableError: the management API does not answer.
    """
    place = binding.destination
    end = ("e", place.name) if isinstance(place, ExchangeRef) else ("q", place)
    if not binding.arguments or not access.has_management or {binding.source, end[1]} & _NO_SEGMENTS:
        return
    path = ("bindings", access.vhost, "e", binding.source, *end)
    try:
        listed = yield ApiRequest("GET", path)
        for one in listed:
            if (
                one["routing_key"] == binding.routing_key
                and ArgumentTable(one["arguments"]) == binding.arguments
            ):
                yield ApiRequest("DELETE", (*path, one["properties_key"]))
    except NotFoundError:  # it went meanwhile, or with one of its ends
        return
