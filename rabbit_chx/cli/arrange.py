"""``rabbit-chx arrange``: rewrite the rings of a topology file to move the fewest keys, and list the slots of each queue."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rabbit_chx.cli.broker_options import BrokerOptions
from rabbit_chx.cli.command import CommandResult, ExitCode, argument, command, option, options, say
from rabbit_chx.cli.inputs import STDIN, TopologyInput, VariableOptions, read_topology, write_file
from rabbit_chx.cli.plan import LivePlan
from rabbit_chx.cli.ring_argument import say_unrecorded_rings
from rabbit_chx.errors import InputError
from rabbit_chx.planning.plan import reordered
from rabbit_chx.planning.plan_value import SharesMoved
from rabbit_chx.planning.refusals import know_rings
from rabbit_chx.planning.ring_plan import KeyMapPlan, RingProposal
from rabbit_chx.records.live_rings import WaysToLearn, evidence_of
from rabbit_chx.rendering.document import Document, Verbatim
from rabbit_chx.text import command_text, percent
from rabbit_chx.topology import ExchangeDefinition, RingMember
from rabbit_chx.topology.toml_file import RingText, members_of, members_text, rearrange


@dataclass(frozen=True, slots=True)
class ArrangedRing:
    """A ring in another order: what it moves as written before, and as written now."""

    exchange: str
    before: SharesMoved
    after: SharesMoved

    @classmethod
    def of(cls, ring: KeyMapPlan, order: RingProposal) -> ArrangedRing:
        """Return a ring in another order."""
        return cls(
            ring.exchange,
            before=SharesMoved(ring.moved, ring.moved_at_worst),
            after=SharesMoved(order.moved, order.moved_at_worst),
        )


@dataclass(frozen=True, slots=True)
class ArrangeResult:
    """A file whose rings are written in another order.

    Attributes:
        pinned: The exchanges whose members now list their slots.
        determined: False if something depends on an order or a hashed value that is not known.
        text: The text of the file; null if it is written.
    """

    rings: Sequence[ArrangedRing]
    pinned: Sequence[str]
    determined: bool
    text: str | None


@command(example="rabbit-chx arrange topology.toml --ring-via 'docker exec rabbitmq' --write")
def arrange(
    *,
    file: str = argument(),
    broker: BrokerOptions = options(BrokerOptions, without=("no_record",)),
    variables: VariableOptions = options(VariableOptions),
    write: bool = option(help="Write to FILE instead of stdout."),
) -> CommandResult:
    """Print FILE with the members of each ring in the order that moves the fewest keys of the live ring.

    The members of an exchange with slots get a list of slots instead of a weight: those that they have on the
    broker, as far as the weights permit. Comments and variables are kept. stderr reports the keys that each ring moves, before and after.

    FILE is a topology file; - is stdin. The live rings must be known: by their records, or by --ring-via.

    The exit code is 3 if the order of a live ring is not known, or a list is not written, such as one whose order divides an entry with variables; stderr has it.
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
    plan = read.plan
    better = {
        name: order
        for name, ring in plan.rings.items()
        for order in ring.proposals
        if order.strategy == "least-moving-order"
    }
    members = {exchange.name: members_of(exchange) for exchange in reordered(plan, read.live).exchanges}
    done = rearrange(given.text, members, given.variables)
    slotted = {exchange.name: exchange for exchange in given.topology.exchanges if exchange.slots is not None}
    rings = [ring for name, ring in plan.rings.items() if ring.is_ring and name not in slotted]
    is_known = not any(ring.before.buckets and not ring.before.order.is_known for ring in rings)
    for ring in rings:
        _report_moves(ring, better.get(ring.exchange), evidence_of(read.live).ways_to_learn)
    pinned = _report_pinned(slotted, members, done.unwritten)
    _report_unwritten(done, members)
    written = [
        ArrangedRing.of(plan.rings[name], order)
        for name, order in better.items()
        if name not in done.unwritten
    ]
    if write:
        _write(file, given.text, done.text)
    code = ExitCode.DONE if is_known and not done.unwritten else ExitCode.PARTLY
    text = None if write else done.text
    parts = [] if text is None else [Verbatim(text)]
    result = ArrangeResult(written, pinned, is_known, text)
    return CommandResult(Document("arrange", parts, result), code)


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
            f"{given.name} is a definitions file, which does not contain the order of rings: convert it with "
            f"{command_text('export', '--from', file, output='topology.toml')}, and arrange the result"
        )


def _report_unwritten(done: RingText, members: Mapping[str, Sequence[RingMember]]) -> None:
    for name in done.unwritten:
        say(
            f"{name}: its members are not written, because one entry describes several exchanges, the order divides an entry with variables, "
            f"or its list is not in brackets: write by hand {members_text(members[name])}"
        )


def _report_moves(ring: KeyMapPlan, order: RingProposal | None, ways_to_learn: WaysToLearn) -> None:
    if not ring.before.buckets:
        return
    written = f"{ring.exchange}: {_moves_text(ring)} as written"
    if order is not None:
        say(f"{ring.exchange}: in this order {_moves_text(order)}; as written {_moves_text(ring)}")
    elif not ring.before.order.is_certain:
        remedy = know_rings({ring.exchange: ring.before}, ways_to_learn)
        say(f"{ring.exchange}: the order of the ring is unknown: {remedy}")
    elif ring.proposals:
        say(f"{written}; another order does not move fewer")
    elif ring.moved or ring.moved_at_worst:
        say(f"{written}; another order is not proposed, because the exchange or a member is replaced")


def _moves_text(moving: KeyMapPlan | RingProposal) -> str:
    return f"{percent(moving.moved)} of the keys move ({percent(moving.moved_at_worst)} at the peak)"
