"""Definitions files made by hypothesis: valid ones, in which some fields are left out, null, of another type, or twice."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from hypothesis import strategies as st

_QUEUES = ("q1", "q2", "q.03", "é", "a b", "日本", "{1..2}")
_EXCHANGES = ("hash", "x1", "x2", "größe", "mod")
_HASH, _MODULUS = "x-consistent-hash", "x-modulus-hash"
_TYPES = ("direct", "fanout", "topic", "headers", _MODULUS, _HASH)
_KEYS = ("", "k", "a.#", "é", "1", "undefined")
_GONE = object()
#: What a field of any kind becomes.
_WRONG: tuple[Any, ...] = (
    _GONE,
    None,
    5,
    "yes",
    "",
    True,
    1.5,
    [],
    {},
    [1],
    "x" * 300,
    "a\nb",
    1 << 70,
    "amq.q",
    "\ud800",
)
_ARGUMENTS: tuple[dict[str, Any], ...] = (
    {}, {}, {"x-max-length": 5}, {"x-message-ttl": 60_000}, {"x-overflow": "reject-publish"}, {"k-note": "é"}, {"k-list": [1, "a", {"b": True}]},
)  # fmt: skip
_WRONG_ARGUMENTS: tuple[dict[str, Any], ...] = (
    {"x-max-length": "7"}, {"x-max-length": -1}, {"x-overflow": "drop"}, {"k": 1.5}, {"k": None}, {"k": 1 << 70}, {"k" * 300: 1},
    {"x-queue-type": "quroum"}, {"x-queue-type": 5}, {"x-dead-letter-routing-key": "k"}, {"": 1},
)  # fmt: skip
_FIELDS = {
    "queues": ("name", "durable", "auto_delete", "exclusive", "arguments", "arguments"),
    "exchanges": ("name", "type", "durable", "auto_delete", "internal", "arguments"),
    "bindings": ("source", "destination", "destination_type", "routing_key", "routing_key", "arguments"),
    "policies": ("name", "pattern", "apply-to", "definition", "priority"),
    "parameters": ("component", "name", "value"),
}


@st.composite
def definitions(draw: st.DrawFn, *, is_old: bool = False) -> dict[str, Any]:
    """Return the content of a definitions file. `is_old`: for a release that requires all fields, and ignores bindings that it cannot make."""
    queues = draw(st.lists(st.sampled_from(_QUEUES), min_size=1, max_size=4, unique=True))
    exchanges = draw(st.lists(st.sampled_from(_EXCHANGES), min_size=1, max_size=3, unique=True))
    content: dict[str, Any] = {
        "queues": [_queue(draw, name) for name in queues],
        "exchanges": [_exchange(draw, name) for name in exchanges],
    }
    bindings = [_binding(draw, content, queues, exchanges) for _ in range(draw(st.integers(0, 6)))]
    content["bindings"] = list({str(_identity(binding)): binding for binding in bindings}.values())
    if draw(st.booleans()):
        content["policies"] = [_policy(draw, n) for n in range(draw(st.integers(0, 2)))]
    if draw(st.booleans()):
        content["parameters"] = draw(st.sampled_from(_PARAMETERS))
    content = copy.deepcopy(content)
    for _ in range(draw(st.sampled_from((0, 0, 1, 1, 2)))):
        (_change_old if is_old else _change)(draw, content)
    return content


_LIMITS = {"component": "vhost-limits", "name": "limits", "value": {"max-queues": 100}}
_OPERATOR = {
    "component": "operator_policy",
    "name": "caps",
    "value": {"pattern": "^q", "definition": {"max-length": 50}, "priority": 1, "apply-to": "queues"},
}
_PARAMETERS: tuple[list[dict[str, Any]], ...] = ([], [_LIMITS], [_OPERATOR], [_LIMITS, _OPERATOR])


def _queue(draw: st.DrawFn, name: str) -> dict[str, Any]:
    type_ = draw(st.sampled_from((None, "classic", "classic", "quorum", "stream")))
    arguments = dict(draw(st.sampled_from(_ARGUMENTS)))
    if type_ == "stream":
        arguments = {"x-max-length-bytes": 1_000_000}
    if type_ is not None:
        arguments["x-queue-type"] = type_
    is_plain = type_ in (None, "classic")
    auto_delete = is_plain and draw(st.booleans())
    return {"name": name, "durable": True, "auto_delete": auto_delete, "arguments": arguments}


def _exchange(draw: st.DrawFn, name: str) -> dict[str, Any]:
    type_ = {"hash": _HASH, "mod": _MODULUS}.get(name) or draw(st.sampled_from(_TYPES))
    arguments = draw(st.sampled_from(({}, {}, {"alternate-exchange": "amq.fanout"}, {"k-note": 5})))
    flags = {field: draw(st.booleans()) for field in ("durable", "internal")}
    return {"name": name, "type": type_, **flags, "auto_delete": False, "arguments": arguments}


def _binding(
    draw: st.DrawFn, content: Mapping[str, Any], queues: list[str], exchanges: list[str]
) -> dict[str, Any]:
    source = draw(st.sampled_from((*exchanges, *exchanges, "amq.direct", "amq.headers")))
    kind, name = draw(st.sampled_from((*((("queue", queue) for queue in queues)), ("exchange", "amq.topic"))))
    types = {exchange["name"]: exchange["type"] for exchange in content["exchanges"]}
    key = draw(st.sampled_from(_KEYS))
    if types.get(source) == _HASH:
        key = draw(st.sampled_from(("1", "2", "10", "007")))
    arguments = (
        {"x-match": "any", "k": "v"}
        if types.get(source) == "headers"
        else draw(st.sampled_from(({}, {"k": 5})))
    )
    return {
        "source": source,
        "destination": name,
        "destination_type": kind,
        "routing_key": key,
        "arguments": arguments,
    }


def _identity(binding: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return what must be unique: a member of a ring is bound once, except where a change doubles it."""
    if binding["source"] == "hash":
        return binding["source"], binding["destination"]
    return tuple(map(str, binding.values()))


