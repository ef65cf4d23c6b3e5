"""The fields of objects, a row for each: in a topology file, in RabbitMQ's JSON, and in comparisons.

What reads, writes, compares or documents the fields of exchanges, queues, bindings and policies follows these tables: the topology file and
its JSON Schema, definitions files, the management API, and the changes of a plan. A field also has its attribute in `objects`, with the
default and the meaning.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, NamedTuple, TypeAlias, TypedDict, TypeVar

from rabbit_chx.analysis.findings import Finding
from rabbit_chx.errors import InputError
from rabbit_chx.routing import ExchangeRef, HashRing, Release
from rabbit_chx.text import FEW, listed, plural
from rabbit_chx.topology.argument_table import ArgumentTable, ArgumentValue, plain
from rabbit_chx.topology.kinds import (
    APPLY_TO,
    EXCHANGE_NAME,
    FLAG,
    KEY,
    KEY_LIST,
    MAX_SLOTS,
    NAME,
    NAMES,
    OPEN,
    OWNER,
    PRIORITY,
    QUEUE_LIST,
    SHARE,
    SLOT_LIST,
    STRING,
    TABLE,
    WEIGHT,
    Kind,
    choice,
    expand_names,
    slots_of,
    whole_number,
)
from rabbit_chx.topology.objects import (
    BROKERS_OWN,
    HASH_EXCHANGE,
    MODULUS_EXCHANGE,
    QUEUE_TYPES,
    BindingDefinition,
    ExchangeDefinition,
    ObjectKind,
    ObjectSet,
    PolicyDefinition,
    QueueDefinition,
    RingMember,
    SuperStreamDefinition,
)
from rabbit_chx.topology.objects import SUPER_STREAM as OF_SUPER_STREAM

Entry = Mapping[str, Any]
MAX_PARTITIONS = 10_000
#: The faults of several fields of an entry as written: the field, the fault and the remedy of each.
Faults = Iterator[tuple[str, str, str]]


@dataclass(frozen=True, slots=True, eq=False)
class Field:
    """A field of an entry.

    Attributes:
        name: its name in a topology file, and that of its attribute, if it has one.
        kind: the values in a topology file, or the type of the entries in its list; None: a topology file does not have it.
        json: the values that AMQP can carry, in a definitions file and in the management API; None: they do not have it.
        json_name: its name there, if it is another one.
        needed: whether an entry of a topology file must have it.
        ranged: whether ``{1..40}`` is expanded to forty values.
        compared: whether the broker has it, so that two objects may differ in it.
        default: its default, if it is not an attribute.
        meaning: its meaning, if it is not that of an attribute.
    """

    name: str
    kind: Kind | EntryType | None
    json: Kind | None = None
    json_name: str | None = None
    needed: bool = False
    ranged: bool = False
    compared: bool = False
    default: Any = None
    meaning: str | None = None


@dataclass(frozen=True, eq=False)
class EntryType:
    """The type of an entry.

    Attributes:
        noun: the name of an entry, with its article.
        model: the class of its objects.
        rows: its fields, in the order of the documentation.
        rules: yields the faults of several fields together.
        reads: the fields that `rules` reads. It is not called if one of them is invalid by itself.
        example: an entry as TOML in a list.
        build: returns the arguments of `model`, of the values of the fields.
    """

    noun: str
    model: type
    rows: tuple[Field, ...]
    rules: Callable[[Entry], Faults] = lambda _: iter(())
    reads: tuple[str, ...] = ()
    example: str = "{ name = value, ... }"
    build: Callable[[dict[str, Any]], dict[str, Any]] = dict

    @cached_property
    def fields(self) -> Mapping[str, Kind | EntryType]:
        """The kind of each field of a topology file."""
        return {row.name: row.kind for row in self.rows if row.kind is not None}

    @cached_property
    def required(self) -> tuple[str, ...]:
        """The fields that an entry of a topology file must have."""
        return tuple(row.name for row in self.rows if row.needed)

    @cached_property
    def ranged(self) -> tuple[str, ...]:
        """The fields in which ``{1..40}`` is expanded to forty values."""
        return tuple(row.name for row in self.rows if row.ranged)

    @cached_property
    def json(self) -> Mapping[str, Kind]:
        """The kind of each field of RabbitMQ's JSON. An attribute has the name of its field, with ``_`` for ``-``."""
        return {row.json_name or row.name: row.json for row in self.rows if row.json is not None}

    @cached_property
    def compared(self) -> tuple[str, ...]:
        """The attributes that the broker has, besides the name; the table is the last."""
        compared = (row for row in self.rows if row.compared)
        return tuple(row.name for row in sorted(compared, key=lambda row: row.kind is TABLE))

    @cached_property
    def defaults(self) -> Mapping[str, Any]:
        """The value of each field of a topology file that is not written; None for fields without a default."""
        known = {attribute.name: attribute.default for attribute in dataclasses.fields(self.model)}
        return {
            row.name: None if row.needed else known.get(row.name, row.default)
            for row in self.rows
            if row.kind is not None
        }

    def has_ranges(self, name: str, value: object) -> bool:
        """Return True if a field has a text that is expanded. It is checked after the expansion."""
        is_text = isinstance(value, str) and value != ""
        return is_text and name in self.ranged and self.fields[name] in (NAME, KEY)

    def object_of(self, entry: Entry) -> Any:
        """Return the object of an entry that has a value for each field."""
        return self.model(**self.build(dict(entry)))


