"""``rabbit-chx topology plan``: what it takes to turn what is there into what a file says."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from rabbit_chx.cli.broker_options import BrokerOptions
from rabbit_chx.cli.command import DIFFERENCE, DONE, REFUSED, Outcome, argument, command, option, options
from rabbit_chx.cli.inputs import TopologyInput, read_topology
from rabbit_chx.cli.plan_report import PlanReport, whole_option
from rabbit_chx.cli.report import entry, to_json
from rabbit_chx.errors import InputError
from rabbit_chx.rendering import sign_of_life
from rabbit_chx.topology import Finding, Plan, Topology
from rabbit_chx.topology import plan as planned

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from rabbit_chx.broker import Broker


@dataclass(frozen=True, slots=True)
class LivePlan:
    """A topology file beside a broker.

    Attributes:
        file: the file.
        live: what is on the broker.
        plan: what it takes to turn that into what the file says.
        vhost: the vhost.
    """

    file: TopologyInput
    live: Topology
    plan: Plan
    vhost: str

    @classmethod
    def read(cls, opened: Broker, file: TopologyInput, vhost: str) -> LivePlan:
        """Read a broker, and plan. Nothing is changed.

        Args:
            opened: the broker.
            file: the topology file.
            vhost: the vhost's name.

        Raises:
            RabbitChxError: the broker cannot be read.
        """
        with sign_of_life("reading the broker"):
            live = opened.topology()
        with sign_of_life("planning"):
            made = planned(file.topology, live)
        deleted = [
            change.name for change in made.changes if (change.action, change.kind) == ("delete", "queue")
        ]
        if deleted:
            live = replace(live, consumers=opened.consumers(deleted))
            made = planned(file.topology, live)
        return cls(file, live, made, vhost)

    def report(
        self, refusals: Sequence[Finding] | None = None, *, whole: bool, ending: Sequence[str] = ()
    ) -> PlanReport:
        """Return the plan as a report about this file and this broker; the arguments are those of `PlanReport`."""
        live = self.live
        where = f"{live.cluster or 'a cluster without a name'}, RabbitMQ {live.release}, vhost {self.vhost}"
        return PlanReport(
            self.plan,
            [("file", self.file.name), ("broker", where)],
            refusals,
            whole,
            ending,
            to_json(
                {
                    "file": self.file.name,
                    "broker": entry(self, "cluster=live.cluster", "release=live.release", "vhost"),
                }
            ),
        )


@command(
    example="rabbit-chx topology plan topology.toml --ring-via 'docker exec rabbitmq'",
    outputs=("table", "json", "markdown"),
    output_help="The form of the result. Markdown is for a pull request.",
    plot_help="Draw into this file what each way of the plan moves, beside max_share_moved.",
)
def plan(
    *,
    file: str = argument(),
    broker: BrokerOptions = options(BrokerOptions),
    plan_out: str | None = option(metavar="FILE", help="Write the plan to this file as JSON, too."),
    whole: bool = whole_option(),
) -> Outcome:
    """Show what it takes to turn what is on the broker into what FILE says: the changes in their order, field by field, and
    for each ring the exact share of keys that moves, in the end and at the worst moment.

    Nothing is changed on the broker. The exit code is 0 where nothing is to change and no message is parked, 1 where there
    is something that may be applied, and 4 where the plan is refused.

    FILE is a topology file, or a definitions file of RabbitMQ; - is stdin. --ring-via reads the true rings. Without it a
    ring is assumed, and a plan that changes it is refused.
    """
    at = broker.live()
    given = read_topology(file, at.settings.vhost)
    with at.broker() as opened:
        live = LivePlan.read(opened, given, at.settings.vhost)
    made = live.plan
    flags = lifting_flags(made.refusals)
    ending = []
    if not given.is_definitions and file != "-" and _arranging_moves_less(made):
        ending.append(f"Move less by:  rabbit-chx topology arrange {shlex.quote(file)} --write")
    if (made.changes or made.parked) and flags is not None:
        ending.append(f"Apply it with: rabbit-chx topology apply {shlex.join([file, *flags])}")
    report = live.report(whole=whole, ending=ending)
    if plan_out is not None:
        try:
            text = json.dumps(report.as_json(), ensure_ascii=False)
            Path(plan_out).write_text(f"{text}\n", encoding="utf-8")
        except OSError as error:
            raise InputError(f"the plan cannot be written to {plan_out}: {error.strerror}") from None

    def draw() -> Axes:
        from rabbit_chx import plot

        return plot.movement(made)

    if made.refusals:
        return Outcome(report, REFUSED, draw=draw)
    return Outcome(report, DIFFERENCE if made.changes or made.parked else DONE, draw=draw)


def _arranging_moves_less(plan: Plan) -> bool:
    return any(
        proposal.strategy == "least-moving-order" and proposal.moved_at_worst < ring.moved_at_worst
        for ring in plan.rings.values()
        for proposal in ring.proposals
    )


def lifting_flags(refusals: Iterable[Finding]) -> list[str] | None:
    """Return the flags that lift all refusals, as words of a command line; None where none does.

    Args:
        refusals: why a plan is refused.
    """
    shares: dict[str, float | None] = {}
    for refusal in refusals:
        if refusal.allow_with is None:
            return None
        flag, _, share = refusal.allow_with.partition(" ")
        shares[flag] = max(float(share), shares.get(flag) or 0) if share else None
    flags = [[flag] if share is None else [flag, f"{share:g}"] for flag, share in shares.items()]
    return [word for words in flags for word in words]
