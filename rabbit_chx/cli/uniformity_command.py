"""``rabbit-chx uniformity``: the chi-square table that the plugin publishes, computed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import click

from rabbit_chx.analysis import UniformityRow, uniformity_table
from rabbit_chx.cli.notation import rounded
from rabbit_chx.cli.option_groups import output_option
from rabbit_chx.cli.outcome import Outcome
from rabbit_chx.cli.sample_options import AskedSample, sample_options
from rabbit_chx.rendering import Block, Line, Table, TableColumn

__all__ = ["uniformity"]

_README_PATTERN = "{n}"


@dataclass(frozen=True, slots=True)
class UniformityReport:
    """Our statistics and the published ones.

    Attributes:
        keys: how many keys were routed.
        rows: one for each number of buckets.
    """

    keys: int
    rows: Sequence[UniformityRow]

    def blocks(self) -> Iterator[Block]:
        """Return our statistics beside the published ones."""
        headings = ("buckets", "chi-square", "published", "p", "limit 0.05", "limit 0.01")
        yield Table(
            [TableColumn(heading) for heading in headings],
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
        return {
            "format": "rabbit-chx/uniformity",
            "format_version": 1,
            "keys": self.keys,
            "rows": [
                {
                    "buckets": row.buckets,
                    "statistic": rounded(row.result.statistic),
                    "published": row.published.statistic,
                    "degrees_of_freedom": row.result.degrees_of_freedom,
                    "p_value": rounded(row.result.p_value),
                    "threshold_05": rounded(row.threshold_05),
                    "threshold_01": rounded(row.threshold_01),
                }
                for row in self.rows
            ],
        }


@click.command(
    epilog="Example: rabbit-chx uniformity --pattern 'user-{n}' --count 50000",
    short_help="The plugin's chi-square table, computed.",
)
@sample_options(default_pattern=_README_PATTERN)
@output_option
def uniformity(*, sample: AskedSample, output: str) -> Outcome:
    """Test how evenly keys fall into 2 to 20 buckets, and compare with the figures that the plugin publishes.

    Without a sample the keys are 0 to 99999, as in the example of the plugin's README.
    """
    keys = list(dict.fromkeys(sample.read_or_make(_README_PATTERN).keys))
    return Outcome(output, UniformityReport(len(keys), uniformity_table(keys)))
