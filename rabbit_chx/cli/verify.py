"""``rabbit-chx verify``: compare the mirror with a live broker, message by message."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace

from rabbit_chx.analysis import Finding, ring_findings
from rabbit_chx.analysis.key_routing import Hashing
from rabbit_chx.broker import Broker
from rabbit_chx.broker.live_routing import alternate_of, dead_ends_of, find_live_exchange, key_map_of, ring_of
from rabbit_chx.broker.pika_connection import PikaConnection
from rabbit_chx.broker.scratch import (
    COPY,
    ScratchReport,
    declare_copy,
    find_routes,
    scratch_vhost,
    unwound_by_signals,
)
from rabbit_chx.cli.broker_options import BrokerAddresses, BrokerOptions, count_progress
from rabbit_chx.cli.command import EXCHANGE, CommandResult, ExitCode, Rules, argument, command, options, say
from rabbit_chx.cli.inputs import hashed_value
from rabbit_chx.cli.record import EvidenceOptions, hashing_of
from rabbit_chx.cli.ring_argument import say_unrecorded_rings
from rabbit_chx.cli.samples import KeySource, keys_option, parse_keys
from rabbit_chx.errors import NotDeterminedError
from rabbit_chx.planning.refusals import READ_RINGS, know_rings
from rabbit_chx.records.live_rings import WaysToLearn, evidence_of
from rabbit_chx.rendering.progress import sign_of_life
from rabbit_chx.routing import HashRing
from rabbit_chx.routing.bindings import AS_LISTED
from rabbit_chx.routing.key_map import KeyMap
from rabbit_chx.text import command_text, exchange_argument
from rabbit_chx.topology.model import LiveTopology
from rabbit_chx.topology.objects import MODULUS_EXCHANGE, ExchangeDefinition

_MOST_SHOWN = 20
_DEFAULT_KEYS = "key-{0..9999}"
#: The remedy for a ring that observed keys contradict.
_LATER_KEYS = (
    f"if the ring changed after these messages were published, observe later ones, or read the ring with {READ_RINGS}; otherwise check that the "
    "keys are those that the exchange hashes, and came to their queues by no other way"
)


@command(
    example="rabbit-chx verify orders --management-url http://guest:guest@localhost:15672 "
    "--ring-via 'docker exec rabbitmq'",
    has_pictures=True,
    rules=Rules(
        needs={"--waited": "--observed"},
        excludes=[("--trace", "--keys"), ("--trace", "--observed"), ("--observed", "--keys")],
    ),
)
def verify(
    *,
    exchange: str = argument(type=EXCHANGE),
    evidence: EvidenceOptions = options(EvidenceOptions),
    broker: BrokerOptions = options(BrokerOptions, without=("no_record",)),
    keys: KeySource | None = keys_option(f"Keys instead of {_DEFAULT_KEYS}"),
) -> CommandResult:
    """Compare the predicted destinations with those of the broker, message by message. The queues of EXCHANGE
    are not touched.

    The command copies EXCHANGE, bucket for bucket, to a temporary vhost. It publishes a sample there (by
    default 10,000 keys), consumes and compares it, and deletes the vhost, also after Ctrl-C. If the ring is
    neither recorded nor read by --ring-via, this verifies the rules of the broker but not the order of the ring
    (exit code 3). Differences between the ring and the bindings are findings (exit code 1).

    --trace compares the predictions with what the broker does with the live messages of EXCHANGE now, and so finds a
    ring that another program has changed. --observed compares them with keys and the queues that received them. Both
    need a ring that is read or recorded, and name the keys with most messages.
    """
    at = broker.live()
    at.management("arguments and bindings are read over the management API")
    with at.open(yes=evidence.yes) as opened:
        with sign_of_life("reading the exchange"):
            live = opened.inspect(exchange)
            definition = find_live_exchange(live, exchange)
            findings: list[Finding] = []
            ring: KeyMap
            if definition.type == MODULUS_EXCHANGE:
                ring = key_map_of(live, exchange)
            else:
                ring = ring_of(live, exchange)
                findings = _findings_of(live, definition, ring)
                say_unrecorded_rings(live)
                for fault in dead_ends_of(live, exchange).values():
                    say(fault)
        ways_to_learn = WaysToLearn() if ring.is_determined else evidence_of(live).ways_to_learn
        vhost = at.settings.vhost
        report = ScratchReport(
            exchange, vhost, definition.hash_arguments, ring, findings, ways_to_learn=ways_to_learn
        )
        if evidence.is_given:
            report = _by_evidence(opened, report, evidence)
    if ring.destinations and not evidence.is_given:
        report = _on_copy(at, report, keys)
    if report.doubt:
        say(f"the order of {exchange} is unknown: {report.doubt}")
    return CommandResult(report.document(), code_of_report(report))


def _findings_of(live: LiveTopology, exchange: ExchangeDefinition, ring: HashRing) -> list[Finding]:
    """Return the defects of a ring. Others may have left buckets in an empty one whose order is not known."""
    if not ring.destinations and not ring.order.is_certain:
        return []
    bound = [member.binding for member in exchange.ring or ()]
    return ring_findings(ring, bound, alternate_of(live, exchange))


def code_of_report(report: ScratchReport) -> ExitCode:
    """Return the exit code of a comparison."""
    if report.differences or report.findings:
        return ExitCode.DIFFERENCE
    return ExitCode.PARTLY if report.doubt or not report.found else ExitCode.DONE


def _by_evidence(opened: Broker, report: ScratchReport, given: EvidenceOptions) -> ScratchReport:
    """Return the report with a comparison of messages with their queues, also of those behind slots.

    Raises:
        NotDeterminedError: the order of the ring is not known, or no message can be compared.
    """
    live = opened.topology()
    name = report.exchange
    key_map = live.key_map(name)
    if not key_map.order.is_known:
        remedy = know_rings({name: key_map}, evidence_of(live).ways_to_learn)
        raise NotDeterminedError(
            f"the order of {name} is unknown, so no queue is predicted: {remedy}", exchange=name
        )
    pairs = given.pairs(opened, live, name, is_compared=True)
    fix = _LATER_KEYS
    if given.trace is not None:  # later than any change
        record = command_text("record", exchange_argument(name), "--trace", f"{given.trace:g}")
        fix = f"another program has changed the ring: store what the broker does now with {record}"
    return replace(report, ring=key_map, by=given.source).with_evidence(pairs, hashing_of(live, name), fix)


def _on_copy(at: BrokerAddresses, report: ScratchReport, given: KeySource | None) -> ScratchReport:
    """Return the report with a comparison of a sample on a copy of the exchange."""
    arguments = report.arguments
    ring = report.ring
    hashing = Hashing(arguments.get("hash-header"), arguments.get("hash-property"))
    default = "{0..9999}" if hashing.hash_property == "timestamp" else _DEFAULT_KEYS
    source = given or parse_keys(default)
    keys = source.read()
    with keys.name_errors(hashing, ring):
        values = [hashed_value(hashing, key) for key in keys.keys]
        # The copy has the members in the order of their list, whatever order the exchange has.
        is_known = ring.order.is_known or not isinstance(ring, HashRing)
        copied = ring if is_known else replace(ring, order=AS_LISTED)
        predicted = hashing.route_all(values, copied)
    with (
        unwound_by_signals(),
        count_progress("compared", len(values)) as seen,
        scratch_vhost(at.management(""), at.settings.username) as vhost,
        closing(PikaConnection(replace(at.settings, vhost=vhost))) as connection,
    ):
        places = declare_copy(connection, ring, arguments)
        found = find_routes(connection, COPY, hashing, values, places, seen=seen)
    return report.with_messages(keys.keys, predicted, found)
