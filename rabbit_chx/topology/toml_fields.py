"""Every field of a topology file, once: the parser, the JSON Schema and the tables of docs/topology.md use this."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from rabbit_chx.amqp.fields import INTEGER_RANGES
from rabbit_chx.routing.ring_state import MAX_BUCKETS
from rabbit_chx.topology.objects import HASH_EXCHANGE
from rabbit_chx.topology.problems import similar

__all__ = ["BINDING", "EXCHANGE", "FILE", "MEMBER", "POLICY", "QUEUE", "EntryField", "EntryType"]

#: What is wrong with a value, and what to write instead.
Fault = tuple[str, str]

_LONG = INTEGER_RANGES["long"]
_WEIGHT = r"^\+?0*[1-9][0-9]*$"
_MAX_KEY = 255
MAX_SLOTS = 16_384
_INT_32 = 1 << 31
_RING_FIELDS = ("ring", "slots", "members")


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


@dataclass(frozen=True, slots=True)
class EntryField:
    """A field of an entry.

    Attributes:
        name: its name in the file.
        kind: which values it takes, or the entries of which it holds a list.
        meaning: what it is, for the documents.
        default: its value where it is not written; None: it has none.
        required: whether it has to be there.
        ranges: whether ``{1..40}`` in it stands for forty.
    """

    name: str
    kind: FieldKind | EntryType
    meaning: str
    default: Any = None
    required: bool = False
    ranges: bool = False


@dataclass(frozen=True, slots=True)
class EntryRule:
    """A rule that joins fields of an entry.

    Attributes:
        fault: returns the field concerned, what is wrong and what to do, for the fields that are written; None if
            nothing is wrong. It is not asked where one of `fields` is wrong by itself.
        fields: the fields that it looks at.
        schema: the same as JSON Schema.
    """

    fault: Callable[[Mapping[str, Any]], tuple[str, Fault] | None]
    fields: tuple[str, ...]
    schema: Mapping[str, Any]


@dataclass(frozen=True, slots=True, eq=False)
class EntryType:
    """What an entry may hold.

    Attributes:
        noun: what an entry is, with its article.
        fields: its fields, in the order of the documents.
        rules: what joins the fields.
        example: an entry, as it is written in a list.
    """

    noun: str
    fields: tuple[EntryField, ...]
    rules: tuple[EntryRule, ...] = ()
    example: str = "{ name = value, ... }"

    @property
    def ranged(self) -> tuple[str, ...]:
        """The names of the fields that may hold ranges."""
        return tuple(field.name for field in self.fields if field.ranges)

    @property
    def identity(self) -> tuple[str, ...]:
        """The names of the fields without which nobody knows which object an entry is."""
        return tuple(
            field.name for field in self.fields if field.required or field.name in ("queue", "exchange")
        )

    @property
    def defaults(self) -> dict[str, Any]:
        """The value of each field that is not written."""
        return {field.name: field.default for field in self.fields}


def _one_destination(entry: Mapping[str, Any]) -> tuple[str, Fault] | None:
    if ("queue" in entry) != ("exchange" in entry):
        return None
    rule = "the destination is either a queue or an exchange"
    if "queue" in entry:
        return "exchange", (rule, "write only one of `queue` and `exchange`")
    return "queue", (rule, "write `queue` or `exchange`")


def _ring_where_none_is(entry: Mapping[str, Any]) -> tuple[str, Fault] | None:
    type_ = entry.get("type", "direct")
    said = next((name for name in (*_RING_FIELDS, "max_share_moved") if name in entry), None)
    if said is None or type_ == HASH_EXCHANGE:
        return None
    rule = f"only an exchange of type {HASH_EXCHANGE} has a ring, and this is of type {type_}"
    if said == "max_share_moved":
        return said, (rule, "leave `max_share_moved` out")
    return said, (rule, f'write type = "{HASH_EXCHANGE}", or [[bindings]] instead of `{said}`')


def _ring_or_slots(entry: Mapping[str, Any]) -> tuple[str, Fault] | None:
    said = tuple(name for name in _RING_FIELDS if name in entry)
    if entry.get("type") != HASH_EXCHANGE or said in ((), ("ring",), ("slots", "members")):
        return None
    if "ring" in said:
        rule = "slots make the ring, so an exchange has either"
        return said[1], (rule, "leave out `ring`, or `slots` and `members`")
    rule = "`slots` is the number of slots, and `members` share them"
    if said == ("slots",):
        return "members", (rule, "write `members` too")
    return "slots", (rule, "write `slots` too, or `ring` instead of `members`")


def _weight_or_slots(entry: Mapping[str, Any]) -> tuple[str, Fault] | None:
    if "weight" in entry and "slots" in entry:
        return "slots", (
            "a member has a weight, or a list of its slots",
            "write only one of `weight` and `slots`",
        )
    return None


_DESTINATION = EntryRule(
    _one_destination, ("queue", "exchange"), {"oneOf": [{"required": ["queue"]}, {"required": ["exchange"]}]}
)
_IS_HASH_EXCHANGE = {"properties": {"type": {"const": HASH_EXCHANGE}}, "required": ["type"]}
_HAS_SLOTS = {"anyOf": [{"required": ["slots"]}, {"required": ["members"]}]}
_NO_RING = EntryRule(
    _ring_where_none_is,
    ("type", *_RING_FIELDS, "max_share_moved"),
    {
        "if": {"not": _IS_HASH_EXCHANGE},
        "then": {"not": {"anyOf": [{"required": [name]} for name in (*_RING_FIELDS, "max_share_moved")]}},
    },
)
_RING = EntryRule(
    _ring_or_slots,
    ("type", *_RING_FIELDS),
    {
        "if": _IS_HASH_EXCHANGE,
        "then": {
            "oneOf": [
                {"required": ["ring"], "not": _HAS_SLOTS},
                {"required": ["slots", "members"], "not": {"required": ["ring"]}},
                {"not": {"anyOf": [{"required": ["ring"]}, _HAS_SLOTS]}},
            ]
        },
    },
)

_OWNER = EntryField(
    "owner",
    choice("an owner", "ours", "external"),
    "`external`: someone else declares it. It is checked, and never declared or deleted.",
    "ours",
)
_ARGUMENTS = EntryField(
    "arguments", TABLE, "Arguments of the declaration. A text in it may hold a range.", {}, ranges=True
)
_DURABLE = EntryField("durable", FLAG, "Whether it survives a restart of the broker.", default=True)

MEMBER = EntryType(
    "a member",
    (
        EntryField("queue", NAME, "The queue that is bound. Write `queue` or `exchange`.", ranges=True),
        EntryField("exchange", NAME, "The exchange that is bound.", ranges=True),
        EntryField(
            "weight",
            WEIGHT,
            'How many buckets it has. A text is the binding key as it is: `"007"` is another binding than 7.',
            1,
        ),
        EntryField(
            "arguments", TABLE, "Arguments of the binding. They change nothing in the ring.", {}, ranges=True
        ),
    ),
    (_DESTINATION,),
    '{ queue = "...", weight = 1 }',
)
_SHARER = EntryType(
    "a member",
    (
        EntryField("queue", NAME, "The queue.", required=True, ranges=True),
        EntryField("weight", WEIGHT, "Its part of the slots, relative to the other members.", 1),
        EntryField(
            "slots",
            whole_numbers("a slot", 0, MAX_SLOTS - 1),
            "Instead of `weight`: the slots that it has, counted from 0. Then all members list theirs.",
        ),
    ),
    (EntryRule(_weight_or_slots, ("weight", "slots"), {"not": {"required": ["weight", "slots"]}}),),
    example='{ queue = "...", weight = 1 }',
)
EXCHANGE = EntryType(
    "an exchange",
    (
        EntryField("name", NAME, "Its name.", required=True, ranges=True),
        EntryField(
            "type",
            NAME,
            f"`direct`, `fanout`, `topic`, `headers`, `{HASH_EXCHANGE}`, or any other type that the broker knows.",
            "direct",
        ),
        _DURABLE,
        EntryField("auto_delete", FLAG, "Whether it goes with its last binding.", default=False),
        EntryField("internal", FLAG, "Whether only other exchanges may publish to it.", default=False),
        _ARGUMENTS,
        EntryField(
            "ring",
            MEMBER,
            f"The members of an `{HASH_EXCHANGE}` exchange, in bind order: the order of the buckets.",
        ),
        EntryField(
            "slots",
            whole_number("the number of slots", 1, MAX_SLOTS),
            "Instead of `ring`: how many slot exchanges make the ring.",
        ),
        EntryField("members", _SHARER, "With `slots`: the queues that share them."),
        EntryField(
            "max_share_moved",
            SHARE,
            "The largest share of keys that a plan may move in this exchange. Default: that of the file.",
        ),
        _OWNER,
    ),
    (_NO_RING, _RING),
)
QUEUE = EntryType(
    "a queue",
    (
        EntryField("name", NAME, "Its name.", required=True, ranges=True),
        EntryField(
            "type",
            choice("a queue's type", "classic", "quorum", "stream"),
            "Its type, `x-queue-type`.",
            "classic",
        ),
        _DURABLE,
        EntryField(
            "exclusive",
            FLAG,
            "Whether it belongs to the connection that declared it, and goes with that.",
            default=False,
        ),
        EntryField("auto_delete", FLAG, "Whether it goes with its last consumer.", default=False),
        _ARGUMENTS,
        _OWNER,
    ),
)
BINDING = EntryType(
    "a binding",
    (
        EntryField("source", NAME, "The exchange that messages come from.", required=True, ranges=True),
        EntryField("queue", NAME, "The queue that they go to. Write `queue` or `exchange`.", ranges=True),
        EntryField("exchange", NAME, "The exchange that they go to.", ranges=True),
        EntryField("routing_key", ROUTING_KEY, "The binding key.", "", ranges=True),
        EntryField(
            "arguments",
            TABLE,
            "Arguments, such as those of a `headers` exchange. A text in it may hold a range.",
            {},
            ranges=True,
        ),
        _OWNER,
    ),
    (_DESTINATION,),
)
POLICY = EntryType(
    "a policy",
    (
        EntryField("name", NAME, "Its name.", required=True),
        EntryField("pattern", ROUTING_KEY, "The regular expression that names match.", required=True),
        EntryField(
            "apply_to",
            choice(
                "what a policy applies to",
                "all",
                "exchanges",
                "queues",
                "classic_queues",
                "quorum_queues",
                "streams",
            ),
            "What it applies to.",
            "all",
        ),
        EntryField("definition", TABLE, "What it sets.", required=True),
        EntryField(
            "priority",
            whole_number("a priority", -_INT_32, _INT_32 - 1),
            "Of two policies that match, the one with the larger number applies.",
            0,
        ),
        _OWNER,
    ),
)
FILE = EntryType(
    "the file",
    (
        EntryField("cluster", NAME, "The name of the cluster. A plan for another one is refused."),
        EntryField(
            "max_share_moved",
            SHARE,
            "The largest share of keys that a plan may move in a hash exchange, unless the exchange says otherwise.",
        ),
        EntryField(
            "owns",
            NAMES,
            "Names that belong to this file, as `orders.*`: a plan may delete exchanges and queues of such names that the "
            "file does not list.",
            [],
        ),
        EntryField("exchanges", EXCHANGE, "The exchanges.", []),
        EntryField("queues", QUEUE, "The queues.", []),
        EntryField("bindings", BINDING, f"The bindings of all exchanges but `{HASH_EXCHANGE}` ones.", []),
        EntryField("policies", POLICY, "The policies.", []),
    ),
)
