"""``rabbit-chx repair``: restore the order of a ring by unbind and bind."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, TypeAlias

from rabbit_chx.analysis import Finding
from rabbit_chx.analysis.report_parts import ring_text
from rabbit_chx.analysis.wording import refusals_as_json
from rabbit_chx.cli.applying import DECLINED, Permissions, apply_shown, ask, show_planned
from rabbit_chx.cli.broker_options import BrokerAddresses, BrokerOptions
from rabbit_chx.cli.command import (
    ExitCode,
    Outcome,
    Rules,
    argument,
    command,
    has_terminal,
    option,
    options,
    say,
)
from rabbit_chx.cli.printed import in_words
from rabbit_chx.errors import ApplyError, InputError
from rabbit_chx.rendering import Block, Data, Document, Facts, sign_of_life
from rabbit_chx.result_fields import to_json
from rabbit_chx.routing import HashRing
from rabbit_chx.topology import (
    BindingDefinition,
    LiveTopology,
    Plan,
    check,
    healed,
    plan,
)
from rabbit_chx.topology.checking.check import certain_ring
from rabbit_chx.topology.checking.check_records import why_order_unknown
from rabbit_chx.topology.live.applying import Applied
from rabbit_chx.topology.live.member_gaps import MemberGap, MemberGaps
from rabbit_chx.topology.live_rings import find_recorded, live_hash_exchange
from rabbit_chx.topology.objects.changes import PlannedChange
from rabbit_chx.topology.planning.plan_value import count_changes
from rabbit_chx.topology.planning.refusals import REMAKE_RINGS
from rabbit_chx.topology.reports.plan_report import plan_parts
from rabbit_chx.topology.slots.owners import number_slots
from rabbit_chx.words import percent, plural

if TYPE_CHECKING:
    from rabbit_chx.broker import Broker

#: The result of a repair; ``planned`` is a dry run.
RepairState: TypeAlias = Literal["planned", "unchanged", "refused", "applied", "partly"]
_CODES: dict[RepairState, int] = {
    "planned": ExitCode.DIFFERENCE, "unchanged": ExitCode.DONE, "refused": ExitCode.REFUSED, "applied": ExitCode.DONE, "partly": ExitCode.PARTLY,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class RepairReport:
    """The plan or the result of a repair.

    Attributes:
        about: names and values in its heading.
        gap: the longest time without a bucket of a member, in operations; None if no member has a gap.
        applied: the completed changes; None if nothing was changed.
        gap_s: the upper bound of the longest time that a member was without a bucket, in seconds; None if it was not measured.
        left: the findings of a check afterwards, or if a repair has no steps.
        problem: the error, in words; None without an error.
    """

    state: RepairState
    exchange: str
    about: Sequence[tuple[str, str]]
    plan: Plan
    gap: MemberGap | None = None
    refusals: Sequence[Finding] = ()
    applied: Applied | None = None
    gap_s: float | None = None
    left: Sequence[Finding] = ()
    problem: str | None = None

    @property
    def code(self) -> int:
        """The exit code."""
        if self.state == "unchanged" and self.left:
            return ExitCode.DIFFERENCE
        return _CODES[self.state]

    def _unchanged(self) -> Iterator[Block]:
        if not self.left:
            yield Facts([*self.about, ("repair", "nothing to do: the ring is sound")])
            return
        yield Facts([*self.about, ("repair", "nothing to do for the order of the members; a check finds")])
        for finding in self.left:
            yield Facts([(finding.kind, finding.message), ("fix", finding.fix)])

    def _planned(self, *, asks: bool) -> Iterator[Block]:
        ending = []
        if self.gap is not None:
            ending.append(
                "While a queue is bound again, its messages go to other queues: for at most "
                f"{plural(self.gap.operations, 'operation')} ({self.gap.member!s})."
            )
        if self.state == "planned" and not asks:
            ending.append("Nothing was changed.")
        # A repair has no alternative proposals.
        rings = {name: replace(ring, proposals=()) for name, ring in self.plan.rings.items()}
        plan = replace(self.plan, unmanaged=(), rings=rings)
        yield from plan_parts(plan, self.about, self.refusals, whole=True, ending=ending, words=in_words)

    def _applied(self) -> Iterator[tuple[str, str]]:
        yield "repaired", f"{plural(len(self.changes), 'change')}: {count_changes(self.changes)}"
        ring = self.plan.rings.get(self.exchange)
        if ring is not None:
            worst = f"{percent(ring.moved_at_worst)} at the peak"
            lost = f"; at most {percent(ring.lost_at_worst)} were unroutable" if ring.lost_at_worst else ""
            yield "moved", f"{percent(ring.moved)} of the keys in the end, {worst}{lost}"
        if self.ring is not None:
            yield "ring", ring_text(self.ring)
        if self.gap_s is not None:
            yield "gap", f"each member was without a bucket for at most {self.gap_s * 1000:.1f} ms"
        if not self.left:
            yield "check", "sound"
        for finding in self.left:
            yield "check", f"{finding.kind}: {finding.message}"

    @property
    def changes(self) -> Sequence[PlannedChange]:
        """The completed changes."""
        return () if self.applied is None else self.applied.changes

    @property
    def ring(self) -> HashRing | None:
        """The ring afterwards."""
        is_done = self.state == "applied"
        return self.applied.rings.get(self.exchange) if is_done and self.applied else None

    def document(self, *, asks: bool = False) -> Document:
        """Return the planned or completed changes; `asks`: before a question, and not as the result."""
        operations = 0 if self.gap is None else self.gap.operations
        fields = {
            "state": self.state,
            "exchange": self.exchange,
            # The JSON of a plan is text, in which a Fix has only the words of Python.
            "plan": {**to_json(self.plan), "refusals": refusals_as_json(self.plan.refusals)},
            "refusals": refusals_as_json(self.refusals),
            "done": len(self.changes),
            "ring": self.ring,
            "longest_gap": {"operations": operations, "seconds": self.gap_s},
            "left": [finding.kind for finding in self.left],
            "message": self.problem,
        }
        return Document("repair", [Data(fields), *self._shown(asks=asks)])

    def _shown(self, *, asks: bool) -> Iterator[Block]:
        if self.state == "unchanged":
            yield from self._unchanged()
        elif self.state in ("planned", "refused"):
            yield from self._planned(asks=asks)
        elif self.state == "applied":
            yield Facts([*self.about, *self._applied()])
        else:
            done = f"{len(self.changes):,} of {plural(len(self.plan.changes), 'change')}"
            yield Facts([*self.about, ("done", done), ("next", "repair again: it makes the other changes")])


@dataclass(frozen=True, slots=True)
class RepairOptions:
    """Whether a repair is done, and its permissions."""

    dry_run: bool = option(is_flag=True, help="Only show the steps, and what they move.")
    yes: bool = option(is_flag=True, help="Do not ask. Required without a terminal.")
    permissions: Permissions = options(Permissions)


@command(
    example="rabbit-chx repair orders --ring-via 'docker exec rabbitmq'",
    rules=Rules(excludes=[("--yes", "--dry-run")]),
)
def repair(
    *,
    exchanges: tuple[str, ...] = argument(nargs=-1, required=True, metavar="EXCHANGE..."),
    given: RepairOptions = options(RepairOptions),
    broker: BrokerOptions = options(BrokerOptions),
    output: str,
) -> Outcome:
    """Show the steps that restore the ring of each EXCHANGE, ask, and do them. Only the bindings of EXCHANGE change.

    Ghost buckets, holes and second bindings are removed, and bindings without buckets are made again. The members get
    the order of the record on the broker, which a restart on Mnesia has changed; without a record they keep their order.
    Slots get the order of their numbers. The order of a topology file is restored by apply. A ring whose order is not
    known cannot be repaired; apply FILE --allow moved=1 makes that of a file.

    The steps are done over one channel; then the ring is read and compared. A refusal names the --allow that permits the repair.

    The exit code is 0 if the ring is sound, 1 if --dry-run shows steps, 3 if a part was done, 4 if nothing was changed.
    """
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
        return Outcome(None if declined else reports[0].document(), code=code)
    documents = [report.document() for report in reports]
    fields = [Document("", document.parts).as_json(in_words) for document in documents]
    shown = [block for document in documents for block in document.blocks(in_words)]
    return Outcome(Document("repairs", [Data({"repairs": fields}), *shown]), code=code)


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
    refusals = (*made.refused(**given.permissions.arguments(without="allow_loss")), *_locked(made, live))
    gaps = MemberGaps(made, exchange)
    unknown = why_order_unknown(live, exchange)
    about = (
        ("exchange", exchange),
        ("vhost", at.settings.vhost),
        ("wanted", _heal_text(live, exchange)),
        *([("order", f"not checked, {unknown}")] if unknown else []),
    )
    report = RepairReport("planned", exchange, about, made, gaps.longest, refusals)
    if refusals:
        if not given.dry_run:
            say("the repair is refused, and nothing was changed")
        return replace(report, state="refused")
    if not made.changes:
        return replace(report, state="unchanged", left=check(live, exchange=exchange).findings)
    if given.dry_run:
        return report
    if not given.yes:
        show_planned(report.document(asks=True), output)
        if not ask(made):
            return replace(report, state="refused", problem=DECLINED)
    return _applied(at, opened, report, gaps=gaps, permissions=given.permissions)


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


def _applied(
    at: BrokerAddresses,
    opened: Broker,
    report: RepairReport,
    *,
    gaps: MemberGaps,
    permissions: Permissions,
) -> RepairReport:
    try:
        applied = apply_shown(
            at,
            opened,
            report.plan,
            seen=lambda count: gaps.seen(count, time.monotonic()),
            **permissions.arguments(),
        )
    except ApplyError as error:
        say(str(error))
        return replace(report, state="partly", applied=error.applied, problem=str(error))
    with sign_of_life("reading the broker"):
        left = check(opened.topology(), exchange=report.exchange).findings
    return replace(
        report,
        state="applied",
        applied=applied,
        left=left,
        gap_s=gaps.longest_s(),
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
