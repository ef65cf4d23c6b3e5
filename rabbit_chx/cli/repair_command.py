"""``rabbit-chx ring repair``: the wanted order of a ring, restored by unbind and bind."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import click

from rabbit_chx.cli.check_commands import need_rings
from rabbit_chx.cli.live_options import LiveBroker, counted, live_options, unwound_by_signals
from rabbit_chx.cli.option_groups import Number, output_option
from rabbit_chx.cli.outcome import Outcome
from rabbit_chx.cli.repair_report import RepairReport
from rabbit_chx.cli.stderr import say
from rabbit_chx.cli.topology_input import read_topology
from rabbit_chx.errors import ApplyError
from rabbit_chx.topology import BindingDefinition, Plan, PlanRefusal, Topology, check, plan, repair_target
from rabbit_chx.topology.check import live_hash_exchange
from rabbit_chx.topology.repair import MemberGaps
from rabbit_chx.topology.slots import numbered_slots

if TYPE_CHECKING:
    from rabbit_chx.broker import Broker

__all__ = ["repair"]


@click.command(
    epilog="Example: rabbit-chx ring repair orders --file topology.toml --ring-via 'docker exec rabbitmq'",
    short_help="Restore the order of a ring; a dry run unless --apply is given.",
)
@click.argument("exchange")
@click.option("--file", metavar="FILE", help="The topology file whose members and order are restored.")
@click.option("--apply", "applies", is_flag=True, help="Do it. Without this nothing is changed.")
@click.option(
    "--allow-moved",
    type=Number(0, 1),
    metavar="SHARE",
    help="The share of keys that may move, 0 to 1, in place of the file's max_share_moved.",
)
@click.option(
    "--allow-delete",
    is_flag=True,
    help="Delete and declare the exchange again, where no unbind takes its holes away.",
)
@live_options
@output_option
def repair(
    *,
    exchange: str,
    file: str | None,
    applies: bool,
    allow_moved: float | None,
    allow_delete: bool,
    broker: LiveBroker,
    output: str,
) -> Outcome:
    """Give EXCHANGE the ring that FILE says; without --file, heal the ring that is there.

    Healing takes ghost buckets, holes and second bindings away, and gives bindings without a bucket their buckets. The
    members keep their order; slots get that of their numbers. Nothing but the bindings of EXCHANGE changes.

    By default the command only shows the steps, what they move, and how much has no destination in between (exit code 1;
    0 where there is nothing to do). With --apply it does them over one channel, reads the ring afterwards and compares.

    The file's max_share_moved holds here too. A refusal prints the flag that lifts it.
    """
    need_rings(broker)
    wanted = None if file is None else read_topology(file, broker.settings.vhost).topology
    with broker.broker() as opened:
        live = opened.topology()
        made = plan(repair_target(live, exchange, wanted), live)
        refusals = (
            *made.refused(allow_moved=allow_moved, allow_delete=allow_delete),
            *_locked(made, live),
        )
        gaps = MemberGaps(made, exchange)
        about = (
            ("exchange", exchange),
            ("vhost", broker.settings.vhost),
            ("wanted", _wanted(live, exchange) if file is None else f"the ring of {file}"),
        )
        report = RepairReport("planned", exchange, about, made, gaps.longest, refusals)
        if refusals:
            report = replace(report, state="refused")
            if applies:
                say("the repair is refused, and nothing was changed")
        elif not made.changes:
            report = replace(report, state="unchanged")
        elif applies:
            report = _applied(opened, report, gaps, wanted, allow_moved, allow_delete=allow_delete)
    return Outcome(output, report, code=report.code)


def _wanted(live: Topology, exchange: str) -> str:
    """Return in words what a repair without a file wants."""
    bound = live_hash_exchange(live, exchange).ring or ()
    slotted = numbered_slots(exchange, bound) is not None
    return "the slots in the order of their numbers" if slotted else "the present order, healed"


def _applied(
    opened: Broker,
    report: RepairReport,
    gaps: MemberGaps,
    wanted: Topology | None,
    allow_moved: float | None,
    *,
    allow_delete: bool,
) -> RepairReport:
    made, exchange = report.plan, report.exchange
    with unwound_by_signals(), counted("applied", len(made.changes)) as seen:

        def progress(done: int, _: int) -> None:
            gaps.seen(done, time.monotonic())
            seen(done)

        try:
            applied = opened.apply(
                made, allow_moved=allow_moved, allow_delete=allow_delete, progress=progress
            )
        except ApplyError as error:
            say(str(error))
            return replace(report, state="partly", changes=error.applied.changes, says=str(error))
    found = check(opened.topology(), wanted, exchange=exchange)
    ring = applied.rings.get(exchange)
    return replace(
        report,
        state="applied",
        changes=applied.changes,
        ring=ring,
        gap_s=gaps.longest_s(),
        left=found.findings,
    )


def _locked(made: Plan, live: Topology) -> Iterator[PlanRefusal]:
    """Yield a refusal for each exclusive queue that is to be bound or unbound: only its own connection may."""
    exclusive = {queue.name for queue in live.queues if queue.exclusive}
    bindings = [one.subject for one in made.changes if isinstance(one.subject, BindingDefinition)]
    for name in dict.fromkeys(one.destination for one in bindings):
        if name in exclusive:
            yield PlanRefusal(
                f"queue {name} is exclusive, and only the connection that declared it may bind or unbind it: end that "
                "connection, or let it bind its queue again"
            )
