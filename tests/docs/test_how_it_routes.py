"""docs/how-it-routes.md says what the library does."""

from __future__ import annotations

import re

from blocks import page, run_doctest

from rabbit_chx.routing import rule_rows

PAGE = "docs/how-it-routes.md"


def test_the_answers_are_those_of_the_library() -> None:
    run_doctest(PAGE)


def rules_as_markdown() -> str:
    """The table of rules, for docs/how-it-routes.md."""
    rows = [
        f"| {row.rule} | {row.since} | {row.until} | {row.store} | {row.what} | {row.source} |"
        for row in rule_rows()
    ]
    return "\n".join(("| rule | since | until | store | what | source |", "| --- " * 6 + "|", *rows))


def test_the_rules_are_those_of_the_code() -> None:
    found = re.search(r"<!-- rules:.*?-->\n(.*?)\n<!-- end of rules -->", page(PAGE), re.DOTALL)
    assert found is not None
    assert found[1] == rules_as_markdown()