def _policy(draw: st.DrawFn, number: int) -> dict[str, Any]:
    return {
        "name": f"policy {number}",
        "pattern": draw(st.sampled_from(("^q", "", "é$", "[[:alpha:]]+", "(?i)X"))),
        "apply-to": draw(st.sampled_from(("all", "queues", "exchanges"))),
        "definition": draw(
            st.sampled_from(({"max-length": 9}, {"alternate-exchange": "amq.fanout"}, {"expires": 9_000_000}))
        ),
        "priority": draw(st.integers(-2, 2)),
    }


def _change(draw: st.DrawFn, content: dict[str, Any]) -> None:
    """Change a field, double an entry, or put something odd into a list."""
    name = draw(st.sampled_from([name for name, entries in content.items() if entries] or ["queues"]))
    entries = content[name]
    how = draw(st.sampled_from(("field", "field", "field", "double", "arguments", "odd", "list")))
    position = draw(st.integers(0, max(len(entries) - 1, 0)))
    entry = entries[position] if entries else {}
    if not isinstance(entry, dict):
        return
    if how == "field":
        _set(entry, draw(st.sampled_from(_FIELDS[name])), draw(st.sampled_from(_WRONG)))
    elif how == "double":
        doubled = copy.deepcopy(entry)
        if draw(st.booleans()):
            doubled |= {"routing_key": "3"} if name == "bindings" else {"arguments": {"k-other": 1}}
        entries.append(doubled)
    elif how == "arguments":
        field = {"policies": "definition", "parameters": "value"}.get(name, "arguments")
        table = entry.get(field)
        if isinstance(table, dict):
            table.update(draw(st.sampled_from(_WRONG_ARGUMENTS)))
    elif how == "odd":
        _set(entry, *draw(st.sampled_from(_ODD[name])))
    elif name != "queues" or draw(st.booleans()):
        entries.append(5)


