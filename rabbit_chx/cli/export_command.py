"""``rabbit-chx topology export``: what is there, as a file."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import click

from rabbit_chx.cli.live_options import LiveBroker, live_options
from rabbit_chx.cli.option_groups import TEXT, Command, output_option, with_options
from rabbit_chx.cli.outcome import Outcome
from rabbit_chx.cli.stderr import say
from rabbit_chx.cli.topology_input import read_topology
from rabbit_chx.errors import InputError, NotFoundError
from rabbit_chx.rendering import Block, Verbatim, sign_of_life
from rabbit_chx.topology import Topology
from rabbit_chx.topology.reach import reached_from
from rabbit_chx.topology.shards import without_shards
from rabbit_chx.topology.slots import folded, laid_out, not_folded

__all__ = ["export"]

#: The options that a file has a use for.
_OF_FILES = ("exchanges", "format_", "no_rings", "rabbitmq_cluster", "namespace", "output")


@dataclass(frozen=True, slots=True)
class TopologyText:
    """A topology in the text of a file.

    Attributes:
        text: the text.
    """

    text: str

    def blocks(self) -> Iterator[Block]:
        """Return the text of the file."""
        yield Verbatim(self.text)

    def as_json(self) -> dict[str, Any]:
        """Return the document, where the text is one."""
        document: dict[str, Any] = json.loads(self.text)
        return document


def _file_or_broker(command: Command) -> Command:
    """Add the options of a broker, and one of a file instead; the command gets either, and the vhost."""

    @functools.wraps(command)
    def of_broker(*, broker: LiveBroker, **others: Any) -> Outcome:  # noqa: ANN401
        return command(source=None, broker=broker, vhost=broker.settings.vhost, **others)

    live = live_options(of_broker)

    @functools.wraps(live)
    def either(*, source: str | None, **others: Any) -> Outcome:  # noqa: ANN401
        if source is None:
            return live(**others)
        asked = {name: value for name, value in others.items() if name in _OF_FILES}
        return command(source=source, broker=None, vhost=others["vhost"] or "/", **asked)

    option = click.option(
        "--from",
        "source",
        metavar="FILE",
        help="Convert this topology file or definitions file instead of asking a broker; - is stdin.",
    )
    return with_options(either, option)


@click.command(
    epilog="Example: rabbit-chx topology export --ring-via 'docker exec rabbitmq' > topology.toml",
    short_help="What is there, as a topology file.",
)
@click.option(
    "--exchange",
    "exchanges",
    type=TEXT,
    multiple=True,
    metavar="NAME",
    help="Only this exchange, and what its messages reach: its queues, bindings, alternate and dead-letter exchanges, "
    "and the policies that match them. Repeat it for more.",
)
@click.option(
    "--format",
    "format_",
    type=click.Choice(["toml", "definitions", "kubernetes"]),
    help="The form of the file.  [default: toml; definitions with --output json]",
)
@click.option(
    "--no-rings",
    is_flag=True,
    help="Leave the bindings of x-consistent-hash exchanges out, for an import that does not keep their order.",
)
@click.option(
    "--rabbitmq-cluster",
    type=TEXT,
    metavar="NAME",
    help="With --format kubernetes: the name of the RabbitmqCluster.",
)
@click.option(
    "--namespace", type=TEXT, metavar="NAME", help="With --format kubernetes: the namespace of the objects."
)
@_file_or_broker
@output_option
def export(
    *,
    exchanges: tuple[str, ...],
    source: str | None,
    broker: LiveBroker | None,
    vhost: str,
    format_: str | None,
    no_rings: bool,
    rabbitmq_cluster: str | None,
    namespace: str | None,
    output: str,
) -> Outcome:
    """Write what is on the broker as a topology file, whose plan is empty. Slots become `slots` and `members`.

    --ring-via reads the true rings. Without it their order is assumed. What is there and is not written, such as users,
    queues that the broker named, and shards, which their policy brings back, is told on stderr.
    """
    format_ = format_ or ("definitions" if output == "json" else "toml")
    if output == "json" and format_ != "definitions":
        raise InputError(
            f"--format {format_} is no JSON: leave --output json out, or give --format definitions"
        )
    if format_ == "kubernetes" and rabbitmq_cluster is None:
        raise InputError("the manifests name a RabbitmqCluster: give --rabbitmq-cluster NAME")
    if format_ != "kubernetes" and (rabbitmq_cluster, namespace) != (None, None):
        raise InputError("--rabbitmq-cluster and --namespace are for manifests: give --format kubernetes too")
    if no_rings and format_ == "toml":
        raise InputError("a topology file keeps the order of its rings: leave --no-rings out")
    topology = read_topology(source, vhost).topology if source is not None else _read(broker)
    if exchanges:
        topology = _reached(topology, exchanges, live=source is None)
    topology = without_shards(topology)
    if source is None:
        _say_what_is_missed(topology)
    if format_ == "toml":
        return Outcome(output, TopologyText(_with_slots(topology).to_toml()))
    topology = _laid_out(topology, format_)
    if not no_rings:
        _warn_of_order(topology, format_)
    if format_ == "definitions":
        return Outcome(output, TopologyText(topology.to_definitions(vhost=vhost, rings=not no_rings)))
    text = topology.to_kubernetes(str(rabbitmq_cluster), namespace=namespace, vhost=vhost, rings=not no_rings)
    return Outcome(output, TopologyText(text))


def _reached(topology: Topology, exchanges: tuple[str, ...], *, live: bool) -> Topology:
    try:
        return reached_from(topology, exchanges)
    except InputError as error:
        if not live:
            raise
        raise NotFoundError(f"{error}; check the vhost of the URL too", exchange=exchanges[0]) from None


def _read(broker: LiveBroker | None) -> Topology:
    assert broker is not None  # noqa: S101  # where there is no file
    with broker.broker() as opened, sign_of_life("reading the broker"):
        return _without_exclusive(opened.topology())


def _without_exclusive(topology: Topology) -> Topology:
    """Return the topology without exclusive queues, which go with the connection of a client, and their bindings.

    A ring keeps them as members, since its other members would move without them.
    """
    gone = {one.name for one in topology.queues if one.exclusive}
    said = [f"queue {name}: it is exclusive, and goes with its connection" for name in sorted(gone)]
    said += [
        f"queue {one.destination} is still a member of {exchange.name}, whose ring is another one without it"
        for exchange in topology.exchanges
        for one in exchange.ring or ()
        if one.destination in gone
    ]
    return replace(
        topology,
        queues=tuple(one for one in topology.queues if not one.exclusive),
        bindings=tuple(one for one in topology.bindings if one.destination not in gone),
        left_out=(*topology.left_out, *said),
    )


def _with_slots(topology: Topology) -> Topology:
    """Return a topology with `slots` where they say what is there, and say on stderr what keeps others plain."""
    for exchange, why in not_folded(topology).items():
        say(f"the slots of {exchange} are written as plain exchanges and bindings: {why}")
    return folded(topology)


def _laid_out(topology: Topology, format_: str) -> Topology:
    """Return a topology without `slots`, which only a topology file knows: with what they are made of."""
    slotted = [one.name for one in topology.exchanges if one.slots is not None]
    if not slotted:
        return topology
    says = f"the slots of {', '.join(slotted)} are written with their queues as on a new broker"
    say(f"{says}: the format {format_} does not share them out")
    return laid_out(topology, Topology())


def _say_what_is_missed(topology: Topology) -> None:
    for line in topology.left_out:
        say(f"left out: {line}")
    if assumed := [
        name for name, ring in topology.rings.items() if ring.provenance == "assumed" and ring.buckets
    ]:
        say(
            f"the order of {', '.join(assumed)} is assumed as the bindings are listed, and is probably another one: give "
            "--ring-via to read it"
        )


def _warn_of_order(topology: Topology, format_: str) -> None:
    hashed = [one.name for one in topology.exchanges if one.ring and one.owner == "ours"]
    if hashed:
        who = "a broker that imports this" if format_ == "definitions" else "the operator"
        say(
            f"{who} binds in no particular order, so the ring order of {', '.join(hashed)} is lost: give --no-rings, "
            f"import that, and bind in order with: rabbit-chx ring repair {hashed[0]} --file FILE --apply"
        )
