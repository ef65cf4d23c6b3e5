"""What the commands share that hold a topology file against a broker."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from rabbit_chx.cli.plan_report import PlanReport
from rabbit_chx.cli.topology_input import TopologyInput, read_topology
from rabbit_chx.rendering import sign_of_life
from rabbit_chx.topology import Plan, PlanRefusal, Topology
from rabbit_chx.topology import plan as plan_of

if TYPE_CHECKING:
    from rabbit_chx.broker import Broker
    from rabbit_chx.cli.live_options import LiveBroker

__all__ = ["LivePlan", "plan_on", "planned", "whole_option"]

whole_option = click.option("--all", "whole", is_flag=True, help="Show every change, also of a long plan.")


@dataclass(frozen=True, slots=True)
class LivePlan:
    """A topology file beside a broker.

    Attributes:
        given: the file.
        live: what is on the broker.
        plan: what it takes to turn that into what the file says.
        vhost: the vhost.
    """

    given: TopologyInput
    live: Topology
    plan: Plan
    vhost: str

    def report(
        self,
        *,
        whole: bool,
        refusals: Sequence[PlanRefusal] | None = None,
        ending: Sequence[str] = (),
    ) -> PlanReport:
        """Return the plan for people, with the file and the broker at its head.

        Args:
            whole: whether long lists are shown whole.
            refusals: why it is refused; None for the plan's own.
            ending: lines at the end.
        """
        cluster = self.live.cluster or "a cluster without a name"
        about = [
            ("file", self.given.name),
            ("broker", f"{cluster}, RabbitMQ {self.live.release}, vhost {self.vhost}"),
        ]
        return PlanReport(self.plan, about, refusals, whole, ending)


def planned(path: str, broker: LiveBroker) -> LivePlan:
    """Read a topology file and a broker, and plan. Nothing is changed.

    Args:
        path: the file; ``-`` is stdin.
        broker: the broker.

    Raises:
        InputError: the file cannot be read, or has mistakes.
        RabbitChxError: the broker cannot be read.
    """
    given = read_topology(path, broker.settings.vhost)
    with broker.broker() as opened:
        return plan_on(opened, given, broker.settings.vhost)


def plan_on(opened: Broker, given: TopologyInput, vhost: str) -> LivePlan:
    """Read a broker, and plan. Nothing is changed.

    Args:
        opened: the broker.
        given: the topology file.
        vhost: the vhost's name.

    Raises:
        RabbitChxError: the broker cannot be read.
    """
    with sign_of_life("reading the broker"):
        live = opened.topology()
    with sign_of_life("planning"):
        return LivePlan(given, live, plan_of(given.topology, live), vhost)
