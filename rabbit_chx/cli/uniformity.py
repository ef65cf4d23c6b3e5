"""``rabbit-chx uniformity``: the chi-square table that the plugin publishes, computed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from rabbit_chx.analysis import UniformityRow, uniformity_table
from rabbit_chx.cli.command import Outcome, command
from rabbit_chx.cli.report import document, numbers, rounded_entry
from rabbit_chx.cli.samples import SampleOptions, sample_options
from rabbit_chx.rendering import Block, Line, Table

_README_PATTERN = "{n}"


@dataclass(frozen=True, slots=True)
class UniformityReport:
    """Our statistics of so many keys and the published ones, for each number of buckets."""

    keys: int
    rows: Sequence[UniformityRow]

    def blocks(self) -> Iterator[Block]:
        """Return our statistics beside the published ones."""
        yield Table(
            numbers("buckets", "chi-square", "published", "p", "limit 0.05", "limit 0.01"),
            [
                (
                    row.buckets,
                    f"{row.result.statistic:.3f}",
                    f"{row.published.statistic:.3f}",
                    f"{row.result.p_value:.3f}",
                    f"{row.threshold_05:.2f}",
                    f"{row.threshold_01:.2f}",
                )
                for row in self.rows
            ],
        )
        over = sum(row.result.statistic > row.threshold_01 for row in self.rows)
        yield Line(
            f"{self.keys:,} keys, queues of weight 1; {over} of {len(self.rows)} statistics exceed the limit of p = 0.01. "
            'Published: in the README of rabbitmq_consistent_hash_exchange, "Distribution Uniformity", which names no keys.'
        )

    def as_json(self) -> dict[str, Any]:
        """Return the JSON document of this command."""
        fields = (
            "buckets",
            "statistic=result.statistic",
            "published=published.statistic",
            "degrees_of_freedom=result.degrees_of_freedom",
            "p_value=result.p_value",
            "threshold_05",
            "threshold_01",
        )
        rows = [rounded_entry(row, *fields) for row in self.rows]
        return document("uniformity", keys=self.keys, rows=rows)


@command(example="rabbit-chx uniformity --pattern 'user-{n}' --count 50000")
def uniformity(*, sample: SampleOptions = sample_options(_README_PATTERN)) -> Outcome:
    """Test how evenly keys fall into 2 to 20 buckets, and compare with the figures that the plugin publishes.

    Without a sample the keys are 0 to 99999, as in the example of the plugin's README.
    """
    keys = list(dict.fromkeys(sample.read_or_make(_README_PATTERN).keys))
    return Outcome(UniformityReport(len(keys), uniformity_table(keys)))
