"""``rabbit-chx slots show`` and ``slots balance``: the owners and the load of the slots of a live exchange, and a balanced proposal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from rabbit_chx.amqp.fields import FIELD_TYPES, FieldType
from rabbit_chx.analysis import SlotLoad
from rabbit_chx.analysis.key_routing import Hashing
from rabbit_chx.analysis.wording import document, place_text, rounded
from rabbit_chx.cli.broker_options import BrokerAddresses, BrokerOptions
from rabbit_chx.cli.command import TEXT, ExitCode, Outcome, argument, command, option, options
from rabbit_chx.cli.inputs import expand_ranges
from rabbit_chx.cli.printed import to_type
from rabbit_chx.cli.read_rings import store_read_ring
from rabbit_chx.cli.report import exchange_facts
from rabbit_chx.cli.samples import SampleOptions, StreamedSample, sample_options
from rabbit_chx.errors import InputError, MismatchError
from rabbit_chx.fixes import Fix
from rabbit_chx.options import one_of
from rabbit_chx.rendering import Block, Facts, Line, Verbatim, sign_of_life, table_of
from rabbit_chx.result_fields import shown
from rabbit_chx.routing import ExchangeRef, SlotTable
from rabbit_chx.routing.bindings import Place
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
        slots = live.slots.sound_table()
        store_read_ring(broker, live)
        if not slots.slots:
            raise MismatchError(
                Fix(
                    f"exchange {exchange!r} in vhost {live.vhost!r} does not have slots: none of the "
                    f"{plural(len(slots.destinations), 'destination')} of its ring is an internal fanout exchange with a queue; use ",
                    to_type("ring show", exchange),
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
    sample: SampleOptions = sample_options()
    type_: FieldType | None = option(
        "--type",
        type=one_of(*FIELD_TYPES),
        metavar="TYPE",
        help="The AMQP type of the keys of the sample, if the exchange hashes a header.  [default: longstr]",
    )

    def __post_init__(self) -> None:
        if self.type_ is not None and not self.sample.given:
            raise InputError(
                f"--type {self.type_} is the type of the keys of a sample: pass --keys or --pattern too"
            )

    def read(self, table: LiveTable) -> SlotSample:
        """Count the keys of the sample. The memory use does not grow with a file."""
        header = table.arguments.get("hash-header")
        if self.type_ is not None and header is None:
            raise InputError(
                f"--type {self.type_} is the type of a header, and exchange {table.exchange!r} does not hash a header: leave it out"
            )
        hashing = Hashing(header, table.arguments.get("hash-property"), field_type=self.type_)
        batches = StreamedSample(self.sample, hashing, table.slots)
        with batches.name_errors():
            load = SlotLoad.of_keys(table.slots, batches, hashing=hashing)
        counted = int(sum(load.messages.values()))
        if not counted:
            raise InputError(
                f"{self.sample.source} does not contain a key that reaches a slot: pass a sample of the exchange's own keys"
            )
        return SlotSample(load, counted + load.nowhere, self.sample.source)


def _slot_name(place: Place) -> str | None:
    return place.name if isinstance(place, ExchangeRef) else None


def _slot_text(place: Place) -> str:
    return _slot_name(place) or place_text(place)


def _text_or_none(place: Place) -> str | None:
    return None if place is None else str(place)


def _rate(rate: float | None) -> str:
    return "" if rate is None else f"{rate:,.1f}"


@dataclass(frozen=True, slots=True)
class QueueRow:
    """A queue with its share of all keys, and of the load of a sample; None for the slots without a queue."""

    queue: str | None = field(metadata=shown("queue", place_text))
    slots: int = field(metadata=shown("slots", number=True))
    keys: float = field(metadata=shown("of all keys", percent, number=True, as_json=rounded))
    load: float | None = field(metadata=shown("of the load", percent_or_blank, number=True, sparse=True))
    rate: float | None = field(metadata=shown("messages/s", _rate, number=True, sparse=True))


@dataclass(frozen=True, slots=True)
class SlotRow:
    """A slot with its share of all keys, and of the load of a sample."""

    slot: str = field(metadata=shown("slot"))
    queue: str | None = field(metadata=shown("queue", place_text))
    keys: float = field(metadata=shown("of all keys", percent, number=True, as_json=rounded))
    load: float | None = field(metadata=shown("of the load", percent_or_blank, number=True, sparse=True))
    rate: float | None = field(metadata=shown("messages/s", _rate, number=True, sparse=True, json=None))


@dataclass(frozen=True, slots=True)
class HeavyRow:
    """A heavy key of a sample: its destination in the ring, the queue, its share of the load, and the bounds of its messages."""

    key: str = field(metadata=shown("heaviest keys"))
    place: Place = field(metadata=shown("slot", _slot_text, json="slot", as_json=_slot_name))
    queue: Place = field(metadata=shown("queue", place_text, as_json=_text_or_none))
    load: float = field(metadata=shown("of the load", percent, number=True, json=None))
    least: int
    most: int


@dataclass(frozen=True, slots=True)
class SlotsReport:
    """The slots of an exchange, and their load; None without a sample."""

    table: LiveTable
    sample: SlotSample | None

    def blocks(self) -> Iterator[Block]:
        """Return the exchange, its queues, its slots, and the heaviest keys."""
        yield Facts(_facts(self.table, self.sample))
        yield table_of(QueueRow, self.queues)
        yield table_of(SlotRow, self.slots)
        if self.sample is not None:
            yield table_of(HeavyRow, _heaviest(self.table, self.sample)[:_HEAVIEST])

    def as_json(self) -> dict[str, Any]:
        """Return the JSON document of this command."""
        return document(
            "slots",
            **_about(self.table, self.sample),
            queues=self.queues,
            slots=self.slots,
            heaviest=_heaviest(self.table, self.sample),
        )

    @property
    def queues(self) -> list[QueueRow]:
        """The queues in the order of their names; the slots without a queue are last."""
        slots, rates = self.table.slots, self.table.rates.queues
        shares, held = slots.shares(), Counter(slots.owners.get(slot) for slot in slots.slots)
        named = sorted((queue for queue in slots.destinations if isinstance(queue, str)), key=order_of_name)
        return [
            QueueRow(
                queue, held[queue], shares.get(queue, 0.0), self._queue_load(queue), rates.get(queue or "")
            )
            for queue in (*named, *([None] if held[None] else []))
        ]

    @property
    def slots(self) -> list[SlotRow]:
        """The slots in the order of the ring."""
        slots, rate = self.table.slots, self.table.rates.exchange
        shares, rows = slots.ring.shares(), []
        for slot in slots.slots:
            load = self._slot_load(slot)
            messages_s = None if load is None or rate is None else load * rate
            rows.append(SlotRow(slot.name, slots.owners.get(slot), shares.get(slot, 0.0), load, messages_s))
        return rows

    def _slot_load(self, place: Place) -> float | None:
        if self.sample is None:
            return None
        return 0.0 if place is None else self.sample.share(self.sample.load.messages.get(place, 0))

    def _queue_load(self, queue: str | None) -> float | None:
        slots = self.table.slots
        places = [place for place in slots.ring.destinations if slots.queue_of(place) == queue]
        loads = [load for place in places if (load := self._slot_load(place)) is not None]
        return None if self.sample is None else rounded(sum(loads))


@dataclass(frozen=True, slots=True)
class BalanceReport:
    """A proposal of the owner of each slot."""

    table: LiveTable
    sample: SlotSample
    balance: SlotBalance

    def blocks(self) -> Iterator[Block]:
        """Return the result, the moves, the queues before and after, the heaviest keys, and the members for the file."""
        made, target = self.balance, self.balance.target
        if target.kind == "share":
            wanted = f"at most {target} of the load in each queue"
        else:
            wanted = f"at most {target} times the share of the load that the weight of a queue gives it"
        yield Facts([*_facts(self.table, self.sample), ("target", wanted), ("result", self._result())])
        for obstacle in made.obstacles:
            yield Line(obstacle.text)
        if made.moves:
            yield table_of(SlotMove, made.moves)
        yield table_of(QueueLoad, made.queues)
        yield table_of(HeavyRow, _heaviest(self.table, self.sample)[:_HEAVIEST])
        if made.moves:
            yield from self._file_blocks()

    def as_json(self) -> dict[str, Any]:
        """Return the JSON document of this command."""
        made = self.balance
        members = made.members(self.table.exchange)
        return document(
            "balance",
            **_about(self.table, self.sample),
            state=made.state,
            target=str(made.target),
            reachable=None if made.reachable is None else str(made.reachable),
            moves=made.moves,
            at_least=made.at_least,
            moved={"load": rounded(made.load_moved), "keys": rounded(made.keys_moved)},
            queues=made.queues,
            heaviest=_heaviest(self.table, self.sample),
            obstacles=[
                {
                    "kind": obstacle.kind,
                    "message": obstacle.message,
                    "fix": obstacle.fix,
                    "slot": _slot_name(obstacle.destination),
                    "key": obstacle.names[0] if obstacle.names else None,
                    "queue": None if isinstance(obstacle.destination, ExchangeRef) else obstacle.destination,
                }
                for obstacle in made.obstacles
            ],
            members=members and [{"queue": it.destination, "slots": it.slots} for it in members],
        )

    def _result(self) -> str:
        made = self.balance
        if not made.moves:
            return _RESULTS[made.state]
        count = len(made.moves)
        proof = "the minimum" if count == made.at_least else f"the minimum is at least {made.at_least}"
        changes = "slot moves" if count == 1 else "slots move"
        return f"{count} {changes} ({proof}); {percent(made.load_moved)} of the load and {percent(made.keys_moved)} of all keys move"

    def _file_blocks(self) -> Iterator[Block]:
        exchange, members = self.table.exchange, self.balance.members(self.table.exchange)
        if members is None:
            yield Line(
                f"A topology file cannot describe this: the ring of {exchange} has destinations other than slots with the names "
                "that a file gives them. Bind and unbind the slots by hand."
            )
            return
        yield Line(
            Fix(
                f"Nothing was changed. Write these members of {exchange} into the topology file, and run: ",
                to_type("topology plan", "FILE"),
                "; and then: ",
                to_type("topology apply", "FILE"),
            )
        )
        listed = members_text(members)
        yield Verbatim(f"slots = {len(self.table.slots.slots)}\nmembers = {listed}\n")


def _facts(table: LiveTable, sample: SlotSample | None) -> list[tuple[str, str]]:
    facts = exchange_facts(table.exchange, table.vhost, table.arguments, table.slots)
    if table.rates.exchange is not None:
        facts.append(("published", f"{_rate(table.rates.exchange)} messages/s in the last seconds"))
    if sample is not None:
        nowhere = f", {sample.load.nowhere:,} of them not routed to a slot" if sample.load.nowhere else ""
        facts.append(("sample", f"{plural(sample.messages, 'message')} of {sample.source}{nowhere}"))
    return facts


def _about(table: LiveTable, sample: SlotSample | None) -> dict[str, Any]:
    return {
        "exchange": table.exchange,
        "vhost": table.vhost,
        "provenance": table.slots.provenance,
        "rate": table.rates.exchange,
        "sample": sample
        and {"source": sample.source, "messages": sample.messages, "nowhere": sample.load.nowhere},
    }


def _heaviest(table: LiveTable, sample: SlotSample | None) -> list[HeavyRow]:
    if sample is None:
        return []
    return [
        HeavyRow(
            str(heavy.key),
            heavy.place,
            table.slots.queue_of(heavy.place),
            sample.share(heavy.least),
            heavy.least,
            heavy.most,
        )
        for heavy in sample.load.keys
    ]


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

    RabbitMQ does not count the messages of a slot. A sample (--keys or --pattern) adds the load of each slot
    and the heaviest keys; it requires --ring-via.
    """
    live = broker.live()
    table = LiveTable.read(live, exchange)
    if load.sample.given:
        _check_certain(exchange, table.slots)

    report = SlotsReport(table, load.read(table) if load.sample.given else None)
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

    The load comes from a sample: --keys or --pattern. The number of moves is
    not always minimal. The result contains the members for the topology file.

    The exit code is 1 if there is a proposal, or if the target cannot be reached.
    """
    live = broker.live()
    aim, weighted = LoadTarget.from_text(target), _parse_weights(weights)
    if not load.sample.given:
        raise InputError(
            "RabbitMQ does not count the messages of slots: pass a sample of keys, as --keys FILE or --pattern TEXT"
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
        BalanceReport(table, sample, made),
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
