"""``rabbit-chx verify``: the mirror held against a live broker."""

from __future__ import annotations

from collections import Counter
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click
import pika

from rabbit_chx.analysis import Hashing, Refused
from rabbit_chx.analysis.traffic import compare_traffic
from rabbit_chx.broker.live import read_exchange, read_reach, read_ring
from rabbit_chx.broker.pika_connection import PikaConnection
from rabbit_chx.broker.scratch import scratch_vhost
from rabbit_chx.broker.scratch_copy import ScratchMessage, copied_runs, declare_copy, route_on_copy
from rabbit_chx.broker.tracing import infer_live_ring
from rabbit_chx.cli.live import LiveBroker, counted, live_options, trace_options, traced, unwound_by_signals
from rabbit_chx.cli.options import HashedKeys, output_option, sample_options
from rabbit_chx.cli.outcome import DIFFERENCE, DONE, PARTLY, Outcome
from rabbit_chx.cli.verify_report import Difference, PassiveReport, ScratchReport
from rabbit_chx.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rabbit_chx.analysis import Place
    from rabbit_chx.broker.live import LiveExchange
    from rabbit_chx.broker.management import Management
    from rabbit_chx.routing import HashRing

__all__ = ["verify"]

DEFAULT_KEYS = 10_000
DEFAULT_PATTERN = "key-{n}"


@click.command(
    epilog="Example: rabbit-chx verify orders --management-url http://guest:guest@localhost:15672 "
    "--ring-via 'docker exec rabbitmq'",
    short_help="Is every message where the mirror says?",
)
@click.argument("exchange")
@live_options
@trace_options
@sample_options
@output_option
def verify(
    *,
    exchange: str,
    broker: LiveBroker,
    passive: bool,
    seconds: float,
    messages: int,
    sample: list[str] | None,
    output: str,
) -> Outcome:
    """Hold the mirror against the broker, message by message; the queues of EXCHANGE are not touched.

    A copy of EXCHANGE with the same ring is made in a temporary vhost, the sample (10,000 keys if none is given) is
    published there, consumed and compared, and the vhost removed, after Ctrl-C too. A key is what EXCHANGE hashes: the
    routing key, or the text in its hash-header, or its hash-property.

    With --passive nothing is published: real traffic is compared, and the ring inferred from it. Buckets of a queue
    that is not bound are a difference too.

    The ring is read by --ring-via; without it, it is assumed from the bindings.
    """
    management = broker.management("arguments and bindings are read over the management API")
    live = read_exchange(management, broker.settings.vhost, exchange)
    ring = read_ring(live, broker.ring_source)
    if not passive:
        scratch = _scratch(broker, management, live, ring, sample)
        return Outcome(output, scratch, code=_code(bool(scratch.differences), sum(scratch.found.values())))
    if sample is not None:
        raise InputError("--passive compares real traffic: leave --keys and --pattern out")
    observations = traced(broker, management, live, seconds, messages)
    report = PassiveReport(
        live,
        ring,
        len(observations),
        compare_traffic(observations, ring, read_reach(management, live)),
        infer_live_ring(management, live, observations),
    )
    return Outcome(output, report, code=_code(bool(report.misrouted or report.unbound), len(observations)))


def _code(difference: bool, compared: int) -> int:  # noqa: FBT001
    if difference:
        return DIFFERENCE
    return DONE if compared else PARTLY


def _scratch(
    broker: LiveBroker,
    management: Management,
    live: LiveExchange,
    ring: HashRing,
    sample: Sequence[str] | None,
) -> ScratchReport:
    hashing = Hashing(live.arguments.get("hash-header"), live.arguments.get("hash-property"))
    pattern = "{n}" if hashing.hash_property == "timestamp" else DEFAULT_PATTERN
    keys = [pattern.replace("{n}", str(n)) for n in range(DEFAULT_KEYS)] if sample is None else sample
    values = list(map(HashedKeys(hashing).value, keys))
    predicted = hashing.route_all(values, ring)
    messages = [_message(hashing, value) for value in values]
    with unwound_by_signals(), counted("compared", len(keys)) as seen:
        runs = copied_runs(ring)
        with (
            scratch_vhost(management, broker.settings.username) as vhost,
            closing(PikaConnection(replace(broker.settings, vhost=vhost))) as connection,
        ):
            declare_copy(connection, broker.settings.masked_url, runs, live.arguments)
            found = [run.place for run in route_on_copy(connection, runs, messages, seen)]
    differences = [
        Difference(key, said, place)
        for key, said, place in zip(keys, predicted, found, strict=True)
        if isinstance(said, Refused) or said != place
    ]
    return ScratchReport(live, ring, Counter(found), _count(predicted), differences)


def _count(predicted: Sequence[Place | Refused]) -> Counter[Place]:
    return Counter(place for place in predicted if not isinstance(place, Refused))


def _message(hashing: Hashing, value: Any) -> ScratchMessage:  # noqa: ANN401
    if hashing.hash_header is not None:
        return ScratchMessage(properties=pika.BasicProperties(headers={hashing.hash_header: value}))
    if hashing.hash_property is not None:
        return ScratchMessage(properties=pika.BasicProperties(**{hashing.hash_property: value}))
    return ScratchMessage(value)
