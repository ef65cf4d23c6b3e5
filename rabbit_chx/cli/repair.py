"""``rabbit-chx repair``: restore the order of a ring by unbind and bind."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from rabbit_chx.analysis import Finding
from rabbit_chx.analysis.findings import CHECK_KINDS, USAGE_KINDS
from rabbit_chx.checking.check import certain_ring, check
from rabbit_chx.checking.check_rings import why_order_unknown
from rabbit_chx.cli.app import go_on_without_reader
from rabbit_chx.cli.broker_options import BrokerAddresses, BrokerOptions
from rabbit_chx.cli.command import (
    EXCHANGE,
    CommandResult,
    ExitCode,
    Rules,
    argument,
    command,
    has_terminal,
    option,
    options,
    say,
)
from rabbit_chx.cli.plan import (
    DECLINED,
    AppliedFields,
    ApplyReport,
    ApplyState,
    Permissions,
    apply_plan,
    ask,
    show_planned,
)
from rabbit_chx.errors import InputError
from rabbit_chx.planning.plan import healed, plan
from rabbit_chx.planning.plan_report import plan_parts
from rabbit_chx.planning.plan_value import Plan, order_facts
from rabbit_chx.planning.refusals import REMAKE_RINGS
from rabbit_chx.records.live_rings import find_recorded, live_hash_exchange
from rabbit_chx.rendering.document import Block, Document, Facts
from rabbit_chx.rendering.progress import sign_of_life
from rabbit_chx.result_fields import shown
from rabbit_chx.topology import BindingDefinition, LiveTopology
from rabbit_chx.topology.slots import number_slots

if TYPE_CHECKING:
    from rabbit_chx.broker import Broker


@dataclass(frozen=True, slots=True)
class RepairResult:
    """The result of a repair.

    Attributes:
        left: The kinds of findings afterwards.
    """

    state: ApplyState
    applied: AppliedFields = field(metadata=shown(group=AppliedFields))
    exchange: str
    plan: Plan
    left: Sequence[str] = field(metadata=shown(values=CHECK_KINDS))


@dataclass(frozen=True, slots=True)
class RepairResults:
    """The results of several repairs."""

    repairs: Sequence[RepairResult]


@dataclass(frozen=True, slots=True)
class RepairReport(ApplyReport):
    """The plan or the result of a repair.

    Attributes:
        exchange: the exchange whose ring is repaired.
        about: names and values in its heading.
        left: the findings of a check afterwards, or if a repair has no steps.
    """

    exchange: str = ""
    about: Sequence[tuple[str, str]] = ()
    left: Sequence[Finding] = ()

    @property
    def code(self) -> int:
        """The exit code."""
        is_left = self.state == "unchanged" and self.left
        return ExitCode.DIFFERENCE if is_left else super(RepairReport, self).code

    def document(self, *, asks: bool = False) -> Document:
        """Return the planned or completed changes; `asks`: before a question, and not as the result."""
        shown = self._planned(asks=asks) if self.state in ("planned", "refused") else self._result()
        return Document("repair", list(shown), self.fields())

    def fields(self) -> RepairResult:
        """Return what programs read of it."""
        left = [finding.kind for finding in self.left]
        return RepairResult(self.state, self._fields(), self.exchange, self.plan, left)

    def _planned(self, *, asks: bool) -> Iterator[Block]:
        ending = ["Nothing was changed."] if self.state == "planned" and not asks else []
        # A repair has no alternative proposals.
        rings = {name: replace(ring, proposals=()) for name, ring in self.plan.rings.items()}
        plan = replace(self.plan, unmanaged=(), rings=rings)
        yield from plan_parts(plan, self.about, self.refusals, whole=True, ending=ending)

    def _result(self) -> Iterator[Block]:
        if self.state == "unchanged":
            found = " for the order of the members; a check finds" if self.left else ": the ring is sound"
            yield Facts([*self.about, ("repair", f"nothing to do{found}"), *order_facts(self.plan)])
        else:
            yield Facts(self.about)
            yield from self._shown("repair again")
        if self.state == "applied" and not self.left:
            yield Facts([("check", "sound")])
        for finding in self.left:
            fix = [("fix", finding.fix)] if finding.fix else []
            yield Facts([("check", f"{finding.kind}: {finding.message}"), *fix])


def _findings_left(live: LiveTopology, exchange: str) -> tuple[Finding, ...]:
    """Return what a check finds, except what no order of a ring changes: consumers, traffic and other queues."""
    found = check(live, exchange=exchange).findings
    return tuple(each for each in found if each.kind not in (*USAGE_KINDS, "unbound-queue"))


@dataclass(frozen=True, slots=True)
class RepairOptions:
    """Whether a repair is done, and its permissions."""

    dry_run: bool = option(help="Only show the steps, and what they move.")
    yes: bool = option(help="Do not ask. Required without a terminal.")
    permissions: Permissions = options(Permissions)


@command(
    example="rabbit-chx repair orders --ring-via 'docker exec rabbitmq'",
    rules=Rules(excludes=[("--yes", "--dry-run")]),
)
def repair(
    *,
    exchanges: tuple[str, ...] = argument(nargs=-1, required=True, type=EXCHANGE, metavar="EXCHANGE..."),
    given: RepairOptions = options(RepairOptions),
    broker: BrokerOptions = options(BrokerOptions),
    output: str,
) -> CommandResult:
    """Show the steps that restore the ring of each EXCHANGE, ask, and do them. Only the bindings of EXCHANGE change.

    Ghost buckets, holes and second bindings are removed, and bindings without buckets are made again. The members get
    the order of the record on the broker, which a restart on Mnesia has changed; without a record they keep their order.
    Slots get the order of their numbers. The order of a topology file is restored by apply. A ring whose order is not
    known cannot be repaired; apply FILE --allow moved=1 makes that of a file.

    The steps are done over one channel; then the ring is read and compared. A refusal names the --allow that permits the repair.

    The exit code is 0 if the ring is sound, 1 if --dry-run shows steps, 3 if a part was done, 4 if nothing was changed.
    """
    go_on_without_reader()
    if not (given.yes or given.dry_run or has_terminal()):
        raise InputError(
            "repair asks before it changes the broker, and needs a terminal to ask: pass --yes, or --dry-run to see the steps"
        )
    at = broker.live()
    with at.open() as opened:
        if len(exchanges) > 1:  # a wrong name ends the command before the first change
            live = opened.topology()
            for name in exchanges:
                live_hash_exchange(live, name)
                certain_ring(live, name, REMAKE_RINGS)
        reports = [_repaired(at, opened, name, given, output) for name in dict.fromkeys(exchanges)]
    codes = {report.code for report in reports}
    is_part = ExitCode.PARTLY in codes or ({ExitCode.DONE, ExitCode.REFUSED} <= codes and not given.dry_run)
    code = ExitCode.PARTLY if is_part else max(codes)
    if len(reports) == 1:
        declined = reports[0].problem == DECLINED and output != "json"
        return CommandResult(None if declined else reports[0].document(), code=code)
    blocks = [block for report in reports for block in report.document().blocks()]
    result = RepairResults([report.fields() for report in reports])
    return CommandResult(Document("repairs", blocks, result), code=code)


def _repaired(
    at: BrokerAddresses, opened: Broker, exchange: str, given: RepairOptions, output: str
) -> RepairReport:
    """Show the steps of an exchange, ask, and do them."""
    with sign_of_life("reading the broker"):
        live = opened.topology()
    with sign_of_life("planning"):
        target = healed(live, exchange)
        certain_ring(live, exchange, REMAKE_RINGS)
        made = plan(target, live)
    refusals = (*made.refused(**given.permissions.arguments()), *_locked(made, live))
    unknown = why_order_unknown(live, exchange)
    about = (
        ("exchange", exchange),
        ("vhost", at.settings.vhost),
        ("wanted", _heal_text(live, exchange)),
        *([("order", f"not checked, {unknown}")] if unknown else []),
    )
    report = RepairReport("planned", made, refusals=refusals, exchange=exchange, about=about)
    if refusals:
        if not given.dry_run:
            say("the repair is refused, and nothing was changed")
        return replace(report, state="refused")
    if not made.changes:
        return replace(report, state="unchanged", left=_findings_left(live, exchange))
    if given.dry_run:
        return report
    if not given.yes:
        show_planned(report.document(asks=True), output)
        if not ask(made):
            return replace(report, state="refused", problem=DECLINED)
    done = apply_plan(at, opened, made, output, **given.permissions.arguments())
    report = replace(
        report, state=done.state, applied=done.applied, refusals=done.refusals, problem=done.problem
    )
    if done.state != "applied":
        return report
    with sign_of_life("reading the broker"):
        return replace(report, left=_findings_left(opened.topology(), exchange))


def _heal_text(live: LiveTopology, exchange: str) -> str:
    bound = live_hash_exchange(live, exchange).ring or ()
    slotted = number_slots(exchange, bound) is not None
    if slotted:
        return "the slots in the order of their numbers"
    recorded = find_recorded(live, exchange)
    is_read = live.rings[exchange].provenance != "recorded"
    return (
        f"the order of the record of {recorded.about}"
        if recorded and is_read
        else "the present order, repaired"
    )


def _locked(made: Plan, live: LiveTopology) -> Iterator[Finding]:
    """Yield a refusal for each exclusive queue that is to be bound or unbound: only its own connection may."""
    exclusive = {queue.name for queue in live.queues if queue.exclusive}
    subjects = (change.subject for change in made.changes)
    bound = (subject.destination for subject in subjects if isinstance(subject, BindingDefinition))
    for name in dict.fromkeys(bound):
        if name in exclusive:
            yield Finding(
                "exclusive",
                f"queue {name} is exclusive, and only the connection that declared it may bind or unbind it",
                "end that connection, or let it bind its queue again",
            )
