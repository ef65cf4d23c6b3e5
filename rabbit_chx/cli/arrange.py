"""``rabbit-chx arrange``: rewrite the rings of a topology file to move the fewest keys, and list the slots of each queue."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from rabbit_chx.analysis import Finding, SlotLoad
from rabbit_chx.analysis.report_parts import heaviest_keys, slot_name
from rabbit_chx.analysis.wording import rounded
from rabbit_chx.cli.broker_options import BrokerOptions
from rabbit_chx.cli.command import TEXT, ExitCode, Outcome, Rules, argument, command, option, options, say
from rabbit_chx.cli.inputs import STDIN, TopologyInput, VariableOptions, expand_ranges, read_topology
from rabbit_chx.cli.live_plan import LivePlan
from rabbit_chx.cli.printed import in_words, to_type
from rabbit_chx.cli.read_rings import say_unrecorded_rings
from rabbit_chx.cli.samples import KeySource, keys_option, read_load
from rabbit_chx.cli.written_files import write_file
from rabbit_chx.errors import InputError
from rabbit_chx.fixes import Fix
from rabbit_chx.planning.refusals import check_certain, know_rings
from rabbit_chx.planning.ring_plan import KeyMapPlan, RingProposal
from rabbit_chx.planning.targets import reordered
from rabbit_chx.records.evidence import Means, evidence_of
from rabbit_chx.rendering.document import Data, Document, Facts, Line, Part, Section, Table, Verbatim
from rabbit_chx.rendering.progress import sign_of_life
from rabbit_chx.routing import ExchangeRef
from rabbit_chx.topology import ExchangeDefinition, LiveTopology, RingMember, balance
from rabbit_chx.topology.file.toml_file import RingText, members_of, members_text, rearrange
from rabbit_chx.topology.slots.balance import LoadTarget, QueueLoad, SlotBalance, SlotMove
from rabbit_chx.words import listed, percent, plural

_DEFAULT_TARGET = "1.2"
_RESULTS = {
    "balanced": "no slot moves for the load: each queue is within the target",
    "impossible": "the target cannot be reached by moving slots",
    "not-found": "the search did not reach the target",
}


class Balanced(NamedTuple):
    """The slots of an exchange, evened out by the load of a sample."""

    exchange: str
    sample: SlotLoad
    made: SlotBalance


@dataclass(frozen=True, slots=True)
class BalanceOptions:
    """The load of slots, and how even it is to be."""

    keys: KeySource | None = keys_option("Also even out the load of the slots, by a sample of keys")
    target: str | None = option(
        type=TEXT,
        metavar="TARGET",
        help="The load limit of a queue, for --keys: 1.2 is 1.2 times its share by weight, 30% is that share of all load.  [default: 1.2]",
    )
    weights: tuple[str, ...] = option(
        "--weight",
        type=TEXT,
        metavar="QUEUE=WEIGHT",
        help="The weight of a member, for --keys; 0 removes all its slots.  [default: that of the file, or 1]",
    )

    def balance(self, file: TopologyInput, live: LiveTopology) -> Balanced | None:
        """Return the slots of the file's exchange that has some, evened out; None without a sample.

        Raises:
            InputError: the file does not have one exchange with slots, the broker does not have these slots, their order is not known, or
                an option does not fit.
        """
        if self.keys is None:
            return None
        aim = LoadTarget.from_text(self.target or _DEFAULT_TARGET)
        slotted = [exchange for exchange in file.topology.exchanges if exchange.slots is not None]
        if len(slotted) != 1:
            names = listed([exchange.name for exchange in slotted]) if slotted else "no exchange"
            raise InputError(
                f"--keys shows the load of the slots of one exchange, and {file.name} has slots for {names}: leave --keys out, or pass a file "
                "with one of them"
            )
        (exchange,) = slotted
        there = live.exchange(exchange.name)
        if there is None:
            raise InputError(
                f"{exchange.name} is not on the broker, so its slots have no load: apply {file.name} first"
            )
        table = live.slots(exchange.name)
        if len(table.slots) != exchange.slots:
            raise InputError(
                f"{exchange.name} has {plural(len(table.slots), 'slot')}, and {exchange.slots} in {file.name}: apply the file first"
            )
        check_certain(exchange.name, table, evidence_of(live).means)
        arguments = {name: str(value) for name, value in there.arguments.items()}
        sample = read_load(self.keys, arguments, table)
        with sign_of_life("balancing"):
            made = balance(table, sample, self._weights(exchange), target=aim)
        if made.moves and made.members(exchange.name) is None:
            raise InputError(
                f"the ring of {exchange.name} has destinations other than the slots of a file, or a slot without a queue: bind and unbind "
                "its slots by hand"
            )
        return Balanced(exchange.name, sample, made)

    def _weights(self, exchange: ExchangeDefinition) -> dict[str, int]:
        """Return the weights of the queues that are to have slots."""
        weights = {str(member.destination): member.weight for member in exchange.members or ()}
        for text in expand_ranges(self.weights):
            queue, equals, weight = text.rpartition("=")
            if not equals or not queue or not weight.isascii() or not weight.isdigit():
                raise InputError(f"{text!r:.80} is not a weight: write QUEUE=WEIGHT, as in events.1=2")
            if queue not in weights:
                raise InputError(
                    f"{queue} is not a member of {exchange.name}: pass one of {listed([*weights])}"
                )
            weights[queue] = int(weight)
        return {queue: weight for queue, weight in weights.items() if weight}


def balance_parts(balanced: Balanced) -> Iterator[Part]:
    """Yield the result, the moves, the queues before and after, and the heaviest keys."""
    _, sample, made = balanced
    target = made.target
    if target.kind == "share":
        wanted = f"at most {target} of the load in each queue"
    else:
        wanted = f"at most {target} times the share of the load that the weight of a queue gives it"
    yield Facts([("sample", sample.text("slot")), ("target", wanted), ("result", result_text(made))])
    yield Data(
        {
            "exchange": balanced.exchange,
            "sample": sample.counts,
            "state": made.state,
            "target": str(target),
            "moved": {"load": rounded(made.load_moved), "keys": rounded(made.keys_moved)},
            "obstacle": None if made.obstacle is None else _obstacle_as_json(made.obstacle),
        }
    )
    if made.obstacle is not None:
        yield Line(made.obstacle.text)
    yield Table.of(SlotMove, made.moves, key="moves").for_people(made.moves)
    yield Table.of(QueueLoad, made.queues, key="queues")
    yield heaviest_keys(made.before, sample)


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


def _ring_as_json(ring: KeyMapPlan, order: RingProposal) -> dict[str, object]:
    sides = (("before", ring), ("after", order))
    moves = {side: {"moved": one.moved, "moved_at_worst": one.moved_at_worst} for side, one in sides}
    return {"exchange": ring.exchange, **moves}


def result_text(made: SlotBalance) -> str:
    """Return the result of a balance in words."""
    if not made.moves:
        return _RESULTS[made.state]
    count = len(made.moves)
    changes = "slot moves" if count == 1 else "slots move"
    return f"{count} {changes}; {percent(made.load_moved)} of the load and {percent(made.keys_moved)} of all keys move"


@command(
    example="rabbit-chx arrange topology.toml --ring-via 'docker exec rabbitmq' --write",
    rules=Rules(needs={"--target": "--keys", "--weight": "--keys"}),
)
def arrange(
    *,
    file: str = argument(),
    broker: BrokerOptions = options(BrokerOptions, without=("no_record",)),
    variables: VariableOptions = options(VariableOptions),
    write: bool = option(help="Write to FILE instead of stdout."),
    load: BalanceOptions = options(BalanceOptions),
) -> Outcome:
    """Print FILE with the members of each ring in the order that moves the fewest keys of the live ring.

    The members of an exchange with slots get a list of slots instead of a weight: those that they have on the
    broker, as far as the weights permit. Comments and variables are kept. stderr reports the keys that each ring moves, before and after.

    FILE is a topology file; - is stdin. The live rings must be known: by their records, or by --ring-via.

    With --keys the slots move so that no queue has too much of the load of a sample: RabbitMQ does not count the messages of
    slots.

    The exit code is 3 if the order of a live ring is not known, or a list is not written, such as one whose order divides an entry with variables; stderr has it. It is 1 if the target of the load is not reached.
    """
    if write and file == STDIN:
        raise InputError("stdin cannot be written: leave --write out, or pass a file")
    at = broker.live()
    vhost = at.settings.vhost
    given = read_topology(file, vhost, variables=variables)
    _check_file(given, file)
    with at.open() as opened:
        read = LivePlan.read(opened, given, vhost)
    say_unrecorded_rings(read.live)
    plan, balanced = read.plan, load.balance(given, read.live)
    better = {
        name: order
        for name, ring in plan.rings.items()
        for order in ring.proposals
        if order.strategy == "least-moving-order"
    }
    members = {exchange.name: members_of(exchange) for exchange in reordered(plan, read.live).exchanges}
    if balanced is not None and balanced.made.moves:
        members[balanced.exchange] = _members_with_slots(balanced, given)
    done = rearrange(given.text, members, given.variables)
    slotted = {exchange.name: exchange for exchange in given.topology.exchanges if exchange.slots is not None}
    rings = [ring for name, ring in plan.rings.items() if ring.is_ring and name not in slotted]
    is_known = not any(ring.before.buckets and ring.before.ground.is_assumed for ring in rings)
    for ring in rings:
        _report_moves(ring, better.get(ring.exchange), evidence_of(read.live).means)
    pinned = _report_pinned(slotted, members, done.unwritten)
    _report_unwritten(done, members)
    written = [
        _ring_as_json(plan.rings[name], order) for name, order in better.items() if name not in done.unwritten
    ]
    if write:
        _write(file, given.text, done.text)
    code = ExitCode.DONE if is_known and not done.unwritten else ExitCode.PARTLY
    text = None if write else done.text
    fields: dict[str, object] = {"rings": written, "pinned": pinned, "determined": is_known, "text": text}
    parts: list[Part] = [] if text is None else [Verbatim(text)]
    if balanced is not None:
        say(f"{balanced.exchange}: {result_text(balanced.made)}")
        code = code or (ExitCode.DIFFERENCE if balanced.made.obstacle else ExitCode.DONE)
        loads = Section("", list(balance_parts(balanced)), key="balance")
        if text is None:
            parts.append(loads)
        else:  # people read the file
            fields |= Document("", [loads]).as_json(in_words)
    return Outcome(Document("arrange", [Data(fields), *parts]), code)


def _report_pinned(
    slotted: Mapping[str, ExchangeDefinition],
    members: Mapping[str, Sequence[RingMember]],
    unwritten: Collection[str],
) -> tuple[str, ...]:
    """Say which exchanges get lists of slots, and return those into whose members they are written."""
    pins = [name for name, exchange in slotted.items() if members[name] != exchange.members]
    pinned = tuple(name for name in pins if name not in unwritten)
    for name in slotted.keys() - {*pins}:
        say(f"{name}: its members already list their slots")
    for name in pinned:
        say(f"{name}: each member lists its slots")
    return pinned


def _write(file: str, before: str, text: str) -> None:
    if text != before:
        write_file(Path(file), text)
    say(f"{file} is unchanged" if text == before else f"{file} is written")


def _check_file(given: TopologyInput, file: str) -> None:
    if given.is_definitions:
        raise InputError(
            Fix(
                f"{given.name} is a definitions file, which does not contain the order of rings: convert it with ",
                replace(to_type("export", **{"from": file}), output="topology.toml"),
                ", and arrange the result",
            )
        )


def _members_with_slots(balanced: Balanced, given: TopologyInput) -> tuple[RingMember, ...]:
    """Return the members of a balanced exchange with their slots, and say which members of the file get none."""
    members, before = (
        balanced.made.members(balanced.exchange) or (),
        given.topology.exchange(balanced.exchange),
    )
    queues = {member.destination for member in members}
    for member in (before.members if before else None) or ():
        if member.destination not in queues:
            say(f"{balanced.exchange}: {member.destination} gets no slot, and is left out")
    return members


def _report_unwritten(done: RingText, members: Mapping[str, Sequence[RingMember]]) -> None:
    for name in done.unwritten:
        say(
            f"{name}: its members are not written, because one entry describes several exchanges, the order divides an entry with variables, "
            f"or its list is not in brackets: write by hand {members_text(members[name])}"
        )


def _report_moves(ring: KeyMapPlan, order: RingProposal | None, means: Means) -> None:
    if not ring.before.buckets:
        return
    written = f"{ring.exchange}: {_figures(ring)} as written"
    if order is not None:
        say(f"{ring.exchange}: in this order {_figures(order)}; as written {_figures(ring)}")
    elif not ring.before.ground.is_certain:
        remedy = know_rings({ring.exchange: ring.before}, means)
        say(Fix(f"{ring.exchange}: the ring was not read, it is {ring.before.ground}: ", remedy))
    elif ring.proposals:
        say(f"{written}; another order does not move fewer")
    elif ring.moved or ring.moved_at_worst:
        say(f"{written}; another order is not proposed, because the exchange or a member is replaced")


def _figures(moving: KeyMapPlan | RingProposal) -> str:
    return f"{percent(moving.moved)} of the keys move ({percent(moving.moved_at_worst)} at the peak)"
