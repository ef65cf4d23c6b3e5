"""``rabbit-chx check``: compare live objects with each other and with a file."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NoReturn

from rabbit_chx.analysis import Finding
from rabbit_chx.analysis.findings import CHECK_KINDS
from rabbit_chx.broker.usage import with_settled_consumers
from rabbit_chx.checking.check import UNNUMBERED, TopologyCheck, check
from rabbit_chx.checking.check_report import CheckReport, file_findings, files_report
from rabbit_chx.cli.broker_options import OF_A_BROKER, BrokerAddresses, BrokerOptions
from rabbit_chx.cli.command import (
    CommandResult,
    ExitCode,
    Rules,
    argument,
    command,
    exchange_named,
    excluding,
    lacking,
    names_file,
    option,
    options,
    say,
    typed,
)
from rabbit_chx.cli.inputs import STDIN, VariableOptions, file_name, read_topology
from rabbit_chx.cli.ring_argument import RELEASE, naming_exchange, parse_release
from rabbit_chx.errors import InputError, RabbitChxError, TopologyError
from rabbit_chx.options import one_of
from rabbit_chx.planning.refusals import NUMBER_PARTITIONS, how_to_learn
from rabbit_chx.records.live_rings import WaysToLearn, evidence_of, how_to_record, read_without_record
from rabbit_chx.rendering.output import FORMATS
from rabbit_chx.rendering.progress import sign_of_life
from rabbit_chx.routing.release import NEWEST_COMPARED
from rabbit_chx.text import in_vhost, listed
from rabbit_chx.topology import Topology
from rabbit_chx.topology.file_rules import find_lossy_queues


@dataclass(frozen=True, slots=True)
class CheckOptions:
    """The options of a check."""

    offline: bool = option(help="Only validate each FILE, without a broker.")
    release: str | None = option(
        metavar=RELEASE,
        help="The RabbitMQ release that gets the files, for --offline, such as 4.3 or 3.10.8.  [default: the newest]",
    )
    all_vhosts: bool = option(help="Check every vhost that the user may access; each finding has its vhost.")
    ignored: tuple[str, ...] = option(
        "--ignore",
        type=one_of(*CHECK_KINDS),
        metavar="KIND",
        help="Leave out findings of this kind, such as expiring-destination if a TTL is intended. Repeatable.",
    )
    without: str | None = option(
        type=one_of("consumers"),
        metavar="consumers",
        help="Leave out the findings about consumers and traffic, which change from one minute to the next.",
    )
    yes: bool = option(
        is_rare=True,
        help="Switch tracing off where an ended command has left it on, without asking.",
    )


#: The options of a check that asks a broker.
_OF_LIVE = ("--all-vhosts", "--output prometheus", "--without", "--yes")


@command(
    example="rabbit-chx check topology.toml --management-url http://localhost:15672 "
    "--ring-via 'docker exec rabbitmq'",
    has_metrics=True,
    has_pictures=True,
    rules=Rules(
        needs={"--release": "--offline"},
        excludes=[("--offline", name) for name in (*_OF_LIVE, *OF_A_BROKER)],
    ),
)
def check_broker(
    *,
    subjects: tuple[str, ...] = argument(nargs=-1, metavar="[FILE] [EXCHANGE]..."),
    given: CheckOptions = options(CheckOptions),
    broker: BrokerOptions = options(BrokerOptions, without=("no_record",)),
    variables: VariableOptions = options(VariableOptions),
    output: str,
) -> CommandResult:
    """Compare the ring of each EXCHANGE with its bindings, queues and record, and the broker with FILE. Nothing is changed.

    Without an EXCHANGE each exchange of the vhost that hashes is checked, and with FILE each of its objects is compared. An
    argument that ends in .toml or .json, or is - or the name of a file, is FILE. The order of a ring is known
    by --ring-via, because only the buckets show it, or by the record on the broker; all else is checked without it. A
    definitions file has no order. An x-modulus-hash exchange has no ring: its bindings and queues are checked.

    Each finding has a severity, its effect on messages, the exact share of keys, and a fix. Consumers and traffic are those of the
    broker's statistics, which are up to 5 s old. The exit code is 1 if there are errors or warnings; notes do not change it. It is 3 if
    only the order of a ring is not known, 2 if nothing was checked: stderr says whether the plugin, the vhost or a permission is missing. With --offline each argument is a
    FILE, a finding is a name that is probably misspelled, or an argument that the release ignores, and the exit code is 2
    if a file is invalid.
    """
    if given.offline:
        if not subjects:
            raise lacking("--offline", "FILE")
        return _validate(subjects, broker.vhost or "/", variables, given)
    files = [*filter(names_file, subjects)]
    exchanges = tuple(exchange_named(name) for name in subjects if name not in files)
    file = files[0] if files else None
    if files[1:]:
        raise InputError(f"a broker is compared with one file: leave out {', '.join(files[1:])}")
    if file is None and variables.is_typed:
        raise lacking(typed(VariableOptions)[0], "FILE")
    if subjects and given.all_vhosts:
        raise excluding("--all-vhosts", subjects[0])

    def run_check(at: BrokerAddresses) -> TopologyCheck:
        return _check(at, exchanges, file, given, variables)

    return _outcome(broker.live(), output, run_check, given, exchanges=exchanges, file=file)


def _check(
    at: BrokerAddresses,
    exchanges: Sequence[str],
    file: str | None,
    given: CheckOptions,
    variables: VariableOptions,
) -> TopologyCheck:
    """Return the check of a vhost. A ring that was read and that no record fits is named."""
    wanted: Topology | None = None
    oddities: tuple[Finding, ...] = ()
    if file is not None:
        with nullcontext() if file == STDIN or Path(file).exists() else naming_exchange(file):
            read = read_topology(file, at.settings.vhost, variables=variables, is_compared=True)
        wanted = read.topology
        oddities = read.oddities
    with at.open(yes=given.yes) as opened, sign_of_life("reading the broker"):
        live = opened.topology()
    if given.without is not None:
        live = replace(live, facts=replace(live.facts, usage=None))
    elif live.facts.usage is not None and live.facts.usage.is_unsettled:
        with sign_of_life("waiting for the statistics of the consumers"):
            live = with_settled_consumers(live, at.management(""))
    if names := [name for name in read_without_record(live) if name in (exchanges or live.rings)]:
        advice = how_to_record(names, evidence_of(live).ways_to_learn)
        say(in_vhost(advice, at.settings.vhost) if given.all_vhosts else advice)
    with sign_of_life("comparing"):
        found = check(live, wanted, exchange=exchanges or None, file=file)
    return replace(found, findings=(*oddities, *found.findings))


def _validate(
    files: Sequence[str], vhost: str, variables: VariableOptions, given: CheckOptions
) -> CommandResult:
    """Read all files, and report the mistakes of each by the rules of a release."""
    release = parse_release(given.release) or NEWEST_COMPARED
    valid: dict[str, Topology] = {}
    errors: list[InputError] = []
    known: set[str] = set()
    has_others = len(files) > 1
    for file in files:
        try:
            read = read_topology(
                file, vhost, variables=variables, release=release, is_strict=True, has_others=has_others
            )
            known |= read.variables.keys()
            if read.is_definitions and (faults := find_lossy_queues(read.topology, release)):
                raise TopologyError(faults, what=read.name)
        except InputError as error:
            errors.append(error)
        else:
            valid[read.name] = read.topology
    if has_others and not errors and (unused := [name for name in variables.read() if name not in known]):
        raise InputError(
            f"no file uses the variable {unused[0]}, which is given: write ${{{unused[0]}}} where it belongs, or do not pass it"
        )
    for mistake in errors[:-1]:
        say(str(mistake), keep_lines=True)
    if errors:
        raise errors[-1]
    found = {
        name: (
            topology,
            [found for found in file_findings(topology, release) if found.kind not in given.ignored],
        )
        for name, topology in valid.items()
    }
    has_findings = any(finding.severity != "note" for _, findings in found.values() for finding in findings)
    return CommandResult(files_report(found), ExitCode.DIFFERENCE if has_findings else ExitCode.DONE)


def _outcome(
    live: BrokerAddresses,
    output: str,
    run_check: Callable[[BrokerAddresses], TopologyCheck],
    given: CheckOptions,
    *,
    exchanges: tuple[str, ...],
    file: str | None,
) -> CommandResult:
    """Return the checks of a vhost or of all. With metrics an error becomes a metric, and is raised after they are printed."""
    errors: list[RabbitChxError] = []

    @contextmanager
    def note_errors() -> Iterator[None]:
        try:
            yield
        except RabbitChxError as error:
            if FORMATS[output].takes != "metrics":
                raise
            errors.append(error)

    vhosts = [live.settings.vhost]
    if given.all_vhosts:
        with note_errors():
            vhosts = live.vhosts()
    checks: dict[str, TopologyCheck | None] = dict.fromkeys(vhosts)
    for vhost in vhosts if not errors else ():
        with note_errors():
            checks[vhost] = run_check(live.in_vhost(vhost))
    if not errors and not any(check is None or check.is_of_something for check in checks.values()):
        with note_errors():
            checks = dict.fromkeys(checks)
            if file is None:
                raise InputError(f"nothing was checked: {live.why_nothing_hashes(vhosts)}")
            raise InputError(f"nothing was checked: {file_name(file)} has no objects")

    def fail() -> NoReturn:
        raise errors[0]

    name = None if file is None else file_name(file)
    report = CheckReport(live.address, checks, exchanges, time.time(), name, given.all_vhosts, given.ignored)
    code = ExitCode.DIFFERENCE if report.has_faults else ExitCode.DONE
    if _say_unknown_orders(report):
        code = code or ExitCode.PARTLY
    return CommandResult(report.document(), code, finish=fail if errors else None)


def _say_unknown_orders(report: CheckReport) -> bool:
    """Say of which rings and super streams the order is not known, with the remedy; return True if there are some."""
    checks = list(report.ended.values())
    rings = {name: ended.rings[name] for ended in checks for name in ended.not_determined}
    streams = [name for ended in checks for name, why in ended.unordered.items() if why == UNNUMBERED]
    if rings:
        ways_to_learn = WaysToLearn(
            all(ended.ways_to_learn.can_trace for ended in checks),
            next((ended.ways_to_learn.voids for ended in checks if ended.ways_to_learn.voids), ""),
        )
        say(how_to_learn(rings, ways_to_learn))
    if streams:
        say(f"the order of the partitions of {listed(streams)} is not known: {NUMBER_PARTITIONS}")
    return bool(rings or streams)
