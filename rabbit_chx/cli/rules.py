"""``rabbit-chx rules``: what each release does."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from rabbit_chx.cli.command import STORES, TEXT, Outcome, command, option
from rabbit_chx.cli.report import document, texts
from rabbit_chx.cli.rings import chosen_release
from rabbit_chx.rendering import Block, Table
from rabbit_chx.routing import RuleRow, rule_rows
from rabbit_chx.routing.release import Store


@dataclass(frozen=True, slots=True)
class RulesReport:
    """The table of rules."""

    rows: Sequence[RuleRow]

    def blocks(self) -> Iterator[Block]:
        """Return one row for each span of versions; only the JSON names the sources."""
        yield Table(
            texts("rule", "since", "until", "store", "what"),
            [(row.rule, row.since, row.until, row.store, row.what) for row in self.rows],
        )

    def as_json(self) -> dict[str, Any]:
        """Return the JSON document of this command."""
        rows = [{name: value or None for name, value in row._asdict().items()} for row in self.rows]
        return document("rules", rules=rows)


@command(example="rabbit-chx rules --release 3.12.14")
def rules(
    *,
    release: str | None = option(type=TEXT, metavar="VERSION", help="List the rules of this release only."),
    store: Store | None = option(type=STORES, help="Its metadata store.  [default: that of a fresh broker]"),
) -> Outcome:
    """List the rules by which releases differ, or the rules of one release.

    Each row names the first version that follows the rule, the first that no longer does, and the metadata
    store.
    """
    return Outcome(RulesReport(rule_rows(chosen_release(release, store))))
