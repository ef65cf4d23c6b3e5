"""The schemas of documents are those of the dataclasses from which the documents are made."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import output_schemas
import pytest
from output_documents import how_to_repair

from rabbit_chx.result_fields import ABSENT, Absent, shown

_ROOT = Path(output_schemas.__file__).parents[1]


@dataclass(frozen=True, slots=True)
class Size:
    """A group.

    Attributes:
        messages: the number of them
            that are ready.
    """

    messages: int = field(metadata=shown("ready", number=True))


@dataclass(frozen=True, slots=True)
class Row:
    """A row."""

    kind: str | None = field(metadata=shown(json="sort", values={"a": "first"}))
    pair: tuple[int, str]
    size: Size = field(metadata=shown(group=Size))
    text: str = field(metadata=shown(json=None))
    learn: str | Absent | None = ABSENT
    note: str | None = field(default=None, metadata=shown(optional=True))


@pytest.mark.parametrize("name", output_schemas.FORMATS)
def test_the_schema_follows_from_the_fields_of_the_result(name: str) -> None:
    path = f"rabbit_chx/cli/schemas/{name}.json"
    text = output_schemas.output_schemas()[path]
    assert (_ROOT / path).read_text(encoding="utf-8") == text, how_to_repair(name)


def test_a_type_has_a_schema(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(output_schemas.FORMATS, "rows", Row)
    text = {"type": "string"}
    null = {"type": "null"}
    schema = output_schemas.document_schema("rows")
    assert schema["properties"] == {
        "format": {"const": "rabbit-chx/rows"},
        "format_version": {"const": 1},
        "sort": {"anyOf": [{"oneOf": [{"const": "a", "description": "first"}]}, null]},
        "pair": {"type": "array", "items": [{"type": "integer"}, text], "minItems": 2, "maxItems": 2},
        "messages": {"description": "The number of them that are ready.", "type": "integer"},
        "learn": {"anyOf": [text, null]},
        "note": text,
    }
    assert schema["required"] == ["format", "format_version", "sort", "pair", "messages"]
