"""The documents that commands write, held against their JSON Schemas."""

from __future__ import annotations

import inspect
import json
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, get_args

from jsonschema import Draft7Validator
from output_schemas import FORMATS

_ROOT = Path(__file__).parents[2]


def check_document(document: dict[str, Any]) -> None:
    """Raise an AssertionError unless the document has exactly the fields and types of its schema."""
    name = document["format"].removeprefix("rabbit-chx/")
    found = [f"{error.json_path}: {error.message:.300}" for error in _validator(name).iter_errors(document)]
    assert found == [], how_to_repair(name)


def how_to_repair(name: str) -> str:
    """Return which file declares the fields of a format, and how its schema follows from them."""
    kinds = get_args(FORMATS[name]) or (FORMATS[name],)
    places = {f"{kind.__name__} in {Path(inspect.getfile(kind)).relative_to(_ROOT)}" for kind in kinds}
    schema = f"rabbit_chx/cli/schemas/{name}.json"
    return f"{schema}: run `make generated`; a field without a declaration belongs into {' or '.join(sorted(places))}"


@cache
def _validator(name: str) -> Draft7Validator:
    schema = json.loads((files("rabbit_chx.cli") / "schemas" / f"{name}.json").read_text(encoding="utf-8"))
    return Draft7Validator(_without_others(schema))


def _without_others(schema: Any) -> Any:
    """Return a schema that rejects fields that it does not describe: users may get new ones, tests must not."""
    if isinstance(schema, list):
        return list(map(_without_others, schema))
    if not isinstance(schema, dict):
        return schema
    inner = {name: _without_others(value) for name, value in schema.items()}
    return inner | ({"additionalProperties": False} if isinstance(schema.get("properties"), dict) else {})
