"""The JSON Schema of each document that a command writes, `rabbit_chx/cli/schemas/*.json`; tests compare them with real documents.

It follows from the type of the document's result: a dataclass whose fields are `shown`, or a `TypedDict`, or a union of them. The descriptions are those of
the section "Attributes" of their docstrings.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import is_dataclass
from types import NoneType, UnionType
from typing import (
    Any,
    ForwardRef,
    Literal,
    NamedTuple,
    NotRequired,
    TypeAlias,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

from rabbit_chx.analysis.reports import CompareResult, KeyAnswer, KeysFound, RouteResult
from rabbit_chx.broker.exchange_report import ListedExchanges, ShownExchanges, ShownFields
from rabbit_chx.broker.scratch import VerifyResult
from rabbit_chx.checking.check_report import CheckedBroker, CheckedFiles
from rabbit_chx.cli.arrange import ArrangeResult
from rabbit_chx.cli.export import ExportedTopology
from rabbit_chx.cli.plan import ApplyResult
from rabbit_chx.cli.record import RecordResult
from rabbit_chx.cli.repair import RepairResult, RepairResults
from rabbit_chx.cli.show import GroupResult
from rabbit_chx.consuming.stream_connection import StreamGroupResult
from rabbit_chx.planning.plan_report import PlanResult
from rabbit_chx.planning.plan_value import Plan, PlanFields
from rabbit_chx.planning.upgrade import UpgradeResult
from rabbit_chx.result_fields import Absent, Shown, described, heading
from rabbit_chx.routing import HashRing
from rabbit_chx.routing.bindings import OriginJson
from rabbit_chx.routing.ring import RingJson

Schema: TypeAlias = dict[str, Any]

#: The type of the result of each document.
FORMATS: dict[str, Any] = {
    "answer": KeyAnswer,
    "apply": ApplyResult,
    "arrange": ArrangeResult,
    "check": CheckedBroker | CheckedFiles,
    "compare": CompareResult,
    "group": GroupResult,
    "keys": KeysFound,
    "plan": PlanResult,
    "records": RecordResult,
    "repair": RepairResult,
    "repairs": RepairResults,
    "rings": ListedExchanges,
    "route": RouteResult,
    "show": ShownFields | ShownExchanges,
    "stream-group": StreamGroupResult,
    "topology": ExportedTopology,
    "upgrade": UpgradeResult,
    "verify": VerifyResult,
}
_PLAIN: dict[Any, Schema] = {
    str: {"type": "string"},
    int: {"type": "integer"},
    float: {"type": "number"},
    bool: {"type": "boolean"},
    NoneType: {"type": "null"},
    Any: {},
}
#: The width of a line of a schema that is not broken.
_WIDTH = 140
_CONTAINERS = (Iterable, Mapping)


class _Field(NamedTuple):
    """A field of an object in JSON."""

    name: str
    schema: Schema
    is_required: bool


def output_schemas() -> dict[str, str]:
    """Return the text of each file, by its path in the repository."""
    return {f"rabbit_chx/cli/schemas/{name}.json": _lay_out(document_schema(name)) + "\n" for name in FORMATS}


def _lay_out(value: Any, indent: str = "") -> str:
    """Return JSON text in which what fits is on one line."""
    line = json.dumps(value)
    if len(indent) + len(line) <= _WIDTH or not isinstance(value, dict | list):
        return line
    inner = f"{indent} "
    if isinstance(value, dict):
        lines = [f"{inner}{json.dumps(name)}: {_lay_out(each, inner)}" for name, each in value.items()]
    else:
        lines = [inner + _lay_out(each, inner) for each in value]
    opening, closing = "{}" if isinstance(value, dict) else "[]"
    return "\n".join([opening, ",\n".join(lines), indent + closing])


def document_schema(name: str) -> Schema:
    """Return the schema of a format."""
    schemas = _Schemas()
    schema = schemas.document(name, FORMATS[name])
    head = {"$schema": "http://json-schema.org/draft-07/schema#", "title": heading(name)["format"]}
    return head | schema | ({"definitions": schemas.definitions} if schemas.definitions else {})


class _Schemas:
    """The schemas of types; `definitions` has those of their objects, by the name of the class."""

    def __init__(self) -> None:
        self.definitions: dict[str, Schema] = {}
        self._kinds: dict[str, Any] = {}

    def document(self, name: str, kind: Any) -> Schema:
        """Return the schema of a document of a format whose result is of a type; of a union, that of one of several documents."""
        if _is_union(kind):
            return {"anyOf": [self.document(name, each) for each in get_args(kind)]}
        first = [_Field(key, {"const": value}, is_required=True) for key, value in heading(name).items()]
        return _object([*first, *self._fields(kind)])

    def of(self, kind: Any, values: Mapping[str, str] | None = None) -> Schema:
        """Return the schema of a type; `values` are the texts that it may have, each with what it means."""
        kind = RingJson if kind is HashRing else kind
        if kind is str and values:
            return {"oneOf": [{"const": value, "description": says} for value, says in values.items()]}
        if isinstance(kind, ForwardRef):  # inside of a type that contains itself
            return {}
        return _PLAIN[kind] if kind in _PLAIN else self._of_composed(kind, values)

    def _of_composed(self, kind: Any, values: Mapping[str, str] | None) -> Schema:
        arguments = get_args(kind)
        origin = get_origin(kind) or kind
        if _is_union(kind):
            return {"anyOf": [self.of(each, values) for each in arguments]}
        if origin is Literal:
            return {"enum": list(arguments)}
        if isinstance(origin, type) and issubclass(origin, _CONTAINERS) and not _has_fields(origin):
            return self._container(origin, arguments, values)
        return self._reference(kind)

    def _container(self, origin: type, arguments: Sequence[Any], values: Mapping[str, str] | None) -> Schema:
        if issubclass(origin, Mapping):
            return {"type": "object"} | ({"additionalProperties": self.of(arguments[1])} if arguments else {})
        if origin is tuple and arguments[-1] is not ...:
            items = [self.of(each) for each in arguments]
            return {"type": "array", "items": items, "minItems": len(items), "maxItems": len(items)}
        return {"type": "array", "items": self.of(arguments[0], values)}

    def _reference(self, kind: Any) -> Schema:
        if hasattr(kind, "as_json"):
            kind = get_type_hints(kind.as_json)["return"]
        name = kind.__name__
        if name not in self._kinds:
            self._kinds[name] = kind
            self.definitions[name] = (
                self.document("plan", PlanFields) if kind is Plan else _object(self._fields(kind))
            )
        if self._kinds[name] is not kind:
            raise TypeError(f"{kind} and {self._kinds[name]} have the same name: rename one of them")
        return {"$ref": f"#/definitions/{name}"}

    def _fields(self, kind: Any) -> Iterator[_Field]:
        """Yield the fields of a dataclass, a named tuple or a `TypedDict` as JSON has them."""
        hints = get_type_hints(kind, include_extras=True)
        says = _descriptions(kind)
        shown = (
            dict(described(kind))
            if isinstance(kind, type) and is_dataclass(kind)
            else dict.fromkeys(hints, Shown())
        )
        for name, how in shown.items():
            type_ = hints[name]
            if how.json is None:
                continue
            if how.group is not None:
                yield from self._group(how.group, is_required=NoneType not in get_args(type_))
                continue
            is_required = not how.optional
            if get_origin(type_) is NotRequired:
                (type_,) = get_args(type_)
                is_required = False
            if Absent in get_args(type_):
                type_ = _without(type_, Absent)
                is_required = False
            if how.optional:
                type_ = _without(type_, NoneType)
            description = {"description": says[name]} if name in says else {}
            schema = description | self.of(_type_in_json(how.as_json, type_), how.values)
            yield _Field(how.json or name, schema, is_required and _is_total(kind))

    def _group(self, kind: Any, *, is_required: bool) -> Iterator[_Field]:
        """Yield the fields of a group; of one of several types all fields, of which those are required that each of them has."""
        sides = [list(self._fields(each)) for each in (get_args(kind) if _is_union(kind) else (kind,))]
        for name in dict.fromkeys(field.name for side in sides for field in side):
            same = [field for side in sides for field in side if field.name == name]
            schemas = [field.schema for field in same]
            schema = schemas[0] if all(each == schemas[0] for each in schemas) else {"anyOf": schemas}
            is_in_all = len(same) == len(sides) and all(field.is_required for field in same)
            yield _Field(name, schema, is_required and is_in_all)


def _object(fields: Iterable[_Field]) -> Schema:
    schemas = {field.name: field for field in fields}
    return {
        "type": "object",
        "properties": {name: field.schema for name, field in schemas.items()},
        "required": [name for name, field in schemas.items() if field.is_required],
    }


def _has_fields(kind: Any) -> bool:
    return hasattr(kind, "as_json") or hasattr(kind, "_fields") or is_typeddict(kind)


def _is_union(kind: Any) -> bool:
    return get_origin(kind) in (Union, UnionType)


def _is_total(kind: Any) -> bool:
    return bool(getattr(kind, "__total__", True))


def _without(kind: Any, left_out: Any) -> Any:
    """Return a union without one of its types; another type as it is."""
    if not _is_union(kind):
        return kind
    return Union[tuple(each for each in get_args(kind) if each is not left_out)]  # noqa: UP007  # of values


def _type_in_json(as_json: Callable[[Any], Any], kind: Any) -> Any:
    """Return the type to which a field is converted; that of the field if the conversion does not say it."""
    hints = get_type_hints(as_json) if inspect.isfunction(as_json) else {}
    found = hints.get("return", Any)
    return kind if found is Any else found


def _descriptions(kind: Any) -> dict[str, str]:
    """Return the sentences of the section "Attributes" of a docstring, by the attribute."""
    found: dict[str, str] = {}
    bases = [*kind.__mro__]
    if is_typeddict(kind) and kind.__annotations__.keys() > OriginJson.__annotations__.keys():
        bases.append(OriginJson)  # a `TypedDict` does not know which other one it extends
    for each in reversed(bases):
        _, _, section = inspect.cleandoc(each.__doc__ or "").partition("\nAttributes:\n")
        section = section.partition("\n\n")[0]
        for name, says in re.findall(r"^    (\w+): (.+(?:\n {8}.+)*)", section, re.MULTILINE):
            text = " ".join(says.split())
            found[name] = f"{text[0].upper()}{text[1:].removesuffix('.')}."
    return found
