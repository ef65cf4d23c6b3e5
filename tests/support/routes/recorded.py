"""What a broker did, as a file.

::

    {
      "format": "rabbit-chx/routes", "format_version": 1,
      "origin": {"version": "4.3.6", "store": "khepri", "from": "container ...", "pika": "1.4.4", ...},
      "scenarios": [{
        "name": "example", "type": "x-consistent-hash", "arguments": {},
        "steps": [["bind", "q1", "1"], ["unbind", {"exchange": "e"}, "2"], ["leave", null, "connection"]],
        "temporary": {"q9": ["exclusive", "connection"]},
        "ring": [["q1", 1], [null, 2]],               runs of buckets as the broker held them; null for x-modulus-hash
        "messages": {"rule": "decimal", "count": 100000, "prefix": ""}      or a list of [key, headers, properties]
        "destinations": ["q1", {"exchange": "e"}],
        "found": "0110-..."                           a character for each message: its destination, - for none
      }]
    }

A header is ``[name in hex, type, value]``: text and bytes in hex, floats as ``float.hex`` writes them. A message over
AMQP 1.0 is ``[key, application properties, properties, x-cc]``, and each of its properties ``[type, value]``, its
message_annotations as headers.
"""

from __future__ import annotations

import gzip
import json
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any, TypeVar

from rabbit_chx.amqp import Amqp10Value, AmqpField
from rabbit_chx.routing import Destination, ExchangeRef, HashRing, Release
from routes.scenario import Keys, Message, Scenario, Step, Temporary

_V = TypeVar("_V", AmqpField, Amqp10Value)
FORMAT = "rabbit-chx/routes"
MAX_BYTES = 2_000_000
NOWHERE = "-"
ANNOTATIONS = "message_annotations"
FIRST_LETTER = ord("0")


@dataclass(frozen=True, slots=True)
class Routed:
    """A scenario as a broker carried it out.

    Attributes:
        scenario: what was done.
        ring: as it was read after the steps; None for an x-modulus-hash exchange, which has none.
        found: where each message was found; None for one that came back.
    """

    scenario: Scenario
    ring: HashRing | None
    found: list[Destination | None]


def save(path: Path, origin: dict[str, str], routed: list[Routed]) -> None:
    """Write the file, the same bytes for the same routes."""
    document = {
        "format": FORMAT,
        "format_version": 1,
        "origin": origin,
        "scenarios": [_written(answer) for answer in routed],
    }
    data = gzip.compress(json.dumps(document, indent=0, ensure_ascii=True).encode(), mtime=0)
    assert len(data) <= MAX_BYTES, f"{path.name} would have {len(data)} bytes, more than {MAX_BYTES}"
    path.write_bytes(data)


def load(path: Path) -> tuple[dict[str, str], Release, list[Routed]]:
    """Origin, release and routes of a file."""
    document = json.loads(gzip.decompress(path.read_bytes()))
    assert (document["format"], document["format_version"]) == (FORMAT, 1)
    origin = document["origin"]
    release = Release(origin["version"], origin["store"])
    return origin, release, [_read(scenario, release) for scenario in document["scenarios"]]


def _written(routed: Routed) -> dict[str, Any]:
    scenario, messages = routed.scenario, routed.scenario.messages
    places = list(dict.fromkeys(place for place in routed.found if place is not None))
    letters: dict[Destination | None, str] = {place: chr(FIRST_LETTER + n) for n, place in enumerate(places)}
    letters[None] = NOWHERE
    return {
        "name": scenario.name,
        "type": scenario.type,
        "arguments": dict(scenario.arguments),
        "steps": [[step.verb, _plain(step.destination), step.key] for step in scenario.steps],
        "temporary": {queue: [how.kind, how.connection] for queue, how in scenario.temporary.items()},
        "ring": None
        if routed.ring is None
        else [[_plain(place), len(list(run))] for place, run in groupby(routed.ring.buckets)],
        "messages": {"rule": messages.rule, "count": messages.count, "prefix": messages.prefix}
        if isinstance(messages, Keys)
        else [_message(message.on_the_wire()) for message in messages],
        "destinations": [_plain(place) for place in places],
        "found": "".join(map(letters.__getitem__, routed.found)),
    }


def _read(written: dict[str, Any], release: Release) -> Routed:
    messages = written["messages"]
    scenario = Scenario(
        name=written["name"],
        type=written["type"],
        arguments=written["arguments"],
        steps=tuple(Step(verb, _place(name), key) for verb, name, key in written["steps"]),
        temporary={queue: Temporary(*how) for queue, how in written["temporary"].items()},
        messages=Keys(**messages) if isinstance(messages, dict) else tuple(map(_message_of, messages)),
    )
    ring = None
    if written["ring"] is not None:
        buckets = [_place(name) for name, count in written["ring"] for _ in range(count)]
        ring = HashRing.from_buckets(buckets, release)
    places = {chr(FIRST_LETTER + n): _place(name) for n, name in enumerate(written["destinations"])}
    return Routed(scenario, ring, [places.get(letter) for letter in written["found"]])


def _plain(place: Destination | None) -> Any:
    return {"exchange": place.name} if isinstance(place, ExchangeRef) else place


def _place(plain: Any) -> Destination | None:
    return ExchangeRef(plain["exchange"]) if isinstance(plain, dict) else plain


def _message(message: Message) -> list[Any]:
    headers = None
    if message.headers is not None:
        headers = [[name.hex(), *_field(field)] for name, field in message.headers]
    if message.client == "amqp-1.0":
        properties: dict[str, Any] = {}
        for name, value in message.properties.items():
            if name == ANNOTATIONS:
                properties[name] = [[given.hex(), *_field(field)] for given, field in value]
            elif value is not None:
                properties[name] = _field(value)
        return [message.key, headers, properties, list(message.cc)]
    return [message.key, headers, dict(message.properties)]


def _message_of(written: list[Any]) -> Message:
    key, headers, properties, *cc = written
    if cc:
        read = {
            name: _named(Amqp10Value, value) if name == ANNOTATIONS else _value_of(Amqp10Value, *value)
            for name, value in properties.items()
        }
        return Message(key, _named(Amqp10Value, headers), read, "amqp-1.0", tuple(*cc))
    return Message(key, None if headers is None else _named(AmqpField, headers), properties)


def _field(field: AmqpField | Amqp10Value) -> list[Any]:
    value = field.value
    if isinstance(value, (bytes, float)):
        value = value.hex()
    elif isinstance(field, Amqp10Value):
        pass  # an array of AMQP 1.0 has nothing that routing looks into
    elif field.type == "array":
        value = [_field(item) for item in value]
    elif field.type == "table":
        value = [[name.hex(), *_field(item)] for name, item in value]
    return [field.type, value]


def _named(type_: type[_V], written: list[Any]) -> list[tuple[bytes, _V]]:
    return [(bytes.fromhex(name), _value_of(type_, *value)) for name, *value in written]


def _value_of(type_: type[_V], kind: Any, value: Any) -> _V:
    if kind in {"longstr", "binary", "string", "symbol", "uuid"}:
        value = bytes.fromhex(value)
    elif kind in {"float", "double"}:
        value = float.fromhex(value)
    elif kind == "array" and type_ is AmqpField:
        value = [_value_of(type_, *item) for item in value]
    elif kind == "table":
        value = _named(type_, value)
    return type_(kind, value)
