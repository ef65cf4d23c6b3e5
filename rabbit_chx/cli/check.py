"""``rabbit-chx topology check`` and ``rabbit-chx ring check``: what is on a broker against itself and against a file."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any, NoReturn

from rabbit_chx.analysis.wording import plural
from rabbit_chx.cli.broker_options import BrokerOptions, LiveBroker
from rabbit_chx.cli.command import DIFFERENCE, DONE, Outcome, argument, command, options
from rabbit_chx.cli.inputs import file_name, read_topology
from rabbit_chx.cli.report import document, entries
from rabbit_chx.errors import RabbitChxError
from rabbit_chx.rendering import Block, Facts, Gauge, Line
from rabbit_chx.topology import check
from rabbit_chx.topology.check import CHECK_KINDS

if TYPE_CHECKING:
    from rabbit_chx.topology import Topology, TopologyCheck

_MOST_SHOWN = 50
_OUTPUTS = ("table", "json", "prometheus")
_OUTPUT_HELP = "The form of the result; prometheus is for the textfile collector of a node exporter."


@dataclass(frozen=True, slots=True)
class CheckReport:
    """What a check found, or that it did not come to its end.

    Attributes:
        address: the broker's host and port.
        vhost: the vhost.
        exchange: the exchange that was asked for; None for all.
        time_s: when the check ended, in seconds since 1970.
        check: the check; None where it did not come to its end: then there are metrics only, and the error is on stderr.
        file: the topology file; None where there is none.
    """

    address: str
    vhost: str
    exchange: str | None
    time_s: float
    check: TopologyCheck | None
    file: str | None = None

    def blocks(self) -> Iterator[Block]:
        """Return what was checked, and each finding with its cure."""
        if self.check is None:
            return
        findings = self.check.findings
        rings = plural(len(self.check.exchanges), "ring")
        against = "its own bindings and queues" if self.file is None else file_name(self.file)
        yield Facts(
            [
                ("broker", self.address),
                ("vhost", self.vhost),
                ("checked", f"{rings} against {against}"),
                ("findings", "none: it is sound" if self.check.sound else f"{len(findings):,}"),
            ]
        )
        for (exchange, cure), alike in groupby(
            findings[:_MOST_SHOWN], key=lambda finding: (finding.exchange, finding.cure)
        ):
            about = [] if exchange is None else [("exchange", exchange)]
            yield Facts([*about, *((finding.kind, finding.says) for finding in alike), ("cure", cure)])
        if rest := findings[_MOST_SHOWN:]:
            counts = Counter(finding.kind for finding in rest)
            kinds = ", ".join(f"{count:,} {kind}" for kind, count in counts.items())
            yield Line(f"and {len(rest):,} more ({kinds}): --output json shows them all")

    def as_json(self) -> dict[str, Any]:
        """Return the document ``rabbit-chx/check``; nothing where the check did not come to its end."""
        if self.check is None:
            return {}
        fields = ("kind", "exchange", "destination", "share", "says", "cure")
        return document("check", findings=entries(self.check.findings, *fields))

    def metrics(self) -> Iterator[Gauge]:
        """Yield the metrics. There is a value for each exchange and kind, 0 too, so that an alert sees it fall."""
        if self.check is not None:
            yield from self._found(self.check)
        labels = self._labels(self.exchange)
        yield Gauge(
            "rabbit_chx_check_success",
            "Whether the last check came to its end, 1 or 0. It says nothing of what the check found.",
            [(labels, int(self.check is not None))],
        )
        yield Gauge(
            "rabbit_chx_check_timestamp_seconds",
            "When the last check ended, in seconds since 1970.",
            [(labels, round(self.time_s, 3))],
        )

    def _found(self, check: TopologyCheck) -> Iterator[Gauge]:
        counts = Counter((finding.exchange, finding.kind) for finding in check.findings)
        named = {finding.exchange for finding in check.findings} - {None, *check.exchanges}
        exchanges = [*check.exchanges, *sorted(map(str, named)), None]
        yield Gauge(
            "rabbit_chx_check_findings",
            "How many findings of a kind the last check has, by exchange; without an exchange: of other objects.",
            [
                ({**self._labels(exchange), "kind": kind}, counts[exchange, kind])
                for exchange in exchanges
                for kind in CHECK_KINDS
            ],
        )
        yield Gauge(
            "rabbit_chx_unroutable_share_ratio",
            "The exact share of an exchange's keys that end in no queue, 0 to 1.",
            [(self._labels(name), share) for name, share in check.unroutable.items()],
        )
        yield Gauge(
            "rabbit_chx_parked_messages",
            "How many messages wait because a slot of the exchange had no queue.",
            [(self._labels(name), count) for name, count in check.parked.items()],
        )
        if self.file is not None:
            yield Gauge(
                "rabbit_chx_misplaced_share_ratio",
                "The exact share of an exchange's keys that have another destination than the topology says, 0 to 1.",
                [(self._labels(name), share) for name, share in check.misplaced.items()],
            )

    def _labels(self, exchange: str | None) -> dict[str, str]:
        """Return the labels of a metric. Prometheus takes an empty label as one that is not there."""
        return {"broker": self.address, "vhost": self.vhost, "exchange": exchange or ""}


@command(
    example="rabbit-chx topology check topology.toml --management-url http://localhost:15672 "
    "--ring-via 'docker exec rabbitmq'",
    outputs=_OUTPUTS,
    output_help=_OUTPUT_HELP,
)
def check_topology(
    *, file: str = argument(), broker: BrokerOptions = options(BrokerOptions), output: str
) -> Outcome:
    """Compare bindings, rings and FILE with each other: the order of each ring, what is missing, what is lost.

    Each finding says what it does to messages, with the exact share of the keys, and its cure. Nothing is changed.

    The order of a ring is in its buckets, which --ring-via reads. Without --ring-via the command refuses a file with
    hash exchanges, since it would prove nothing. The exit code is 0 where all is sound, and 1 where it is not.
    """
    live = broker.live()

    def checked() -> TopologyCheck:
        wanted = read_topology(file, live.settings.vhost).topology
        if any(exchange.type == "x-consistent-hash" for exchange in wanted.exchanges):
            live.need_rings()
        return check(_topology(live), wanted, file=file)

    return _outcome(live, output, checked, file=file)


@command(
    example="rabbit-chx ring check orders --management-url http://localhost:15672 "
    "--ring-via 'docker exec rabbitmq'",
    outputs=_OUTPUTS,
    output_help=_OUTPUT_HELP,
)
def check_ring(
    *, exchange: str = argument(), broker: BrokerOptions = options(BrokerOptions), output: str
) -> Outcome:
    """Compare the ring of EXCHANGE with its bindings and its queues.

    It finds holes, ghost buckets, bindings without buckets, second bindings, queues that go by themselves, and the exact
    share of keys that end in no queue. Each finding has its cure. Nothing is changed. The order of the ring is compared
    with nothing: that is what `topology check` does.

    The exit code is 0 where the ring is sound, and 1 where it is not.
    """
    live = broker.live()

    def checked() -> TopologyCheck:
        live.need_rings()
        return check(_topology(live), exchange=exchange)

    return _outcome(live, output, checked, exchange=exchange)


def _topology(live: LiveBroker) -> Topology:
    with live.broker() as opened:
        return opened.topology()


def _outcome(
    live: LiveBroker,
    output: str,
    checked: Callable[[], TopologyCheck],
    *,
    exchange: str | None = None,
    file: str | None = None,
) -> Outcome:
    settings = live.settings
    address = f"{settings.host}:{settings.port}"
    try:
        check = checked()
    except RabbitChxError as error:
        if output != "prometheus":
            raise
        failure = error  # Python unbinds `error` at the end of this block

        def fail() -> NoReturn:
            raise failure

        return Outcome(CheckReport(address, settings.vhost, exchange, time.time(), None), finish=fail)
    report = CheckReport(address, settings.vhost, exchange, time.time(), check, file)
    return Outcome(report, DONE if check.sound else DIFFERENCE)
