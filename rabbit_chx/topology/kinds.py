"""The kinds of values that a field, an argument or a setting accepts, each with the fault of any other value and its remedy."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from rabbit_chx.checks import MAX_SHORTSTR, is_number, is_whole, similar, too_long
from rabbit_chx.routing.bindings import MAX_BUCKETS
from rabbit_chx.topology.argument_table import argument_fault, show_value, unsendable
from rabbit_chx.topology.ranges import RangeError, expand

#: The fault of a value, and its remedy.
Fault = tuple[str, str]
_UNQUOTED = "write it without quotes"
_INTEGER = re.compile(r"-?[0-9]{1,18}")
#: The binding key of a weight: Erlang's ``binary_to_integer/1`` accepts a sign and leading zeros.
WEIGHT_PATTERN = r"\+?0*[1-9][0-9]*"
SLOT_PATTERN = r"([0-9]{1,9})(?:\.\.([0-9]{1,9}))?"
MAX_SLOTS = 16_384


@dataclass(frozen=True, slots=True, eq=False)
class Kind:
    """The set of values that a field accepts.

    Attributes:
        label: the name of the kind in the documentation.
        fault: returns the fault of a value and its remedy; None if the value is valid.
        allowed: the values, if they can be listed.
    """

    label: str
    fault: Callable[[Any], Fault | None]
    allowed: tuple[str, ...] | range = ()


def choice(*words: str) -> Kind:
    """Return the kind of a field with a few permitted words."""

    def fault(value: Any) -> Fault | None:
        if isinstance(value, str) and value in words:
            return None
        meant = similar(value, words) if isinstance(value, str) else None
        remedy = f'write "{meant}"' if meant else "write one of them in quotes"
        return f"the value must be {', '.join(words[:-1])} or {words[-1]}", remedy

    return Kind(" or ".join(f"`{word}`" for word in words), fault, words)


def whole_number(least: int, most: int | None = None, unit: str = "") -> Kind:
    """Return the kind of a field that is an integer within bounds."""
    bounds = f"an integer of {least} or more" if most is None else f"an integer from {least} to {most}"
    expected = str(least) if least == most else bounds
    allowed = range(least, (1 << 63 if most is None else most + 1))

    def fault(value: Any) -> Fault | None:
        if is_whole(value) and value in allowed:
            return None
        remedy = f"write a number, such as {max(least, 1)}"
        if is_whole(value):
            remedy = f"write {least} or more" if value < least else f"write {allowed[-1]} or less"
        elif isinstance(value, str) and _INTEGER.fullmatch(value) and int(value) in allowed:
            remedy = _UNQUOTED
        return f"the value must be {expected}{unit}", remedy

    return Kind("integer", fault, allowed)


def kind_of(label: str, is_valid: Callable[[Any], bool], expected: str, remedy: str) -> Kind:
    """Return a kind whose values pass a test; all others have the same fault."""
    fault = (f"the value must be {expected}", remedy)
    return Kind(label, lambda value: None if is_valid(value) else fault)


def name_fault(value: Any) -> Fault | None:
    """Return what is wrong with a name; None if it is valid."""
    if isinstance(value, list):
        return "the value must be one name", 'write an entry for each, or a range such as "orders.{1..4}"'
    if not isinstance(value, str) or not value:
        return (
            "a name must be a non-empty string",
            "write a name" if value == "" else "write the name in quotes",
        )
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        return "the name contains half of a surrogate pair, which is not UTF-8", "write whole characters"
    if size > MAX_SHORTSTR:
        return too_long("the name", size), "write a shorter name"
    if "\n" in value or "\r" in value:
        return "RabbitMQ removes line breaks from names, so the name would differ", "write it on one line"
    return None


def _flag_fault(value: Any) -> Fault | None:
    if isinstance(value, bool):
        return None
    return "the value must be true or false", _UNQUOTED if value in ("true", "false") else "write one of them"


def _key_fault(value: Any) -> Fault | None:
    if not isinstance(value, str):
        return STRING.fault(value)
    size = len(value.encode(errors="replace"))
    return (too_long("the key", size), "write a shorter key") if size > MAX_SHORTSTR else None


def _weight_fault(value: Any) -> Fault | None:
    if is_whole(value, 1, MAX_BUCKETS):
        return None
    if isinstance(value, str) and len(value) <= MAX_SHORTSTR and re.fullmatch(WEIGHT_PATTERN, value):
        return None
    remedy = "write a positive integer"
    if is_whole(value) and value > MAX_BUCKETS:
        remedy = "divide all weights by the same number"
    elif value in (0, "0") and not isinstance(value, bool):
        remedy = "remove the member if it should get no messages"
    return f"a weight must be an integer from 1 to {MAX_BUCKETS}", remedy


def _table_fault(value: object) -> Fault | None:
    if not isinstance(value, Mapping):
        return "the value must be a table", "write it as { name = value, other = value }"
    faults = (
        argument_fault(str(name), inner) or unsendable(str(name), inner) for name, inner in value.items()
    )
    return next(filter(None, faults), None)


def _slots_fault(value: Any) -> Fault | None:
    """Return the fault of a list of slots: numbers, and texts such as ``"37"`` and ``"00..11"``."""
    if not isinstance(value, list) or not value:
        return "the value must be a list of slots", 'write it as ["00..11", "37"] or as [0, 1, 2]'

    known: set[int] = set()
    for part in value:
        numbers = slots_of(part)
        shown = show_value(part)
        if numbers is None:
            return (
                f"{shown} is neither a slot nor a range",
                'write a slot as 37 or "37", and a range as "00..11"',
            )
        if not numbers:
            first, _, last = part.partition("..")
            return f"the range {shown} counts down", f'write "{last}..{first}"'
        if not 0 <= numbers[0] <= numbers[-1] < MAX_SLOTS:
            return f"{shown} is out of range", f"write slots from 0 to {MAX_SLOTS - 1}"
        if twice := known.intersection(numbers):
            return f"the list contains slot {min(twice)} twice", "write each slot once"

        known.update(numbers)

    return None


def slots_of(part: object) -> range | None:
    """Return the slots of a part of a list; an empty range if it counts down, None if it is invalid."""
    if isinstance(part, str):
        bounds = re.fullmatch(SLOT_PATTERN, part)
        if bounds is None:
            return None
        first, last = bounds.groups()
        return range(int(first), int(last or first) + 1)
    return range(part, part + 1) if is_whole(part) else None


def _list_once(noun: str, plural: str, example: str, once: str, least: int = 0) -> Kind:
    """Return the kind of a list of names with ranges, in which each name occurs once."""

    def fault(value: Any) -> Fault | None:
        if not _is_list_of_names(value) or len(value) < least:
            return f"the value must be a list of {plural}", f"write it as {example}"
        try:
            names = expand_names(value)
        except RangeError as error:
            return error.rule, error.remedy
        if twice := next((name for name, count in Counter(names).items() if count > 1), None):
            return f"{noun} {twice} is listed twice", f"write each {noun} once{once}"
        return next(filter(None, map(name_fault, names)), None)

    return Kind("list of names", fault)


def expand_names(names: Iterable[str]) -> list[str]:
    """Return the names of a list with ranges."""
    return [entry["queue"] for name in names for entry in expand({"queue": name}, ["queue"])]


def _is_list_of_names(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(name, str) and name for name in value)


NAME = Kind("name", name_fault)
KEY = Kind("string", _key_fault)
STRING = kind_of("string", lambda value: isinstance(value, str), "a string", "write it in quotes")
FLAG = Kind("`true` or `false`", _flag_fault)
#: The name of an exchange, also of the default exchange.
EXCHANGE_NAME = Kind("name", lambda value: None if value == "" else name_fault(value))
#: A table, or a field of policies. A reader of JSON has its own rules for its values.
OPEN = Kind("any value", lambda _: None)
NAMES = kind_of("list of names", _is_list_of_names, "a list of names", 'write it as ["orders.*"]')
SHARE = kind_of(
    "number, 0 to 1",
    lambda value: is_number(value) and 0 <= value <= 1,
    "a number from 0 to 1",
    "write 5% as 0.05",
)
WEIGHT = Kind("integer from 1", _weight_fault)
TABLE = Kind("table", _table_fault)
SLOT_LIST = Kind("list of slots", _slots_fault)
QUEUE_LIST = _list_once("queue", "names of queues", '["orders.{1..8}"]', ": x-modulus-hash has no weights")
KEY_LIST = _list_once("binding key", "binding keys", '["amer", "emea"]', "", 1)
OWNER = choice("ours", "external")
APPLY_TO = choice("all", "exchanges", "queues", "classic_queues", "quorum_queues", "streams")
PRIORITY = whole_number(-(1 << 31), (1 << 31) - 1)
