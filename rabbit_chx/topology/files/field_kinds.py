"""The kinds of fields of a topology file: which values they take, in words and as JSON Schema."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rabbit_chx.amqp.fields import INTEGER_RANGES
from rabbit_chx.routing.ring_state import MAX_BUCKETS
from rabbit_chx.topology.problems import similar

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = [
    "FLAG",
    "NAME",
    "NAMES",
    "ROUTING_KEY",
    "SHARE",
    "TABLE",
    "WEIGHT",
    "Fault",
    "FieldKind",
    "choice",
    "whole_number",
    "whole_numbers",
]  # fmt: skip

#: What is wrong with a value, and what to write instead.
Fault = tuple[str, str]

_LONG = INTEGER_RANGES["long"]
_WEIGHT = r"^\+?0*[1-9][0-9]*$"
_MAX_KEY = 255


@dataclass(frozen=True, slots=True)
class FieldKind:
    """Which values a field takes.

    Attributes:
        label: what the documents call the kind.
        fault: returns what is wrong with a value; None if nothing is.
        schema: the JSON Schema of such values.
    """

    label: str
    fault: Callable[[Any], Fault | None]
    schema: Mapping[str, Any] = field(hash=False)


def choice(what: str, *words: str) -> FieldKind:
    """Return the kind of a field that is one of a few words.

    Args:
        what: the subject of the rule, such as ``a queue's type``.
        words: the words.
    """
    said = f"{', '.join(words[:-1])} or {words[-1]}"

    def fault(value: Any) -> Fault | None:  # noqa: ANN401
        if isinstance(value, str) and value in words:
            return None
        meant = similar(value, words) if isinstance(value, str) else None
        return f"{what} is {said}", f'write "{meant}"' if meant else "write one of them, in quotes"

    return FieldKind(" or ".join(f"`{word}`" for word in words), fault, {"enum": list(words)})


def whole_number(what: str, least: int, most: int, remedy: str = "") -> FieldKind:
    """Return the kind of a field that is a whole number.

    Args:
        what: the subject of the rule, such as ``a priority``.
        least: the smallest number.
        most: the largest number.
        remedy: what to do about another value.
    """

    def fault(value: Any) -> Fault | None:  # noqa: ANN401
        if _is_whole(value) and least <= value <= most:
            return None
        return (
            f"{what} is a whole number from {least} to {most}",
            remedy or "write such a number, without quotes",
        )

    return FieldKind("whole number", fault, {"type": "integer", "minimum": least, "maximum": most})


def whole_numbers(what: str, least: int, most: int) -> FieldKind:
    """Return the kind of a field that is a list of whole numbers, each of them once.

    Args:
        what: the subject of the rule, such as ``a slot``.
        least: the smallest number.
        most: the largest number.
    """

    def fault(value: Any) -> Fault | None:  # noqa: ANN401
        if not isinstance(value, list) or not value:
            return f"this is a list of whole numbers from {least} to {most}", "write it as [0, 1, 2]"
        if not all(_is_whole(one) and least <= one <= most for one in value):
            return f"{what} is a whole number from {least} to {most}", "write such numbers, without quotes"
        if len(set(value)) < len(value):
            return f"{what} is there twice", "write each number once"
        return None

    items = {"type": "integer", "minimum": least, "maximum": most}
    return FieldKind(
        "list of whole numbers", fault, {"type": "array", "minItems": 1, "uniqueItems": True, "items": items}
    )


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _name_fault(value: Any) -> Fault | None:  # noqa: ANN401
    if isinstance(value, str) and value:
        return None
    if isinstance(value, list):
        return "this is one name", 'write an entry for each, or a range, as in "orders.{1..4}"'
    return "a name is text that is not empty", "write the name in quotes"


def _text_fault(value: Any) -> Fault | None:  # noqa: ANN401
    return None if isinstance(value, str) else ("this is text", "write it in quotes")


def _names_fault(value: Any) -> Fault | None:  # noqa: ANN401
    if isinstance(value, list) and all(isinstance(name, str) and name for name in value):
        return None
    return "this is a list of names", 'write it as ["orders.*"]'


def _flag_fault(value: Any) -> Fault | None:  # noqa: ANN401
    return None if isinstance(value, bool) else ("this is true or false", "write one of them, without quotes")


def _share_fault(value: Any) -> Fault | None:  # noqa: ANN401
    if isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value <= 1:
        return None
    return "a share is a number from 0 to 1", "write 5 % as 0.05"


def _weight_fault(value: Any) -> Fault | None:  # noqa: ANN401
    if _is_whole(value) and 1 <= value <= MAX_BUCKETS:
        return None
    if isinstance(value, str) and len(value) <= _MAX_KEY and re.match(_WEIGHT, value) and value[-1] != "\n":
        return None
    rule = f"a weight is a whole number from 1 to {MAX_BUCKETS}"
    if _is_whole(value) and value > MAX_BUCKETS:
        return rule, "divide all weights by the same number"
    if value in (0, "0") and not isinstance(value, bool):
        return rule, "leave the member out if it gets no messages"
    return rule, "write such a number"


def _table_fault(value: Any) -> Fault | None:  # noqa: ANN401
    if not isinstance(value, Mapping):
        return "this is a table", "write it as { name = value, other = value }"
    return _value_fault(value)


def _value_fault(value: Any) -> Fault | None:  # noqa: ANN401
    if isinstance(value, Mapping):
        return next((fault for item in value.values() if (fault := _value_fault(item))), None)
    if isinstance(value, list):
        return next((fault for item in value if (fault := _value_fault(item))), None)
    if isinstance(value, float) and not math.isfinite(value):
        return f"RabbitMQ does not read the number {value}", "write a finite number"
    if _is_whole(value) and value not in _LONG:
        return "AMQP carries whole numbers of 64 bits at most", "write a smaller number"
    if isinstance(value, (str, bool, int, float)):
        return None
    return (
        f"a value here is text, a number, true or false, a list or a table, not a {type(value).__name__}",
        "write a date as text in quotes, or as the number of its seconds",
    )


NAME = FieldKind("name", _name_fault, {"type": "string", "minLength": 1})
ROUTING_KEY = FieldKind("text", _text_fault, {"type": "string"})
NAMES = FieldKind(
    "list of names", _names_fault, {"type": "array", "items": {"type": "string", "minLength": 1}}
)
FLAG = FieldKind("`true` or `false`", _flag_fault, {"type": "boolean"})
SHARE = FieldKind("number, 0 to 1", _share_fault, {"type": "number", "minimum": 0, "maximum": 1})
WEIGHT = FieldKind(
    "whole number from 1",
    _weight_fault,
    {
        "anyOf": [
            {"type": "integer", "minimum": 1, "maximum": MAX_BUCKETS},
            {"type": "string", "pattern": _WEIGHT, "maxLength": _MAX_KEY},
        ]
    },
)
TABLE = FieldKind("table", _table_fault, {"$ref": "#/definitions/table"})