def _with_destination(values: dict[str, Any]) -> dict[str, Any]:
    queue = values.pop("queue")
    exchange = values.pop("exchange", None)
    return {**values, "destination": ExchangeRef(exchange) if queue is None else queue}


def _with_key(values: dict[str, Any]) -> dict[str, Any]:
    weight = values.pop("weight")
    return {**_with_destination(values), "key": weight}


def _with_slots(values: dict[str, Any]) -> dict[str, Any]:
    slots = values.pop("slots")
    numbers = None if slots is None else [number for part in slots for number in slots_of(part) or ()]
    return {**_with_key(values), "slots": numbers}


def _with_queues(values: dict[str, Any]) -> dict[str, Any]:
    queues = values.pop("queues")
    return {**values, "queues": None if queues is None else expand_names(queues)}


def _with_binding_keys(values: dict[str, Any]) -> dict[str, Any]:
    keys = values.pop("binding_keys")
    return {**values, "binding_keys": None if keys is None else tuple(expand_names(keys))}


def _destination_faults(entry: Entry) -> Faults:
    message = "the destination must be either a queue or an exchange"
    if {"queue", "exchange"} <= entry.keys():
        yield "exchange", message, "write only one of `queue` and `exchange`"
    elif not {"queue", "exchange"} & entry.keys():
        yield "queue", message, "write `queue` or `exchange`"


def _slot_member_faults(entry: Entry) -> Faults:
    if {"weight", "slots"} <= entry.keys():
        message = "a member has either a weight or a list of its slots"
        yield "slots", message, "write only one of `weight` and `slots`"


def _super_stream_faults(entry: Entry) -> Faults:
    message = "a super stream has either a number of partitions or a list of their binding keys"
    if {"partitions", "binding_keys"} <= entry.keys():
        yield "binding_keys", message, "write only one of `partitions` and `binding_keys`"
    elif not {"partitions", "binding_keys"} & entry.keys():
        yield "partitions", message, "write partitions = 3, or `binding_keys`"


