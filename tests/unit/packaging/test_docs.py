"""What the documents show is what happens."""

from __future__ import annotations

import doctest
import re
from pathlib import Path

import pytest

from rabbit_chx.routing import rule_rows

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.parametrize("document", ["README.md", "docs/how-it-routes.md"])
def test_the_answers_are_those_of_the_library(document: str) -> None:
    text = (ROOT / document).read_text().replace("\n```\n", "\n")  # a fence would be taken for output
    examples = doctest.DocTestParser().get_doctest(text, {}, document, None, 0)
    assert examples.examples
    assert doctest.DocTestRunner().run(examples).failed == 0


def rules_as_markdown() -> str:
    """The table of rules, for docs/how-it-routes.md."""
    rows = [
        f"| {row.rule} | {row.since} | {row.until} | {row.store} | {row.what} | {row.source} |"
        for row in rule_rows()
    ]
    return "\n".join(("| rule | since | until | store | what | source |", "| --- " * 6 + "|", *rows))


def test_the_rules_are_those_of_the_code() -> None:
    text = (ROOT / "docs/how-it-routes.md").read_text()
    found = re.search(r"<!-- rules:.*?-->\n(.*?)\n<!-- end of rules -->", text, re.DOTALL)
    assert found is not None
    assert found[1] == rules_as_markdown()


@pytest.mark.parametrize(
    "document", sorted(path.relative_to(ROOT) for path in ROOT.glob("docs/*.md")), ids=str
)
def test_links_lead_somewhere(document: Path) -> None:
    for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", (ROOT / document).read_text()):
        assert (ROOT / document).parent.joinpath(target).exists(), target


@pytest.mark.parametrize(
    "document", ["README.md", *sorted(str(path.relative_to(ROOT)) for path in ROOT.glob("docs/*.md"))]
)
def test_no_section_is_there_twice(document: str) -> None:
    headings = re.findall(r"^## .*", (ROOT / document).read_text(), re.MULTILINE)
    assert len(set(headings)) == len(headings)
