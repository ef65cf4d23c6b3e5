"""``rabbit-chx slots balance``: the load of the slots of a live exchange, and a balanced proposal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from rabbit_chx.analysis import Finding
from rabbit_chx.analysis.wording import rounded
from rabbit_chx.cli.broker_options import BrokerAddresses, BrokerOptions
from rabbit_chx.cli.command import TEXT, ExitCode, Outcome, argument, command, option, options
from rabbit_chx.cli.inputs import expand_ranges
from rabbit_chx.cli.loads import SlotSample, check_certain, heaviest_keys, rate_text, read_load, slot_name
from rabbit_chx.cli.printed import to_type
from rabbit_chx.cli.report import exchange_facts
from rabbit_chx.cli.samples import KeySource, keys_option
from rabbit_chx.errors import InputError, MismatchError
from rabbit_chx.fixes import Fix
from rabbit_chx.rendering import Data, Document, Facts, Line, Part, Table, Verbatim, sign_of_life
from rabbit_chx.routing import ExchangeRef, SlotTable
from rabbit_chx.topology import RingMember
from rabbit_chx.topology import balance as balanced
from rabbit_chx.topology.file.toml_file import members_text
from rabbit_chx.topology.live.reading import PublishRates
from rabbit_chx.topology.objects.objects import order_of_name
from rabbit_chx.topology.slots.balance import LoadTarget, QueueLoad, SlotBalance, SlotMove
from rabbit_chx.topology.slots.owners import SlotNames
from rabbit_chx.words import percent, plural

_DEFAULT_TARGET = "1.2"
_SHOWN = 10
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
            heaviest_keys(table.slots, sample),
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
        "slot": slot_name(place),
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
        facts.append(("published", f"{rate_text(table.rates.exchange)} messages/s in the last seconds"))
    if sample is not None:
        nowhere = f", {sample.load.nowhere:,} of them not routed to a slot" if sample.load.nowhere else ""
        facts.append(("sample", f"{plural(sample.messages, 'message')} of {sample.source}{nowhere}"))
    return Data(fields), Facts([*facts, *more])


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
    broker: BrokerOptions = options(BrokerOptions, without=("no_record",)),
    keys: KeySource | None = keys_option("A sample of keys"),
) -> Outcome:
    """Propose slots to move so that no queue has too much load. Nothing is changed.

    The load comes from the sample of --keys. The number of moves is
    not always minimal. The result contains the members for the topology file.

    The exit code is 1 if there is a proposal, or if the target cannot be reached.
    """
    live = broker.live()
    aim, weighted = LoadTarget.from_text(target), _parse_weights(weights)
    if keys is None:
        raise InputError(
            "RabbitMQ does not count the messages of slots: pass a sample of keys, as --keys FILE or --keys 'user-{1..1000}'"
        )
    table = LiveTable.read(live, exchange)
    check_certain(exchange, table.slots)
    sample = read_load(keys, table.arguments, table.slots)
    existing = {queue: 1 for queue in table.slots.destinations if isinstance(queue, str)}
    _check_queues(exchange, weighted, existing)
    wanted = {queue: weight for queue, weight in {**existing, **weighted}.items() if weight}
    with sign_of_life("balancing"):
        made = balanced(table.slots, sample.load, wanted, target=aim)
    return Outcome(
        balance_report(table, sample, made),
        code=ExitCode.DONE if made.state == "balanced" else ExitCode.DIFFERENCE,
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
