"""The JSON Schema of a topology file, made of the table of fields that the parser uses."""

from __future__ import annotations

import json
import re
from typing import Any

from rabbit_chx.topology.fields import EntryType, FileField
from rabbit_chx.topology.objects import FILE

_VALUE = {"$ref": "#/definitions/value"}


def topology_schema() -> str:
    """Return the text of docs/topology.schema.json."""
    schema: dict[str, Any] = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "rabbit_chx topology",
        "description": "Exchanges, queues, bindings and policies of RabbitMQ. See docs/topology.md.",
        **_entry(FILE),
        "definitions": {
            "table": {"type": "object", "additionalProperties": _VALUE},
            "value": {
                "anyOf": [
                    {"type": ["string", "boolean", "number"]},
                    {"type": "array", "items": _VALUE},
                    {"$ref": "#/definitions/table"},
                ]
            },
        },
    }
    return json.dumps(schema, indent=2) + "\n"


def _entry(type_: EntryType) -> dict[str, Any]:
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {field.name: _field(field) for field in type_.fields},
        "additionalProperties": False,
    }
    required = [field.name for field in type_.fields if field.required]
    if required:
        schema["required"] = required
    if type_.rules:
        schema["allOf"] = [dict(rule.schema) for rule in type_.rules]
    return schema


def _field(field: FileField) -> dict[str, Any]:
    said: dict[str, Any] = {"description": re.sub(r"`([^`]*)`", r"\1", field.meaning)}
    if field.default not in (None, (), {}):
        said["default"] = field.default
    if isinstance(field.kind, EntryType):
        return {**said, "type": "array", "items": _entry(field.kind)}
    if "$ref" in field.kind.schema:  # draft 7 ignores what is beside a $ref
        return {**said, "allOf": [dict(field.kind.schema)]}
    return {**said, **field.kind.schema}
