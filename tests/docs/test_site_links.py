"""What `make site` says of links that lead nowhere."""

from __future__ import annotations

from pathlib import Path

from site_links import broken_links


def test_pages_files_and_anchors_have_to_be_there(tmp_path: Path) -> None:
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
