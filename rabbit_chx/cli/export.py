"""``rabbit-chx export``: the live topology as a file."""

from __future__ import annotations

import tomllib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypedDict

from rabbit_chx.cli.broker_options import OF_A_BROKER, BrokerOptions
from rabbit_chx.cli.command import (
    EXCHANGE,
    CommandResult,
    ExitCode,
    Rules,
    argument,
    command,
    option,
    options,
    say,
)
from rabbit_chx.cli.inputs import VariableOptions, read_topology
from rabbit_chx.cli.ring_argument import say_conditions, say_doubts, say_unrecorded_rings
from rabbit_chx.errors import InputError, NotFoundError
from rabbit_chx.planning.plan import with_queues, without_exclusive
from rabbit_chx.planning.refusals import know_rings
from rabbit_chx.planning.slot_layout import collapse
from rabbit_chx.records.live_rings import evidence_of
from rabbit_chx.rendering.document import Document, Verbatim
from rabbit_chx.rendering.progress import sign_of_life
from rabbit_chx.text import command_text
from rabbit_chx.topology import ExchangeDefinition, LiveTopology, Topology
from rabbit_chx.topology.argument_table import toml_value
from rabbit_chx.topology.objects import HASH_EXCHANGE
from rabbit_chx.topology.plugin_objects import without_plugin_objects, without_shards
from rabbit_chx.topology.ranges import fold_names
from rabbit_chx.topology.reach import select_reached
from rabbit_chx.topology.toml_file import escape

#: The share that moves when one queue of five is added or removed.
_SHARE = 0.2
_MOST_PATTERNS = 10


@command(
    example="rabbit-chx export --ring-via 'docker exec rabbitmq' > topology.toml",
    rules=Rules(excludes=[("--from", name) for name in OF_A_BROKER]),
)
def export(
    *,
    exchanges: tuple[str, ...] = argument(nargs=-1, type=EXCHANGE, metavar="[EXCHANGE]..."),
    source: str | None = option(
        "--from",
        metavar="FILE",
        help="Convert this topology file or definitions file instead of the live topology; - is stdin.",
    ),
    broker: BrokerOptions = options(BrokerOptions, without=("no_record",)),
    variables: VariableOptions = options(VariableOptions),
) -> CommandResult:
    """Write the live topology as a topology file, whose plan is empty. With EXCHANGE only that exchange and
    everything that its messages reach: queues, bindings, alternate and dead-letter exchanges, and their
    policies.

    --ring-via reads the true rings. Without it their order is that of the records on the broker, or not known. stderr reports objects that a file
    cannot contain, such as users, queues named by the broker, and what plugins make, such as shards and federation links.

    The exit code is 3 if a file cannot express an object, which is left out and named, or if the order of a
    ring is not known.
    """
    live = broker.live() if source is None else None
    if live:
        with live.open() as opened, sign_of_life("reading the broker"):
            topology = opened.topology()
            say_unrecorded_rings(topology)
        topology = without_exclusive(topology)
        has_no_order = False
        is_partial = bool(topology.facts.oddities)
    else:
        given = read_topology(str(source), broker.vhost or "/", variables=variables)
        topology = LiveTopology.of_file(given.topology)
        has_no_order = given.is_definitions
        is_partial = bool(given.oddities)
    if exchanges:
        topology = _select(topology, exchanges, live=live is not None)
    topology = without_plugin_objects(without_shards(topology))
    if live:
        _report_left_out(topology)
    written, faults = _expressible(_collapsed(topology))
    for line in faults:
        say(f"left out, because a topology file cannot express it: {line}")
    unordered = {
        exchange.name: topology.rings[exchange.name]
        for exchange in written.exchanges
        if exchange.name in topology.rings
        and (has_no_order or not topology.rings[exchange.name].is_determined)
        and (live or len({member.destination for member in exchange.ring or ()}) > 1)
    }
    if unordered:
        about = f"the order of {', '.join(unordered)} is unknown, and a plan of this file would move keys: "
        if live:
            remedy = know_rings(unordered, evidence_of(topology).ways_to_learn)
        else:
            arrange = command_text("arrange", "FILE", "--write")
            remedy = f"pass --ring-via, and first run: {arrange}; it writes the order that moves the fewest"
        say(about + remedy)
    code = ExitCode.PARTLY if is_partial or faults or unordered else ExitCode.DONE
    text = _with_choices(written.to_toml(), written, unordered)
    return CommandResult(Document("topology", [Verbatim(text)], lambda: _fields(text, unordered)), code)


def _collapsed(topology: LiveTopology) -> Topology:
    """Return a topology as a file has it, and say which slots stay plain objects."""
    collapsed, plain = collapse(topology)
    for exchange, why in plain.items():
        say(f"the slots of {exchange} are written as plain exchanges and bindings: {why}")
    return with_queues(collapsed.as_wanted())


