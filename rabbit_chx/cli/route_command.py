"""``rabbit-chx route``: where keys go."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import click

from rabbit_chx.analysis import Refused
from rabbit_chx.cli.arguments import parse_header, parse_property
from rabbit_chx.cli.given_rings import ring_options
from rabbit_chx.cli.input_files import claim_stdin, read_batches
from rabbit_chx.cli.option_groups import TEXT, HashedKeys, hashing_options, output_option
from rabbit_chx.cli.outcome import Outcome
from rabbit_chx.cli.route_report import Answer, RouteReport
from rabbit_chx.errors import ChannelClosedError, InputError
from rabbit_chx.routing import (
    ConsistentHashExchange,
    ExchangeRef,
    Explanation,
    KeyMap,
    Place,
    SlotTable,
    ring_beneath,
)

__all__ = ["route"]

_STDIN = ("-",)


@click.command(
    epilog="Example: rabbit-chx route --bind q1=1 --bind q2=10 --release 4.3.6 user-42 user-43",
    short_help="Where keys go, and why.",
)
@click.argument("keys", nargs=-1, type=TEXT, metavar="[KEY]...")
@ring_options(modulo=True)
@hashing_options
@click.option(
    "--header",
    "headers",
    type=TEXT,
    multiple=True,
    metavar="NAME[:TYPE]=VALUE",
    help="A header of the whole message.",
)
@click.option(
    "--property",
    "properties",
    type=TEXT,
    multiple=True,
    metavar="NAME=VALUE",
    help="A property of the whole message: message_id, correlation_id or timestamp.",
)
@click.option(
    "--explain", is_flag=True, help="Show the hashed term, its hash, the seed, the walk and the rule."
)
@output_option
def route(
    *,
    keys: tuple[str, ...],
    ring: KeyMap,
    hashed: HashedKeys,
    headers: tuple[str, ...],
    properties: tuple[str, ...],
    explain: bool,
    output: str,
) -> Outcome:
    """Show the destination of each KEY.

    A KEY is what the exchange hashes: the routing key, or with --hash-header or --hash-property the value of
    that header or property. With --header or --property you give the whole message, and a KEY is its routing
    key.

    The ring is that of --bind, --ring or --exchange: give one of them. --exchange asks a live broker, or
    --definitions. It may be of type x-modulus-hash, or a super stream: for --bind say so by --exchange-type.

    A single - reads the KEYs from stdin, one on each line. Each answer is a line as soon as its KEY is read,
    with tabs between the fields; with --output json it is a JSON document.
    """
    whole = _whole_message(headers, properties, hashed) if headers or properties else {}
    if not whole and not keys:
        raise InputError("there is nothing to route: give a KEY, or - to read keys from stdin")

    def message(key: str) -> dict[str, Any]:
        return {"routing_key": key, **whole} if whole else hashed.hashing.message(hashed.value(key))

    exchange = ConsistentHashExchange("offline", ring_beneath(ring), hashed.hashing.arguments)
    if explain and hashed.modulo is not None:
        raise InputError(
            f"--explain explains rings, and {hashed.modulo.name!r} is of type {hashed.modulo.kind}: leave it out"
        )

    def answer(key: str) -> Answer:
        if hashed.modulo is not None:
            return Answer(key, hashed.modulo.route_all([message(key)])[0])
        explanation = exchange.explain(**message(key)) if explain else None
        place = explanation.destination if explanation else exchange.route(**message(key))
        return _answered(key, ring, place, explanation)

    if keys != _STDIN:
        return Outcome(output, RouteReport(hashed.modulo or ring, [answer(key) for key in keys or ("",)]))
    claim_stdin("the keys")
    if explain or whole or hashed.modulo is not None:
        return Outcome(output, batches=_one_by_one(answer))
    return Outcome(output, batches=_in_batches(ring, hashed, answer))


def _answered(key: str, ring: KeyMap, place: Place, explanation: Explanation | None = None) -> Answer:
    """Return the answer for a key that goes to a destination of the ring."""
    if not isinstance(ring, SlotTable):
        return Answer(key, place, explanation)
    behind = ring.queue_of(place)
    slot = place.name if isinstance(place, ExchangeRef) and behind != place else ""
    return Answer(key, behind, explanation, slot)


def _whole_message(
    headers: tuple[str, ...], properties: tuple[str, ...], hashed: HashedKeys
) -> dict[str, Any]:
    if (type_ := hashed.hashing.field_type) is not None:
        raise InputError(
            f"--type {type_} is the type of a KEY, which is the routing key where the message is given whole: write "
            f"--header NAME:{type_}=VALUE"
        )
    pairs = [parse_property(text) for text in properties]
    named = dict(pairs)
    if len(named) < len(pairs):
        raise InputError(
            f"a property is given twice among {', '.join(name for name, _ in pairs)}: give it once"
        )
    return {"headers": [parse_header(text) for text in headers], "properties": named}


def _in_batches(ring: KeyMap, hashed: HashedKeys, answer: Callable[[str], Answer]) -> Iterator[list[Answer]]:
    """Answer all keys of a batch at once; where one cannot be routed, answer one by one up to that key."""
    for first, keys in read_batches(_STDIN[0]):
        try:
            places = hashed.hashing.route_all(list(map(hashed.value, keys)), ring_beneath(ring))
        except InputError:
            places = []
        answers = [
            _answered(key, ring, place)
            for key, place in zip(keys, places, strict=False)
            if not isinstance(place, Refused)
        ]
        if len(answers) == len(keys):
            yield answers
        else:
            yield from _numbered(first, keys, answer)


def _one_by_one(answer: Callable[[str], Answer]) -> Iterator[list[Answer]]:
    for first, keys in read_batches(_STDIN[0]):
        yield from _numbered(first, keys, answer)


def _numbered(first: int, keys: list[str], answer: Callable[[str], Answer]) -> Iterator[list[Answer]]:
    for number, key in enumerate(keys, first):
        try:
            found = answer(key)
        except (InputError, ChannelClosedError) as error:
            raise type(error)(f"line {number} of stdin: {error}") from None
        yield [found]
