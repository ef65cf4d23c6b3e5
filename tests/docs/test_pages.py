"""What holds for every page."""

from __future__ import annotations

import re

import pytest
from blocks import PAGES, ROOT, page


@pytest.mark.parametrize("document", PAGES)
def test_links_lead_somewhere(document: str) -> None:
    for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", page(document)):
        assert (ROOT / document).parent.joinpath(target).exists(), target


@pytest.mark.parametrize("document", ["README.md", *PAGES])
def test_no_section_is_there_twice(document: str) -> None:
    headings = re.findall(r"^## .*", page(document), re.MULTILINE)
    assert len(set(headings)) == len(headings)
