"""Every field of a topology file, once: the parser, the JSON Schema and the tables of docs/topology.md use this."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rabbit_chx.topology.files.field_kinds import (
    FLAG,
    NAME,
    NAMES,
    ROUTING_KEY,
    SHARE,
    TABLE,
    WEIGHT,
    FieldKind,
    choice,
    whole_number,
    whole_numbers,
)
from rabbit_chx.topology.objects import HASH_EXCHANGE

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from rabbit_chx.topology.files.field_kinds import Fault

__all__ = [
    "BINDING", "EXCHANGE", "FILE", "MAX_SLOTS", "MEMBER", "POLICY", "QUEUE", "EntryField", "EntryRule", "EntryType",
]  # fmt: skip

MAX_SLOTS = 16_384
_INT_32 = 1 << 31
_RING_FIELDS = ("ring", "slots", "members")


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
