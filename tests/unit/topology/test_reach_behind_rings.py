"""Paths from a ring through exchanges that pass only some messages on."""

from __future__ import annotations

from typing import Any

import pytest

from rabbit_chx.routing import ExchangeRef, HashRing, Release
from rabbit_chx.topology import (
    BindingDefinition,
    ExchangeDefinition,
    LiveTopology,
    QueueDefinition,
    RingMember,
    check,
)

_RELEASE = Release("4.3.6")


def _live(
    type_: str, *bindings: BindingDefinition, hashes: dict[str, str] | None = None, **about: Any
) -> LiveTopology:
    """Return a vhost whose ring has a queue, and an exchange of a type."""
    places: tuple[str | ExchangeRef, ...] = ("direct-queue", ExchangeRef("behind"))
    members = tuple(RingMember(place) for place in places)
    exchanges = (
        ExchangeDefinition("h", "x-consistent-hash", ring=members, arguments=hashes or {}),
        ExchangeDefinition("behind", type_, **about),
        ExchangeDefinition("rest", "fanout"),
    )
    queues = tuple(map(QueueDefinition, ("direct-queue", "q", "others")))
    bound = (BindingDefinition("rest", "others"), *bindings)
    return LiveTopology(exchanges, queues, bound, release=_RELEASE).with_rings(
        {"h": HashRing.from_buckets(places, _RELEASE)}
    )


def _to_q(key: str, **arguments: Any) -> BindingDefinition:
    return BindingDefinition("behind", "q", key, arguments)


def _found(live: LiveTopology) -> list[tuple[float | None, str]]:
    return [
        (finding.share, finding.message)
        for finding in check(live).findings
        if finding.kind == "unroutable-share"
    ]


def test_a_direct_exchange_loses_all_keys_that_are_not_bound() -> None:
    live = _live("direct", _to_q("a"), _to_q("b"))
    share = live.rings["h"].shares()[ExchangeRef("behind")]
    ((found, message),) = _found(live)
    assert found == share
    assert "a direct exchange passes only the keys of its bindings on" in message


def test_an_alternate_exchange_gets_the_other_keys() -> None:
    live = _live("direct", _to_q("a"), arguments={"alternate-exchange": "rest"})
    ((found, message),) = _found(live)
    assert found == 0.0
    assert "goes to its alternate exchange rest" in message


@pytest.mark.parametrize(
    ("live", "is_found"),
    [
        (_live("topic", _to_q("a.*")), True),
        (_live("topic", _to_q("a.#")), True),
        (_live("topic", _to_q("#")), False),
        (_live("topic", _to_q("a"), _to_q("#.#")), False),
        (_live("headers", _to_q("", kind="a")), True),
        (_live("headers", _to_q("", **{"x-match": "any"})), True),
        (_live("headers", _to_q("", **{"x-match": "all"})), False),
        (_live("headers", _to_q("", **{"x-match": "all-with-x", "x-kind": 1})), True),
        (_live("headers", _to_q("", **{"x-kind": 1})), False),
        (_live("fanout", _to_q("")), False),
        (_live("direct", _to_q("a"), hashes={"hash-header": "tenant"}), True),
    ],
)  # fmt: skip
def test_other_exchanges_are_a_warning_unless_a_binding_gets_all_messages(
    live: LiveTopology, *, is_found: bool
) -> None:
    assert [share for share, _ in _found(live)] == ([None] if is_found else [])


def test_a_binding_beside_the_filter_saves_its_messages() -> None:
    """A fanout exchange copies each message to the filter, and to a queue."""
    inner = ExchangeDefinition("inner", "topic")
    live = _live("fanout", _to_q(""), BindingDefinition("behind", ExchangeRef("inner"), ""))
    bound = (*live.bindings, BindingDefinition("inner", "q", "a"))
    assert _found(LiveTopology(exchanges=(*live.exchanges, inner), queues=live.queues, bindings=bound, rings=live.rings)) == []  # fmt: skip
