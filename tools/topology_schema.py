"""The JSON Schema of a topology file, generated from the tables of fields that the parser uses."""

from __future__ import annotations

import json
from typing import Any

from tables import meaning

from rabbit_chx.routing.bindings import MAX_BUCKETS
from rabbit_chx.topology import kinds
from rabbit_chx.topology import schema as tables
from rabbit_chx.topology.kinds import FLAG, KEY, NAME, STRING, Kind
from rabbit_chx.topology.objects import HASH_EXCHANGE, MODULUS_EXCHANGE
from rabbit_chx.topology.schema import EntryType

#: A reference to a variable, as the whole of a value; and a text that contains one.
_REFERENCE = {"type": "string", "pattern": r"^\$\{[A-Za-z_][A-Za-z0-9_-]*\}$"}
_WITH_REFERENCE = {"type": "string", "pattern": r"(^|[^$])\$\{[A-Za-z_][A-Za-z0-9_-]*(:regex)?\}"}


def _or_reference(schema: dict[str, Any]) -> dict[str, Any]:
    return {"anyOf": [schema, _REFERENCE]}


_VALUE = {"$ref": "#/definitions/value"}
_SLOT = {"type": "integer", "minimum": 0, "maximum": kinds.MAX_SLOTS - 1}
_SLOTS = {"type": "string", "pattern": f"^{kinds.SLOT_PATTERN}$"}
#: The schema of the kinds whose values cannot be listed.
_KINDS: dict[Kind, dict[str, Any]] = {
    NAME: {"type": "string", "minLength": 1},
    KEY: {"type": "string"},
    STRING: {"type": "string"},
    kinds.NAMES: _or_reference({"type": "array", "items": {"type": "string", "minLength": 1}}),
    kinds.QUEUE_LIST: _or_reference(
        {"type": "array", "uniqueItems": True, "items": {"type": "string", "minLength": 1}}
    ),
    kinds.KEY_LIST: _or_reference(
        {
            "type": "array",
            "minItems": 1,
            "uniqueItems": True,
            "items": {"type": "string", "minLength": 1},
        }
    ),
    FLAG: _or_reference({"type": "boolean"}),
    kinds.SHARE: _or_reference({"type": "number", "minimum": 0, "maximum": 1}),
    kinds.WEIGHT: {
        "anyOf": [
            {"type": "integer", "minimum": 1, "maximum": MAX_BUCKETS},
            {"type": "string", "pattern": f"^{kinds.WEIGHT_PATTERN}$", "maxLength": 255},
            _WITH_REFERENCE,
        ]
    },
    # Draft 7 ignores the keywords next to a $ref.
    kinds.TABLE: {"allOf": [{"$ref": "#/definitions/table"}]},
    kinds.SLOT_LIST: _or_reference(
        {
            "type": "array",
            "minItems": 1,
            "uniqueItems": True,
            "items": {"anyOf": [_SLOT, _SLOTS, _WITH_REFERENCE]},
        }
    ),
}


def _has(*names: str) -> dict[str, Any]:
    return {"required": list(names)}


def _of_type(type_: str) -> dict[str, Any]:
    return {"properties": {"type": {"const": type_}}, "required": ["type"]}


def _may_be_of_type(type_: str) -> dict[str, Any]:
    return {"properties": {"type": {"anyOf": [{"const": type_}, _WITH_REFERENCE]}}, "required": ["type"]}


_DESTINATION = {"oneOf": [_has("queue"), _has("exchange")]}
_HAS_SLOTS = {"anyOf": [_has("slots"), _has("members")]}
#: The rules about several fields of an entry.
_RULES: dict[EntryType, list[dict[str, Any]]] = {
    tables.MEMBER: [_DESTINATION],
    tables.BINDING: [_DESTINATION],
    tables.SLOT_MEMBER: [{"not": _has("weight", "slots")}],
    tables.SUPER_STREAM: [{"oneOf": [_has("partitions"), _has("binding_keys")]}],
    tables.EXCHANGE: [
        {
            "if": {"not": _may_be_of_type(HASH_EXCHANGE)},
            "then": {
                "not": {"anyOf": [_has("ring"), _has("slots"), _has("members")]},
                "if": {"not": _may_be_of_type(MODULUS_EXCHANGE)},
                "then": {"not": {"anyOf": [_has("max_share_moved"), _has("queues")]}},
            },
        },
        {
            "if": _of_type(HASH_EXCHANGE),
            "then": {
                "oneOf": [
                    {**_has("ring"), "not": _HAS_SLOTS},
                    {**_has("slots", "members"), "not": _has("ring")},
                    {"not": {"anyOf": [_has("ring"), _HAS_SLOTS]}},
                ],
                "not": _has("queues"),
            },
        },
    ],
}


def topology_schema() -> str:
    """Return the text of docs/reference/topology.schema.json."""
    schema: dict[str, Any] = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "rabbit_chx topology",
        "description": "Exchanges, queues, bindings and policies of RabbitMQ. See docs/reference/topology.md.",
        **_file(),
        "definitions": {
            "table": {"type": "object", "additionalProperties": _VALUE},
            "value": {
                "anyOf": [
                    {"type": ["string", "boolean", "integer"]},
                    {"type": "array", "items": _VALUE},
                    {"$ref": "#/definitions/table"},
                ]
            },
        },
    }
    return json.dumps(schema, indent=2) + "\n"


def _file() -> dict[str, Any]:
    return _entry(tables.FILE)


def _entry(type_: EntryType) -> dict[str, Any]:
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {name: _field(type_, name) for name in type_.fields},
        "additionalProperties": False,
    }
    if type_.required:
        schema["required"] = list(type_.required)
    if type_ in _RULES:
        schema["allOf"] = _RULES[type_]
    return schema


def _field(type_: EntryType, name: str) -> dict[str, Any]:
    schema: dict[str, Any] = {"description": meaning(type_, name).replace("`", "")}
    kind, default = type_.fields[name], type_.defaults[name]
    if default not in (None, (), {}):
        schema["default"] = default
    if isinstance(kind, EntryType):
        return {**schema, **_or_reference({"type": "array", "items": _entry(kind)})}
    assert kind in _KINDS or kind.allowed, f"no schema for {kind.label}"
    return schema | (_KINDS[kind] if kind in _KINDS else _listed(kind.allowed))


def _listed(allowed: tuple[str, ...] | range) -> dict[str, Any]:
    if isinstance(allowed, range):
        return _or_reference({"type": "integer", "minimum": allowed[0], "maximum": allowed[-1]})
    return {"anyOf": [{"enum": list(allowed)}, _WITH_REFERENCE]}