def _exchange_faults(entry: Entry) -> Faults:
    type_ = entry.get("type", "direct")
    written = [name for name in ("ring", "slots", "members") if name in entry]
    arguments = entry.get("arguments")
    is_super_stream = isinstance(arguments, Mapping) and OF_SUPER_STREAM in arguments
    hashes_keys = type_ in (HASH_EXCHANGE, MODULUS_EXCHANGE) or is_super_stream

    if written and type_ != HASH_EXCHANGE:
        message = f"only an exchange of type {HASH_EXCHANGE} has a ring, and this one is of type {type_}"
        fix = f'write type = "{HASH_EXCHANGE}", or [[bindings]] instead of `{written[0]}`'
        yield written[0], message, fix
    elif "queues" in entry and type_ != MODULUS_EXCHANGE:
        message = f"only an exchange of type {MODULUS_EXCHANGE} has `queues`, and this one is of type {type_}"
        fix = "write its members as `ring`" if type_ == HASH_EXCHANGE else "write [[bindings]] instead"
        yield "queues", message, fix
    elif "max_share_moved" in entry and not hashes_keys:
        hashing = f"{HASH_EXCHANGE} or {MODULUS_EXCHANGE}"
        message = f"only an exchange of type {hashing} hashes keys, and this one is of type {type_}"
        yield "max_share_moved", message, "remove `max_share_moved`"
    elif len(written) > 1 and "ring" in written:
        message = "an exchange has either `ring`, or `slots` with `members`"
        yield written[1], message, "remove `ring`, or `slots` and `members`"
    elif written in (["slots"], ["members"]):
        (missing,) = {"slots", "members"} - set(written)
        fix = (
            "write `members` too"
            if missing == "members"
            else "write `slots` too, or `ring` instead of `members`"
        )
        yield missing, "`slots` is the number of slots, and `members` share them", fix


_OWNER = Field("owner", OWNER)
_QUEUE = Field("queue", NAME, ranged=True, meaning="The destination queue.")
_EXCHANGE = Field("exchange", NAME, ranged=True, meaning="The destination exchange, instead of `queue`.")
_MEMBER_EXAMPLE = '{ queue = "...", weight = 1 }'
MEMBER = EntryType(
    "a member", RingMember,
    (
        _QUEUE,
        _EXCHANGE,
        Field("weight", WEIGHT, default=1, meaning='The number of its buckets. A string is used as the binding key unchanged: `"007"` and 7 are two bindings.'),
        Field("arguments", TABLE, ranged=True),
    ),
    rules=_destination_faults, reads=("queue", "exchange"), example=_MEMBER_EXAMPLE, build=_with_key,
)  # fmt: skip
#: A member of an exchange with slots is a queue. It owns a part of the slots by its weight, or the slots that it lists.
SLOT_MEMBER = EntryType(
    "a member", RingMember,
    (
        dataclasses.replace(_QUEUE, needed=True),
        Field("weight", WEIGHT, default=1, meaning="Its share of the slots, relative to the other members."),
        Field("slots", SLOT_LIST, meaning='Instead of `weight`: the slots that it owns, such as `["00..11", "37"]` or `[0, 1, 2]`. A range includes both bounds.'),
    ),
    rules=_slot_member_faults, reads=("weight", "slots"), example=_MEMBER_EXAMPLE, build=_with_slots,
)  # fmt: skip
EXCHANGE = EntryType(
    "an exchange", ExchangeDefinition,
    (
        Field("name", NAME, EXCHANGE_NAME, needed=True, ranged=True),
        Field("type", NAME, STRING, compared=True),
        Field("durable", FLAG, FLAG, compared=True),
        Field("auto_delete", FLAG, FLAG, compared=True),
        Field("internal", FLAG, FLAG, compared=True),
        Field("arguments", TABLE, OPEN, ranged=True, compared=True),
        Field("ring", MEMBER),
        Field("slots", whole_number(1, MAX_SLOTS)),
        Field("members", SLOT_MEMBER),
        Field("queues", QUEUE_LIST),
        Field("max_share_moved", SHARE),
        _OWNER,
    ),
    rules=_exchange_faults, reads=("type", "ring", "slots", "members", "queues", "max_share_moved"), build=_with_queues,
)  # fmt: skip
QUEUE = EntryType(
    "a queue", QueueDefinition,
    (
        Field("name", NAME, NAME, needed=True, ranged=True),
        Field("type", choice(*QUEUE_TYPES), compared=True),
        Field("durable", FLAG, FLAG, compared=True),
        Field("exclusive", FLAG, FLAG, compared=True),
        Field("auto_delete", FLAG, FLAG, compared=True),
        Field("arguments", TABLE, OPEN, ranged=True, compared=True),
        _OWNER,
    ),
)  # fmt: skip
#: The destination is two fields in either format, and one attribute.
BINDING = EntryType(
    "a binding", BindingDefinition,
    (
        Field("source", NAME, EXCHANGE_NAME, needed=True, ranged=True, compared=True),
        _QUEUE,
        _EXCHANGE,
        Field("destination", None, NAME, compared=True),
        Field("destination_type", None, STRING),
        Field("routing_key", KEY, KEY, ranged=True, compared=True),
        Field("arguments", TABLE, OPEN, ranged=True, compared=True),
        _OWNER,
    ),
    rules=_destination_faults, reads=("queue", "exchange"), build=_with_destination,
)  # fmt: skip
#: The short form of the three before.
SUPER_STREAM = EntryType(
    "a super stream", SuperStreamDefinition,
    (
        Field("name", NAME, needed=True, ranged=True),
        Field("partitions", whole_number(1, MAX_PARTITIONS)),
        Field("binding_keys", KEY_LIST),
        Field("arguments", TABLE, ranged=True),
        Field("max_share_moved", SHARE),
        _OWNER,
    ),
    rules=_super_stream_faults, reads=("partitions", "binding_keys"), build=_with_binding_keys,
)  # fmt: skip
POLICY = EntryType(
    "a policy", PolicyDefinition,
    (
        Field("name", NAME, NAME, needed=True),
        Field("pattern", STRING, STRING, needed=True, compared=True),
        Field("apply_to", APPLY_TO, OPEN, "apply-to", compared=True),
        Field("definition", TABLE, OPEN, needed=True, compared=True),
        Field("priority", PRIORITY, OPEN, compared=True),
        _OWNER,
    ),
)  # fmt: skip
#: A file has its own fields before the lists of its objects, as TOML requires.
FILE = EntryType(
    "the file", ObjectSet,
    (
        Field("cluster", NAME),
        Field("vhost", NAME),
        Field("max_share_moved", SHARE),
        Field("owns", NAMES),
        Field("exchanges", EXCHANGE),
        Field("queues", QUEUE),
        Field("bindings", BINDING),
        Field("super_streams", SUPER_STREAM, default=(), meaning="The super streams, each short for an exchange, streams and bindings."),
        Field("policies", POLICY),
    ),
)  # fmt: skip
#: The fields of the objects of a broker.
SCHEMA: Mapping[ObjectKind, EntryType] = {
    "exchange": EXCHANGE,
    "queue": QUEUE,
    "binding": BINDING,
    "policy": POLICY,
}


