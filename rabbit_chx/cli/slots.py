"""``rabbit-chx slots show`` and ``slots balance``: the owners and the load of the slots of a live exchange, and a balanced proposal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from rabbit_chx.analysis import Finding, SlotLoad
from rabbit_chx.analysis.key_routing import Hashing
from rabbit_chx.analysis.wording import place_text, rounded
from rabbit_chx.cli.broker_options import BrokerAddresses, BrokerOptions
from rabbit_chx.cli.command import TEXT, ExitCode, Outcome, argument, command, option, options
from rabbit_chx.cli.inputs import expand_ranges
from rabbit_chx.cli.printed import to_type
from rabbit_chx.cli.read_rings import store_read_ring
from rabbit_chx.cli.report import exchange_facts
from rabbit_chx.cli.samples import KeySource, StreamedSample, keys_option
from rabbit_chx.errors import InputError, MismatchError
from rabbit_chx.fixes import Fix
from rabbit_chx.rendering import Data, Document, Facts, Line, Part, Table, Verbatim, sign_of_life
from rabbit_chx.result_fields import Shown
from rabbit_chx.routing import ExchangeRef, SlotTable
from rabbit_chx.routing.bindings import Place
from rabbit_chx.topology import RingMember
from rabbit_chx.topology import balance as balanced
from rabbit_chx.topology.file.toml_file import members_text
from rabbit_chx.topology.live.reading import PublishRates
from rabbit_chx.topology.objects.objects import order_of_name
from rabbit_chx.topology.planning.refusals import KNOW_RINGS
from rabbit_chx.topology.slots.balance import LoadTarget, QueueLoad, SlotBalance, SlotMove
from rabbit_chx.topology.slots.owners import SlotNames
from rabbit_chx.words import percent, percent_or_blank, plural

_DEFAULT_TARGET = "1.2"
_SHOWN = 10
_HEAVIEST = 5
_RESULTS = {
    "balanced": "nothing to do: each queue is within the target",
    "impossible": "the target cannot be reached by moving slots",
    "not-found": "the search did not reach the target",
}


@dataclass(frozen=True, slots=True)
class LiveTable:
    """The slots of a live exchange.

    Attributes:
        arguments: its arguments that determine the hashed value.
        slots: its slots and their owners.
        rates: the publish rates of the exchange and its queues.
    """

    exchange: str
    vhost: str
    arguments: Mapping[str, str]
    slots: SlotTable
    rates: PublishRates

    @classmethod
    @sign_of_life("reading the slots")
    def read(cls, broker: BrokerAddresses, exchange: str) -> LiveTable:
        """Read the slots of a live exchange."""
        live = broker.exchange(exchange, "only the management API shows the queues of slots")
        slots = live.slots.table(strict=True)
        store_read_ring(broker, live)
        if not slots.slots:
            raise MismatchError(
                Fix(
                    f"exchange {exchange!r} in vhost {live.vhost!r} does not have slots: none of the "
                    f"{plural(len(slots.destinations), 'destination')} of its ring is an internal fanout exchange with a queue; use ",
                    to_type("show", exchange),
                ),
                exchange=exchange,
            )
        return cls(exchange, live.vhost, live.hash_arguments, slots, live.publish_rates())


@dataclass(frozen=True, slots=True)
class SlotSample:
    """The load of slots.

    Attributes:
        load: the load.
        messages: the number of messages.
        source: the file of keys, or the pattern.
    """

    load: SlotLoad
    messages: int
    source: str

    def share(self, messages: float) -> float:
        """Return the share of the load of this number of messages."""
        return float(f"{messages / sum(self.load.messages.values()):.9g}")


@dataclass(frozen=True, slots=True)
class LoadOptions:
    """The options of a sample of the load."""

    section: ClassVar = "Sample"
    keys: KeySource | None = keys_option("A sample of keys")

    def read(self, table: LiveTable) -> SlotSample:
        """Count the keys of the sample. The memory use does not grow with a file."""
        assert self.keys is not None  # only a sample is read
        arguments = table.arguments
        hashing = self.keys.hashing(Hashing(arguments.get("hash-header"), arguments.get("hash-property")))
        batches = StreamedSample(self.keys, hashing, table.slots)
        with batches.name_errors():
            load = SlotLoad.of_keys(table.slots, batches, hashing=hashing)
        counted = int(sum(load.messages.values()))
        if not counted:
            raise InputError(
                f"{self.keys.name} does not contain a key that reaches a slot: pass a sample of the exchange's own keys"
            )
        return SlotSample(load, counted + load.nowhere, self.keys.name)


def _slot_name(place: Place) -> str | None:
    return place.name if isinstance(place, ExchangeRef) else None


def _slot_text(place: Place) -> str:
    return _slot_name(place) or place_text(place)


def _text_or_none(place: Place) -> str | None:
    return None if place is None else str(place)


def _rate(rate: float | None) -> str:
    return "" if rate is None else f"{rate:,.1f}"


_SHARES = {
    "keys": Shown("of all keys", percent, number=True, as_json=rounded),
    "load": Shown("of the load", percent_or_blank, number=True, sparse=True),
}
_QUEUES = {
    "queue": Shown("queue", place_text),
    "slots": Shown("slots", number=True),
    **_SHARES,
    "rate": Shown("messages/s", _rate, number=True, sparse=True),
}
_SLOTS = {
    "slot": Shown("slot"),
    "queue": Shown("queue", place_text),
    **_SHARES,
    "rate": Shown("messages/s", _rate, number=True, sparse=True, json=None),
}
_HEAVY = {
    "key": Shown("heaviest keys"),
    "slot": Shown("slot", _slot_text, as_json=_slot_name),
    "queue": Shown("queue", place_text, as_json=_text_or_none),
    "load": Shown("of the load", percent, number=True, json=None),
    "least": Shown(),
    "most": Shown(),
}


def slots_report(table: LiveTable, sample: SlotSample | None) -> Document:
    """Return an exchange, its queues, its slots, and the heaviest keys; without a sample no load and no keys."""
    return Document(
        "slots",
        [
            *_heading(table, sample),
            Table.of(_QUEUES, _rows_of_queues(table, sample), key="queues"),
            Table.of(_SLOTS, _rows_of_slots(table, sample), key="slots"),
            _heaviest(table, sample),
        ],
    )


def _rows_of_queues(table: LiveTable, sample: SlotSample | None) -> Iterator[tuple[object, ...]]:
    """Yield the queues in the order of their names; None, for the slots without a queue, is last."""
    slots, rates = table.slots, table.rates.queues
    shares, held = slots.shares(), Counter(slots.owners.get(slot) for slot in slots.slots)
    named = sorted((queue for queue in slots.destinations if isinstance(queue, str)), key=order_of_name)
    for queue in (*named, *([None] if held[None] else [])):
        places = [place for place in slots.ring.destinations if slots.queue_of(place) == queue]
        load = None if sample is None else rounded(sum(_load_of(sample, place) for place in places))
        yield queue, held[queue], shares.get(queue, 0.0), load, rates.get(queue or "")


def _rows_of_slots(table: LiveTable, sample: SlotSample | None) -> Iterator[tuple[object, ...]]:
    """Yield the slots in the order of the ring."""
    slots, rate = table.slots, table.rates.exchange
    shares = slots.ring.shares()
    for slot in slots.slots:
        load = None if sample is None else _load_of(sample, slot)
        messages_s = None if load is None or rate is None else load * rate
        yield slot.name, slots.owners.get(slot), shares.get(slot, 0.0), load, messages_s


def _load_of(sample: SlotSample, place: Place) -> float:
    return 0.0 if place is None else sample.share(sample.load.messages.get(place, 0))


def balance_report(table: LiveTable, sample: SlotSample, made: SlotBalance) -> Document:
    """Return the result, the moves, the queues before and after, the heaviest keys, and the members for the file."""
    target, members = made.target, made.members(table.exchange)
    if target.kind == "share":
        wanted = f"at most {target} of the load in each queue"
    else:
        wanted = f"at most {target} times the share of the load that the weight of a queue gives it"
    return Document(
        "balance",
        [
            *_heading(table, sample, ("target", wanted), ("result", _result(made))),
            Data(
                {
                    "state": made.state,
                    "target": str(target),
                    "reachable": None if made.reachable is None else str(made.reachable),
                }
            ),
            *(Line(obstacle.text) for obstacle in made.obstacles),
            Table.of(SlotMove, made.moves, key="moves").for_people(made.moves),
            Data(
                {
                    "at_least": made.at_least,
                    "moved": {"load": rounded(made.load_moved), "keys": rounded(made.keys_moved)},
                }
            ),
            Table.of(QueueLoad, made.queues, key="queues"),
            _heaviest(table, sample),
            Data(
                {
                    "obstacles": list(map(_obstacle_as_json, made.obstacles)),
                    "members": members and [{"queue": it.destination, "slots": it.slots} for it in members],
                }
            ),
            *(_file_parts(table, members) if made.moves else ()),
        ],
    )


def _obstacle_as_json(obstacle: Finding) -> dict[str, object]:
    place = obstacle.destination
    return {
        "kind": obstacle.kind,
        "message": obstacle.message,
        "fix": obstacle.fix,
        "slot": _slot_name(place),
        "key": obstacle.names[0] if obstacle.names else None,
        "queue": None if isinstance(place, ExchangeRef) else place,
    }


def _result(made: SlotBalance) -> str:
    if not made.moves:
        return _RESULTS[made.state]
    count = len(made.moves)
    proof = "the minimum" if count == made.at_least else f"the minimum is at least {made.at_least}"
    changes = "slot moves" if count == 1 else "slots move"
    return f"{count} {changes} ({proof}); {percent(made.load_moved)} of the load and {percent(made.keys_moved)} of all keys move"


def _file_parts(table: LiveTable, members: Sequence[RingMember] | None) -> Iterator[Part]:
    exchange = table.exchange
    if members is None:
        yield Line(
            f"A topology file cannot describe this: the ring of {exchange} has destinations other than slots with the names "
            "that a file gives them. Bind and unbind the slots by hand."
        )
        return
    yield Line(
        Fix(
            f"Nothing was changed. Write these members of {exchange} into the topology file, and run: ",
            to_type("plan", "FILE"),
            "; and then: ",
            to_type("apply", "FILE"),
        )
    )
    yield Verbatim(f"slots = {len(table.slots.slots)}\nmembers = {members_text(members)}\n")


def _heading(table: LiveTable, sample: SlotSample | None, *more: tuple[str, str]) -> tuple[Part, ...]:
    counted = sample and {
        "source": sample.source,
        "messages": sample.messages,
        "nowhere": sample.load.nowhere,
    }
    fields = {
        "exchange": table.exchange,
        "vhost": table.vhost,
        "provenance": table.slots.provenance,
        "rate": table.rates.exchange,
        "sample": counted,
    }
    facts = exchange_facts(table.exchange, table.vhost, table.arguments, table.slots)
    if table.rates.exchange is not None:
        facts.append(("published", f"{_rate(table.rates.exchange)} messages/s in the last seconds"))
    if sample is not None:
        nowhere = f", {sample.load.nowhere:,} of them not routed to a slot" if sample.load.nowhere else ""
        facts.append(("sample", f"{plural(sample.messages, 'message')} of {sample.source}{nowhere}"))
    return Data(fields), Facts([*facts, *more])


def _heaviest(table: LiveTable, sample: SlotSample | None) -> Table:
    """Return the heavy keys of a sample: the slot, the queue, the share of the load, and the bounds of the number of messages."""
    if sample is None:
        return Table.of(_HEAVY, (), key="heaviest").for_people(None)
    rows = [
        (
            str(heavy.key),
            heavy.place,
            table.slots.queue_of(heavy.place),
            sample.share(heavy.least),
            heavy.least,
            heavy.most,
        )
        for heavy in sample.load.keys
    ]
    return Table.of(_HEAVY, rows, key="heaviest", most=_HEAVIEST)


@command(
    example="rabbit-chx slots show events --management-url http://localhost:15672 --ring-via 'docker exec rabbitmq'",
    plot_help="Plot the slots of each queue into this file.",
)
def show(
    *,
    exchange: str = argument(),
    broker: BrokerOptions = options(BrokerOptions),
    load: LoadOptions = options(LoadOptions),
) -> Outcome:
    """Show the queue of each slot of EXCHANGE, and the exact share of all keys.

    RabbitMQ does not count the messages of a slot. A sample (--keys) adds the load of each slot
    and the heaviest keys; it requires --ring-via.
    """
    live = broker.live()
    table = LiveTable.read(live, exchange)
    if load.keys:
        _check_certain(exchange, table.slots)

    report = slots_report(table, load.read(table) if load.keys else None)
    plotted = f"Exchange {exchange}, vhost {live.settings.vhost}"
    return Outcome(report, plot=("slots", table.slots), plotted=plotted)


@command(
    example="rabbit-chx slots balance events --keys keys.txt --management-url http://localhost:15672 "
    "--ring-via 'docker exec rabbitmq'",
)
def balance(
    *,
    exchange: str = argument(),
    target: str = option(
        type=TEXT,
        default=_DEFAULT_TARGET,
        show_default=True,
        metavar="TARGET",
        help="The load limit of a queue: 1.2 is 1.2 times its share by weight, 30% is that share of all load.",
    ),
    weights: tuple[str, ...] = option(
        "--weight",
        type=TEXT,
        multiple=True,
        metavar="QUEUE=WEIGHT",
        help="The weight of a queue; 0 removes all its slots.  [default: 1 for each queue with slots]",
    ),
    broker: BrokerOptions = options(BrokerOptions),
    load: LoadOptions = options(LoadOptions),
) -> Outcome:
    """Propose slots to move so that no queue has too much load. Nothing is changed.

    The load comes from the sample of --keys. The number of moves is
    not always minimal. The result contains the members for the topology file.

    The exit code is 1 if there is a proposal, or if the target cannot be reached.
    """
    live = broker.live()
    aim, weighted = LoadTarget.from_text(target), _parse_weights(weights)
    if not load.keys:
        raise InputError(
            "RabbitMQ does not count the messages of slots: pass a sample of keys, as --keys FILE or --keys 'user-{1..1000}'"
        )
    table = LiveTable.read(live, exchange)
    _check_certain(exchange, table.slots)
    sample = load.read(table)
    existing = {queue: 1 for queue in table.slots.destinations if isinstance(queue, str)}
    _check_queues(exchange, weighted, existing)
    wanted = {queue: weight for queue, weight in {**existing, **weighted}.items() if weight}
    with sign_of_life("balancing"):
        made = balanced(table.slots, sample.load, wanted, target=aim)
    return Outcome(
        balance_report(table, sample, made),
        code=ExitCode.DONE if made.state == "balanced" else ExitCode.DIFFERENCE,
    )


def _check_certain(exchange: str, slots: SlotTable) -> None:
    """Raise an error for a ring that is assumed: the slot of a key is then not known."""
    if not slots.ground.is_certain:
        raise InputError(
            Fix(
                f"the ring of {exchange!r} was not read but is {slots.ground}, so the slot of a key is not known: ",
                KNOW_RINGS,
            )
        )


def _check_queues(exchange: str, weights: Mapping[str, int], existing: Iterable[str]) -> None:
    """Raise an error for a weight of a queue that cannot have slots, and for the weight 0 of a queue without slots."""
    park = SlotNames(exchange, 1).park
    if park in weights:
        raise InputError(
            f"{park} is the parking queue of {exchange}, and cannot have slots: leave its weight out"
        )
    for queue, weight in weights.items():
        if not weight and queue not in existing:
            known = ", ".join(sorted(existing, key=order_of_name)[:_SHOWN])
            raise InputError(f"{queue} does not have slots of {exchange} to remove: pass one of {known}")


def _parse_weights(texts: Sequence[str]) -> dict[str, int]:
    weights = {}
    for text in expand_ranges(texts):
        queue, equals, weight = text.rpartition("=")
        if not equals or not queue or not weight.isascii() or not weight.isdigit():
            raise InputError(f"{text!r:.80} is not a weight: write QUEUE=WEIGHT, as in events.1=2")
        weights[queue] = int(weight)
    return weights
