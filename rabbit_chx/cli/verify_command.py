"""``rabbit-chx verify``: the mirror compared with a live broker."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click
import pika

from rabbit_chx.analysis import Finding, Hashing, Place, Refused, ring_findings
from rabbit_chx.analysis.traffic import compare_traffic
from rabbit_chx.broker.firehose import infer_live_ring
from rabbit_chx.broker.live_exchange import LiveExchange, read_exchange, read_reach, read_ring
from rabbit_chx.broker.pika_connection import PikaConnection
from rabbit_chx.broker.scratch_copy import ScratchMessage, copied_runs, declare_copy, route_on_copy
from rabbit_chx.broker.scratch_vhost import scratch_vhost
from rabbit_chx.cli.live_options import (
    LiveBroker,
    counted,
    live_options,
    trace_options,
    traced,
    unwound_by_signals,
)
from rabbit_chx.cli.option_groups import HashedKeys, output_option
from rabbit_chx.cli.outcome import Outcome
from rabbit_chx.cli.sample_options import AskedSample, sample_options
from rabbit_chx.cli.stderr import say
from rabbit_chx.cli.verify_report import Difference, PassiveReport, ScratchReport
from rabbit_chx.errors import InputError

if TYPE_CHECKING:
    from rabbit_chx.broker.management import Management
    from rabbit_chx.routing import HashRing

__all__ = ["verify"]

_DEFAULT_KEYS = 10_000
_DEFAULT_PATTERN = "key-{n}"


@click.command(
    epilog="Example: rabbit-chx verify orders --management-url http://guest:guest@localhost:15672 "
    "--ring-via 'docker exec rabbitmq'",
    short_help="Is every message where the mirror says?",
)
@click.argument("exchange")
@live_options
@trace_options
@sample_options(_DEFAULT_KEYS, _DEFAULT_PATTERN)
@output_option
def verify(
    *,
    exchange: str,
    broker: LiveBroker,
    passive: bool,
    seconds: float,
    messages: int,
    sample: AskedSample,
    output: str,
) -> Outcome:
    """Compare the mirror with the broker, message by message; the queues of EXCHANGE are not touched.

    The command makes a copy of EXCHANGE with the same ring in a temporary vhost. It publishes the sample
    there (10,000 keys by default), consumes it and compares. Then it removes the vhost, after Ctrl-C too. A
    key is what EXCHANGE hashes: the routing key, the text of its hash-header, or its hash-property.

    With --passive nothing is published. The command compares real traffic, and infers the ring from it.

    --ring-via reads the ring, and the command compares it with the bindings: holes, buckets without a binding
    and bindings without buckets are findings (exit code 1). Without --ring-via the ring is assumed from the
    bindings, and a copy of it proves nothing about EXCHANGE (exit code 3).
    """
    if passive and sample.given:
        raise InputError("--passive compares real traffic: leave --keys, --pattern and --count out")
    management = broker.management("arguments and bindings are read over the management API")
    live = read_exchange(management, broker.settings.vhost, exchange)
    ring = read_ring(live, broker.ring_source)
    findings = ring_findings(ring, live.bindings, live.alternate)
    report: ScratchReport | PassiveReport
    if passive:
        observations = traced(broker, management, live, seconds, messages)
        report = PassiveReport(
            live,
            ring,
            findings,
            len(observations),
            compare_traffic(observations, ring, read_reach(management, live)),
            infer_live_ring(management, live, observations),
        )
    else:
        report = _scratch(broker, management, live, ring, sample, findings=findings)
    if report.guess:
        say(f"the ring of {exchange!r} is a guess, as the order of its bindings was not read: {report.guess}")
    return Outcome(output, report, code=report.code)


def _scratch(
    broker: LiveBroker,
    management: Management,
    live: LiveExchange,
    ring: HashRing,
    sample: AskedSample,
    *,
    findings: Sequence[Finding],
) -> ScratchReport:
    if not ring.bucket_count:
        return ScratchReport(live, ring, findings, {}, {}, [])
    hashing = Hashing(live.arguments.get("hash-header"), live.arguments.get("hash-property"))
    pattern = "{n}" if hashing.hash_property == "timestamp" else _DEFAULT_PATTERN
    read, hashed = sample.read_or_make(pattern), HashedKeys(hashing)
    with read.named(hashed, ring):
        values = list(map(hashed.value, read.keys))
        predicted = hashing.route_all(values, ring)
    messages = [_message(hashing, value) for value in values]
    with unwound_by_signals(), counted("compared", len(values)) as seen:
        runs = copied_runs(ring)
        with (
            scratch_vhost(management, broker.settings.username) as vhost,
            closing(PikaConnection(replace(broker.settings, vhost=vhost))) as connection,
        ):
            declare_copy(connection, broker.settings.masked_url, runs, live.arguments)
            found = [run.place for run in route_on_copy(connection, runs, messages, seen)]
    differences = [
        Difference(key, said, place)
        for key, said, place in zip(read.keys, predicted, found, strict=True)
        if isinstance(said, Refused) or said != place
    ]
    return ScratchReport(live, ring, findings, Counter(found), _count(predicted), differences)


def _count(predicted: Sequence[Place | Refused]) -> Counter[Place]:
    return Counter(place for place in predicted if not isinstance(place, Refused))


def _message(hashing: Hashing, value: Any) -> ScratchMessage:  # noqa: ANN401
    if hashing.hash_header is not None:
        return ScratchMessage(properties=pika.BasicProperties(headers={hashing.hash_header: value}))
    if hashing.hash_property is not None:
        return ScratchMessage(properties=pika.BasicProperties(**{hashing.hash_property: value}))
    return ScratchMessage(value)