#: Values of fields about which there are rules.
_ODD: dict[str, tuple[tuple[str, Any], ...]] = {
    "queues": (("exclusive", True), ("durable", False), ("auto_delete", True), ("type", "quorum")),
    "exchanges": (("type", "x-unknown"), ("type", "Direct"), ("name", "amq.direct"), ("arguments", {"alternate-exchange": 5})),
    "bindings": (
        ("destination_type", "Exchange"), ("routing_key", "0"), ("routing_key", "1.5"), ("source", ""), ("source", "nowhere"),
        ("destination", "nobody"), ("arguments", {"x-match": "some"}),
    ),
    "policies": (
        ("apply-to", "ALL"), ("pattern", "("), ("definition", {"nope": 1}), ("definition", {"max-length": "5"}), ("priority", 1.5),
        ("priority", 1 << 40), ("definition", {}),
    ),
    "parameters": (
        ("component", "nope"), ("component", "policy"), ("value", {"nope": 1}), ("value", {"max-queues": "5"}), ("value", []),
        ("value", {"pattern": "^q", "definition": {"expires": 9_000_000}, "priority": 0}),
    ),
}  # fmt: skip


def _change_old(draw: st.DrawFn, content: dict[str, Any]) -> None:
    name = draw(st.sampled_from([name for name, entries in content.items() if entries] or ["queues"]))
    entry = content[name][draw(st.integers(0, len(content[name]) - 1))] if content[name] else {}
    how = draw(st.sampled_from(("double", "odd", "odd", "arguments", "arguments", "left out")))
    if how == "double":
        content[name].append(copy.deepcopy(entry))
    elif how == "odd":
        _set(entry, *draw(st.sampled_from(_ODD_BEFORE_4[name])))
    elif how == "arguments" and name in ("queues", "policies"):
        table = entry["arguments" if name == "queues" else "definition"]
        prefix = "x-" if name == "queues" else ""
        table |= {f"{prefix}{key}": value for key, value in draw(st.sampled_from(_WRONG_BEFORE_4)).items()}
    elif name in ("queues", "exchanges", "policies"):
        entry.pop({"queues": "arguments", "exchanges": "internal", "policies": "priority"}[name], None)


_ODD_BEFORE_4: dict[str, tuple[tuple[str, Any], ...]] = {
    "queues": (("exclusive", True), ("arguments", {"x-max-length": "7"}), ("arguments", {"k": 1.5})),
    "exchanges": (("type", "x-unknown"), ("name", "amq.direct"), ("arguments", {"alternate-exchange": 5})),
    "bindings": (
        ("routing_key", "0"),
        ("routing_key", "1.5"),
        ("destination", "nobody"),
        ("source", "nowhere"),
    ),
    "policies": (("apply-to", "ALL"), ("pattern", "("), ("definition", {"nope": 1}), ("definition", {})),
    "parameters": (("component", "nope"), ("value", {"nope": 1}), ("value", {"max-queues": "5"})),
}
#: Arguments that 3.10 refuses for all types of queues, or for some, and settings that it refuses.
_WRONG_BEFORE_4: tuple[dict[str, Any], ...] = (
    {"max-length": -1}, {"message-ttl": -1}, {"message-ttl": "5"}, {"expires": 0}, {"overflow": "drop"}, {"max-age": "5"}, {"max-age": "1D"},
    {"max-length-bytes": "1"}, {"queue-mode": "x"}, {"queue-version": 3}, {"queue-leader-locator": "x"}, {"dead-letter-exchange": 5},
    {"delivery-limit": "5"}, {"max-priority": 256}, {"single-active-consumer": 1}, {"queue-type": "quroum"},
)  # fmt: skip


def _set(entry: dict[str, Any], field: str, value: Any) -> None:
    if value is _GONE:
        entry.pop(field, None)
    else:
        entry[field] = value