# -- One change of a plan: an action on an object, field by field


Action: TypeAlias = Literal["create", "update", "replace", "delete", "bind", "unbind"]
NamedObject: TypeAlias = ExchangeDefinition | QueueDefinition | PolicyDefinition
TopologyObject: TypeAlias = NamedObject | BindingDefinition


def _setting_text(value: object) -> str:
    if value is None:
        return "unset"
    if isinstance(value, bool):
        return repr(value).lower()
    return repr(value)


@dataclass(frozen=True, slots=True)
class FieldChange:
    """A field whose value changes, such as ``durable`` or ``arguments.x-max-length``; a missing value is None."""

    field: str
    old: ArgumentValue
    new: ArgumentValue

    @property
    def texts(self) -> list[str]:
        """The old and the new value in words."""
        values = plain({"old": self.old, "new": self.new})
        return [_setting_text(values["old"]), _setting_text(values["new"])]


class ChangeJson(TypedDict):
    """One change of a plan, in JSON."""

    action: Action
    kind: ObjectKind
    name: str
    fields: Sequence[FieldChange]


@dataclass(frozen=True, slots=True)
class PlannedChange:
    """One change of a plan.

    Attributes:
        action: ``create``, ``update``, ``replace`` (delete and create), ``delete``, ``bind`` or ``unbind``.
        live: the live object; None for ``create`` and ``bind``.
        wanted: the wanted object; None for ``delete`` and ``unbind``.
        ring: True for a step of a ring. Such steps run over one channel, one after the other.
    """

    action: Action
    live: TopologyObject | None
    wanted: TopologyObject | None
    ring: bool = False

    def as_json(self) -> ChangeJson:
        """Return the change as an entry of the JSON of a plan."""
        return {"action": self.action, "kind": self.kind, "name": self.name, "fields": self.fields}

    def __str__(self) -> str:
        kind = "" if self.kind == "binding" else f"{self.kind} "
        return f"{self.action} {kind}{self.name}"

    @property
    def subject(self) -> TopologyObject:
        """The wanted object, or else the live one."""
        subject = self.live if self.wanted is None else self.wanted
        assert subject is not None  # a change has an object
        return subject

    @property
    def binding(self) -> BindingDefinition:
        """The binding of a bind or an unbind."""
        subject = self.subject
        assert isinstance(subject, BindingDefinition)  # only bindings are bound or unbound
        return subject

    @property
    def kind(self) -> ObjectKind:
        """``exchange``, ``queue``, ``binding`` or ``policy``."""
        return self.subject.kind

    @property
    def name(self) -> str:
        """The object's name; for a binding both ends and its key, as in ``orders -> orders.1 (key 1)``."""
        return self.subject.name

    @property
    def fields(self) -> tuple[FieldChange, ...]:
        """The fields that differ. A creation or bind has no old values, a deletion or unbind no new ones."""
        return fields_between(self.live, self.wanted)


