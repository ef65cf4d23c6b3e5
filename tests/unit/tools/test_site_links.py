"""`make site` reports broken links."""

from __future__ import annotations

from pathlib import Path

from site_links import broken_links


def test_a_link_to_a_missing_page_file_or_anchor_is_reported(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "a figure.svg").touch()
    (tmp_path / "docs" / "slots.html").write_text(
        '<h1 id="slots">Slots</h1><a href="#slots"></a><a href="#gone"></a>'
    )
    (tmp_path / "index.html").write_text(
        '<a href="docs/slots.html#slots"></a><a href="docs/slots.html#hands"></a><a href="docs/gone.html"></a>'
        '<a href="https://www.rabbitmq.com/gone"></a><img src="docs/a%20figure.svg"><img src="docs/gone.svg">'
    )
    assert sorted(broken_links(tmp_path)) == [
        "docs/slots.html: #gone",
        "index.html: docs/gone.html",
        "index.html: docs/gone.svg",
        "index.html: docs/slots.html#hands",
    ]
