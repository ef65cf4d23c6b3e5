"""The plan of a topology file and a broker, which `plan`, `apply` and `arrange` share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from rabbit_chx.analysis.findings import Finding
from rabbit_chx.cli.applying import Permissions
from rabbit_chx.cli.command import ExitCode, option, say
from rabbit_chx.cli.inputs import TopologyInput
from rabbit_chx.planning.plan import plan as planned
from rabbit_chx.planning.plan_report import plan_parts, plan_report
from rabbit_chx.planning.plan_value import Plan
from rabbit_chx.planning.refusals import exclusive_refusals, how_to_learn
from rabbit_chx.records.evidence import evidence_of
from rabbit_chx.rendering.document import Document
from rabbit_chx.rendering.progress import sign_of_life
from rabbit_chx.topology import LiveTopology

if TYPE_CHECKING:
    from rabbit_chx.broker import Broker


def whole_option() -> Any:  # a field's default
    """Return a field that is the option for long plans."""
    return option("--all", section="Output", help="Show all changes of a long plan.")


@dataclass(frozen=True, slots=True)
class LivePlan:
    """A topology file and a broker; `plan` turns `live` into the topology of the file."""

    file: TopologyInput
    live: LiveTopology
    plan: Plan
    vhost: str

    @classmethod
    def read(cls, opened: Broker, file: TopologyInput, vhost: str) -> LivePlan:
        """Read a broker, and plan. Nothing is changed."""
        with sign_of_life("reading the broker"):
            live = opened.topology()
            wanted = file.topology
            kept = {queue.name for queue in wanted.queues}
            unwanted = [
                queue.name for queue in live.queues if queue.name not in kept and wanted.owned(queue.name)
            ]
            if unwanted:
                live = replace(
                    live,
                    facts=replace(
                        live.facts,
                        queues=replace(live.facts.queues, consumer_tags=opened.consumers(unwanted)),
                    ),
                )
        with sign_of_life("planning"):
            made = planned(wanted, live)
        return cls(file, live, opened.check_order(made), vhost)

    def refused(self, permissions: Permissions, *, records: bool = True) -> tuple[Finding, ...]:
        """Return the reasons to refuse the plan that are not permitted; `records` if the order of rings is stored."""
        return *self.plan.refused(**permissions.arguments(), records=records), *exclusive_refusals(
            self.plan.changes
        )

    def report(self, refusals: Sequence[Finding] | None = None, **shown: Any) -> Document:
        """Return the plan of this file and this broker; the arguments are those of `plan_parts`."""
        live = self.live
        where = f"{live.cluster or 'a cluster without a name'}, RabbitMQ {live.release}, vhost {self.vhost}"
        about = [("file", self.file.name), ("broker", where)]
        parts = plan_parts(self.plan, about, refusals, **shown)
        broker = {"cluster": live.cluster, "release": live.release, "vhost": self.vhost}
        moves = [f"{name}: {ring.moves}" for name, ring in self.plan.rings.items() if ring.is_moving]
        made = plan_report(self.plan, list(parts), file=self.file.name, broker=broker)
        state = "REFUSED: " if (self.plan.refusals if refusals is None else refusals) else ""
        return replace(made, title=state + "; ".join([self.file.name, *moves]), about=where)


def unknown_order(plan: Plan, live: LiveTopology) -> ExitCode | None:
    """Return the exit code for rings whose order is not known, and say what shows it; None if all are known."""
    if not plan.unknown_orders:
        return None
    rings = {name: plan.rings[name].before for name in plan.unknown_orders}
    say(f"whether it is that of the file is not known: {how_to_learn(rings, evidence_of(live).means)}")
    return ExitCode.PARTLY