def fields_between(live: TopologyObject | None, wanted: TopologyObject | None) -> tuple[FieldChange, ...]:
    """Return the fields that differ between two versions of an object, each argument as one field. A missing version is None.

    Values of different types differ, as in the broker: 1, 1.0 and true are three values.
    """
    old = {} if live is None else dict(_values(live))
    new = {} if wanted is None else dict(_values(wanted))
    return tuple(
        FieldChange(name, old.get(name), new.get(name))
        for name in dict.fromkeys([*new, *old])
        if name not in old or name not in new or _differ(old[name], new[name])
    )


def _differ(old: ArgumentValue, new: ArgumentValue) -> bool:
    if isinstance(old, tuple) and isinstance(new, tuple):
        return len(old) != len(new) or any(map(_differ, old, new))
    return type(old) is not type(new) or old != new


def _values(subject: TopologyObject) -> Iterator[tuple[str, ArgumentValue]]:
    for name in SCHEMA[subject.kind].compared:
        value: Any = getattr(subject, name)
        if isinstance(value, ArgumentTable):
            yield from ((f"{name}.{argument}", inner) for argument, inner in value.items())
        else:
            yield name, value if isinstance(value, (str, int, bool)) else str(value)


# -- The objects of a vhost, of all entries that a definitions file or the management API lists
# Both have the same fields in JSON, which `schema` lists.


ListedObject = TypeVar(
    "ListedObject", ExchangeDefinition, QueueDefinition, BindingDefinition, PolicyDefinition
)


def make_object(model: type[ListedObject], entry: Mapping[str, Any]) -> ListedObject:
    """Return the object of an entry whose names and keys are valid.

    A field that is missing or null has the default of the attribute, and so has a flag of another type, which an import can give an exchange.
    """
    values = {}
    for name, kind in SCHEMA[model.kind].json.items():
        value = entry.get(name)
        if value is None or (kind is FLAG and not isinstance(value, bool)):
            continue
        values[name.replace("-", "_")] = value
    if values.pop("destination_type", "queue") != "queue":
        values["destination"] = ExchangeRef(values["destination"])
    return model(**values)


def odd_objects(odd: Collection[str], what: str, fix: str) -> tuple[Finding, ...]:
    """Return a finding that lists odd objects, each with what is odd about it; none if there are none.

    Args:
        odd: the objects.
        what: what is odd about all of them.
        fix: the remedy.
    """
    names = [one.replace("\r", "\\r").replace("\n", "\\n") for one in odd]
    message = f"{plural(len(names), 'object')} {what}: {listed(names, FEW, ';')}"
    return (Finding("odd-object", message, fix),) if names else ()


