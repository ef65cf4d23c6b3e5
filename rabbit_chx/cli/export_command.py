"""``rabbit-chx topology export``: what is there, as a file."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from rabbit_chx.cli.option_groups import TEXT, output_option
from rabbit_chx.cli.outcome import Outcome
from rabbit_chx.cli.stderr import say
from rabbit_chx.cli.topology_input import read_topology
from rabbit_chx.errors import InputError
from rabbit_chx.rendering import Verbatim
from rabbit_chx.topology.reached import reached_from

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rabbit_chx.rendering import Block
    from rabbit_chx.topology import Topology

__all__ = ["export"]


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


@click.command(
    epilog="Example: rabbit-chx topology export --from definitions.json > topology.toml",
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
    "--from",
    "source",
    metavar="FILE",
    required=True,
    help="A topology file or a definitions file; - is stdin.",
)
@click.option("--vhost", type=TEXT, metavar="NAME", default="/", help="The vhost.")
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
@output_option
def export(
    *,
    exchanges: tuple[str, ...],
    source: str,
    vhost: str,
    format_: str | None,
    no_rings: bool,
    rabbitmq_cluster: str | None,
    namespace: str | None,
    output: str,
) -> Outcome:
    """Write what is there as a topology file, whose plan is empty.

    What cannot be written is said on stderr.
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
    topology = read_topology(source, vhost).topology
    if exchanges:
        topology = reached_from(topology, exchanges)
    if format_ == "toml":
        return Outcome(output, TopologyText(topology.to_toml()))
    if not no_rings:
        _warn_of_order(topology, format_)
    if format_ == "definitions":
        return Outcome(output, TopologyText(topology.to_definitions(vhost=vhost, rings=not no_rings)))
    text = topology.to_kubernetes(str(rabbitmq_cluster), namespace=namespace, vhost=vhost, rings=not no_rings)
    return Outcome(output, TopologyText(text))


def _warn_of_order(topology: Topology, format_: str) -> None:
    hashed = [one.name for one in topology.exchanges if one.ring and one.owner == "ours"]
    if hashed:
        who = "a broker that imports this" if format_ == "definitions" else "the operator"
        say(
            f"{who} binds in no particular order, so the ring order of {', '.join(hashed)} is lost: give --no-rings, "
            f"import that, and bind in order with: rabbit-chx ring repair {hashed[0]} --file FILE --apply"
        )
