"""The result of a check: for people, as JSON, and as metrics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any

from rabbit_chx.cli.input_files import file_name
from rabbit_chx.cli.notation import place_json, plural
from rabbit_chx.cli.outcome import DIFFERENCE, DONE
from rabbit_chx.rendering import Block, Facts, Gauge, Line
from rabbit_chx.topology.check import CHECK_KINDS

if TYPE_CHECKING:
    from rabbit_chx.topology import TopologyCheck

__all__ = ["CheckReport", "CheckedBroker", "FailedCheckReport"]

_MOST_SHOWN = 50


@dataclass(frozen=True, slots=True)
class CheckedBroker:
    """Which broker a check is of, and when it was.

    Attributes:
        address: its host and port.
        vhost: the vhost.
        exchange: the exchange that was asked for; None for all.
        time_s: when the check ended, in seconds since 1970.
    """

    address: str
    vhost: str
    exchange: str | None
    time_s: float

    def labels(self, exchange: str | None) -> dict[str, str]:
        """Return the labels of a metric.

        Args:
            exchange: the exchange that it is about; None for none, which Prometheus takes as a label that is not there.
        """
        return {"broker": self.address, "vhost": self.vhost, "exchange": exchange or ""}

    def ending(self, *, success: bool) -> Iterator[Gauge]:
        """Yield the metrics of the check itself.

        Args:
            success: whether it came to its end.
        """
        labels = self.labels(self.exchange)
        yield Gauge(
            "rabbit_chx_check_success",
            "Whether the last check came to its end, 1 or 0. It says nothing of what the check found.",
            [(labels, int(success))],
        )
        yield Gauge(
            "rabbit_chx_check_timestamp_seconds",
            "When the last check ended, in seconds since 1970.",
            [(labels, round(self.time_s, 3))],
        )


@dataclass(frozen=True, slots=True)
class CheckReport:
    """What a check found.

    Attributes:
        about: which broker it is of.
        check: the check.
        file: the topology file; None where there is none.
    """

    about: CheckedBroker
    check: TopologyCheck
    file: str | None = None

    @property
    def code(self) -> int:
        """The exit code."""
        return DONE if self.check.sound else DIFFERENCE

    def blocks(self) -> Iterator[Block]:
        """Return what was checked, and each finding with its cure."""
        check = self.check
        rings = plural(len(check.exchanges), "ring")
        against = "its own bindings and queues" if self.file is None else file_name(self.file)
        found = "none: it is sound" if check.sound else f"{len(check.findings):,}"
        yield Facts(
            [
                ("broker", self.about.address),
                ("vhost", self.about.vhost),
                ("checked", f"{rings} against {against}"),
                ("findings", found),
            ]
        )
        shown = check.findings[:_MOST_SHOWN]
        for (exchange, cure), some in groupby(shown, key=lambda one: (one.exchange, one.cure)):
            about = [] if exchange is None else [("exchange", exchange)]
            yield Facts([*about, *((one.kind, one.says) for one in some), ("cure", cure)])
        if rest := check.findings[_MOST_SHOWN:]:
            counts = Counter(one.kind for one in rest)
            kinds = ", ".join(f"{count:,} {kind}" for kind, count in counts.items())
            yield Line(f"and {len(rest):,} more ({kinds}): --output json shows them all")

    def as_json(self) -> dict[str, Any]:
        """Return the document ``rabbit-chx/check``."""
        return {
            "format": "rabbit-chx/check",
            "findings": [
                {
                    "kind": one.kind,
                    "exchange": one.exchange,
                    "destination": place_json(one.destination),
                    "share": one.share,
                    "says": one.says,
                    "cure": one.cure,
                }
                for one in self.check.findings
            ],
        }

    def metrics(self) -> Iterator[Gauge]:
        """Yield the metrics. There is a value for each exchange and kind, 0 too, so that an alert sees it fall."""
        check, about = self.check, self.about
        counts = Counter((one.exchange, one.kind) for one in check.findings)
        named = {one.exchange for one in check.findings} - {None, *check.exchanges}
        exchanges = [*check.exchanges, *sorted(str(one) for one in named), None]
        yield Gauge(
            "rabbit_chx_check_findings",
            "How many findings of a kind the last check has, by exchange; without an exchange: of other objects.",
            [
                ({**about.labels(exchange), "kind": kind}, counts[exchange, kind])
                for exchange in exchanges
                for kind in CHECK_KINDS
            ],
        )
        yield Gauge(
            "rabbit_chx_unroutable_share_ratio",
            "The exact share of an exchange's keys that end in no queue, 0 to 1.",
            [(about.labels(name), share) for name, share in check.unroutable.items()],
        )
        yield Gauge(
            "rabbit_chx_parked_messages",
            "How many messages wait because a slot of the exchange had no queue.",
            [(about.labels(name), count) for name, count in check.parked.items()],
        )
        if self.file is not None:
            yield Gauge(
                "rabbit_chx_misplaced_share_ratio",
                "The exact share of an exchange's keys that have another destination than the topology says, 0 to 1.",
                [(about.labels(name), share) for name, share in check.misplaced.items()],
            )
        yield from about.ending(success=True)


@dataclass(frozen=True, slots=True)
class FailedCheckReport:
    """A check that did not come to its end. It has metrics only; the error is on stderr.

    Attributes:
        about: which broker it was to be of.
    """

    about: CheckedBroker

    def blocks(self) -> Iterator[Block]:
        """Return nothing."""
        yield from ()

    def as_json(self) -> dict[str, Any]:
        """Return nothing."""
        return {}

    def metrics(self) -> Iterator[Gauge]:
        """Yield the metrics: of findings there are none."""
        yield from self.about.ending(success=False)
