"""``rabbit-chx plan``: the changes between the live topology and that of a file."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import click

from rabbit_chx.analysis.findings import Finding, RefusalFields, place_text
from rabbit_chx.analysis.reports import ring_text
from rabbit_chx.broker.applying import STALE_S, Applied, Drained, append_of, describe_queues, why_not_in_order
from rabbit_chx.broker.recording import why_not_resumable
from rabbit_chx.broker.scratch import unwound_by_signals
from rabbit_chx.cli.broker_options import BrokerAddresses, BrokerOptions, count_progress, disk_alarms
from rabbit_chx.cli.command import (
    CommandResult,
    ExitCode,
    argument,
    as_printed,
    command,
    option,
    options,
    say,
)
from rabbit_chx.cli.inputs import STDIN, TopologyInput, VariableOptions, read_topology, write_file
from rabbit_chx.cli.ring_argument import say_unrecorded_rings
from rabbit_chx.cli.samples import KeySource, heaviest_moves, keys_option
from rabbit_chx.errors import ApplyError, InputError, PlanOutdatedError, PlanRefusedError
from rabbit_chx.options import SHARE, ValueKind
from rabbit_chx.planning.plan import plan as planned
from rabbit_chx.planning.plan_report import PlannedBroker, changes_table, plan_parts, plan_report
from rabbit_chx.planning.plan_value import Plan, count_changes, no_change, order_facts
from rabbit_chx.planning.refusals import exclusive_refusals, how_to_learn
from rabbit_chx.planning.ring_plan import SlotHandOver
from rabbit_chx.records.live_rings import evidence_of
from rabbit_chx.rendering.document import Block, Document, Facts, Section
from rabbit_chx.rendering.output import ConsoleOutput, MarkdownOutput
from rabbit_chx.rendering.progress import sign_of_life
from rabbit_chx.result_fields import shown
from rabbit_chx.routing import Destination, HashRing
from rabbit_chx.text import command_text, exchange_argument, listed, plural
from rabbit_chx.topology import LiveTopology
from rabbit_chx.topology.ranges import fold_names
from rabbit_chx.topology.schema import PlannedChange

if TYPE_CHECKING:
    from rabbit_chx.broker import Broker

# -- Plans that are applied: shown, agreed to, and applied with their progress. `apply` and `repair` share it

#: What a plan may do only if it is permitted; `moved` has a value.
_PERMITTED = ("moved", "delete", "loss", "vhost", "unlink")


def _read_permission(text: str) -> tuple[str, float | bool]:
    what, is_valued, value = text.partition("=")
    if what not in _PERMITTED:
        raise InputError(f"{text!r:.60} is none of moved=SHARE, {', '.join(_PERMITTED[1:])}.")
    if what != "moved":
        if is_valued:
            raise InputError(f"{text!r:.60} has a value: write {what}.")
        return f"allow_{what}", True
    try:
        return "allow_moved", SHARE.value_of(value)
    except InputError as error:
        raise InputError(f"moved: {error}") from None
    except ValueError:
        raise InputError(f"{text!r:.60} needs {SHARE.remedy}, such as moved=0.5.") from None


@dataclass(frozen=True, slots=True)
class Permissions:
    """What a plan may do that is refused otherwise."""

    allow: tuple[tuple[str, float | bool], ...] = option(
        type=ValueKind("permission", parse=_read_permission),
        metavar="WHAT",
        help="Permit delete, moved=SHARE, loss, vhost or unlink: deletions and replacements; the share of keys that may move in each ring, "
        "instead of max_share_moved; deleting queues with messages, without a wait; another vhost than the file's; cutting federation links.",
    )

    @property
    def options(self) -> list[str]:
        """The options as they are typed."""
        values = {name.removeprefix("allow_"): value for name, value in self.allow}
        return [
            f"--allow {name}" if value is True else f"--allow {name}={value:g}"
            for name, value in values.items()
        ]

    def arguments(self) -> dict[str, Any]:
        """Return the arguments of `Broker.apply` and of `Plan.refused`."""
        given: dict[str, Any] = {}
        for name, value in self.allow:
            if given.setdefault(name, value) != value:
                raise InputError(
                    f"--allow moved is given twice, as {given[name]:g} and as {value:g}: pass it once"
                )
        return given


#: The result of an application; ``planned`` is a dry run.
ApplyState: TypeAlias = Literal["planned", "applied", "unchanged", "refused", "partly"]
_CODES: dict[ApplyState, int] = {
    "planned": ExitCode.DIFFERENCE,
    "applied": ExitCode.DONE,
    "unchanged": ExitCode.DONE,
    "refused": ExitCode.REFUSED,
    "partly": ExitCode.PARTLY,
}


@dataclass(frozen=True, slots=True)
class AppliedRing:
    """A ring after an apply."""

    exchange: str
    ring: HashRing


@dataclass(frozen=True, slots=True)
class SlotsMoved:
    """What an apply did with slots.

    Attributes:
        handed_over: The slots that changed hands.
        unparked: The number of messages published again from the parking queue.
        overtaken: Sentences about messages that lost their order.
    """

    handed_over: Sequence[SlotHandOver]
    unparked: int
    overtaken: Sequence[str]


@dataclass(frozen=True, slots=True)
class UndrainedQueue:
    """A queue that was never empty, with its last counts; null if nobody can count them."""

    queue: str
    messages: int | None
    consumers: int | None


@dataclass(frozen=True, slots=True)
class DrainedFields:
    """The end of a wait for old queues.

    Attributes:
        after_s: How long it took, in seconds.
        never_empty: The queues that were never empty.
        early: The new queues that had consumers before each old queue had been empty.
    """

    after_s: float
    never_empty: Sequence[UndrainedQueue]
    early: Sequence[str]

    @classmethod
    def of(cls, drained: Drained) -> DrainedFields:
        """Return the fields of a wait."""
        never_empty = [
            UndrainedQueue(name, None, None)
            if counts is None
            else UndrainedQueue(name, counts.messages, counts.consumers)
            for name, counts in drained.never_empty.items()
        ]
        return cls(round(drained.after_s, 1), never_empty, drained.early)


@dataclass(frozen=True, slots=True)
class AppliedFields:
    """What was done of a plan, in JSON.

    Attributes:
        checksum: SHA-256 over both sides and the changes.
        planned: The number of changes of the plan.
        changes: Those that were made.
        rings: The rings afterwards.
        message: The error; null without one.
    """

    checksum: str
    planned: int
    changes: Sequence[PlannedChange]
    rings: Sequence[AppliedRing]
    refusals: Sequence[RefusalFields]
    message: str | None
    slots: SlotsMoved | None = field(metadata=shown(group=SlotsMoved))
    drained: DrainedFields | None = field(metadata=shown(optional=True))


@dataclass(frozen=True, slots=True)
class ApplyResult:
    """The result of an apply."""

    state: Literal["applied", "unchanged", "refused", "partly"]
    applied: AppliedFields = field(metadata=shown(group=AppliedFields))


@dataclass(frozen=True, slots=True)
class ApplyReport:
    """The result of applying a plan.

    Attributes:
        applied: the completed changes; None if nothing was changed.
        refusals: the reasons to refuse the plan.
        problem: the error, in words; None without an error.
        drained: the end of the wait for the old queues of an append; None without one.
    """

    state: ApplyState
    plan: Plan
    applied: Applied | None = None
    refusals: Sequence[Finding] = ()
    problem: str | None = None
    drained: Drained | None = None

    @property
    def code(self) -> int:
        """The exit code."""
        if self.drained is not None and not self.drained.is_in_order:
            return ExitCode.PARTLY
        return _CODES[self.state]

    def document(self) -> Document:
        """Return the completed changes. The plan is printed before it."""
        assert self.state != "planned"  # an apply without changes does not end
        return Document("apply", list(self._shown()), ApplyResult(self.state, self._fields()))

    def _fields(self) -> AppliedFields:
        """Return what programs read of the changes."""
        applied = self.applied
        slots = None
        if applied is not None and (applied.handed_over or applied.unparked):
            handed_over = [SlotHandOver(*each) for each in applied.handed_over]
            slots = SlotsMoved(handed_over, applied.unparked, applied.overtaken)
        rings = applied.rings if applied and self.state == "applied" else {}
        return AppliedFields(
            checksum=self.plan.checksum,
            planned=len(self.plan.changes),
            changes=applied.changes if applied else (),
            rings=[AppliedRing(name, ring) for name, ring in rings.items()],
            refusals=RefusalFields.of(self.refusals),
            message=self.problem,
            slots=slots,
            drained=None if self.drained is None else DrainedFields.of(self.drained),
        )

    def _shown(self, again: str = "apply the same file again") -> Iterator[Block]:
        """Yield what people see; `again` is what makes the changes that are left."""
        if self.applied is None:
            if self.state == "unchanged":
                resumes = self.plan.resumes
                yield Facts(
                    [
                        *([("resumes", str(resumes))] if resumes else []),
                        ("applied", f"nothing: {no_change(self.plan)}"),
                        *order_facts(self.plan),
                        ("checksum", self.plan.checksum),
                    ]
                )
            return
        changes = self.applied.changes
        planned = plural(len(self.plan.changes), "change")
        slots = list(_slot_facts(self.applied))
        if self.state == "applied":
            counted = (
                f"{planned}: {count_changes(changes)}" if changes else f"no changes: {no_change(self.plan)}"
            )
            rings = [("ring", f"{name}: {ring_text(ring)}") for name, ring in self.applied.rings.items()]
            yield Facts([("applied", counted), *slots, *rings, *self._append_facts()])
        else:
            done = f"{len(changes):,} of {planned}"
            left = len(changes) < len(self.plan.changes)
            following = [("next", f"{again}: it makes the other changes")] if left else []
            yield Facts([("done", done), *slots, *following])
            if changes:
                yield Section("Done", [changes_table(changes, whole=False)])

    def _append_facts(self) -> Iterator[tuple[str, str]]:
        """Yield what is to be done, or was waited for, after queues were appended."""
        append = append_of(self.plan)
        if append is None or not append.old:  # a new ring takes no keys from a queue
            return
        drained = self.drained
        if drained is None:
            yield "next", _when_to_start(self.plan, append.old)
            return
        if drained.early:
            yield (
                "early",
                f"{listed(drained.early)} had consumers before the old queues had been empty: the order of keys may be broken",
            )
        if drained.never_empty:
            yield (
                "not drained",
                f"{describe_queues(drained.never_empty)} after {drained.after_s:.0f} s",
            )
            yield "next", _when_to_start(self.plan, tuple(drained.never_empty))
        else:
            yield (
                "drained",
                f"after {drained.after_s:.0f} s: you can start the consumers of {_names_of(append.new)} now",
            )


def _names_of(places: Iterable[Destination]) -> str:
    return listed(fold_names(place_text(place) for place in places))


def _when_to_start(plan: Plan, old: Sequence[Destination]) -> str:
    """Return when the consumers of appended queues may start, given the old queues that are not known to have been empty."""
    append = append_of(plan)
    assert append is not None  # the callers have asked
    each = "" if len(old) == 1 else "each of "
    appended_to = [name for name, ring in plan.rings.items() if ring.append is not None]
    commands = [command_text("show", exchange_argument(name), "--consumers") for name in appended_to]
    return (
        f"start the consumers of {_names_of(append.new)} only when {each}{_names_of(old)} has been empty once since the bind: 0 ready and "
        f"0 unacked, {STALE_S:g} s after the bind or later, in {' and '.join(commands)}"
    )


def _slot_facts(applied: Applied) -> Iterator[tuple[str, str]]:
    if applied.handed_over:
        yield "slots", f"{plural(len(applied.handed_over), 'slot')} with another queue"
    if applied.unparked:
        yield "parked", f"{plural(applied.unparked, 'message')} published again"
    for sentence in applied.overtaken:
        yield "overtaken", sentence


#: The problem of a plan that the user declined.
DECLINED = "the answer was no"


def _apply_shown(
    at: BrokerAddresses,
    opened: Broker,
    plan: Plan,
    *,
    verbose: bool = False,
    **permissions: Any,
) -> Applied:
    """Apply a plan, and show its progress."""
    size = len(plan.changes)
    done = 0
    if alarms := disk_alarms():
        hint = ": once its disk is full, RabbitMQ 4.3 refuses every login after a change"
        say(f"{alarms}{hint if opened.release.numbers >= (4, 3, 0) else ''}")
    verbose = verbose or (sys.stderr is not None and sys.stderr.isatty())
    with unwound_by_signals(), count_progress("applied", size) as counting, ExitStack() as checking:
        checking.enter_context(sign_of_life("checking the plan against the broker"))

        def progress(count: int, _: int) -> None:
            nonlocal done
            checking.close()
            before, done = done, count  # first, since an interruption may come while this writes
            for number, change in enumerate(plan.changes[before:count], before + 1) if verbose else ():
                say(f"done {number:,} of {size:,}: {change}")
            counting(count)

        try:
            applied = opened.apply(
                plan, progress=progress, waiting=say, records=at.stores_records, **permissions
            )
        except KeyboardInterrupt:
            say(
                f"at least {done:,} of {plural(size, 'change')} were done: run the command again for the others"
            )
            raise
    for note in applied.unrecorded:
        say(note)
    return applied


def apply_plan(at: BrokerAddresses, opened: Broker, plan: Plan, output: str, **given: Any) -> ApplyReport:
    """Apply a plan, and show its progress; `given` are the arguments of `_apply_shown`."""
    try:
        applied = _apply_shown(at, opened, plan, **given)
    except ApplyError as error:
        say(str(error))
        return ApplyReport("partly", plan, error.applied, problem=str(error))
    except PlanRefusedError as error:
        if output != "json" or isinstance(error, PlanOutdatedError):
            raise
        return ApplyReport("refused", plan, refusals=error.refusals, problem=str(error))
    return ApplyReport("applied", plan, applied)


def why_no_wait(plan: Plan) -> str | None:
    """Return why no wait keeps the keys that a plan moves in order, and say it; None if one does."""
    reasons = [*why_not_in_order(plan)]
    if not reasons:
        return None
    problem = (
        f"{'; '.join(reasons)}: nothing was changed; without --wait-drained the plan is applied all the same"
    )
    say(problem)
    return problem


def wait_after(opened: Broker, done: ApplyReport, longest_s: float) -> ApplyReport:
    """Wait for the old queues of an append that was applied, and return the report with the end of the wait."""
    append = append_of(done.plan)
    if append is None:
        say("no queue was appended that gets keys of others: there is nothing to wait for")
        return done
    try:
        with unwound_by_signals():
            return replace(done, drained=opened.wait_drained(done.plan, longest_s=longest_s, waiting=say))
    except KeyboardInterrupt:
        say(f"the plan is applied, and the wait was interrupted: {_when_to_start(done.plan, append.old)}")
        raise


def ask(plan: Plan) -> bool:
    """Ask whether to apply a plan. Note on stderr if the answer is no."""
    if plan.changes:
        size = len(plan.changes)
        question = f"Make {'this' if size == 1 else 'these'} {plural(size, 'change')}?"
    else:
        question = f"Publish {plural(sum(plan.parked_messages.values()), 'parked message')} again?"
    answer = click.confirm(question, err=True)
    if not answer:
        say("nothing was changed")
    return answer


def show_planned(report: Document, output: str) -> None:
    """Print the plan before it is applied; on stderr if stdout is for programs."""
    if output == "markdown":
        MarkdownOutput().show(as_printed(report))
        sys.stdout.write("\n---\n\n")  # a line between the plan and the result
        return
    stream = sys.stdout if output == "table" else sys.stderr
    ConsoleOutput(stream).show(as_printed(report))
    stream.write("\n")


# -- The plan of a topology file and a broker, which `plan`, `apply` and `arrange` share


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
        broker = PlannedBroker(live.cluster, live.release, self.vhost)
        moves = [f"{name}: {ring.moves}" for name, ring in self.plan.rings.items() if ring.is_moving]
        made = plan_report(self.plan, list(parts), self.file.name, broker)
        state = "REFUSED: " if (self.plan.refusals if refusals is None else refusals) else ""
        return replace(made, title=state + "; ".join([self.file.name, *moves]), about=where)


def unknown_order(plan: Plan, live: LiveTopology) -> ExitCode | None:
    """Return the exit code for rings whose order is not known, and say what shows it; None if all are known."""
    if not plan.unknown_orders:
        return None
    rings = {name: plan.rings[name].before for name in plan.unknown_orders}
    say(
        f"whether it is that of the file is not known: {how_to_learn(rings, evidence_of(live).ways_to_learn)}"
    )
    return ExitCode.PARTLY


@command(
    example="rabbit-chx plan topology.toml --ring-via 'docker exec rabbitmq'",
    has_pictures=True,
)
def plan(
    *,
    file: str = argument(),
    broker: BrokerOptions = options(BrokerOptions, without=("no_record",)),
    variables: VariableOptions = options(VariableOptions),
    permissions: Permissions = options(Permissions),
    keys: KeySource | None = keys_option(
        "A sample of keys, of which the plan says whether the heaviest move"
    ),
    plan_out: str | None = option(metavar="FILE", help="Also write the plan to this file, as JSON."),
    whole: bool = whole_option(),
) -> CommandResult:
    """Show the changes that FILE requires, in their order, and for each ring the exact share of keys that
    move: at the end and at the peak, while bindings change. No ring is changed. Exit codes:
    0 no changes, 1 changes to apply, 4 refused. --allow means the same as in apply.

    FILE is a topology file, or a definitions file of RabbitMQ; - is stdin. Rings are those of the records on the
    broker, or are read by --ring-via. Otherwise their order is not known, and a plan that changes one is refused.

    Exit codes also: 1 messages are parked, 3 no changes, but the order of a ring is not known.
    """
    at = broker.live()
    permissions.arguments()  # refuses contradictions before the broker is asked
    given = read_topology(file, at.settings.vhost, variables=variables, is_compared=True)
    with at.open() as opened:
        live = LivePlan.read(opened, given, at.settings.vhost)
        say_unrecorded_rings(live.live)
    if note := why_not_resumable(live.plan, live.live):
        say(note)
    heaviest = {} if keys is None else heaviest_moves(keys, live.plan)
    made, report = report_plan(live, file, permissions, whole=whole, heaviest=heaviest)
    if plan_out is not None:
        text = json.dumps(as_printed(report).as_json(), ensure_ascii=False)
        write_file(Path(plan_out), f"{text}\n")
    code = (
        ExitCode.REFUSED
        if made.refusals
        else ExitCode.DIFFERENCE
        if made.changes or made.parked_messages
        else unknown_order(made, live.live) or ExitCode.DONE
    )
    return CommandResult(report, code)


def report_plan(live: LivePlan, file: str, permissions: Permissions, **shown: Any) -> tuple[Plan, Document]:
    """Return the plan of a file with the refusals that are not permitted, and its report with the commands that follow.

    `shown` are arguments of `plan_parts`.
    """
    remaining = live.refused(permissions)
    live = replace(live, plan=replace(live.plan, refusals=remaining))
    made = live.plan
    permitting = options_to_permit(permissions.options, remaining)
    ending = []
    override = ""
    if not live.file.is_definitions and file != STDIN and _can_move_less(made):
        ending.append(f"To move fewer keys, run: {command_text('arrange', file, '--write')}")
    if (made.changes or made.parked_messages) and permitting is not None:
        # apply cannot ask if stdin is the file
        reviewed = ["--checksum", made.checksum] if file == STDIN else []
        command = f"Apply it with: {command_text('apply', file, *permitting, *reviewed)}"
        if remaining:
            override = command
        else:
            ending.append(command)
    return made, live.report(ending=ending, override=override, **shown)


def _can_move_less(plan: Plan) -> bool:
    return any(
        proposal.strategy == "least-moving-order" and proposal.moved_at_worst < ring.moved_at_worst
        for ring in plan.rings.values()
        for proposal in ring.proposals
    )


def options_to_permit(given: Iterable[str], refusals: Iterable[Finding]) -> list[str] | None:
    """Return the words of the options that permit all refusals, and of those that are given; None if no option permits one of the refusals."""
    options: dict[str, str] = {}
    permitting = [refusal.allow_with for refusal in refusals]
    for each in (*given, *permitting):
        if each is None:
            return None
        name = each.partition("=")[0]
        options[name] = max(options.get(name, each), each, key=_share_in)
    return [word for each in options.values() for word in each.split()]


def _share_in(option: str) -> float:
    """Return the share of keys that an option permits to move; 0 for another option."""
    return float(option.partition("=")[2] or 0)
