"""``rabbit-chx rules``: what each release does."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import click

from rabbit_chx.cli.option_groups import output_option, release_options
from rabbit_chx.cli.outcome import Outcome
from rabbit_chx.rendering import Block, Table, TableColumn
from rabbit_chx.routing import Release, RuleRow, rule_rows

__all__ = ["rules"]


@dataclass(frozen=True, slots=True)
class RulesReport:
    """The table of rules."""

    rows: Sequence[RuleRow]

    def blocks(self) -> Iterator[Block]:
        """Return one row for each span of versions; only the JSON names the sources."""
        headings = ("rule", "since", "until", "store", "what")
        yield Table(
            [TableColumn(heading, numeric=False) for heading in headings],
            [(row.rule, row.since, row.until, row.store, row.what) for row in self.rows],
        )

    def as_json(self) -> dict[str, Any]:
        """Return the JSON document of this command."""
        return {
            "format": "rabbit-chx/rules",
            "format_version": 1,
            "rules": [{name: value or None for name, value in row._asdict().items()} for row in self.rows],
        }


@click.command(
    epilog="Example: rabbit-chx rules --release 3.12.14",
    short_help="The rules of each release.",
)
@release_options
@output_option
def rules(*, release: Release | None, output: str) -> Outcome:
    """List the rules by which releases differ, or the rules of one release.

    Each row names the first version that follows the rule, the first that no longer does, and the metadata
    store.
    """
    return Outcome(output, RulesReport(rule_rows(release)))