class ExportedTopology(TypedDict, total=False):
    """A topology file, in JSON; the schema of the file describes its objects.

    Attributes:
        determined: False if the order of a ring is not known; it is null, and `unordered` has its members.
    """

    determined: bool
    cluster: str
    vhost: str
    max_share_moved: float
    owns: Sequence[str]
    exchanges: Sequence[Mapping[str, Any]]
    queues: Sequence[Mapping[str, Any]]
    bindings: Sequence[Mapping[str, Any]]
    super_streams: Sequence[Mapping[str, Any]]
    policies: Sequence[Mapping[str, Any]]


def _fields(text: str, unordered: Collection[str]) -> dict[str, Any]:
    """Return the fields of a topology file; the members of a ring in `unordered` are not its ring, since their order is not known."""
    fields = tomllib.loads(text)
    for exchange in fields.get("exchanges", ()):
        if exchange["name"] in unordered and "ring" in exchange:
            exchange |= {"ring": None, "unordered": exchange["ring"]}
    return ({"determined": False} if unordered else {}) | fields


def _expressible(topology: Topology) -> tuple[Topology, list[str]]:
    """Return the topology without the objects that a file for its release cannot express, and why, with their names."""
    if not topology.problems:
        return topology, []
    faults: list[str] = []
    types = {
        exchange.name: ExchangeDefinition(exchange.name, exchange.type) for exchange in topology.exchanges
    }

    def are_sound(subject: Any, **context: list[Any]) -> bool:
        lists: dict[str, Any] = {name: tuple(some) for name, some in context.items()}
        problems = Topology(**lists, file=topology.file).problems
        if problems:
            faults.append(f"{subject.kind} {subject.name}: {problems[0].text}")
        return not problems

    policies = [policy for policy in topology.policies if are_sound(policy, policies=[policy])]
    queues = [queue for queue in topology.queues if are_sound(queue, queues=[queue])]
    exchanges = [
        exchange
        for exchange in topology.exchanges
        if are_sound(exchange, exchanges=[exchange], policies=policies)
    ]
    listing = {exchange.name for exchange in topology.exchanges if exchange.queues is not None}
    bindings = [
        binding
        for binding in topology.bindings
        if binding.source in listing
        or are_sound(
            binding, bindings=[binding], exchanges=[types[binding.source]] if binding.source in types else []
        )
    ]
    sound = replace(
        topology,
        exchanges=tuple(exchanges),
        queues=tuple(queues),
        bindings=tuple(bindings),
        policies=tuple(policies),
    )
    return sound, faults


def _select(topology: LiveTopology, exchanges: tuple[str, ...], *, live: bool) -> LiveTopology:
    try:
        return select_reached(topology, exchanges)
    except InputError as error:
        if not live:
            raise
        says = str(error)
        hint = "" if says.endswith("?") else "; check the vhost of the URL too"
        raise NotFoundError(says + hint, exchange=exchanges[0]) from None


def _with_choices(text: str, topology: Topology, unordered: Iterable[str]) -> str:
    """Return the text of a file with comments: the rings whose order is not known, in `unordered`, and the limits of a plan that the topology does not set,
    for the user to choose.
    """
    names = [exchange.name for exchange in topology.exchanges] + [queue.name for queue in topology.queues]
    comments = [
        f"# The order of the ring of {name!r} is not known: it is that of the binding list here, not that of the broker."
        for name in unordered
    ]
    if topology.max_share_moved is None and any(
        exchange.type == HASH_EXCHANGE for exchange in topology.exchanges
    ):
        comments += [
            "# A plan that moves a larger share of the keys of a hash exchange, at any moment, is refused:",
            f"# max_share_moved = {_SHARE}",
        ]
    if names and not topology.owns:
        # A pattern such as `orders.*` would own objects that are not in the file, and a plan would delete them.
        owned = fold_names(name for name in dict.fromkeys(names) if "*" not in name)
        some = f" (the first {_MOST_PATTERNS} of {len(owned)})" if len(owned) > _MOST_PATTERNS else ""
        comments += [
            f"# A plan deletes what is taken out of this file only if the file owns its name{some}:",
            f"# owns = {toml_value(escape(owned[:_MOST_PATTERNS]))}",
        ]
    settings, _, objects = ("", "", text) if text.startswith("[[") else text.partition("\n\n")
    head = "\n".join([*([settings] if settings else []), *comments])
    return f"{head}\n\n{objects}" if comments else text


def _report_left_out(topology: LiveTopology) -> None:
    for line in topology.facts.left_out:
        say(f"left out: {line}")
    say_doubts(topology.rings)
    say_conditions(topology.rings)