class VhostObjects(NamedTuple):
    """The objects of a vhost.

    Attributes:
        lists: the lists of a topology, by their names.
        rings: the ring that the members make as listed, in an order that is not known, of each ``x-consistent-hash`` exchange.
        left_out: descriptions of what a topology does not contain.
        sources_left_out: the exchanges whose bindings to server-named queues are left out.
    """

    lists: dict[str, Any]
    rings: dict[str, HashRing]
    left_out: tuple[str, ...]
    sources_left_out: frozenset[str]


def vhost_objects(
    exchanges: Iterable[ExchangeDefinition],
    queues: Iterable[QueueDefinition],
    bindings: Iterable[BindingDefinition],
    policies: Iterable[PolicyDefinition],
    *,
    release: Release | None,
    absence: str = "bindings or arguments name it, but it does not exist",
) -> VhostObjects:
    """Return what a topology has of all objects of a vhost.

    Args:
        exchanges: all exchanges.
        queues: all queues.
        bindings: all bindings, including those of the default exchange and of rings.
        policies: all policies.
        release: the broker's release.
        absence: why a referenced exchange may be missing, for the warning.
    """
    queues = tuple(queues)
    exchanges = [
        exchange for exchange in exchanges if exchange.name and not exchange.name.startswith(BROKERS_OWN)
    ]

    # Each queue is bound to the default exchange.
    bindings = [binding for binding in bindings if binding.source]
    unnamed = [queue.name for queue in queues if queue.name.startswith(BROKERS_OWN)]
    left_out = [f"queue {name}: the broker generated its name" for name in unnamed]
    named = {queue.name for queue in queues}.difference(unnamed)
    members: dict[str, list[RingMember]] = {
        exchange.name: [] for exchange in exchanges if exchange.type == HASH_EXCHANGE
    }
    plain_bindings = []
    sources_left_out = set()

    for binding in bindings:
        source = binding.source
        place = binding.destination
        is_transient = isinstance(place, str) and place not in named
        if source in members:
            members[source].append(RingMember(place, binding.routing_key, binding.arguments))
            if is_transient:
                left_out.append(f"queue {place}: a member of {source} that is not among the queues")
        elif is_transient:
            sources_left_out.add(source)
            left_out.append(f"binding of {source} to {place}: that queue is exclusive or has no name")
        else:
            plain_bindings.append(binding)

    left_out += [f"exchange {name}: {absence}" for name in _find_missing_exchanges(exchanges, bindings)]
    rings, refused = _unordered_rings(members, release)
    lists = {
        "exchanges": tuple(
            replace(exchange, ring=tuple(members[exchange.name])) if exchange.name in members else exchange
            for exchange in exchanges
        ),
        "queues": tuple(queue for queue in queues if queue.name in named),
        "bindings": tuple(plain_bindings),
        "policies": tuple(policies),
    }
    return VhostObjects(lists, rings, (*left_out, *refused), frozenset(sources_left_out))


def _unordered_rings(
    members: Mapping[str, Sequence[RingMember]], release: Release | None
) -> tuple[dict[str, HashRing], list[str]]:
    """Return the rings as `unordered_ring` does, and why some are left out."""
    rings = {}
    refused = []
    for name, ring in members.items():
        try:
            rings[name] = unordered_ring(ring, release)
        except InputError as error:
            refused.append(f"the ring of {name}: {error}")
    return rings, refused


def unordered_ring(members: Sequence[RingMember], release: Release | None) -> HashRing:
    """Return the ring of members that are listed without their order.

    Raises:
        InputError: the broker would refuse a binding.
    """
    return HashRing.unordered([member.binding for member in members], release)


def _find_missing_exchanges(
    exchanges: Iterable[ExchangeDefinition], bindings: Iterable[BindingDefinition]
) -> list[str]:
    """Return the names of the exchanges that bindings or arguments refer to and that are not listed."""
    named = {binding.source for binding in bindings}
    destinations = [binding.destination for binding in bindings]
    named |= {place.name for place in destinations if isinstance(place, ExchangeRef)}
    named |= {exchange.alternate for exchange in exchanges if exchange.alternate is not None}
    missing = named - {exchange.name for exchange in exchanges}
    return [name for name in sorted(missing) if name and not name.startswith(BROKERS_OWN)]
